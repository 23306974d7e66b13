"""Peers that speak no Kafka, stop midway, or never read: each loses its own connection, and nobody else notices.

Cases: protocol-7, protocol-3 (peers that do not read).
"""
import random
import re
import socket
import struct
import threading
import time
import urllib.request

import batches
from checks import check, must, wait_for
from client import CLOSED, SILENT, parse_address, request
from process import MIB, FlatMemory

CLOSED_WITHIN = 1.0
LINES_PER_SECOND = 5
FLOOD = 10_000
FLOOD_WITHIN = 60.0
STALLED = 100

HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: curl/8.0\r\nAccept: */*\r\n\r\n"
TLS = bytes.fromhex("160301006b010000670303") + bytes(range(100))


def garbage(seed):
    return random.Random(seed).randbytes(200)


BAD_BYTES = {
    "http": HTTP,
    "http_post": b"POST /topics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "tls_hello": TLS,
    "all_ones": b"\xff\xff\xff\xff",
    "zero_length": bytes(4),
    "shorter_than_a_header": struct.pack(">i", 7) + bytes(7),
    "length_above_the_limit": struct.pack(">i", 104_857_601),
    "length_2_gib": struct.pack(">i", 2**31 - 1) + bytes(64),
    "length_minus_2_gib": struct.pack(">i", -2**31),
    "unknown_api": struct.pack(">ihhih", 10, 999, 0, 7, -1),
    "negative_api": struct.pack(">ihhih", 10, -1, 0, 7, -1),
    "removed_api": struct.pack(">ihhih", 10, 4, 0, 7, -1),
    "negative_version": struct.pack(">ihhih", 10, 3, -1, 7, -1),
    "version_of_the_future": struct.pack(">ihhih", 10, 3, 99, 7, -1),
    "controller_only_api": struct.pack(">ihhih", 12, 63, 0, 7, -1) + bytes(2),
    "header_cut": struct.pack(">ihhi", 8, 3, 1, 7),
    "client_id_beyond_the_frame": struct.pack(">ihhih", 10, 3, 1, 7, 30_000),
    "client_id_not_utf8": struct.pack(">ihhih", 12, 3, 1, 7, 2) + b"\xff\xfe",
    "tags_beyond_the_frame": struct.pack(">ihhih", 12, 3, 12, 7, -1) + b"\xff\xff",
    "random_bytes": struct.pack(">i", 200) + garbage(7),
}


@check
def bad_bytes_close_only_their_connection(run):
    """Each kind: closed within a second, memory flat, a line that names the peer; a neighbour is served all the time."""
    neighbour = run.connect()
    # What others sent before has used up the lines of its second.
    time.sleep(1.1)
    with FlatMemory(run.process, 5, "bad bytes"):
        for name, data in BAD_BYTES.items():
            position = run.process.log_size()
            with run.connect() as bad:
                bad.send(data)
                took = bad.closed_after(CLOSED_WITHIN + 1)
                must(took is not None and took < CLOSED_WITHIN, f"{name}: closed after {took} s")
                if run.process.log and name != "client_id_not_utf8":
                    peer = f"127.0.0.1:{bad.local_port}"
                    wait_for(f"{name}: a line that names {peer}",
                             lambda: any(peer in line for line in run.process.lines_since(position)), 2)
            neighbour.metadata([])
            time.sleep(1.1 / LINES_PER_SECOND)
    neighbour.close()


@check
def line_of_a_foreign_protocol_says_so(run):
    """Who opens a broker with a browser, or TLS, learns it from the log."""
    if not run.process.log:
        return
    for data, word in ((HTTP, "HTTP"), (TLS, "TLS")):
        time.sleep(1)
        position = run.process.log_size()
        with run.connect() as bad:
            bad.send(data)
            bad.closed_after(2)
        wait_for(f"a line with {word}",
                 lambda: any(word in line for line in run.process.lines_since(position)), 2)


@check
def bad_bytes_behind_good_requests_let_those_be_answered(run):
    with run.connect() as client:
        client.send(request("Metadata", 12, 5, topics=[]) + request("Metadata", 9, 6, topics=[]) + b"\xff\xff\xff\xff")
        for correlation in (5, 6):
            data = client.receive(2)
            must(data not in (CLOSED, SILENT), f"request {correlation} before the bad bytes: {data}")
            must(struct.unpack(">i", data[:4])[0] == correlation, f"answer {data[:4].hex()}")
        must(client.closed_after(2) is not None, "the connection stayed open")


@check
def bad_bytes_behind_a_waiting_fetch_close_within_a_second(run):
    """A fetch that waits for half a minute does not keep a connection whose next bytes are garbage."""
    topic = run.new_topic("parked")
    with run.connect() as client:
        rows = [{"index": 0, "offset": 0, "max_bytes": 1000}]
        client.send(request("Fetch", 11, 9, max_wait=30_000, min_bytes=1, max_bytes=1000,
                            topics=[{"name": topic, "partitions": rows}]))
        must(client.receive(0.3) is SILENT, "the fetch did not wait")
        client.send(b"\xff\xff\xff\xff")
        took = client.closed_after(5)
        must(took is not None and took < CLOSED_WITHIN, f"closed after {took} s")


@check
def halves_of_a_frame_are_put_together(run):
    """Cut at every place of length and header, and once with two seconds in between."""
    whole = request("Metadata", 12, 77, topics=[])
    with run.connect() as slow:
        slow.send(whole[:len(whole) // 2])
        for cut in range(1, len(whole)):
            with run.connect() as client:
                client.send(whole[:cut])
                time.sleep(0.002)
                client.send(whole[cut:])
                data = client.receive(2)
                must(data not in (CLOSED, SILENT) and data[:4] == struct.pack(">i", 77), f"cut at {cut}: {data}")
        time.sleep(2)
        slow.send(whole[len(whole) // 2:])
        must(slow.receive(2) not in (CLOSED, SILENT), "no answer to the frame that took two seconds")
    with run.connect() as client:
        for at in range(len(whole)):
            client.send(whole[at:at + 1])
        must(client.receive(2) not in (CLOSED, SILENT), "no answer to a frame of single bytes")


@check
def many_requests_in_one_piece_are_answered_in_order(run):
    """More than may be in flight: reading pauses, nothing is lost."""
    with run.connect() as client:
        client.send(b"".join(request("Metadata", 12, number, topics=[]) for number in range(500)))
        for number in range(500):
            data = client.receive(5)
            must(data not in (CLOSED, SILENT), f"answer {number}: {data}")
            must(struct.unpack(">i", data[:4])[0] == number, f"answer {number} is {data[:4].hex()}")


@check
def idle_connections_cost_little_and_leave_nothing(run):
    files = run.process.files()
    with FlatMemory(run.process, 16, "1000 idle connections"):
        idle = [run.connect() for _ in range(1000)]
        for number, connection in enumerate(idle):
            if number % 2:
                connection.send(b"\0\0")
        with run.connect() as client:
            client.metadata([])
        # One or two of those open before may have been about to close.
        wait_for("1000 connections to be open", lambda: run.process.files() >= files + 990, 10)
        for connection in idle:
            connection.close()
        run.process.files_back_to(files)


@check
def declared_but_unsent_frames_take_no_memory(run):
    """300 peers announce 100 MB each and send a few bytes."""
    files = run.process.files()
    with FlatMemory(run.process, 16, "300 announced frames of 100 MB"):
        peers = [run.connect() for _ in range(300)]
        for peer in peers:
            peer.send(struct.pack(">ihhi", 104_857_600, 0, 9, 1) + bytes(1000))
        with run.connect() as client:
            client.metadata([])
        time.sleep(1)
        grown = run.process.memory()
        for peer in peers:
            peer.close()
        run.process.files_back_to(files)
    must(grown < 1 << 30, f"{grown // MIB} MiB resident")


@check
def a_large_bad_frame_leaves_no_memory_with_its_connection(run):
    """Twenty connections send 16 MB of a Produce request that is refused by its acks, and stay open."""
    peers = [run.connect() for _ in range(20)]
    try:
        with FlatMemory(run.process, 48, "20 connections after a frame of 16 MB each"):
            data = request("Produce", 9, 3, acks=2,
                           topics=[{"name": run.topic, "partitions": [{"index": 0, "records": bytes(16 << 20)}]}])
            for peer in peers:
                peer.send(data)
                must(peer.receive(10) not in (CLOSED, SILENT), "no answer to a large frame")
            for peer in peers:
                peer.metadata([])
    finally:
        for peer in peers:
            peer.close()


@check
def peers_that_do_not_read_keep_nobody_waiting(run):
    """Each asks for 8 MB eight times over and reads nothing: one answer each is held, others are served at once."""
    topic = run.new_topic("unread")
    with run.connect() as client:
        big = batches.good(1, value=bytes(1 << 19))
        for _ in range(16):
            must(client.produce(topic, big)["error"] == 0, "produce failed")
        rows = [{"index": 0, "offset": 0, "max_bytes": 8 << 20}]
        fetch = request("Fetch", 11, 1, max_bytes=8 << 20, topics=[{"name": topic, "partitions": rows}])
        before, files = run.process.memory(), run.process.files()
        peers = [run.connect() for _ in range(STALLED)]
        for peer in peers:
            peer.send(fetch * 8)
        highest, slowest, limit = 0, 0.0, time.monotonic() + 3
        while time.monotonic() < limit:
            started = time.monotonic()
            client.metadata([])
            must(client.produce(topic, batches.good(1))["error"] == 0, "produce failed")
            slowest = max(slowest, time.monotonic() - started)
            highest = max(highest, run.process.memory())
        for peer in peers:
            peer.close()
        grown = (highest - before) // MIB
        must(grown < STALLED * 9 + 64, f"memory grew by {grown} MiB: more than one answer per connection")
        must(slowest < 2, f"another client waited {slowest:.1f} s")
        run.process.files_back_to(files)
        wait_for(f"memory to come back, {run.process.memory() // MIB} MiB against {before // MIB}",
                 lambda: run.process.memory() < before + 64 * MIB, 10)


class Pair:
    """A producer and a consumer that go on while others misbehave: numbered records, each seen once and in order."""

    def __init__(self, run, topic):
        self.run, self.topic = run, topic
        self.produced = self.consumed = 0
        self.slowest, self.wrong = 0.0, None
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._guard, args=(work,), daemon=True)
                        for work in (self._produce, self._consume)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)

    def _guard(self, work):
        try:
            work()
        except Exception as why:  # shown by the check, which fails by it
            self.wrong = repr(why)

    def _produce(self):
        with self.run.connect() as client:
            while not self.stop.is_set():
                started = time.monotonic()
                row = client.produce(self.topic, batches.good(1, value=b"%d" % self.produced))
                must(row["error"] == 0 and row["base"] == self.produced, f"produce {self.produced}: {row}")
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.produced += 1

    def _consume(self):
        with self.run.connect() as client:
            while not (self.stop.is_set() and self.consumed >= self.produced):
                row = client.fetch(self.topic, self.consumed, max_wait=200)
                must(row["error"] == 0, f"fetch {self.consumed}: error {row['error']}")
                for found in batches.read(row["records"]):
                    for _, value, _ in batches.read_records(found):
                        must(int(value) == self.consumed, f"record {value} at {self.consumed}")
                        self.consumed += 1


def refused_connections(run):
    """How many the broker has closed because of what they sent."""
    with urllib.request.urlopen(f"http://{run.http}/metrics", timeout=10) as answer:
        return float(re.search(r"^sakia_bad_connections_total (\S+)$", answer.read().decode(), re.MULTILINE)[1])


@check
def ten_thousand_bad_connections_change_nothing(run):
    """Within a minute, beside a producer and a consumer: memory, files and log stay in bounds."""
    files, position, refused = run.process.files(), run.process.log_size(), refused_connections(run)
    pair = Pair(run, run.new_topic("pair"))
    with pair:
        wait_for("the pair to work", lambda: pair.consumed > 50 or pair.wrong, 20)
        idle = run.process.settled_memory(1)
        started = time.monotonic()
        kinds = list(BAD_BYTES.values())
        address = parse_address(run.bootstrap)
        for number in range(FLOOD):
            peer = socket.create_connection(address, timeout=10)
            peer.sendall(kinds[number % len(kinds)])
            if number % 3:
                # Read until it is closed, as curl does; the others leave first.
                try:
                    while peer.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
            peer.close()
            must(pair.wrong is None, f"the pair failed: {pair.wrong}")
        took = time.monotonic() - started
        at_the_end = pair.produced
        wait_for("the pair to go on", lambda: pair.produced > at_the_end + 20 or pair.wrong, 10)
    must(pair.wrong is None, f"the pair failed: {pair.wrong}")
    must(pair.consumed == pair.produced, f"{pair.consumed} of {pair.produced} records came")
    must(took < FLOOD_WITHIN, f"10,000 connections took {took:.0f} s")
    must(pair.slowest < 2, f"one produce took {pair.slowest:.1f} s")
    run.process.files_back_to(files + 4)
    # Who leaves first may be gone before anybody looks at what it sent.
    refused = refused_connections(run) - refused
    must(refused >= FLOOD // 3 * 2, f"only {refused:.0f} connections were closed for what they sent")
    grown = (run.process.settled_memory(2) - idle) // MIB
    must(grown <= 64, f"memory stands {grown} MiB above idle")
    lines = [line for line in run.process.lines_since(position) if "closed a connection" in line]
    must(len(lines) <= (took + 3) * LINES_PER_SECOND * 4, f"{len(lines)} lines in {took:.0f} s")
    print(f"   10,000 bad connections in {took:.1f} s, {refused:.0f} closed by the broker, beside {pair.produced} records, slowest produce "
          f"{pair.slowest * 1000:.0f} ms, memory {grown:+d} MiB, {len(lines)} lines")


@check
def bad_bytes_on_the_page_close_only_their_connection(run):
    """The HTTP port takes what it can get: no crash, and metrics are there afterwards."""
    for data in (bytes(4), b"\xff" * 5000, TLS, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
                 b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 10_000 + b"\r\n", request("Metadata", 12, topics=[]),
                 b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\nHost: h\r\n\r\n",
                 b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: h\r\n\r\nffffffffffffffff\r\n"):
        peer = socket.create_connection(parse_address(run.http), timeout=2)
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        except OSError:
            # Closed while it was sent, in one of several ways.
            pass
        peer.close()
    peer = socket.create_connection(parse_address(run.http), timeout=5)
    peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    said = b""
    while part := peer.recv(65536):
        said += part
    peer.close()
    must(said.startswith(b"HTTP/1.1 200") and b"# TYPE" in said, f"metrics: {said[:200]!r}")
    run.process.must_live("bad bytes on the page")


