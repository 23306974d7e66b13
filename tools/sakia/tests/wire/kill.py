"""kill -9 of leaders under an idempotent producer with acks=all, on real processes.

Each round kills one of the two brokers while records flow, sees the other take over, starts the killed one again and
waits until it is in every ISR. At the end: every acknowledged record is at the offset it was acknowledged at, nothing is
there twice, and after a clean stop both replicas of each partition hold the same bytes.
"""

import hashlib
import threading
import time

from cluster import arguments, run, wait_for
from records import Record

from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC = "kill"
PARTITIONS = 6
BEFORE_KILL = 3_000
AFTER_KILL = 2_000

ARGUMENTS = arguments({"--rounds": {"type": int, "default": 10}})


class Load:
    """An idempotent producer in the background, and what was acknowledged."""

    def __init__(self, cluster):
        self.acknowledged = {}
        self.failed = []
        self.sent = 0
        self.stopping = threading.Event()
        self.producer = Producer({
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 60_000,
            "queue.buffering.max.messages": 2_000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            # A killed broker is what this is about.
            "log_level": 2,
        })
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _delivered(self, number):
        def told(error, message):
            if error:
                self.failed.append((number, str(error)))
            else:
                self.acknowledged[number] = (message.partition(), message.offset())
        return told

    def _run(self):
        while not self.stopping.is_set():
            record = Record(self.sent)
            try:
                self.producer.produce(TOPIC, value=record.value, partition=self.sent % PARTITIONS,
                                      on_delivery=self._delivered(self.sent))
                self.sent += 1
            except BufferError:
                self.producer.poll(0.05)
            self.producer.poll(0)

    def wait_for_more(self, count, what):
        goal = len(self.acknowledged) + count
        wait_for(f"{count} more acknowledged {what}", lambda: len(self.acknowledged) >= goal, 60)

    def finish(self):
        self.stopping.set()
        self.thread.join()
        left = self.producer.flush(60)
        assert left == 0, f"{left} records were neither acknowledged nor refused"


def in_sync(cluster, node):
    """Whether every partition has both brokers in its ISR, as this broker tells it."""
    try:
        return all(sorted(partition["isr"]) == [1, 2] for partition in cluster.topic(TOPIC, node))
    except AssertionError:
        return False


def rounds(cluster, count):
    load = Load(cluster)
    try:
        for number in range(count):
            victim = 1 + number % 2
            other = 3 - victim
            load.wait_for_more(BEFORE_KILL, f"before kill {number}")
            led = [p["partition"] for p in cluster.topic(TOPIC, other) if p["leader"] == victim]
            cluster.kill(victim)
            started = time.monotonic()
            wait_for("the other broker leads everything",
                     lambda: all(p["leader"] == other for p in cluster.topic(TOPIC, other)), 20)
            took = time.monotonic() - started
            load.wait_for_more(AFTER_KILL, f"after kill {number}")
            cluster.restart(victim)
            wait_for(f"broker {victim} in every ISR again", lambda: in_sync(cluster, other), 60)
            print(f"  round {number}: killed broker {victim}, leader of {len(led)}; others led after {took:.1f} s, "
                  f"in sync again after {time.monotonic() - started:.1f} s; {len(load.acknowledged)} acknowledged")
    finally:
        load.finish()
    return load


def read_all(cluster):
    """{number: [(partition, offset)]} of everything below the high watermarks."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "enable.partition.eof": False, "check.crcs": True})
    ends = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        assert low == 0, f"log of partition {partition} begins at {low}"
        ends[partition] = high
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found, left, deadline = {}, sum(ends.values()), time.monotonic() + 120
    while left > 0:
        assert time.monotonic() < deadline, f"{left} records are not readable"
        for message in consumer.consume(10_000, timeout=1):
            assert not message.error(), message.error()
            value = message.value()
            number = int(value[:8])
            assert value == Record(number).value, f"record {number}: other bytes"
            found.setdefault(number, []).append((message.partition(), message.offset()))
            left -= 1
    consumer.close()
    return found


def check(cluster, load):
    found = read_all(cluster)
    missing = [number for number in load.acknowledged if number not in found]
    assert not missing, f"{len(missing)} acknowledged records are missing, first {missing[:5]}"
    twice = [number for number, places in found.items() if len(places) > 1]
    assert not twice, f"{len(twice)} records are there twice, first {twice[:5]}: {found[twice[0]]}"
    # librdkafka does not know the offset of a record that a lost answer had acknowledged already.
    moved = [n for n, place in load.acknowledged.items() if place[1] >= 0 and found[n] != [place]]
    assert not moved, f"{len(moved)} records are not where they were acknowledged, first {moved[:5]}"
    print(f"  {len(load.acknowledged)} acknowledged, {len(load.failed)} refused, {len(found)} in the logs, none twice")


def log_bytes(cluster, node, partition):
    """Digest and length of all batches of one replica."""
    digest, length = hashlib.sha256(), 0
    for segment in cluster.segments(node, TOPIC, partition):
        dumped = cluster.tool("log", "dump", segment)
        with open(segment, "rb") as file:
            content = file.read(dumped["batch_bytes"])
        digest.update(content)
        length += len(content)
    return digest.hexdigest(), length


def compare_replicas(cluster):
    """After a clean stop."""
    for partition in range(PARTITIONS):
        leader, follower = (log_bytes(cluster, node, partition) for node in (1, 2))
        assert leader == follower, f"partition {partition}: the replicas differ: {leader} and {follower}"


def test(cluster):
    cluster.tool("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--config", f"segment.bytes={1 << 20}",
                 "--bootstrap-server", cluster.broker(1))
    wait_for("every partition in sync", lambda: in_sync(cluster, 1) and in_sync(cluster, 2), 30)
    load = rounds(cluster, ARGUMENTS.rounds)
    check(cluster, load)
    wait_for("every partition in sync", lambda: in_sync(cluster, 1), 30)
    cluster.stop()
    compare_replicas(cluster)
    cluster.stop = lambda: None


if __name__ == "__main__":
    run(test, ARGUMENTS, "kill", 25000)
