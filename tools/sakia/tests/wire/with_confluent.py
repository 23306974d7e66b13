"""confluent-kafka (librdkafka): create, produce, consume from leader and follower, group commit, idempotence."""

import time

from cluster import arguments, run, wait_for
from object_path import ObjectPath, bytes_out, check_follower_read, check_segments
from records import Record, Seen, bursts

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

COUNT = 100_000
PARTITIONS = 6
TOPIC = "confluent"


def create(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 2, config={"segment.bytes": str(1 << 20)})
    for future in admin.create_topics([topic]).values():
        future.result(30)
    # Known to both brokers before anybody produces.
    wait_for("topic on both brokers", lambda: all(len(cluster.topic(TOPIC, node)) == PARTITIONS for node in (1, 2)), 20)


def produce(cluster, count):
    failures = []

    def delivered(error, _message):
        if error:
            failures.append(error)

    producer = Producer({
        "bootstrap.servers": cluster.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 10,
        "compression.type": "none",
        "queue.buffering.max.messages": 200_000,
    })
    for burst in bursts(count):
        for record in burst:
            producer.produce(TOPIC, value=record.value, key=record.key, headers=record.headers, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(120)
    assert left == 0 and not failures, f"{left} left, {failures[:3]}"


def consume(cluster, count, group, rack=None):
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    if rack:
        settings["client.rack"] = rack
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    seen = Seen(count, lambda record: record.headers)
    deadline = time.monotonic() + 120
    while not seen.whole():
        assert time.monotonic() < deadline, f"{len(seen.numbers)} of {count} records in time"
        for message in consumer.consume(10_000, timeout=1):
            error = message.error()
            assert not error or error.code() == KafkaError._PARTITION_EOF, error
            if not error:
                seen.add(message.partition(), message.offset(), message.key(), message.value(), message.headers())
    seen.check(PARTITIONS)
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=30)
    assert sum(place.offset for place in committed) == count, f"committed {committed}"
    consumer.close()


def test(cluster):
    create(cluster)
    path = ObjectPath(cluster)
    produce(cluster, COUNT)
    path.check(TOPIC)
    consume(cluster, COUNT, "at-the-leader")
    check_segments(cluster, TOPIC, PARTITIONS)
    before = bytes_out(cluster, TOPIC)
    consume(cluster, COUNT, "in-the-zone", rack="az2")
    check_follower_read(cluster, TOPIC, before, sum(len(Record(n).value) for n in range(COUNT)))
    groups = cluster.tool("group", "list", "--bootstrap-server", cluster.broker(1))
    assert {"at-the-leader", "in-the-zone"} <= {group["group"] for group in groups}, groups


if __name__ == "__main__":
    run(test, arguments(), "confluent", 21000)
