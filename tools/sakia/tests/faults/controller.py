"""kill -9 of the controller while topics are created: no acknowledged topic is lost, and records flow on meanwhile.

A client creates topics one after another. After each kill the controller starts again after a pause; creation must go on
by itself. At the end, after one more start of the controller, every acknowledged topic is there with all its partitions,
each has a leader, and a record can be written and read.
"""

import os
import random
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "wire")]

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from claims import run, seed_of
from cluster import arguments, wait_for
from history import check_acknowledged, read_all
from load import Load

CONTROLLER = 3
LOAD_TOPIC = "flow"
LOAD_PARTITIONS = 3
# Records need no controller.
GAP = 1.5

ARGUMENTS = arguments({
    "--kills": {"type": int, "default": 5},
    "--seed": {"type": int, "default": None},
    "--port-base": {"type": int, "default": 27000},
})


class Creator:
    """Creates topics in the background, three at a time, each with its own number of partitions."""

    def __init__(self, bootstrap):
        self.client = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2})
        self.acknowledged = {}
        self.refused = {}
        self.next = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping.is_set():
            wanted = {f"topic-{number:05d}": 1 + number % 3 for number in range(self.next, self.next + 3)}
            self.next += 3
            topics = [NewTopic(name, num_partitions=count, replication_factor=2) for name, count in wanted.items()]
            futures = self.client.create_topics(topics, operation_timeout=5, request_timeout=8)
            for name, future in futures.items():
                try:
                    future.result(20)
                    self.acknowledged[name] = wanted[name]
                except KafkaException as error:
                    self.refused[name] = str(error.args[0])
                    # Whoever is refused waits a moment before the next try.
                    self.stopping.wait(0.1)

    def wait_for_more(self, count, what, within=60):
        goal = len(self.acknowledged) + count
        wait_for(f"{count} topics acknowledged {what}", lambda: len(self.acknowledged) >= goal, within)

    def finish(self):
        self.stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), "a creation was never answered"


def described(cluster, node):
    """{topic: {partition: (leader, isr)}} as this broker tells it."""
    rows = cluster.tool("topic", "describe", "--bootstrap-server", cluster.broker(node))
    return {row["topic"]: {p["partition"]: (p["leader"], sorted(p["isr"])) for p in row["partitions"]} for row in rows}


def missing(cluster, creator):
    """Acknowledged topics that a broker does not tell."""
    found = [described(cluster, node) for node in (1, 2)]
    return sorted(name for name in creator.acknowledged if not all(name in topics for topics in found))


def check_topics(cluster, creator):
    # A broker hears of a topic a moment after its creation was acknowledged, and of nothing while there is no controller.
    deadline = time.monotonic() + 30
    while missing(cluster, creator) and time.monotonic() < deadline:
        time.sleep(0.5)
    for node in (1, 2):
        found = described(cluster, node)
        gone = sorted(name for name in creator.acknowledged if name not in found)
        assert not gone, f"broker {node}: {len(gone)} of {len(creator.acknowledged)} acknowledged topics are gone: {gone[:5]}"
        other = [name for name, count in creator.acknowledged.items() if sorted(found[name]) != list(range(count))]
        assert not other, f"broker {node}: {other[0]} has partitions {sorted(found[other[0]])}"


def all_led(cluster, creator):
    found = described(cluster, 1)
    return all(isr == [1, 2] and leader in (1, 2)
               for name in creator.acknowledged for leader, isr in found[name].values())


def check_use(cluster, creator):
    """A record goes through every partition."""
    wanted = [(name, partition) for name, count in creator.acknowledged.items() for partition in range(count)]
    trouble = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2})
    for name, partition in wanted:
        producer.produce(name, value=f"{name} {partition}".encode(), partition=partition,
                         on_delivery=lambda error, message: error and trouble.append((message.topic(), str(error))))
    left = producer.flush(60)
    assert left == 0 and not trouble, f"{left} records left, refused: {trouble[:3]}"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "use", "enable.auto.commit": False,
                         "check.crcs": True, "log_level": 2})
    consumer.assign([TopicPartition(name, partition, 0) for name, partition in wanted])
    found, deadline = set(), time.monotonic() + 60
    while len(found) < len(wanted):
        assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} records are readable"
        for message in consumer.consume(1000, timeout=1):
            assert not message.error(), message.error()
            assert message.value() == f"{message.topic()} {message.partition()}".encode()
            found.add((message.topic(), message.partition()))
    consumer.close()


def one_kill(cluster, claims, creator, load, pick, number):
    creator.wait_for_more(pick.randrange(5, 30), f"before kill {number}")
    load.reset_gap()
    before = len(creator.acknowledged)
    cluster.kill(CONTROLLER)
    killed = time.monotonic()
    time.sleep(pick.uniform(0.1, 5))
    cluster.restart(CONTROLLER)
    restarted = time.monotonic()
    creator.wait_for_more(3, f"after kill {number}")
    claims.say(f"kill {number}: {before} topics acknowledged, restarted after {restarted - killed:.1f} s; creation went on "
               f"{time.monotonic() - restarted:.1f} s later; longest gap of records {load.longest_gap():.1f} s")
    assert load.longest_gap() <= GAP, f"{load.longest_gap():.1f} s without an acknowledged record"


def test(cluster, claims, seed):
    pick = random.Random(seed)
    cluster.tool("topic", "create", LOAD_TOPIC, "--partitions", str(LOAD_PARTITIONS),
                 "--bootstrap-server", cluster.broker(1))
    load = Load(cluster.bootstrap, LOAD_TOPIC, LOAD_PARTITIONS, rate=300)
    wait_for("records acknowledged", lambda: len(load.acknowledged) > 300, 60)
    creator = Creator(cluster.bootstrap)
    for number in range(ARGUMENTS.kills):
        claims.check(f"kill {number}: creation and records go on",
                     lambda: one_kill(cluster, claims, creator, load, pick, number))
    claims.check("every creation answered", creator.finish)
    # Nothing that only memory knew survives this.
    cluster.kill(CONTROLLER)
    cluster.restart(CONTROLLER)
    claims.check("every acknowledged topic is there", lambda: check_topics(cluster, creator))
    claims.check("brokers tell leaders and full ISRs of every topic",
                 lambda: wait_for("every partition in sync", lambda: all_led(cluster, creator), 60))
    claims.say(f"{len(creator.acknowledged)} topics acknowledged, {len(creator.refused)} refused: "
               f"{sorted(set(creator.refused.values()))[:4]}")
    claims.check("each partition can be used", lambda: check_use(cluster, creator))
    claims.check("every record answered", load.finish)
    claims.check("acknowledged records are there once", lambda: check_acknowledged(
        read_all(cluster, LOAD_TOPIC, LOAD_PARTITIONS), load.acknowledged))
    claims.check("clean stop", cluster.stop)


if __name__ == "__main__":
    run(test, ARGUMENTS, "controller", seed_of(ARGUMENTS))
