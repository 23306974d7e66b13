"""A client of raw sockets: one connection, frames as we like them, and Kafka's requests by name.

Path: every check talks through here. Always: a socket has a time limit, so no check can wait for ever.
"""
import random
import socket
import struct
import time

from apis import BY_NAME, RESPONSE_HEADER_STAYS_OLD
from checks import must, wait_for
from codec import Reader, decode, encode

CLOSED = "closed"
SILENT = "silent"


def parse_address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def frame(api, version, body, correlation=1, client="hostile"):
    """Length, header and body of a request."""
    head = struct.pack(">hhi", api.key, version, correlation)
    client = client if client is None else client.encode()
    head += struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    if api.is_compact(version):
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def request(name, version, correlation=1, **values):
    """A whole request frame."""
    api = BY_NAME[name]
    return frame(api, version, encode(api.request, values, version, api.is_compact(version)), correlation)


def read_answer(name, version, data):
    """Correlation id and values of an answer; raises Malformed unless it is whole and nothing is left over."""
    api, reader = BY_NAME[name], Reader(data)
    correlation = reader.fixed(">i")
    if api.is_compact(version) and api.key != RESPONSE_HEADER_STAYS_OLD:
        reader.tags()
    values = decode(api.response, reader, version, api.is_compact(version))
    reader.end()
    return correlation, values


class Connection:
    """One connection to a broker."""

    def __init__(self, address, limit=10.0):
        self.address = address
        self.socket = socket.create_connection(parse_address(address), timeout=limit)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_port = self.socket.getsockname()[1]
        self.correlation = random.randrange(1 << 20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, limit=None):
        """The next frame after its length; CLOSED, or SILENT when nothing comes within `limit` seconds."""
        if limit is not None:
            self.socket.settimeout(limit)
        try:
            head = self._exactly(4)
            if head is None:
                return CLOSED
            data = self._exactly(struct.unpack(">i", head)[0])
            return CLOSED if data is None else data
        except TimeoutError:
            return SILENT
        except (ConnectionResetError, BrokenPipeError):
            return CLOSED

    def _exactly(self, count):
        parts, left = [], count
        while left > 0:
            part = self.socket.recv(min(left, 1 << 20))
            if not part:
                return None
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def ask(self, name, version, limit=10.0, **values):
        """The answer to a request."""
        self.correlation += 1
        self.send(request(name, version, self.correlation, **values))
        data = self.receive(limit)
        must(data is not CLOSED, f"{name} version {version}: the connection was closed")
        must(data is not SILENT, f"{name} version {version}: no answer within {limit} s")
        correlation, answer = read_answer(name, version, data)
        must(correlation == self.correlation, f"{name}: answer to {correlation}, not to {self.correlation}")
        return answer

    def closed_after(self, limit):
        """Seconds until the peer closes, whatever it sends before; None if it does not."""
        started = time.monotonic()
        while (left := limit - (time.monotonic() - started)) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(1 << 16):
                    return time.monotonic() - started
            except TimeoutError:
                return None
            except (ConnectionResetError, BrokenPipeError):
                return time.monotonic() - started
        return None

    # Requests in the form that most checks need them.

    def metadata(self, topics, version=12, **more):
        wanted = None if topics is None else [{"name": name} for name in topics]
        return self.ask("Metadata", version, topics=wanted, **more)

    def node(self):
        """The node.id of the broker at the other end."""
        port = parse_address(self.address)[1]
        return next(row["id"] for row in self.metadata([])["brokers"] if row["port"] == port)

    def topic(self, name):
        """The one topic of this name as Metadata tells it."""
        return self.metadata([name])["topics"][0]

    def create(self, name, assignments, configs=None, partitions=-1, replicas=-1):
        """Creates a topic; `assignments` lists the brokers of each partition. Gives error and message."""
        rows = [{"index": index, "brokers": brokers} for index, brokers in enumerate(assignments)]
        configs = [{"name": key, "value": str(value)} for key, value in (configs or {}).items()]
        topic = {"name": name, "partitions": partitions, "replicas": replicas, "assignments": rows, "configs": configs}
        row = self.ask("CreateTopics", 7, topics=[topic], timeout=10_000)["topics"][0]
        return row["error"], row["message"]

    def delete(self, *names):
        topics = [{"name": name} for name in names]
        return [row["error"] for row in self.ask("DeleteTopics", 6, topics=topics, timeout=10_000)["topics"]]

    def produce(self, topic, records, version=9, partition=0, acks=-1, **more):
        """The answer's row for one partition; `topic` is a name, from version 13 on an id."""
        by = {"id": topic} if version >= 13 else {"name": topic}
        topics = [{**by, "partitions": [{"index": partition, "records": records}]}]
        return self.ask("Produce", version, acks=acks, topics=topics, **more)["topics"][0]["partitions"][0]

    def fetch_all(self, topics, version=11, max_wait=0, min_bytes=1, max_bytes=50 << 20, limit=10.0, **more):
        """Rows by (topic, partition); `topics` maps a topic to rows with index, offset, max_bytes."""
        key = "id" if version >= 13 else "name"
        wanted = [{key: topic, "partitions": rows} for topic, rows in topics.items()]
        answer = self.ask("Fetch", version, limit, max_wait=max_wait, min_bytes=min_bytes, max_bytes=max_bytes,
                          topics=wanted, **more)
        return {(topic[key], row["index"]): row for topic in answer["topics"] for row in topic["partitions"]}

    def fetch(self, topic, offset, partition=0, version=11, partition_bytes=1 << 20, **more):
        """The row of one partition."""
        rows = [{"index": partition, "offset": offset, "max_bytes": partition_bytes}]
        return self.fetch_all({topic: rows}, version, **more)[topic, partition]

    def offset_for(self, topic, timestamp, partition=0, version=7):
        """The row of ListOffsets."""
        rows = [{"index": partition, "timestamp": timestamp}]
        return self.ask("ListOffsets", version, topics=[{"name": topic, "partitions": rows}])["topics"][0][
            "partitions"][0]

    def end(self, topic, partition=0):
        row = self.offset_for(topic, -1, partition)
        must(row["error"] == 0, f"ListOffsets of {topic}-{partition}: error {row['error']}")
        return row["offset"]

    def ready_topic(self, name, assignments, configs=None):
        """Creates a topic and waits until this broker tells a leader for each of its partitions."""
        error, message = self.create(name, assignments, configs)
        must(error == 0, f"topic {name} could not be created: {error} {message}")

        def led():
            topic = self.topic(name)
            return topic["error"] == 0 and all(row["leader"] >= 0 for row in topic["partitions"]) and topic
        topic = wait_for(f"leaders of {name}", led, 10)

        mine = [row["index"] for row in topic["partitions"] if row["leader"] == self.node()]
        wait_for(f"{name} to be served", lambda: all(self.offset_for(name, -1, index)["error"] == 0 for index in mine),
                 10)
        return topic
