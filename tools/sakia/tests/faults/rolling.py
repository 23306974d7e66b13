"""Brokers are stopped cleanly one after the other and started again, as an upgrade does, under load with acks=1 and acks=all.

A planned stop hands leadership over first: nothing that was acknowledged may be lost, not with acks=1 either, and no client
waits for a session to end.
"""

import os
import random
import signal
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "wire")]

from claims import run, seed_of
from cluster import arguments, wait_for
from history import check_acknowledged, compare_replicas, read_all
from load import Load

PARTITIONS = 6
TOPICS = {"one": "1", "every": "all"}
GAP = 2.0

ARGUMENTS = arguments({
    "--rounds": {"type": int, "default": 4},
    "--seed": {"type": int, "default": None},
    "--port-base": {"type": int, "default": 28000},
    "--rate": {"type": int, "default": 600},
})


def in_sync(cluster):
    try:
        return all(sorted(row["isr"]) == [1, 2] for topic in TOPICS for node in (1, 2) for row in cluster.topic(topic, node))
    except AssertionError:
        return False


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def one_round(cluster, claims, loads, pick, number):
    node = 1 + number % 2
    goals = {topic: len(load.acknowledged) + load.rate for topic, load in loads.items()}
    wait_for("records acknowledged", lambda: all(len(loads[t].acknowledged) > goal for t, goal in goals.items()), 60)
    for load in loads.values():
        load.reset_gap()
    led = sum(row["leader"] == node for topic in TOPICS for row in cluster.topic(topic, 3 - node))
    pid, started = cluster.pid(node), time.monotonic()
    os.kill(pid, signal.SIGTERM)
    wait_for(f"broker {node} has stopped", lambda: has_ended(pid), 10)
    stopped = time.monotonic()
    time.sleep(pick.uniform(0, 5))
    cluster.restart(node)
    wait_for("both brokers in every ISR", lambda: in_sync(cluster), 60)
    gaps = {topic: load.longest_gap() for topic, load in loads.items()}
    claims.say(f"round {number}: stopped broker {node}, leader of {led}, in {stopped - started:.1f} s; longest gap acks=1 "
               f"{gaps['one']:.1f} s, acks=all {gaps['every']:.1f} s")
    assert max(gaps.values()) <= GAP, f"{max(gaps.values()):.1f} s without an acknowledgement"


def check_present(numbers, acknowledged):
    """Each acknowledged record is there, once or more: without idempotence a retry may write it again."""
    there = {number for row in numbers for number in row}
    missing = sorted(number for number in acknowledged if number not in there)
    assert not missing, f"{len(missing)} acknowledged records are missing: {missing[:5]}, " \
                        f"told at {[acknowledged[number] for number in missing[:5]]}"


def test(cluster, claims, seed):
    pick = random.Random(seed)
    for topic in TOPICS:
        cluster.tool("topic", "create", topic, "--partitions", str(PARTITIONS), "--config", f"segment.bytes={1 << 20}",
                     "--bootstrap-server", cluster.broker(1))
    wait_for("every partition in sync", lambda: in_sync(cluster), 30)
    loads = {topic: Load(cluster.bootstrap, topic, PARTITIONS, acks, ARGUMENTS.rate) for topic, acks in TOPICS.items()}
    for number in range(ARGUMENTS.rounds):
        claims.check(f"round {number}", lambda: one_round(cluster, claims, loads, pick, number))
    ends = {}
    for topic, load in loads.items():
        claims.check(f"{topic}: every record answered", load.finish)
        numbers = claims.check(f"{topic}: read", lambda: read_all(cluster, topic, PARTITIONS, strict=topic == "every"))
        if numbers is None:
            continue
        ends[topic] = [len(row) for row in numbers]
        claims.say(f"{topic}: {len(load.acknowledged)} acknowledged, {sum(ends[topic])} in the logs")
        check = check_acknowledged if topic == "every" else check_present
        claims.check(f"{topic}: acknowledged records are there", lambda: check(numbers, load.acknowledged))
    claims.check("in sync at the end", lambda: wait_for("every partition in sync", lambda: in_sync(cluster), 30))
    claims.check("clean stop", cluster.stop)
    for topic, end in ends.items():
        claims.check(f"{topic}: replicas are equal byte for byte", lambda: compare_replicas(cluster, topic, end))


if __name__ == "__main__":
    run(test, ARGUMENTS, "rolling", seed_of(ARGUMENTS))
