"""kafka-python (no librdkafka): create, produce, consume from leader and follower, commit in a group."""

import time

from cluster import arguments, run, wait_for
from object_path import ObjectPath, bytes_out, check_follower_read, check_segments
from records import Record, Seen, bursts

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

COUNT = 100_000
PARTITIONS = 6
TOPIC = "kafka-python"


def create(cluster):
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2, topic_configs={"segment.bytes": str(1 << 20)})])
    admin.close()
    wait_for("topic on both brokers", lambda: all(len(cluster.topic(TOPIC, node)) == PARTITIONS for node in (1, 2)), 20)


def produce(cluster):
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), acks="all", linger_ms=10, enable_idempotence=True)
    futures = [producer.send(TOPIC, key=record.key, value=record.value, headers=record.headers)
               for burst in bursts(COUNT) for record in burst]
    producer.flush(timeout=180)
    failed = [future.exception for future in futures if not future.succeeded()]
    producer.close()
    assert not failed, f"{len(failed)} failed: {failed[:3]}"


def consume(cluster, group, rack=None):
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=cluster.bootstrap.split(","), group_id=group,
                             auto_offset_reset="earliest", enable_auto_commit=False, check_crcs=True,
                             **({"client_rack": rack} if rack else {}))
    seen = Seen(COUNT, lambda record: record.headers)
    deadline = time.monotonic() + 180
    while not seen.whole():
        assert time.monotonic() < deadline, f"{len(seen.numbers)} of {COUNT} records in time"
        for batch in consumer.poll(timeout_ms=1000, max_records=10_000).values():
            for message in batch:
                headers = [(name, bytes(value)) for name, value in message.headers]
                seen.add(message.partition, message.offset, bytes(message.key), bytes(message.value), headers)
    seen.check(PARTITIONS)
    consumer.commit()
    committed = sum(consumer.committed(TopicPartition(TOPIC, partition)) for partition in range(PARTITIONS))
    assert committed == COUNT, f"committed {committed}"
    consumer.close()


def test(cluster):
    create(cluster)
    path = ObjectPath(cluster)
    produce(cluster)
    path.check(TOPIC)
    consume(cluster, "at-the-leader")
    check_segments(cluster, TOPIC, PARTITIONS)
    before = bytes_out(cluster, TOPIC)
    consume(cluster, "in-the-zone", rack="az2")
    check_follower_read(cluster, TOPIC, before, sum(len(Record(n).value) for n in range(COUNT)))


if __name__ == "__main__":
    run(test, arguments(), "kafka-python", 23000)
