"""What the logs of a topic hold: read by clients from leader and follower, and compared on disk."""

import struct
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from load import partition_of
from records import Record

BATCH_HEADER = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, crc, attributes, last offset delta
LENGTH_BEFORE = 12


class Reader:
    """A consumer of all partitions from the beginning that checks each record as it comes.

    strict: numbers must grow. A producer without idempotence may write a record again, and later ones before it.
    """

    def __init__(self, cluster, topic, partitions, rack=None, strict=True):
        self.strict = strict
        self.topic = topic
        self.partitions = partitions
        # Per partition: the number at each offset.
        self.numbers = [[] for _ in range(partitions)]
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 2,
        }
        if rack:
            settings["client.rack"] = rack
        self.consumer = Consumer(settings)
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def ends(self):
        """High watermarks. The log must begin at 0."""
        ends = []
        for partition in range(self.partitions):
            low, high = self.consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=30)
            assert low == 0, f"log of partition {partition} begins at {low}"
            ends.append(high)
        return ends

    def poll(self, timeout):
        for message in self.consumer.consume(5_000, timeout=timeout):
            if message.error():
                raise KafkaException(message.error())
            self._add(message)

    def _add(self, message):
        partition, offset, value = message.partition(), message.offset(), message.value()
        number, numbers = int(value[:8]), self.numbers[partition]
        expected = Record(number)
        assert (message.key(), value) == (expected.key, expected.value), f"record {number}: other bytes"
        assert partition == partition_of(number, self.partitions), f"record {number} is in partition {partition}"
        assert offset == len(numbers), f"partition {partition}: offset {offset} after {len(numbers) - 1}"
        assert not self.strict or not numbers or number > numbers[-1], \
            f"partition {partition}: record {number} at {offset} after record {numbers[-1]}: twice, or out of order"
        numbers.append(number)

    def read_to(self, ends, within=180):
        deadline = time.monotonic() + within
        while any(len(numbers) < end for numbers, end in zip(self.numbers, ends)):
            assert time.monotonic() < deadline, \
                f"not readable within {within} s: {[len(n) for n in self.numbers]} of {ends}"
            self.poll(1)

    def close(self):
        self.consumer.close()


class Watcher:
    """A reader in the background while faults happen: whatever it was shown must stay."""

    def __init__(self, cluster, topic, partitions, rack=None):
        self.reader = Reader(cluster, topic, partitions, rack)
        self.trouble = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while not self.stopping.is_set():
                self.reader.poll(0.2)
        except Exception as error:
            self.trouble = f"{type(error).__name__} {error}"

    def finish(self):
        self.stopping.set()
        self.thread.join()
        self.reader.close()
        assert not self.trouble, self.trouble
        return self.reader.numbers


def read_all(cluster, topic, partitions, rack=None, strict=True):
    """Per partition the numbers from offset 0 to the high watermark."""
    reader = Reader(cluster, topic, partitions, rack, strict)
    try:
        reader.read_to(reader.ends())
    finally:
        reader.close()
    return reader.numbers


def check_acknowledged(numbers, acknowledged):
    """Each acknowledged record is there once, at the offset that was told."""
    places = {number: (partition, offset) for partition, row in enumerate(numbers) for offset, number in enumerate(row)}
    missing = sorted(number for number in acknowledged if number not in places)
    assert not missing, f"{len(missing)} acknowledged records are missing: {missing[:5]}, " \
                        f"told at {[acknowledged[number] for number in missing[:5]]}"
    assert len(places) == sum(map(len, numbers)), "a record is there twice"
    # A client does not know the offset of a record whose acknowledgement was lost on the first attempt: None, or below zero.
    told = {number: place for number, place in acknowledged.items() if place[1] is not None and place[1] >= 0}
    moved = [number for number, place in told.items() if places[number] != place]
    assert not moved, f"{len(moved)} records are not where they were acknowledged: {moved[:5]}"


def check_prefix(seen, numbers):
    """What a reader was shown while faults happened is what the log holds now."""
    for partition, (before, now) in enumerate(zip(seen, numbers)):
        assert before == now[:len(before)], f"partition {partition}: other records than were read before"


def batches(path):
    """[(base, next, leader epoch, bytes)] of a segment file; zeros or a partial batch end it."""
    with open(path, "rb") as file:
        content = file.read()
    found, position = [], 0
    while position + BATCH_HEADER.size <= len(content):
        base, length, epoch, magic, _, _, last = BATCH_HEADER.unpack_from(content, position)
        end = position + LENGTH_BEFORE + length
        if magic != 2 or end > len(content):
            break
        found.append((base, base + last + 1, epoch, content[position:end]))
        position = end
    return found


def log_of(cluster, node, topic, partition, below):
    """Batches of one replica up to an offset, over all its segments."""
    log = [batch for path in cluster.segments(node, topic, partition) for batch in batches(path) if batch[0] < below]
    assert not log or log[0][0] == 0, f"{topic}-{partition} on broker {node} begins at {log[0][0]}"
    for before, after in zip(log, log[1:]):
        assert before[1] == after[0], f"{topic}-{partition} on broker {node}: {after[0]} follows {before[1]}"
        assert before[2] <= after[2], f"{topic}-{partition} on broker {node}: epoch {after[2]} after {before[2]}"
    end = log[-1][1] if log else 0
    assert end == below, f"{topic}-{partition} on broker {node} ends at {end}, the high watermark is {below}"
    return log


def compare_replicas(cluster, topic, ends):
    """After a clean stop. Gives how many batches and leader epochs there are."""
    count, epochs = 0, set()
    for partition, end in enumerate(ends):
        first, second = (log_of(cluster, node, topic, partition, end) for node in (1, 2))
        for one, other in zip(first, second):
            assert one == other, f"{topic}-{partition}: the replicas differ at {one[:3]} and {other[:3]}"
        assert len(first) == len(second), f"{topic}-{partition}: {len(first)} and {len(second)} batches"
        count += len(first)
        epochs |= {(partition, batch[2]) for batch in first}
    return count, len(epochs)
