"""The bucket stops answering, answers 503, keeps objects and loses the answer, gives damaged bytes, or loses objects: under
load, then works again.

Two producers run all the time, with acks=1 and acks=all. In each trouble acknowledgements must go on, record bytes must
flow from leader to follower while it lasts, both brokers must stay in every ISR, and afterwards replication must go
through objects again by itself. A broker that starts while the bucket refuses everything must get in sync. At the end each
acknowledged record is in the logs once, and both replicas hold the same bytes.
"""

import os
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "wire")]

from claims import run
from cluster import arguments, wait_for
from history import check_acknowledged, compare_replicas, read_all
from load import Load

PARTITIONS = 6
TOPICS = {"one": "1", "every": "all"}
# No acknowledgement for as long at most. acks=all waits for the fallback (1 s) and a fetch, acks=1 for nothing; the rest is
# what a busy machine takes away.
GAP_ALL = 3.0
GAP_ONE = 2.0
RESUMED_WITHIN = 10.0
# Record bytes do not flow for this long: replication goes through objects.
QUIET = 2.0
LOOK_EVERY = 0.2

ARGUMENTS = arguments({
    "--port-base": {"type": int, "default": 26000},
    "--seconds": {"type": float, "default": 20},
    "--rate": {"type": int, "default": 600},
    "--only": {"default": None, "help": "one trouble alone"},
})


class Path:
    """Which way replication takes."""

    def __init__(self, cluster):
        self.cluster = cluster

    def record_bytes(self):
        name = "kafka_server_brokertopicmetrics_replicationbytesout_total"
        return sum(self.cluster.metric(f'{name}{{topic="{topic}"}}') for topic in TOPICS)

    def object_bytes(self):
        name = "kafka_server_remote_wal_fetch_bytes_total"
        return sum(self.cluster.metric(f'{name}{{topic="{topic}"}}') for topic in TOPICS)

    def object_gets(self):
        return self.cluster.metric("sakia_wal_object_gets_total")

    def wait_for_objects(self, within):
        """Waits until records reach followers through objects alone. Gives the seconds until then."""
        started = time.monotonic()
        quiet_since, record_bytes, object_bytes = started, self.record_bytes(), self.object_bytes()
        while True:
            time.sleep(LOOK_EVERY)
            now, records = time.monotonic(), self.record_bytes()
            if records != record_bytes:
                quiet_since, record_bytes, object_bytes = now, records, self.object_bytes()
            elif now - quiet_since > QUIET and self.object_bytes() > object_bytes:
                return quiet_since - started
            assert now - started < within + QUIET, \
                f"record bytes still flow from leader to follower {now - started:.1f} s later"


def fallbacks(cluster):
    """{reason: count} of both brokers."""
    found = {}
    for node in (1, 2):
        for series, value in cluster.metrics(node).items():
            if series.startswith("sakia_wal_fallbacks_total{"):
                reason = series.split('"')[1]
                found[reason] = found.get(reason, 0) + int(value)
    return found


def shrinks(cluster):
    return cluster.metric('sakia_isr_changes_total{direction="shrink"}')


def has_isr(cluster, brokers, told_by=(1, 2)):
    """Whether every partition has this ISR, as these brokers tell it."""
    try:
        return all(sorted(row["isr"]) == brokers for topic in TOPICS for node in told_by for row in cluster.topic(topic, node))
    except AssertionError:
        return False


def in_sync(cluster):
    return has_isr(cluster, [1, 2])


