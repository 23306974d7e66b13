"""Load that knows what it must find again: numbered records with keys, and what was acknowledged of them.

A key belongs to one partition, numbers grow, and one producer sends them in order: in the log of each partition numbers
must grow.
"""

import threading
import time

from confluent_kafka import Producer

from records import Record

KEYS = 1000
TICK = 0.005


def partition_of(number, partitions):
    return number % KEYS % partitions


class Load:
    """A producer in the background at a steady rate."""

    def __init__(self, bootstrap, topic, partitions, acks="all", rate=1200, refresh=200):
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.acknowledged = {}
        self.failed = []
        self.fatal = []
        self.sent = 0
        now = time.monotonic()
        self.last = [now] * partitions
        self.gap = [0.0] * partitions
        self.mark = None
        self.first_after = {}
        self.stopping = threading.Event()
        self.producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": acks == "all",
            "acks": acks,
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
            "queue.buffering.max.messages": 1_000_000,
            "reconnect.backoff.max.ms": 500,
            # Often, so that what is measured after a kill is the cluster's time and not the client's.
            "topic.metadata.refresh.interval.ms": refresh,
            "error_cb": self._error,
            "log_level": 2,
        })
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _error(self, error):
        if error.fatal():
            self.fatal.append(str(error))

    def _delivered(self, number):
        def told(error, message):
            if error:
                self.failed.append((number, str(error)))
                return
            now, partition = time.monotonic(), message.partition()
            self.acknowledged[number] = (partition, message.offset())
            self.gap[partition] = max(self.gap[partition], now - self.last[partition])
            self.last[partition] = now
            if self.mark is not None and number >= self.mark:
                self.first_after.setdefault(partition, now)
        return told

    def _run(self):
        started, before = time.monotonic(), 0
        while not self.stopping.is_set():
            due = int((time.monotonic() - started) * self.rate)
            for _ in range(min(due - before, 200)):
                record = Record(self.sent)
                try:
                    self.producer.produce(self.topic, key=record.key, value=record.value,
                                          partition=partition_of(self.sent, self.partitions),
                                          on_delivery=self._delivered(self.sent))
                except BufferError:
                    break
                self.sent += 1
                before += 1
            self.producer.poll(TICK)

    def set_mark(self):
        """From now on the first acknowledgement of each partition is noted, of records not sent yet."""
        self.mark, self.first_after = None, {}
        self.mark = self.sent

    def seconds_to_first(self, since, partitions):
        """{partition: seconds} from `since` to the first acknowledgement after the mark, or None while one is missing."""
        found = dict(self.first_after)
        if not all(partition in found for partition in partitions):
            return None
        return {partition: found[partition] - since for partition in partitions}

    def reset_gap(self):
        now = time.monotonic()
        self.last = [now] * self.partitions
        self.gap = [0.0] * self.partitions

    def longest_gap(self):
        """Longest time without an acknowledgement in any partition, until now."""
        now = time.monotonic()
        return max(max(gap, now - last) for gap, last in zip(self.gap, self.last))

    def finish(self, within=60):
        self.stopping.set()
        self.thread.join()
        left = self.producer.flush(within)
        assert left == 0, f"{left} records were neither acknowledged nor refused"
        assert not self.fatal, f"the producer gave up: {self.fatal[0]}"
        assert not self.failed, f"{len(self.failed)} records were refused, first {self.failed[0]}"
