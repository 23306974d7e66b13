"""Starts that cannot work are refused in one clear line; settings that bound a peer do bound it.

Cases: ops-1, io-1, protocol-7 (idle limit), s3 (a bucket that is not there). Every process here is started by the
check itself, beside the cluster under test.
"""
import os
import pathlib
import random
import shutil
import socket
import struct
import tempfile

import batches
import reading
from bad_connections import BAD_BYTES
from checks import Skipped, check, must, wait_for
from client import CLOSED, parse_address, request
from own_cluster import CONTROLLER, OwnCluster, Server, free_ports, refuses

REFUSED = 2


def refused_naming(run, settings, *words, code=REFUSED):
    """Refused before anything was started, in one line that holds every word."""
    got, said, _ = refuses(run, settings)
    must(got == code and len(said.splitlines()) == 1, f"{settings}: exit code {got}: {said}")
    for word in words:
        must(word in said, f"{settings}: `{word}` is missing in: {said}")


def properties_of(process):
    """The settings of a running server, from the file that its command line names."""
    words = pathlib.Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    path = words[words.index("--config") + 1]
    pairs = (line.split("=", 1) for line in pathlib.Path(path).read_text().splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


@check
def unknown_settings_are_refused_by_name(run):
    for key, nearest in (("node.idd", "node.id"), ("log.dir", "log.dirs"), ("numpartitions", "num.partitions")):
        refused_naming(run, {key: "1"}, key, nearest)


@check
def bad_values_are_refused_by_name(run):
    for key, value in (("node.id", "one"), ("node.id", "-1"), ("node.id", "2147483648"), ("shards", "0"),
                       ("shards", "65"), ("process.roles", "wizard"), ("process.roles", "broker,controller"),
                       ("listeners", "127.0.0.1:9092"), ("listeners", "PLAINTEXT://127.0.0.1:99999"),
                       ("listeners", "PLAINTEXT://127.0.0.1"), ("listeners", "SSL://127.0.0.1:9092"),
                       ("controller.quorum.voters", "here"), ("controller.quorum.voters", "3@nowhere"),
                       ("message.max.bytes", "1GB"), ("num.partitions", "0"), ("log.segment.bytes", "1"),
                       ("auto.create.topics.enable", "yes"), ("log.cleanup.policy", "compact"),
                       ("log.dirs", "/tmp/a,/tmp/b"), ("shard.cpus", "0,1,2"), ("shard.cpus", "first"),
                       ("http.port", "70000"), ("zookeeper.connect", "localhost:2181"), ("broker.id", "1")):
        refused_naming(run, {key: value}, key)


@check
def addresses_that_nobody_can_reach_are_refused(run):
    """A wildcard is never told to clients (ops-1)."""
    for host in ("0.0.0.0", "", "[::]"):
        refused_naming(run, {"listeners": f"PLAINTEXT://{host}:0"}, "advertised.listeners")
    for host in ("0.0.0.0", "::", "[::]", ""):
        refused_naming(run, {"advertised.listeners": f"PLAINTEXT://{host}:9092"}, "advertised.listeners")
    refused_naming(run, {"advertised.listeners": "PLAINTEXT://127.0.0.1:0"}, "advertised.listeners")


@check
def a_taken_port_is_refused_by_number(run):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        refused_naming(run, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port)
        refused_naming(run, {"http.port": port}, port)
    port = str(parse_address(run.bootstrap)[1])
    refused_naming(run, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port)


@check
def a_folder_in_use_is_refused_by_name(run):
    """The data folder of the broker under test: it goes on, undisturbed."""
    folder = properties_of(run.process)["log.dirs"]
    code, said, _ = refuses(run, {"log.dirs": folder, "node.id": run.nodes[0]})
    must(any(folder in line and "in use" in line for line in said.splitlines()), f"exit code {code}: {said}")
    with run.connect() as client:
        must(client.produce(run.topic, batches.good())["error"] == 0, "the owner of the folder does not serve")


@check
def folders_that_cannot_hold_data_are_refused_by_name(run):
    with tempfile.NamedTemporaryFile() as file:
        refused_naming(run, {"log.dirs": file.name}, file.name)
        refused_naming(run, {"log.dirs": file.name + "/below"}, file.name)
    for folder in ("/proc/sakia", "/sys/sakia", "/dev/null"):
        refused_naming(run, {"log.dirs": folder}, folder)


@check
def bad_bucket_addresses_are_refused(run):
    on = {"remote.log.wal.storage.system.enable": "true"}
    for url, word in (("", "remote.wal.storage.url"), ("gs://bucket/prefix", "gs"), ("bucket/prefix", "s3://"),
                      ("s3://", "bucket"), ("s3:///prefix", "bucket"), ("s3://bucket/p?colour=red", "colour"),
                      ("s3://bucket/p?path-style=maybe", "path-style"),
                      ("s3://bucket/p?endpoint=nowhere&region=r", "endpoint")):
        refused_naming(run, {**on, "remote.wal.storage.url": url}, word)


def dead_bucket():
    port = free_ports(1)[0]
    return {"remote.log.wal.storage.system.enable": "true", "log.remote.wal.storage.enable": "true",
            "remote.wal.storage.url": f"s3://nowhere/p?endpoint=http://127.0.0.1:{port}&region=r&path-style=true"}


@check
def a_bucket_out_of_reach_does_not_stop_brokers(run):
    """They start, say so, and replicate by record bytes; offsets need both replicas. Stops are clean."""
    with OwnCluster(run, {**dead_bucket(), "min.insync.replicas": 2}) as own:
        topic = own.new_topic("bytes", partitions=2)
        with own.connect() as client:
            for number in range(50):
                for partition in range(2):
                    row = client.produce(topic, batches.good(2), partition=partition)
                    must((row["error"], row["base"]) == (0, number * 2), f"produce {number}: {row}")
            told = client.topic(topic)["partitions"]
            must(all(sorted(row["isr"]) == [1, 2] for row in told), f"{told}")
        said = own.servers[1].said()
        must("WARN" in said or "ERROR" in said, "the broker says nothing of its bucket")
        for node in (2, 1, CONTROLLER):
            code = own.servers[node].stop()
            must(code == 0, f"node {node} stopped with {code}: {own.servers[node].said()[-300:]}")


@check
def a_folder_of_another_node_or_cluster_is_refused(run):
    with OwnCluster(run) as own:
        with own.connect() as client:
            client.produce(own.new_topic("kept"), batches.good())
        must(own.servers[1].stop() == 0, "no clean stop")
        own.start(1, **{"node.id": 7})
        code = own.servers[1].ended_with(8)
        said = own.servers[1].said().splitlines()[-1]
        must(code in (1, 2), f"folder of another node: exit code {code}: {said}")
        whole = own.servers[1].said()
        must("node 1" in whole and "7" in whole and str(own.folder(1)) in whole, f"it does not say whose it is: {said}")
        with OwnCluster(run) as other:
            must(other.servers[1].stop() == 0, "no clean stop")
            other.start(1, **{"log.dirs": own.folder(1)})
            code = other.servers[1].ended_with(8)
            with other.connect(other.second) as client:
                live = [row["id"] for row in client.metadata([])["brokers"]]
            said = other.servers[1].said()
            must(1 not in live, "a broker with the data of another cluster was taken in")
            must("cluster" in said and (code in (1, 2) or "refused" in said or "another cluster" in said),
                 f"it does not say that its data are of another cluster: exit code {code}: {said[-700:]}")


@check
def what_bounds_a_peer_bounds_it(run):
    """Idle limit, number of connections, size of a request; on two shards."""
    bounds = {"connections.max.idle.ms": 1000, "max.connections": 60, "socket.request.max.bytes": 100_000, "shards": 2}
    with OwnCluster(run, bounds) as own:
        for what, data in (("nothing", b""), ("half a length", b"\0\0"), ("a header", request("Metadata", 12, topics=[])[:9]),
                           ("a whole request", request("Metadata", 12, topics=[]))):
            with own.connect() as peer:
                peer.send(data)
                took = peer.closed_after(5)
                must(took is not None and 0.8 < took < 3, f"silent after {what}: closed after {took} s")
        with own.connect() as peer:
            peer.send(struct.pack(">ihhih", 100_001, 3, 12, 1, -1))
            must(peer.closed_after(1) is not None, "a request above socket.request.max.bytes was awaited")
        topic = own.new_topic("unread")
        with own.connect() as client:
            for _ in range(40):
                client.produce(topic, batches.good(1, value=bytes(90_000)))
            stubborn = own.connect()
            stubborn.metadata([])
            rows = [{"index": 0, "offset": 0, "max_bytes": 4 << 20}]
            stubborn.send(request("Fetch", 11, 1, max_bytes=4 << 20, topics=[{"name": topic, "partitions": rows}]) * 200)
            files = own.process.files()

            def gone():
                client.metadata([])
                return own.process.files() < files
            wait_for("a peer that takes no answers to be dropped", gone, 6)
            stubborn.close()
            many, refused = [], 0
            for _ in range(80):
                peer = own.connect()
                peer.send(request("Metadata", 12, topics=[]))
                refused += peer.receive(2) is CLOSED
                many.append(peer)
            must(15 <= refused <= 40, f"{refused} of 80 connections were refused above max.connections=60")
            client.metadata([])
            for peer in many:
                peer.close()
        own.wait_until_ready()


@check
def limits_of_fetch_hold_over_two_shards(run):
    """One answer of several shards keeps the limits of one request."""
    with OwnCluster(run, {"shards": 2, "log.retention.check.interval.ms": 300}) as own:
        for one in (reading.small_fetches_reach_the_end_of_every_partition,
                    reading.first_batch_comes_whole_above_every_limit,
                    reading.twenty_large_fetches_stay_in_their_limit,
                    reading.out_of_range_at_the_start_of_the_log):
            try:
                one(own)
            except Exception as why:
                raise AssertionError(f"{one.__name__}: {why}") from why


@check
def a_port_of_zero_is_told_as_the_real_one(run):
    with OwnCluster(run) as own:
        own.servers[2].stop()
        own.start(2, listeners="PLAINTEXT://127.0.0.1:0")

        def told():
            with own.connect() as client:
                rows = [row for row in client.metadata([])["brokers"] if row["id"] == 2]
                return rows and rows[0]["port"] != own.ports[2] and rows[0]
        row = wait_for("broker 2 with another port", told, 15)
        must(row["port"] != 0, f"{row}")
        with own.connect(f"{row['host']}:{row['port']}") as client:
            must(client.node() == 2, "another broker answers there")


def other_folders():
    """A folder of each file system in memory, which may lack direct I/O."""
    with open("/proc/self/mounts") as mounts:
        kinds = {point: kind for _, point, kind, *_ in map(str.split, mounts)}
    seen = set()
    for base in ("/dev/shm", "/run"):
        kind = kinds.get(base)
        if kind and kind not in seen and os.access(base, os.W_OK) and shutil.disk_usage(base).free > 1 << 30:
            seen.add(kind)
            yield pathlib.Path(base) / f"sakia-hostile-{os.getpid()}"


@check
def a_folder_in_memory_works_or_is_refused_by_name(run):
    """tmpfs: everything works, also after kill -9, or the start is refused within 5 s with folder and type (io-1)."""
    folders = list(other_folders())
    if not folders:
        raise Skipped("there is no such folder here")
    for folder in folders:
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="sakia-hostile-"))
        probe = Server(run.process.binary, scratch, "probe", {
            "process.roles": "broker", "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "http.port": 0,
            "controller.quorum.voters": "3@127.0.0.1:1", "log.dirs": folder})
        code = probe.ended_with(3)
        probe.kill()
        said = probe.said()
        shutil.rmtree(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        if code is not None:
            must(code == REFUSED and str(folder) in said and "tmpfs" in said, f"exit code {code}: {said}")
            print(f"   {folder} is refused: {said.strip().splitlines()[-1]}")
            continue
        with OwnCluster(run, folders={1: folder}) as own:
            topic = own.new_topic("memory", replicas=[1])
            sizes = (1, 511, 512, 513, 4095, 4096, 4097)
            with own.connect() as client:
                for size in sizes:
                    must(client.produce(topic, batches.good(1, value=bytes(size)))["error"] == 0, f"{size} bytes")
            own.servers[1].kill()
            own.start(1)
            own.wait_until_ready()
            with own.connect() as client:
                wait_for("the log after kill -9", lambda: client.offset_for(topic, -1)["error"] == 0, 15)
                must(client.end(topic) == len(sizes), f"end {client.end(topic)}, not {len(sizes)}")
                found = batches.read(client.fetch(topic, 0)["records"])
                values = [len(batches.read_records(one)[0][1]) for one in found]
                must(tuple(values) == sizes, f"values of {values}")
        print(f"   {folder} works")


@check
def garbage_on_the_controllers_port_changes_nothing(run):
    """Its requests carry the cluster's state: bad bytes and random ones are refused there as well."""
    voters = properties_of(run.process)["controller.quorum.voters"]
    address = voters.split("@")[1].split(",")[0]
    chance = random.Random(run.seed + 3)
    for name, data in BAD_BYTES.items():
        if name in ("version_of_the_future", "negative_version", "controller_only_api"):
            continue
        with run.connect(address) as peer:
            peer.send(data)
            must(peer.closed_after(2) is not None, f"{name}: not closed")
    for key in range(1, 76):
        for version in range(0, 4):
            for length in (0, 3, 40):
                body = chance.randbytes(length)
                with run.connect(address) as peer:
                    peer.send(struct.pack(">ihhih", 10 + len(body), key, version, 7, -1) + body)
                    peer.receive(0.05)
    with run.connect(address) as peer:
        answer = peer.ask("ApiVersions", 0)
        must(answer["error"] == 0 and answer["apis"], f"{answer}")
    topic = run.new_topic("after-the-controller")
    with run.connect() as client:
        must(client.produce(topic, batches.good())["error"] == 0, "the cluster does not go on")


