"""Frames that are almost right: counts and lengths that lie, and thousands of seeded mutations of every request.

Each is answered or closes its connection; the broker lives, its memory stays flat, and nothing that it stored is damaged.
Case: protocol-7. A failing mutation is replayed by `--seed N --only NAME`.
"""
import random
import struct
import time

import batches
from apis import BY_NAME
from checks import check, must
from client import CLOSED, SILENT, frame, read_answer, request
from codec import encode, uvarint
from every_api import small_request, versions
from process import FlatMemory
from producing import must_be_readable

MUTANTS_PER_VERSION = 20
BATCH_MUTANTS = 1500
# What an answer may wait for: members of a group, records.
PATIENCE = 0.05
BIG_COUNTS = (struct.pack(">i", 2**31 - 1), struct.pack(">i", -1), struct.pack(">i", -2**31), struct.pack(">h", -1),
              struct.pack(">h", 32_767), b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01", b"\xff" * 10, b"\x80" * 10,
              b"\x80\x80\x80\x80\x08", bytes(4), bytes(1), struct.pack(">i", 1 << 20), uvarint(1 << 20))


def answered_or_closed(run, name, data, within=2.0):
    with run.connect() as peer:
        peer.send(data)
        got = peer.receive(within)
        must(got is not SILENT, f"{name}: neither answer nor close within {within} s")
        return got


def with_count(name, version, count):
    """A request of which nothing is left but the count of its first array."""
    api, compact, body = BY_NAME[name], BY_NAME[name].is_compact(version), b""
    for field in api.request:
        if version not in field.versions:
            continue
        if field.kind == "array":
            return frame(api, version, body + count, 4)
        alone = encode([field], {}, version, compact)
        body += alone[:-1] if compact else alone  # without the count of tagged fields
    return None


@check
def counts_beyond_the_frame_are_refused(run):
    """For every API and version: its first array claims 2^31-1 elements, or compact 2^31 and 2^32-2, and the frame ends."""
    with run.connect() as client:
        pairs, tried = versions(client), 0
    with FlatMemory(run.process, 8, "counts beyond the frame"):
        for name, version in pairs:
            compact = BY_NAME[name].is_compact(version)
            counts = (uvarint(2**31), uvarint(2**32 - 1), b"\xff" * 20, uvarint(2**35)) if compact else (
                struct.pack(">i", 2**31 - 1), struct.pack(">i", -2), struct.pack(">i", -2**31))
            for count in counts:
                if (data := with_count(name, version, count)) is None:
                    continue
                got = answered_or_closed(run, f"{name} {version} count {count.hex()}", data)
                must(got is CLOSED, f"{name} {version} count {count.hex()}: answered {got[:40]!r}")
                tried += 1
    print(f"   {tried} frames")


@check
def fifty_bytes_of_metadata_ask_for_nothing(run):
    """Array count 2^31-1 in front of 40 bytes, in every version."""
    with FlatMemory(run.process, 5, "Metadata of 2^31-1 topics"):
        for version in range(14):
            count = uvarint(2**31) if version >= 9 else struct.pack(">i", 2**31 - 1)
            data = frame(BY_NAME["Metadata"], version, count + bytes(40), 4)
            must(answered_or_closed(run, f"version {version}", data) is CLOSED, f"version {version} was answered")


@check
def records_of_two_gigabytes_are_refused(run):
    with FlatMemory(run.process, 5, "records of 2 GB"):
        for version in range(3, 14):
            whole = request("Produce", version, 5, topics=[
                {"name": run.topic, "id": run.topic_id, "partitions": [{"index": 0, "records": b"?" * 100}]}])
            old = uvarint(101) if version >= 9 else struct.pack(">i", 100)
            at = whole.index(old + b"?" * 100)
            for lie in ((uvarint(2**31 - 1), uvarint(2**31 + 1), uvarint(2**32 - 1)) if version >= 9 else
                        (struct.pack(">i", 2**31 - 1), struct.pack(">i", -2), struct.pack(">i", 101))):
                data = whole[4:at] + lie + whole[at + len(old):]
                data = struct.pack(">i", len(data)) + data
                must(answered_or_closed(run, f"version {version} length {lie.hex()}", data) is CLOSED,
                     f"version {version} length {lie.hex()} was answered")


@check
def bytes_behind_a_request_are_refused(run):
    """A frame that is longer than its request closes the connection, in every version that is listed."""
    with run.connect() as client:
        pairs, kept = versions(client), []
    for name, version in pairs:
        whole = request(name, version, 5, **small_request(run, name, version))
        for tail in (b"\0", b"\xff" * 9):
            data = struct.pack(">i", len(whole) - 4 + len(tail)) + whole[4:] + tail
            if answered_or_closed(run, f"{name} {version}", data) is not CLOSED:
                kept.append(f"{name} {version} + {len(tail)} bytes")
    must(not kept, f"{len(kept)} answered: " + ", ".join(kept[:8]))


