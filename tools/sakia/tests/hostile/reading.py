"""What reading gives: limits of Fetch, both ends of a log, Metadata's empty and null lists, special offsets.

Cases: protocol-2, protocol-3, protocol-4, protocol-5.
"""
import threading
import time

import batches
from checks import Skipped, check, must, wait_for
from client import CLOSED, SILENT, request
from process import MIB

BIG = 200_000
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, INVALID_TOPIC, UNSUPPORTED, UNKNOWN_TOPIC_ID = 0, 1, 3, 6, 17, 35, 100
FENCED_EPOCH, UNKNOWN_EPOCH = 74, 75
LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def rows(count, offset=0, partition_bytes=1 << 20):
    return [{"index": index, "offset": offset, "max_bytes": partition_bytes} for index in range(count)]


def fill(client, topic, partitions, size=BIG, times=1):
    data = batches.good(1, value=bytes(size))
    for index in range(partitions):
        for _ in range(times):
            row = client.produce(topic, data, partition=index)
            must(row["error"] == 0, f"produce to {topic}-{index}: {row}")
    return len(data)


def sizes(answer):
    return [len(row["records"]) for _, row in sorted(answer.items())]


def no_errors(answer):
    must(all(row["error"] == 0 for row in answer.values()), f"errors {[row['error'] for row in answer.values()]}")


@check
def first_batch_comes_whole_above_every_limit(run):
    """max_bytes=1: the first partition gives its batch, the others nothing, no error. Batches are never cut."""
    topic = run.new_topic("limits", partitions=3)
    with run.connect() as client:
        whole = fill(client, topic, 3)
        for version in (4, 8, 11):
            answer = client.fetch_all({topic: rows(3, partition_bytes=1)}, version, max_bytes=1)
            no_errors(answer)
            must(sizes(answer) == [whole, 0, 0], f"version {version}, 1 byte: {sizes(answer)}")
            answer = client.fetch_all({topic: rows(3)}, version, max_bytes=500_000)
            no_errors(answer)
            # Which second one comes is free: shards read side by side.
            must(sizes(answer)[0] == whole and sorted(sizes(answer)) == [0, whole, whole],
                 f"version {version}, 500 KB: {sizes(answer)}")
            answer = client.fetch_all({topic: rows(3, partition_bytes=1)}, version)
            no_errors(answer)
            must(sizes(answer) == [whole, 0, 0], f"version {version}, 1 byte per partition: {sizes(answer)}")
        for limit in (0, -1, -2**31):
            answer = client.fetch_all({topic: rows(3, partition_bytes=limit)}, max_bytes=limit)
            no_errors(answer)
            must(sum(sizes(answer)) <= whole, f"limits of {limit}: {sizes(answer)}")


@check
def small_fetches_reach_the_end_of_every_partition(run):
    """A consumer with a limit of one byte: each fetch brings one batch; none is lost, cut or given twice."""
    topic = run.new_topic("small", partitions=3)
    with run.connect() as client:
        for number in range(5):
            for index in range(3):
                must(client.produce(topic, batches.good(2 + number), partition=index)["error"] == 0, "produce failed")
        ends = [client.end(topic, index) for index in range(3)]
        at, fetches = [0, 0, 0], 0
        while at != ends:
            order = [index for index in range(3) if at[index] < ends[index]]
            wanted = [{"index": index, "offset": at[index], "max_bytes": 1} for index in order]
            answer = client.fetch_all({topic: wanted}, max_bytes=1)
            no_errors(answer)
            for (_, index), row in answer.items():
                for found in batches.read(row["records"]):
                    must(found["base"] == at[index], f"batch {found['base']} at {at[index]}")
                    at[index] = found["next"]
            fetches += 1
            must(fetches <= 15, f"after 15 fetches at {at} of {ends}")


@check
def offset_inside_a_batch_gives_the_whole_batch(run):
    topic = run.new_topic("inside")
    with run.connect() as client:
        client.produce(topic, batches.good(10))
        client.produce(topic, batches.good(10))
        for offset, base in ((0, 0), (9, 0), (10, 10), (15, 10), (19, 10)):
            found = batches.read(client.fetch(topic, offset)["records"])
            must(found and found[0]["base"] == base, f"offset {offset}: {[batch['base'] for batch in found]}")


