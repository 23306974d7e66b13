"""What must hold on the object path while a client produces: few objects, each read once, no record byte across zones,
and every request counted as the bucket counted it.
"""

from cluster import wait_for

VERBS = {
    "put": "kafka_server_remote_wal_put_requests_total",
    "get": "kafka_server_remote_wal_get_requests_total",
    "delete": "sakia_wal_delete_requests_total",
}

# Of the objects so many hold several partitions at least.
SEVERAL_MIN = 0.9


class ObjectPath:
    """Counts of a cluster from now on."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.before = self._counts()

    def _counts(self):
        cluster = self.cluster
        counts = {verb: cluster.metric(name) for verb, name in VERBS.items()}
        counts["objects"] = cluster.metric("sakia_wal_objects_total")
        counts["several"] = cluster.metric("sakia_wal_objects_of_several_total")
        counts["reads"] = cluster.metric("sakia_wal_object_gets_total")
        counts["fallbacks"] = cluster.metric("sakia_wal_fallbacks_total")
        ledger = cluster.ledger()
        for verb in VERBS:
            counts[f"ledger {verb}"] = sum(ledger[verb].values())
        return counts

    def check(self, topic):
        """Waits until what is under way has come to rest, then checks. Gives the counts since the start."""

        def equal():
            now = self._counts()
            since = {name: now[name] - self.before[name] for name in now}
            return since if all(since[verb] == since[f"ledger {verb}"] for verb in VERBS) else None

        try:
            since = wait_for("counts of brokers and ledger are equal", equal, 20)
        except AssertionError:
            now = self._counts()
            raise AssertionError(f"brokers and ledger differ: {({name: now[name] - self.before[name] for name in now})}")
        objects = since["objects"]
        assert objects > 0, "no object was written"
        several, reads = since["several"] / objects, since["reads"] / objects
        print(f"  {objects:.0f} objects, {several:.1%} of several partitions, {reads:.3f} GETs each, "
              f"{since['fallbacks']:.0f} fallbacks")
        assert several >= SEVERAL_MIN, f"only {several:.1%} of the objects hold several partitions"
        assert reads <= 1.05, f"{reads:.3f} GETs per object"
        across = self.cluster.metric(f'kafka_server_brokertopicmetrics_replicationbytesout_total{{topic="{topic}"}}')
        assert across == 0, f"{across:.0f} record bytes went from leader to follower"
        return since


def check_segments(cluster, topic, partitions, at_least=3):
    """Each log has rolled, on the leader and on the follower."""
    for node in (1, 2):
        for partition in range(partitions):
            count = len(cluster.segments(node, topic, partition))
            assert count >= at_least, f"{topic}-{partition} on broker {node} has {count} segments"


def check_follower_read(cluster, topic, before, after_bytes):
    """Reading with client.rack=az2 was served by broker 2, what it leads and what it follows."""
    series = f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}'
    grown = [cluster.metric(series, (node,)) - before[node] for node in (1, 2)]
    print(f"  read in az2: broker 1 sent {grown[0]:.0f} bytes, broker 2 {grown[1]:.0f}")
    assert grown[1] >= after_bytes * 0.9, "the broker of the reader's zone did not serve it"
    assert grown[0] <= after_bytes * 0.1, "the reader was served from another zone"


def bytes_out(cluster, topic):
    series = f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}'
    return {node: cluster.metric(series, (node,)) for node in (1, 2)}