@check
def requests_cut_short_are_refused(run):
    """Every request of every version without its last byte, its last half, and without any body."""
    with run.connect() as client:
        pairs = versions(client)
    for name, version in pairs:
        whole = request(name, version, 5, **small_request(run, name, version))
        body = len(whole) - len(frame(BY_NAME[name], version, b"", 5))
        for kept in {max(body - 1, 0), body // 2, 0} - {body}:
            data = whole[4:len(whole) - body + kept]
            data = struct.pack(">i", len(data)) + data
            must(answered_or_closed(run, f"{name} {version} cut to {kept}", data) is CLOSED,
                 f"{name} {version} cut to {kept} of {body} bytes was answered")


@check
def unknown_tagged_fields_are_passed_over(run):
    """Clients of the future send them; too many, twice the same, and lengths that lie are refused."""
    api = BY_NAME["Metadata"]
    plain = encode(api.request, {"topics": []}, 12, True)[:-1]
    with run.connect() as client:
        client.send(frame(api, 12, plain + b"\x02\x07\x03abc\xff\x7f\x00", 6))
        data = client.receive(2)
        must(data not in (CLOSED, SILENT) and read_answer("Metadata", 12, data)[0] == 6, f"two unknown fields: {data}")
    for what, tail in (("a length that lies", b"\x01\x07\x7fabc"), ("a count that lies", b"\xff\xff\xff\xff\x0f"),
                       ("a length of 4 GB", b"\x01\x07\xff\xff\xff\xff\x0f")):
        must(answered_or_closed(run, what, frame(api, 12, plain + tail, 6)) is CLOSED, f"{what} was answered")


def filled(run, name, version):
    """A valid request with something in every field, so that mutations meet every field."""
    values = small_request(run, name, version)
    more = {
        "Fetch": {"max_wait": 0, "forgotten": [{"name": "x", "id": bytes(16), "partitions": [1, 2]}], "rack": "az1"},
        "OffsetFetch": {"stable": True},
        "CreateTopics": {"validate_only": True, "topics": [
            {"name": f"{run.stamp}-mutant", "partitions": -1, "replicas": -1,
             "assignments": [{"index": 0, "brokers": [1, 2]}], "configs": [{"name": "retention.ms", "value": "1000"}]}]},
        "CreatePartitions": {"validate_only": True, "topics": [
            {"name": run.topic, "count": 2, "assignments": [{"brokers": [1, 2]}]}]},
        "JoinGroup": {"instance": "i", "reason": "because", "session": 6000, "rebalance": 100},
        "SyncGroup": {"instance": "i", "assignments": [{"id": "m", "assignment": b"abc"}]},
        "Heartbeat": {"instance": "i"},
        "ListGroups": {"states": ["Stable", "Empty"], "types": ["classic"]},
        "DescribeConfigs": {"synonyms": True, "documentation": True, "resources": [
            {"type": 2, "name": run.topic, "keys": ["retention.ms", "x"]}, {"type": 4, "name": "1"}]},
        # Old versions create what they are asked for: no names there, or every mutation is a topic.
        "Metadata": {"topics": [{"name": run.topic}, {"name": run.topic}] if version >= 4 else []},
    }
    return {**values, **more.get(name, {})}


def mutate(chance, data):
    """One to four changes; the frame's length is made right again, most of the time."""
    data = bytearray(data[4:])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(8, len(data)) if len(data) > 8 else 0
        # Most changes keep the length: others are refused before a field is looked at.
        kind = chance.choice((0, 0, 0, 1, 1, 2, 3, 4, 5, 6))
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.choice((0, 1, 2, 127, 128, 255))
        elif kind == 2:
            lie = chance.choice(BIG_COUNTS)
            data[at:at + len(lie)] = lie
        elif kind == 3:
            data[at:at] = chance.choice(BIG_COUNTS)
        elif kind == 4:
            del data[at:at + chance.randint(1, 8)]
        elif kind == 5:
            data += chance.randbytes(chance.randint(1, 30))
        else:
            piece = data[at:at + chance.randint(1, 30)]
            where = chance.randrange(len(data) + 1)
            data[where:where] = piece
    length = len(data) if chance.random() < 0.95 else max(0, len(data) + chance.randint(-9, 9))
    return struct.pack(">i", length) + bytes(data)


@check
def mutated_requests_harm_nobody(run):
    """Every API and version, twenty mutations each: answered, closed, or waiting, and everybody else is served."""
    chance = random.Random(run.seed)
    outcomes = {"answered": 0, CLOSED: 0, SILENT: 0}
    neighbour = run.connect()
    pairs = versions(neighbour)
    before = {topic["name"] for topic in neighbour.metadata(None)["topics"]}
    with FlatMemory(run.process, 32, "mutated requests"):
        for name, version in pairs:
            whole = request(name, version, 5, **filled(run, name, version))
            for number in range(MUTANTS_PER_VERSION):
                mutant = mutate(chance, whole)
                with run.connect() as peer:
                    peer.send(mutant)
                    got = peer.receive(PATIENCE)
                    outcomes[got if got in (CLOSED, SILENT) else "answered"] += 1
            started = time.monotonic()
            neighbour.metadata([])
            must(time.monotonic() - started < 2, f"{name} {version}: a neighbour waited")
            run.process.must_live(f"mutations of {name} {version}, seed {run.seed}")
    must(outcomes["answered"] > 100 and outcomes[CLOSED] > 500, f"the mutations are too gentle or too wild: {outcomes}")
    # A mutated name may have become a topic: those that look like ours go.
    after = [topic["name"] for topic in neighbour.metadata(None)["topics"]]
    neighbour.delete(*[name for name in after if name not in before and "ostile" in name])
    neighbour.close()
    must_be_served(run)
    print(f"   {sum(outcomes.values())} frames of {len(pairs)} versions: {outcomes['answered']} answered, "
          f"{outcomes[CLOSED]} closed, {outcomes[SILENT]} waited or asked for no answer")


def must_be_served(run):
    with run.connect() as client:
        end = client.end(run.topic)
        row = client.produce(run.topic, batches.good())
        must((row["error"], row["base"]) == (0, end), f"produce afterwards: {row}, end {end}")
        must_be_readable(client, run.topic)


@check
def random_frames_harm_nobody(run):
    """Right length, known key and version, then nothing but chance."""
    chance = random.Random(run.seed + 1)
    with run.connect() as client:
        pairs = versions(client)
    with FlatMemory(run.process, 16, "random frames"):
        for _ in range(1500):
            name, version = chance.choice(pairs)
            if name in ("CreateTopics", "DeleteTopics", "Metadata"):
                continue
            with run.connect() as peer:
                peer.send(frame(BY_NAME[name], version, chance.randbytes(chance.choice((0, 1, 5, 30, 300, 5000)))))
                peer.receive(PATIENCE)
    run.process.must_live(f"random frames, seed {run.seed}")
    must_be_served(run)


@check
def other_keys_are_refused(run):
    """Keys that nobody lists, in versions 0 to 5: closed, as in Kafka."""
    with run.connect() as client:
        known = {BY_NAME[name].key for name, _ in versions(client)}
    for key in list(range(100)) + [500, 999, 1020, 32_767, -1]:
        if key in known:
            continue
        for version in (0, 1, 5):
            data = struct.pack(">ihhih", 14, key, version, 7, -1) + bytes(4)
            must(answered_or_closed(run, f"key {key}", data) is CLOSED, f"key {key} version {version} was answered")


@check
def mutated_batches_leave_a_readable_log(run):
    """Fifteen hundred batches with bytes changed and the CRC made right: whatever was taken can be read."""
    chance = random.Random(run.seed + 2)
    topic = run.new_topic("mutant-batches")
    outcomes = {}
    with run.connect() as client, FlatMemory(run.process, 32, "mutated batches"):
        seeds = [batches.good(3), batches.batch([batches.record(i, b"v" * 40, headers=[(b"h", b"1"), (b"i", None)])
                                                 for i in range(5)], producer=1000, epoch=0, sequence=0),
                 batches.good(4, compress=batches.gzipped, attributes=batches.GZIP),
                 batches.good(2, attributes=batches.LOG_APPEND_TIME)]
        for number in range(BATCH_MUTANTS):
            data = bytearray(chance.choice(seeds))
            for _ in range(chance.randint(1, 3)):
                # Rarely before the attributes: such bytes decide alone and always the same way.
                at = chance.randrange(0 if chance.random() < 0.1 else 21, len(data))
                if chance.random() < 0.5:
                    data[at] ^= 1 << chance.randrange(8)
                else:
                    data[at] = chance.choice((0, 1, 2, 127, 128, 255))
            data = batches.with_right_crc(data)
            row = client.produce(topic, data, chance.choice((3, 7, 9)), acks=1)
            outcomes[row["error"]] = outcomes.get(row["error"], 0) + 1
        must(set(outcomes) <= {0, 2, 10, 32, 42, 45, 47, 53, 76, 87}, f"codes {outcomes}")
        must(outcomes.get(0, 0) > 20 and outcomes.get(87, 0) > 100, f"codes {outcomes}")
        client.produce(topic, batches.good())
        count = must_be_readable(client, topic)
    print(f"   codes {dict(sorted(outcomes.items()))}, {count} batches stand and are read")