@check
def twenty_large_fetches_stay_in_their_limit(run):
    """40 partitions of 1 MB, 10 MB asked for: every answer within one batch of it, and so is memory."""
    shortest = (10 << 20) - 2 * 600_000
    topic = run.new_topic("wide", partitions=40)
    with run.connect() as client:
        whole = fill(client, topic, 40, size=500_000, times=2)
    before, wrong, lengths = run.process.memory(), [], []

    def fetch():
        try:
            with run.connect(limit=30) as peer:
                answer = peer.fetch_all({topic: rows(40, partition_bytes=2 << 20)}, max_bytes=10 << 20, limit=30)
                no_errors(answer)
                lengths.append(sum(sizes(answer)))
        except Exception as why:
            wrong.append(repr(why))
    threads = [threading.Thread(target=fetch) for _ in range(20)]
    for thread in threads:
        thread.start()
    highest = before
    while any(thread.is_alive() for thread in threads):
        highest = max(highest, run.process.memory())
        time.sleep(0.005)
    must(not wrong, f"{len(wrong)} failed: {wrong[:1]}")
    must(all(shortest <= length <= (10 << 20) + whole for length in lengths), f"answers of {sorted(set(lengths))}")
    grown = highest - before
    must(grown <= 20 * ((10 << 20) + whole) + 32 * MIB, f"memory grew by {grown // MIB} MiB")


@check
def fetch_waits_for_enough_and_for_no_longer_than_told(run):
    topic = run.new_topic("waits")
    with run.connect() as client, run.connect() as other:
        started = time.monotonic()
        row = client.fetch(topic, 0, max_wait=500, min_bytes=1)
        took = time.monotonic() - started
        must(row["error"] == 0 and row["records"] in (b"", None), f"an empty log: {row}")
        must(0.4 < took < 1.5, f"max_wait of 500 ms took {took:.2f} s")
        client.correlation += 1
        client.send(request("Fetch", 11, client.correlation, max_wait=10_000, min_bytes=1, max_bytes=1 << 20,
                            topics=[{"name": topic, "partitions": rows(1)}]))
        must(client.receive(0.2) is SILENT, "it did not wait")
        started = time.monotonic()
        other.produce(topic, batches.good())
        data = client.receive(3)
        must(data not in (CLOSED, SILENT), f"a record did not wake the fetch: {data}")
        must(time.monotonic() - started < 1.5, "a record woke the fetch too late")


def out_of_range(row):
    return (row["error"] == OUT_OF_RANGE and row["high_watermark"] == -1 and row["last_stable"] == -1
            and row["log_start"] == -1 and not row["records"])


@check
def out_of_range_at_the_end_of_the_log(run):
    """At the end: no error, no records, a high watermark. One above: error 1 and no bounds."""
    topic = run.new_topic("end")
    with run.connect() as client:
        client.produce(topic, batches.good(20))
        for version in range(5, 13):
            row = client.fetch(topic, 20, version=version)
            must(row["error"] == 0 and row["high_watermark"] == 20 and not row["records"], f"v{version} at the end: {row}")
            for offset in (21, 2**62, 2**63 - 1, -1, -2, -2**63):
                started = time.monotonic()
                row = client.fetch(topic, offset, version=version, max_wait=3000)
                must(out_of_range(row), f"v{version} at {offset}: {row}")
                must(time.monotonic() - started < 1, f"v{version}: the error waited")


@check
def out_of_range_at_the_start_of_the_log(run):
    """Below the start, after retention took the first segments: error 1; at the start: data; the true bound is told."""
    with run.connect() as client:
        keys = ["log.retention.check.interval.ms"]
        told = client.ask("DescribeConfigs", 4, resources=[{"type": 4, "name": str(run.nodes[0]), "keys": keys}])
        values = {row["name"]: row["value"] for row in told["results"][0]["configs"]}
        every = int(values.get(keys[0]) or 300_000)
        if every > 5000:
            raise Skipped(f"retention looks every {every} ms: start with --override {keys[0]}=500")
        topic = run.new_topic("start", configs={"segment.bytes": 30_000, "retention.bytes": 60_000})
        for _ in range(20):
            must(client.produce(topic, batches.good(5, value=bytes(2000)))["error"] == 0, "produce failed")
        start = wait_for("retention", lambda: client.offset_for(topic, EARLIEST)["offset"], every / 1000 * 4 + 10)
        must(start < 100, f"start {start}")
        for offset in (start - 1, 0):
            row = client.fetch(topic, offset)
            must(out_of_range(row), f"at {offset}, start {start}: {row}")
        row = client.fetch(topic, start)
        must(row["error"] == 0 and batches.read(row["records"])[0]["base"] <= start, f"at the start: {row['error']}")
        must(row["log_start"] == start, f"log start {row['log_start']}, not {start}")
        must(client.end(topic) == 100, "the end moved")