class Troubles:
    def __init__(self, cluster, claims, loads):
        self.cluster = cluster
        self.claims = claims
        self.loads = loads
        self.path = Path(cluster)

    def judge(self, name, trouble):
        """trouble(shown) makes it, keeps it up and ends it; it may note how many partitions were shown in fallback."""
        if ARGUMENTS.only not in (None, name):
            return
        claims, path = self.claims, self.path
        claims.check(f"{name}: objects carry the load before", lambda: path.wait_for_objects(30))
        before, reasons, shown = path.record_bytes(), fallbacks(self.cluster), []
        shrunk = shrinks(self.cluster)
        for load in self.loads.values():
            load.reset_gap()
        done = claims.check(f"{name}: done", lambda: trouble(shown))
        gaps = {topic: load.longest_gap() for topic, load in self.loads.items()}
        flowed = path.record_bytes() - before
        claims.judge(f"{name}: both brokers in every ISR", not in_sync(self.cluster) and "somebody is missing")
        back = claims.check(f"{name}: objects carry the load again within {RESUMED_WITHIN:.0f} s",
                            lambda: path.wait_for_objects(RESUMED_WITHIN))
        shrunk = shrinks(self.cluster) - shrunk
        claims.judge(f"{name}: both brokers were in every ISR all the time", shrunk and f"ISRs shrank {shrunk:.0f} times")
        after = {topic: load.longest_gap() for topic, load in self.loads.items()}
        for topic, allowed in (("one", GAP_ONE), ("every", GAP_ALL)):
            longest = max(gaps[topic], after[topic])
            claims.judge(f"{name}: acks={TOPICS[topic]} goes on",
                         longest > allowed and f"{longest:.1f} s without an acknowledgement, {allowed} s are allowed")
        claims.judge(f"{name}: record bytes flowed", flowed == 0 and "none did")
        if shown:
            claims.judge(f"{name}: shown as fallback", shown != [len(TOPICS) * PARTITIONS] and f"{shown} partitions")
        claims.check(f"{name}: no fallback is shown any more", lambda: wait_for(
            "no partition in fallback", lambda: self.cluster.metric("sakia_wal_fallback_partitions") == 0, 5))
        new = {reason: count - reasons.get(reason, 0) for reason, count in fallbacks(self.cluster).items()}
        new = {reason: count for reason, count in new.items() if count}
        claims.judge(f"{name}: fallbacks are counted", not new and "none was")
        returned = "never" if back is None else f"{back:.1f} s after the end"
        claims.say(f"{name}{'' if done is None else f' ({done})'}: longest gap acks=1 {gaps['one']:.1f} s, acks=all "
                   f"{gaps['every']:.1f} s; with the way back {after['one']:.1f} and {after['every']:.1f} s; "
                   f"{flowed / 1e6:.1f} MB as record bytes; objects again {returned}; fallbacks {new}")

    def outage(self, mode):
        def trouble(shown):
            self.cluster.fault(mode)
            try:
                time.sleep(ARGUMENTS.seconds)
                shown.append(self.cluster.metric("sakia_wal_fallback_partitions"))
            finally:
                self.cluster.fault("none")
            return f"{ARGUMENTS.seconds:.0f} s"
        self.judge(mode, trouble)

    def spoilt_bodies(self):
        """One bit in every third body: nothing of it may reach a log, which the comparison at the end shows."""
        def trouble(_):
            read = self.path.object_gets()
            self.cluster.fault("spoil-get")
            try:
                time.sleep(ARGUMENTS.seconds / 2)
            finally:
                self.cluster.fault("none")
            read = self.path.object_gets() - read
            assert read > 30, f"only {read:.0f} bodies were read"
            return f"every third of {read:.0f} bodies"
        self.judge("spoil-get", trouble)

    def lost_objects(self):
        def trouble(_):
            taker = Taker(self.cluster)
            time.sleep(ARGUMENTS.seconds / 2)
            taken = taker.finish()
            assert taken > 10, f"only {taken} objects were taken away"
            return f"{taken} objects taken away"
        self.judge("lost objects", trouble)


class Taker:
    """Takes objects out of the bucket's folder as soon as they are there, at times."""

    def __init__(self, cluster):
        root = os.path.join(cluster.data, "bucket", "buckets", "sakia-wal", "dev")
        self.streams = {}
        for folder, folders, files in os.walk(root):
            if files:
                self.streams[folder] = max(self._sequence(name) for name in files)
        # Of each broker only the last stream grows.
        self.taken = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @staticmethod
    def _sequence(name):
        return int(name.lstrip("="))

    def _run(self):
        while not self.stopping.is_set():
            # Two in three objects stay, so that the way back is tried while others go.
            for folder, sequence in self.streams.items():
                following = sequence + 1
                path = os.path.join(folder, f"={following:020d}")
                if os.path.exists(path):
                    self.streams[folder] = following
                    if following % 3 == 0:
                        os.unlink(path)
                        self.taken += 1
            time.sleep(0.0005)

    def finish(self):
        self.stopping.set()
        self.thread.join()
        return self.taken


