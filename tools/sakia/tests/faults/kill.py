"""kill -9 of leaders, controller and everything under a verifying idempotent producer with acks=all, on real processes.

A round kills what its kind says while records flow and two consumers read, waits a seeded pause (shorter or longer than a
session), starts the killed ones again and waits until both brokers are in every ISR. Some rounds stop a process instead
and let it go on: it must not acknowledge what its successor does not have. At the end every acknowledged record
is in the logs once, at its offset and in order, as leaders and followers serve them; whatever the consumers were shown
meanwhile is still there; and after a clean stop both replicas hold the same bytes up to the high watermark.
"""

import os
import random
import signal
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "wire")]

from claims import run, seed_of
from cluster import arguments, wait_for
from history import Watcher, check_acknowledged, check_prefix, compare_replicas, read_all
from load import Load

TOPIC = "kill"
PARTITIONS = 6
SESSION = 3.0
BROKERS = (1, 2)
CONTROLLER = 3
# What each round kills: "leader" is the broker that leads more, "both" within one second, "all" is both and the
# controller; "twice" kills again what has just been started.
KINDS = ["leader", "leader", "both", "pause", "controller", "leader", "twice", "all", "pause", "leader and controller"]

ARGUMENTS = arguments({
    "--rounds": {"type": int, "default": 10},
    "--seed": {"type": int, "default": None},
    "--port-base": {"type": int, "default": 25000},
    "--rate": {"type": int, "default": 1200},
    # On top of session + 1 s: what a machine that also compiles may take away.
    "--slack": {"type": float, "default": 2.0},
})


def leads(cluster, node):
    """{partition: leader} as this broker tells it."""
    return {row["partition"]: row["leader"] for row in cluster.topic(TOPIC, node)}


def in_sync(cluster):
    """Whether every partition has both brokers in its ISR, as both brokers tell it."""
    try:
        return all(sorted(row["isr"]) == [1, 2] for node in BROKERS for row in cluster.topic(TOPIC, node))
    except AssertionError:
        return False


class Rounds:
    def __init__(self, cluster, claims, load, seed):
        self.cluster = cluster
        self.claims = claims
        self.load = load
        self.random = random.Random(seed)
        self.failovers = []

    def run(self, number, kind):
        cluster, load = self.cluster, self.load
        self._flow(0.5 + self.random.random(), f"before kill {number}")
        led = leads(cluster, 1)
        victim = max(BROKERS, key=lambda node: sum(leader == node for leader in led.values()))
        victims = {"leader": [victim], "pause": [victim], "twice": [victim], "both": self.random.sample(BROKERS, 2), "controller": [CONTROLLER],
                   "leader and controller": [victim, CONTROLLER],
                   "all": self.random.sample([*BROKERS, CONTROLLER], 3)}[kind]
        concerned = [partition for partition, leader in led.items() if leader in victims] or list(range(PARTITIONS))
        load.reset_gap()
        since = self._pause(victims) if kind == "pause" else self._kill(victims)
        load.set_mark()
        alone = len(victims) == 1
        pause = self.random.choice([self.random.uniform(0, SESSION), self.random.uniform(SESSION, SESSION + 4)])
        time.sleep(pause)
        if kind == "twice":
            cluster.restart(victim)
            time.sleep(self.random.random())
            cluster.kill(victim)
            time.sleep(self.random.random())
        restarted = time.monotonic()
        for node in self.random.sample(victims, len(victims)):
            if kind == "pause":
                os.kill(cluster.pid(node), signal.SIGCONT)
            else:
                cluster.restart(node)
        if not alone:
            # Nobody can take over before somebody is back.
            since = restarted
        first = wait_for(f"round {number}, {kind}: a record acknowledged in every partition",
                         lambda: load.seconds_to_first(since, concerned), 60)
        wait_for(f"round {number}, {kind}: both brokers in every ISR", lambda: in_sync(cluster), 60)
        took = max(first.values())
        self.failovers.append((number, kind, took))
        # A client waits for the answers of a paused broker, so that takes as long as the pause.
        what = kind if kind == "pause" else "kill" if alone else "restart"
        self.claims.say(f"round {number}: {kind} {victims}, {len(concerned)} partitions led there, restarted after "
                        f"{pause:.1f} s; acknowledged {min(first.values()):.1f} to {took:.1f} s after the {what}, longest "
                        f"gap {load.longest_gap():.1f} s; in sync {time.monotonic() - restarted:.1f} s after the restart; "
                        f"{len(load.acknowledged)} acknowledged")
        return took

    def _kill(self, victims):
        """Gives the time of the last kill."""
        for index, node in enumerate(victims):
            if index > 0:
                time.sleep(self.random.choice([0, self.random.random()]))
            self.cluster.kill(node)
        return time.monotonic()

    def _pause(self, victims):
        for node in victims:
            os.kill(self.cluster.pid(node), signal.SIGSTOP)
        return time.monotonic()

    def _flow(self, seconds, what):
        """Lets records be acknowledged at the usual rate for a while."""
        goal = len(self.load.acknowledged) + seconds * self.load.rate
        wait_for(f"records acknowledged {what}", lambda: len(self.load.acknowledged) >= goal, 60)