@check
def fetch_refuses_what_is_not_there(run):
    with run.connect() as client, run.connect(run.second) as follower:
        absent = client.fetch(f"{run.stamp}-absent", 0, max_wait=3000)
        must(absent["error"] == UNKNOWN_TOPIC, f"absent topic: {absent}")
        for partition in (1, 99, -1, 2**31 - 1):
            row = client.fetch(run.topic, 0, partition, max_wait=3000)
            must(row["error"] == UNKNOWN_TOPIC, f"partition {partition}: {row}")
        row = client.fetch(b"\x07" * 16, 0, version=13, max_wait=3000)
        must(row["error"] == UNKNOWN_TOPIC_ID, f"unknown id: {row}")
        alone = run.new_topic("alone", replicas=run.nodes[:1])
        follower.metadata([alone])
        row = wait_for("the other broker to know the topic", lambda: (
            lambda row: row["error"] != UNKNOWN_TOPIC and row)(follower.fetch(alone, 0, version=12)), 5)
        must(row["error"] == NOT_LEADER, f"a broker without a replica: {row}")
        must(0 in (tags := row["tags"]) or 1 in tags, f"nobody told who leads: {row}")
        epoch = client.topic(run.topic)["partitions"][0]["leader_epoch"]
        for believed, error in ((epoch, NONE), (epoch + 1, UNKNOWN_EPOCH), (epoch - 1, FENCED_EPOCH)):
            if believed >= 0:
                wanted = [{"index": 0, "offset": 0, "max_bytes": 1000, "leader_epoch": believed}]
                row = client.fetch_all({run.topic: wanted}, 11)[run.topic, 0]
                must(row["error"] == error, f"leader epoch {believed}: {row['error']}, not {error}")


@check
def same_partition_asked_twice_is_answered(run):
    """Kafka's clients never do; it must not break the answer."""
    with run.connect() as client:
        twice = rows(1) + rows(1)
        client.send(request("Fetch", 11, 5, max_bytes=1000, topics=[{"name": run.topic, "partitions": twice},
                                                                    {"name": run.topic, "partitions": twice}]))
        must(client.receive(2) not in (CLOSED, SILENT), "no answer")
        client.metadata([])


@check
def same_records_in_every_fetch_version(run):
    """Ten records: names up to version 12, ids from 13 on, the same bytes each time."""
    topic = run.new_topic("versions")
    with run.connect() as client:
        client.produce(topic, batches.good(10))
        by_id = client.topic(topic)["id"]
        first = None
        for version in range(4, 19):
            row = client.fetch(by_id if version >= 13 else topic, 0, version=version, max_wait=500)
            records = row["records"]
            must(row["error"] == 0 and len(batches.read_records(batches.read(records)[0])) == 10, f"v{version}: {row}")
            first = first or records
            must(records == first, f"version {version} gives other bytes")


@check
def metadata_tells_null_from_empty(run):
    names = {run.new_topic("meta"), run.new_topic("meta")}
    with run.connect() as client:
        told = lambda version, topics: {row["name"] for row in client.metadata(topics, version)["topics"]}
        must(names <= told(0, []), "version 0 with an empty list does not give all topics")
        for version in range(1, 14):
            must(names <= told(version, None), f"version {version} with null does not give all topics")
            answer = client.metadata([], version)
            must(answer["topics"] == [] and len(answer["brokers"]) >= 2, f"version {version}, empty: {answer}")
            if version >= 2:
                must(answer["cluster"], f"version {version}: no cluster id")
            must(answer["controller"] in [row["id"] for row in answer["brokers"]], f"version {version}: {answer}")
    with run.connect() as client:
        client.send(request("Metadata", 0, 3, topics=None))
        must(client.receive(2) is not SILENT, "version 0 with null: no answer and no close")


@check
def metadata_by_id_names_the_topic(run):
    with run.connect() as client:
        wanted = client.topic(run.topic)["id"]
        for version in (12, 13):
            row = client.ask("Metadata", version, topics=[{"id": wanted, "name": None}])["topics"][0]
            must(row["error"] == 0 and row["name"] == run.topic and row["partitions"], f"v{version}: {row}")
            row = client.ask("Metadata", version, topics=[{"id": b"\x09" * 16, "name": None}])["topics"][0]
            must(row["error"] == UNKNOWN_TOPIC_ID and row["id"] == b"\x09" * 16, f"v{version}, unknown id: {row}")
            client.metadata([])
    for version in (10, 11):
        # Version 12 brought lookup by id; before it a null name may be refused, never crash.
        with run.connect() as client:
            client.send(request("Metadata", version, 3, topics=[{"id": wanted, "name": None}]))
            must(client.receive(2) is not SILENT, f"version {version} with a null name: no answer and no close")


