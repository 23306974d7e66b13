"""Idempotent producers by raw bytes: duplicates, gaps, old epochs, the wrap of the sequence.

Case: txn-1; the table's source is Kafka's ProducerAppendInfo and ProducerStateEntry.
"""
import batches
from checks import check, must
from process import FlatMemory

NONE, OUT_OF_ORDER, OLD_EPOCH = 0, 45, 47
SEQUENCE_LAST = 2**31 - 1


class Producer:
    """One producer id on one partition; each step says what must be answered."""

    def __init__(self, run, client, purpose):
        self.client, self.topic = client, run.new_topic(purpose)
        answer = client.ask("InitProducerId", 4)
        must(answer["error"] == 0 and answer["producer"] >= 0 and answer["epoch"] == 0, f"InitProducerId: {answer}")
        self.id = answer["producer"]

    def send(self, sequence, count=1, epoch=0, producer=None, version=9):
        data = batches.good(count, producer=self.id if producer is None else producer, epoch=epoch, sequence=sequence)
        return self.client.produce(self.topic, data, version)

    def taken(self, sequence, base, **more):
        row = self.send(sequence, **more)
        must((row["error"], row["base"]) == (NONE, base), f"sequence {sequence} {more}: {row}, not at {base}")

    def refused(self, sequence, code, **more):
        end = self.client.end(self.topic)
        row = self.send(sequence, **more)
        must(row["error"] == code and row["base"] == -1, f"sequence {sequence} {more}: {row}, not {code}")
        must(self.client.end(self.topic) == end, f"sequence {sequence}: the end moved")


@check
def duplicate_gets_the_offset_of_the_original(run):
    """The last five batches; the log keeps each once."""
    with run.connect() as client:
        producer = Producer(run, client, "duplicate")
        for number in range(6):
            producer.taken(number * 10, number * 10, count=10)
        for number in (5, 4, 3, 2, 1, 5):
            for version in (3, 9):
                producer.taken(number * 10, number * 10, count=10, version=version)
        must(client.end(producer.topic) == 60, "a duplicate was written")
        # Older than five, or another number of records: no duplicate and no successor.
        producer.refused(0, OUT_OF_ORDER, count=10)
        producer.refused(50, OUT_OF_ORDER, count=9)
        producer.refused(45, OUT_OF_ORDER, count=10)
        producer.taken(60, 60)


@check
def gap_in_the_sequence_is_refused(run):
    with run.connect() as client:
        producer = Producer(run, client, "gap")
        producer.taken(0, 0, count=3)
        for sequence in (4, 100, SEQUENCE_LAST, 1, 2):
            producer.refused(sequence, OUT_OF_ORDER)
        producer.taken(3, 3)


@check
def epochs_only_rise(run):
    with run.connect() as client:
        producer = Producer(run, client, "epoch")
        producer.taken(0, 0)
        producer.refused(1, OUT_OF_ORDER, epoch=1)
        producer.taken(0, 1, epoch=1)
        producer.refused(1, OLD_EPOCH, epoch=0)
        producer.refused(0, OLD_EPOCH, epoch=0)
        producer.taken(1, 2, epoch=1)
        producer.taken(0, 3, epoch=32_767)
        producer.refused(2, OLD_EPOCH, epoch=1)


@check
def unknown_producer_starts_anywhere(run):
    with run.connect() as client:
        producer = Producer(run, client, "unknown")
        stranger = producer.id + 1_000_000_000
        producer.taken(30, 0, producer=stranger)
        producer.taken(31, 1, producer=stranger)
        producer.refused(33, OUT_OF_ORDER, producer=stranger)


@check
def sequence_wraps_to_zero(run):
    with run.connect() as client:
        producer = Producer(run, client, "wrap")
        producer.taken(SEQUENCE_LAST - 1, 0, count=2)
        producer.taken(0, 2)
        producer.taken(SEQUENCE_LAST - 1, 0, count=2)
        producer.taken(1, 3)
        other = producer.id + 2_000_000_000
        producer.taken(SEQUENCE_LAST - 1, 4, count=5, producer=other)
        producer.taken(3, 9, producer=other)
        producer.refused(SEQUENCE_LAST, OUT_OF_ORDER)


@check
def ids_are_not_given_twice(run):
    """Both brokers, 300 each."""
    with run.connect() as first, run.connect(run.second) as second:
        ids = [client.ask("InitProducerId", 4)["producer"] for _ in range(300) for client in (first, second)]
        must(min(ids) >= 0 and len(set(ids)) == 600, f"{600 - len(set(ids))} ids twice")


@check
def many_producers_on_one_partition_take_little_memory(run):
    """10,000 strangers with one batch each: the partition goes on, memory stays flat."""
    with run.connect() as client:
        producer = Producer(run, client, "strangers")
        data = bytearray(batches.good(1, producer=1 << 40, epoch=0, sequence=0))
        with FlatMemory(run.process, 48, "10,000 producers"):
            for number in range(10_000):
                data[43:51] = ((1 << 40) + number).to_bytes(8, "big")
                row = client.produce(producer.topic, batches.with_right_crc(data), acks=1)
                must(row["error"] == 0, f"producer {number}: {row}")
        producer.taken(0, 10_000)
        producer.taken(0, 9_999, producer=(1 << 40) + 9_999)