def start_in_outage(cluster, claims, path):
    """A broker that starts while the bucket refuses everything."""
    cluster.kill(2)
    # Only who has left an ISR shows that it gets in.
    wait_for("broker 2 out of every ISR", lambda: has_isr(cluster, [1], told_by=(1,)), 30)
    cluster.fault("error503")
    try:
        cluster.restart(2)
        started = time.monotonic()
        wait_for("both brokers in every ISR while the bucket answers 503", lambda: in_sync(cluster), 60)
        claims.say(f"start in an outage: in sync after {time.monotonic() - started:.1f} s")
        ledger = cluster.ledger()
        attempts = {verb: sum(ledger[verb].values()) for verb in ("put", "get")}
        time.sleep(10)
        ledger = cluster.ledger()
        more = sum(sum(ledger[verb].values()) - attempts[verb] for verb in attempts)
        claims.say(f"start in an outage: {more} requests in 10 s")
        assert more < 200, f"{more} requests in 10 s to a bucket that refuses all"
    finally:
        cluster.fault("none")
    back = path.wait_for_objects(RESUMED_WITHIN)
    claims.say(f"start in an outage: objects again {back:.1f} s after the end")


def check_topic(cluster, claims, topic, load):
    claims.check(f"{topic}: every record answered", load.finish)
    numbers = claims.check(f"{topic}: read from leaders", lambda: read_all(cluster, topic, PARTITIONS))
    if numbers is None:
        return None
    claims.say(f"{topic}: {len(load.acknowledged)} acknowledged, {sum(map(len, numbers))} in the logs")
    claims.check(f"{topic}: acknowledged records are there once", lambda: check_acknowledged(numbers, load.acknowledged))
    for rack in ("az1", "az2"):
        same = claims.check(f"{topic}: read in {rack}", lambda: read_all(cluster, topic, PARTITIONS, rack))
        if same is not None:
            claims.judge(f"{topic}: {rack} serves the same", same != numbers and "other records than at the leaders")
    return [len(row) for row in numbers]


def test(cluster, claims):
    for topic in TOPICS:
        cluster.tool("topic", "create", topic, "--partitions", str(PARTITIONS), "--config", f"segment.bytes={1 << 20}",
                     "--bootstrap-server", cluster.broker(1))
    wait_for("every partition in sync", lambda: in_sync(cluster), 30)
    loads = {topic: Load(cluster.bootstrap, topic, PARTITIONS, acks, ARGUMENTS.rate) for topic, acks in TOPICS.items()}
    wait_for("records acknowledged", lambda: all(len(load.acknowledged) > 1000 for load in loads.values()), 60)
    troubles = Troubles(cluster, claims, loads)
    for mode in ("hang", "error503", "lose-put-reply"):
        troubles.outage(mode)
    troubles.spoilt_bodies()
    troubles.lost_objects()
    ends = {"one": check_topic(cluster, claims, "one", loads["one"])}
    # Only now, since whoever kills a leader loses what acks=1 acknowledged.
    if ARGUMENTS.only in (None, "start"):
        claims.check("a broker starts while the bucket answers 503",
                     lambda: start_in_outage(cluster, claims, troubles.path))
    ends["every"] = check_topic(cluster, claims, "every", loads["every"])
    claims.check("in sync at the end", lambda: wait_for("every partition in sync", lambda: in_sync(cluster), 30))
    claims.check("clean stop", cluster.stop)
    for topic, end in ends.items():
        if end is not None:
            claims.check(f"{topic}: replicas are equal byte for byte", lambda: compare_replicas(cluster, topic, end))


if __name__ == "__main__":
    run(test, ARGUMENTS, "bucket")