@check
def metadata_creates_only_when_told(run):
    with run.connect() as client:
        absent = f"{run.stamp}-not-created"
        for version in (4, 9, 12):
            row = client.metadata([absent], version, auto_create=False)["topics"][0]
            must(row["error"] == UNKNOWN_TOPIC, f"v{version}: {row}")
        names = [row["name"] for row in client.metadata(None)["topics"]]
        must(absent not in names, "it was created")
        for bad in ("", "a/b", "..", "x" * 250, "white space", "\0"):
            row = client.metadata([bad], 12, auto_create=True)["topics"][0]
            must(row["error"] == INVALID_TOPIC, f"name {bad!r}: error {row['error']}")


@check
def addresses_told_are_those_of_the_listeners(run):
    """Metadata, FindCoordinator and DescribeCluster agree, and never give a wildcard (ops-1)."""
    with run.connect() as client:
        told = {(row["host"], row["port"]) for row in client.metadata([])["brokers"]}
        must({run.bootstrap, run.second} <= {f"{host}:{port}" for host, port in told}, f"brokers {told}")
        cluster = client.ask("DescribeCluster", 0)
        must({(row["host"], row["port"]) for row in cluster["brokers"]} == told, f"DescribeCluster: {cluster}")

        def coordinator():
            row = client.ask("FindCoordinator", 2, key=f"{run.stamp}-group")
            return row["error"] == 0 and (row["host"], row["port"])
        must(wait_for("a coordinator", coordinator, 15) in told, "the coordinator is nobody")
        many = client.ask("FindCoordinator", 4, keys=["a", "b", ""])["coordinators"]
        must([row["key"] for row in many] == ["a", "b", ""], f"FindCoordinator 4: {many}")


@check
def special_offsets(run):
    topic = run.new_topic("special")
    with run.connect() as client:
        stamp = batches.now_ms() - 60_000
        for version in range(1, 11):
            row = client.offset_for(topic, LATEST, version=version)
            must((row["error"], row["offset"]) == (0, 0), f"v{version}, latest of an empty log: {row}")
            row = client.offset_for(topic, stamp, version=version)
            must((row["error"], row["offset"], row["timestamp"]) == (0, -1, -1), f"v{version}, time in an empty log: {row}")
        row = client.offset_for(topic, LARGEST, version=7)
        must((row["error"], row["offset"]) == (0, -1), f"largest timestamp of an empty log: {row}")
        records = [batches.record(index, timestamp=delta) for index, delta in enumerate((0, 50, 20))]
        client.produce(topic, batches.batch(records, timestamp=stamp, max_timestamp=stamp + 50))
        client.produce(topic, batches.batch([batches.record(0)], timestamp=stamp + 40))
        for version in range(1, 11):
            ask = lambda timestamp: client.offset_for(topic, timestamp, version=version)
            expected = {LATEST: (0, 4, -1), EARLIEST: (0, 0, -1), stamp: (0, 0, stamp), stamp + 1: (0, 1, stamp + 50),
                        stamp + 51: (0, -1, -1), 0: (0, 0, stamp)}
            for special, since, told in ((LARGEST, 7, (0, 1, stamp + 50)), (EARLIEST_LOCAL, 8, (0, 0, -1)),
                                         (LATEST_TIERED, 9, (0, -1, -1))):
                expected[special] = told if version >= since else (UNSUPPORTED, -1, -1)
            for timestamp, told in expected.items():
                row = ask(timestamp)
                must((row["error"], row["offset"], row["timestamp"]) == told, f"v{version} {timestamp}: {row}, not {told}")
        for timestamp in (-7, -2**63):
            must(client.offset_for(topic, timestamp, version=10)["error"] != 0, f"timestamp {timestamp} has an answer")
        must(client.offset_for(topic, 2**63 - 1)["offset"] == -1, "the end of time has an offset")
        for partition in (1, -1, 2**31 - 1):
            row = client.offset_for(topic, LATEST, partition)
            must(row["error"] == UNKNOWN_TOPIC, f"partition {partition}: {row}")
    with run.connect(run.second) as follower:
        row = follower.offset_for(topic, LATEST)
        must(row["error"] == NOT_LEADER, f"ListOffsets at a follower: {row}")