def faults(cluster, claims, load, seed):
    rounds = Rounds(cluster, claims, load, seed)
    for number in range(ARGUMENTS.rounds):
        kind = KINDS[number % len(KINDS)]
        took = claims.check(f"round {number} {kind}", lambda: rounds.run(number, kind))
        if took is None:
            return
    for kind in dict.fromkeys(KINDS):
        times = sorted(took for _, of, took in rounds.failovers if of == kind)
        if times:
            claims.say(f"{len(times)} rounds of {kind}: records acknowledged again after {times[len(times) // 2]:.1f} s "
                       f"(median), {times[-1]:.1f} s (longest)")
    times = sorted(took for _, kind, took in rounds.failovers if kind == "leader")
    if times:
        target = SESSION + 1 + ARGUMENTS.slack
        claims.judge("failover in time", times[-1] > target and f"{times[-1]:.1f} s, at most {target:.1f} s are allowed")


def verdict(cluster, claims, load, watchers):
    claims.check("every record answered", load.finish)
    numbers = claims.check("read from leaders", lambda: read_all(cluster, TOPIC, PARTITIONS))
    if numbers is None:
        return None
    there = [number for row in numbers for number in row]
    lost = len(load.acknowledged.keys() - set(there))
    claims.say(f"{len(load.acknowledged)} acknowledged, {len(there)} in the logs, {lost} lost, "
               f"{len(there) - len(set(there))} doubled")
    claims.check("acknowledged records are there once", lambda: check_acknowledged(numbers, load.acknowledged))
    for rack in ("az1", "az2"):
        same = claims.check(f"read in {rack}", lambda: read_all(cluster, TOPIC, PARTITIONS, rack))
        if same is not None:
            claims.judge(f"{rack} serves the same", same != numbers and "leaders and followers serve different records")
    for name, watcher in watchers.items():
        claims.check(f"what {name} was shown stays", lambda: check_prefix(watcher.finish(), numbers))
    return [len(row) for row in numbers]


def test(cluster, claims, seed):
    cluster.tool("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--config", f"segment.bytes={1 << 20}",
                 "--bootstrap-server", cluster.broker(1))
    wait_for("every partition in sync", lambda: in_sync(cluster), 30)
    watchers = {"a reader at the leaders": Watcher(cluster, TOPIC, PARTITIONS),
                "a reader in az2": Watcher(cluster, TOPIC, PARTITIONS, "az2")}
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate=ARGUMENTS.rate)
    faults(cluster, claims, load, seed)
    ends = verdict(cluster, claims, load, watchers)
    claims.check("in sync at the end", lambda: wait_for("every partition in sync", lambda: in_sync(cluster), 30))
    claims.check("clean stop", cluster.stop)
    if ends is not None:
        compared = claims.check("replicas are equal byte for byte", lambda: compare_replicas(cluster, TOPIC, ends))
        if compared:
            claims.say(f"{compared[0]} batches and {compared[1]} leader epochs of {PARTITIONS} partitions compared")


if __name__ == "__main__":
    run(test, ARGUMENTS, "kill", seed_of(ARGUMENTS))
