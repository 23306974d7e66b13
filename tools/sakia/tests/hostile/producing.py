"""What may not come in: each row of Kafka's table by raw bytes, one thing wrong at a time.

After each row: Kafka's code, the end of the log where it was, and the next good batch on the same connection at the next
offset. Cases: protocol-6, log-2. The table's source is Kafka's ProduceRequest, UnifiedLog and LogValidator.
"""
import struct
import zlib

import batches
from batches import batch, framed, gzipped, now_ms, nullable, record, varint
from checks import check, must, wait_for
from client import CLOSED, SILENT, request
from codec import uvarint
from process import FlatMemory

CORRUPT, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, INVALID_TOPIC, LIST_TOO_LARGE, BAD_ACKS = 2, 3, 6, 10, 17, 18, 21
INVALID_TIMESTAMP, INVALID_CONFIG, TRANSACTIONAL_ID_REFUSED, BAD_COMPRESSION, INVALID_RECORD = 32, 40, 53, 76, 87
UNKNOWN_TOPIC_ID = 100
HOUR_MS = 3_600_000


def three(**fields):
    return batch([record(0), record(1), record(2)], **fields)


def body(index, attributes=b"\0", timestamp=b"\0", rest=None):
    """A record whose parts are given as bytes."""
    return framed(attributes + timestamp + varint(index) + (nullable(b"k") + nullable(b"v") + b"\0" if rest is None else rest))


def flipped(data, at):
    data = bytearray(data)
    data[at] ^= 0xFF
    return bytes(data)


THREE = [record(0), record(1), record(2)]
ENDLESS = b"\xff" * 12

# What is wrong -> (bytes of the records field, codes that are right).
HEADERS = {
    "crc": lambda: (flipped(three(), 18), {CORRUPT}),
    "crc_of_a_changed_record": lambda: (flipped(three(), -3), {CORRUPT}),
    "length_below_a_header": lambda: (three(length=10), {CORRUPT}),
    "length_of_zero": lambda: (three(length=0), {CORRUPT}),
    "length_negative": lambda: (three(length=-1), {CORRUPT}),
    "length_of_2_gib": lambda: (three(length=2**31 - 1), {INVALID_RECORD, CORRUPT}),
    "length_one_too_long": lambda: (three(length=len(three()) - 11), {INVALID_RECORD, CORRUPT}),
    "length_one_too_short": lambda: (three(length=len(three()) - 13), {INVALID_RECORD, CORRUPT}),
    "nothing": lambda: (b"", {INVALID_RECORD}),
    "one_byte": lambda: (b"\0", {INVALID_RECORD, CORRUPT}),
    "header_cut": lambda: (three()[:40], {INVALID_RECORD, CORRUPT}),
    "last_byte_missing": lambda: (three()[:-1], {INVALID_RECORD, CORRUPT}),
    "two_batches": lambda: (three() + three(), {INVALID_RECORD}),
    "bytes_behind_the_batch": lambda: (three() + b"\0" * 20, {INVALID_RECORD, CORRUPT}),
    "magic_0": lambda: (three(magic=0), {INVALID_RECORD}),
    "magic_1": lambda: (three(magic=1), {INVALID_RECORD}),
    "magic_3": lambda: (three(magic=3), {CORRUPT}),
    "magic_negative": lambda: (three(magic=-1), {CORRUPT}),
    "base_offset_5": lambda: (three(base_offset=5), {INVALID_RECORD}),
    "base_offset_negative": lambda: (three(base_offset=-1), {INVALID_RECORD}),
    "count_0": lambda: (three(count=0, last_delta=2), {INVALID_RECORD}),
    "count_0_and_no_records": lambda: (batch(b"", count=0), {INVALID_RECORD}),
    "count_negative": lambda: (three(count=-1, last_delta=2), {INVALID_RECORD}),
    "count_2_of_offsets_3": lambda: (three(count=2, last_delta=2), {INVALID_RECORD}),
    "count_3_of_offsets_4": lambda: (three(last_delta=3), {INVALID_RECORD}),
    "last_delta_negative": lambda: (three(last_delta=-1), {INVALID_RECORD}),
    "last_delta_smallest": lambda: (three(last_delta=-2**31), {INVALID_RECORD}),
    "two_records_for_three": lambda: (batch(THREE[:2], count=3, last_delta=2), {INVALID_RECORD}),
    "four_records_for_three": lambda: (batch(THREE + [record(3)], count=3, last_delta=2), {INVALID_RECORD}),
    "count_2_billion": lambda: (three(count=2**31 - 1, last_delta=2**31 - 2), {INVALID_RECORD}),
    "control": lambda: (three(attributes=batches.CONTROL), {INVALID_RECORD}),
    "producer_without_sequence": lambda: (three(producer=5, epoch=0, sequence=-1), {INVALID_RECORD}),
    "codec_5": lambda: (three(attributes=5), {BAD_COMPRESSION, INVALID_RECORD, CORRUPT}),
    "codec_7": lambda: (three(attributes=7), {BAD_COMPRESSION, INVALID_RECORD, CORRUPT}),
}

RECORDS = {
    "record_longer_than_the_batch": lambda: (batch([varint(5000) + bytes(20)]), {INVALID_RECORD}),
    "record_length_negative": lambda: (batch([varint(-1) + bytes(20)]), {INVALID_RECORD}),
    "record_length_of_2_gib": lambda: (batch([varint(2**31 - 1) + bytes(20)]), {INVALID_RECORD}),
    "record_length_endless": lambda: (batch([ENDLESS]), {INVALID_RECORD}),
    "record_of_no_bytes": lambda: (batch([varint(0)]), {INVALID_RECORD}),
    "record_shorter_than_its_fields": lambda: (batch([varint(3) + record(0)[1:]]), {INVALID_RECORD}),
    "bytes_left_in_a_record": lambda: (batch([framed(record(0)[1:] + b"\0\0")]), {INVALID_RECORD}),
    "key_longer_than_the_record": lambda: (batch([body(0, rest=varint(100) + b"k")]), {INVALID_RECORD}),
    "key_length_of_minus_2": lambda: (batch([body(0, rest=varint(-2) + nullable(b"v") + b"\0")]), {INVALID_RECORD}),
    "key_length_of_2_gib": lambda: (batch([body(0, rest=varint(2**31 - 1) + bytes(9))]), {INVALID_RECORD}),
    "value_longer_than_the_record": lambda: (batch([body(0, rest=nullable(b"k") + varint(100) + b"v")]), {INVALID_RECORD}),
    "timestamp_endless": lambda: (batch([body(0, timestamp=ENDLESS)]), {INVALID_RECORD}),
    "offset_endless": lambda: (batch([framed(b"\0\0" + ENDLESS)]), {INVALID_RECORD}),
    "headers_2_billion": lambda: (batch([record(0, headers=varint(2**31 - 1))]), {INVALID_RECORD}),
    "headers_negative": lambda: (batch([record(0, headers=varint(-1))]), {INVALID_RECORD}),
    "headers_more_than_there_are": lambda: (batch([record(0, headers=varint(2) + nullable(b"a") + nullable(b"b"))]),
                                            {INVALID_RECORD}),
    "header_key_null": lambda: (batch([record(0, headers=varint(1) + varint(-1) + nullable(b"b"))]), {INVALID_RECORD}),
    "header_key_beyond": lambda: (batch([record(0, headers=varint(1) + varint(99) + b"a")]), {INVALID_RECORD}),
    "header_value_beyond": lambda: (batch([record(0, headers=varint(1) + nullable(b"a") + varint(99))]),
                                    {INVALID_RECORD}),
    # Kafka rewrites such offsets; we refuse them (protocol/src/batch/check.rs).
    "offset_out_of_order": lambda: (batch([record(0), record(2), record(1)]), {INVALID_RECORD}),
    "offset_twice": lambda: (batch([record(0), record(0), record(2)]), {INVALID_RECORD}),
    "timestamp_two_hours_ahead": lambda: (batch([record(0), record(1, timestamp=2 * HOUR_MS), record(2)]),
                                          {INVALID_TIMESTAMP}),
    "timestamp_at_the_end_of_time": lambda: (batch([record(0)], timestamp=2**63 - 1), {INVALID_TIMESTAMP}),
    "timestamp_beyond_64_bits": lambda: (batch([record(0, timestamp=2**62)], timestamp=2**63 - 1), {INVALID_TIMESTAMP}),
    "client_sets_log_append_time": lambda: (three(attributes=batches.LOG_APPEND_TIME), {INVALID_TIMESTAMP}),
}


def packed(compress, codec, codes=(INVALID_RECORD,), **fields):
    return lambda: (three(compress=compress, attributes=codec, **fields), set(codes))


def snappy_of(length):
    """A raw snappy block that says how long it is and then ends."""
    return lambda _: uvarint(length) + b"\x00a"


LZ4_HEAD = bytes.fromhex("04224d18")
ZSTD_HEAD = bytes.fromhex("28b52ffd")

COMPRESSED = {
    "gzip_two_records_for_three": packed(lambda _: gzipped(record(0) + record(1)), batches.GZIP),
    "gzip_four_records_for_three": packed(lambda data: gzipped(data + record(3)), batches.GZIP),
    "gzip_count_mismatch": packed(gzipped, batches.GZIP, count=2, last_delta=2),
    "gzip_count_2_billion": packed(gzipped, batches.GZIP, count=2**31 - 1, last_delta=2**31 - 2),
    "gzip_cut": packed(lambda data: gzipped(data)[:-12], batches.GZIP),
    "gzip_checksum": packed(lambda data: flipped(gzipped(data), -6), batches.GZIP),
    "gzip_of_nothing": packed(lambda _: b"", batches.GZIP),
    "gzip_that_is_zlib": packed(zlib.compress, batches.GZIP),
    "gzip_that_is_plain": packed(lambda data: data, batches.GZIP),
    "gzip_offsets_out_of_order": packed(lambda _: gzipped(record(0) + record(2) + record(1)), batches.GZIP),
    "gzip_headers_2_billion": packed(lambda _: gzipped(record(0, headers=varint(2**31 - 1))), batches.GZIP, count=1,
                                     last_delta=0),
    "snappy_that_is_plain": packed(lambda data: data, batches.SNAPPY),
    "snappy_of_4_gb": packed(snappy_of(2**32 - 1), batches.SNAPPY, (INVALID_RECORD, TOO_LARGE)),
    "snappy_xerial_cut": packed(lambda _: b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1), batches.SNAPPY),
    "lz4_that_is_plain": packed(lambda data: data, batches.LZ4),
    "lz4_block_of_2_gib": packed(lambda _: LZ4_HEAD + b"\x60\x70\x73" + b"\xff\xff\xff\x7f", batches.LZ4),
    "lz4_content_of_4_gb": packed(lambda _: LZ4_HEAD + b"\x68\x70" + struct.pack("<q", 2**32) + b"\0" * 8, batches.LZ4),
    "lz4_of_nothing": packed(lambda _: b"", batches.LZ4),
    "zstd_that_is_plain": packed(lambda data: data, batches.ZSTD),
    "zstd_content_of_4_gb": packed(lambda _: ZSTD_HEAD + b"\xe0" + struct.pack("<q", 2**32) + b"\0" * 8, batches.ZSTD),
    "zstd_window_of_3_tb": packed(lambda _: ZSTD_HEAD + b"\x00\xff" + b"\0" * 8, batches.ZSTD),
}


class Tried:
    """A topic whose end must not move while bad batches are tried."""

    def __init__(self, run, client, topic):
        self.client, self.topic, self.wrong = client, topic, []
        self.by_id = client.topic(topic)["id"]
        self.end = client.end(topic)

    def name(self, version):
        return self.by_id if version >= 13 else self.topic

    def refused(self, what, records, codes, version, **more):
        """One thing wrong: refused, nothing written, and the next good batch stands where the bad one would have."""
        row = self.client.produce(self.name(version), records, version, **more)
        if row["error"] not in codes:
            self.wrong.append(f"{what} v{version}: error {row['error']}, not {sorted(codes)}")
        if row["error"] == 0:
            self.end = self.client.end(self.topic)
            return row
        if row["base"] != -1:
            self.wrong.append(f"{what} v{version}: base offset {row['base']} beside an error")
        if self.client.end(self.topic) != self.end:
            self.wrong.append(f"{what} v{version}: the end moved")
        self.taken(what, batches.good(2), version)
        return row

    def taken(self, what, records, version=9):
        row = self.client.produce(self.name(version), records, version)
        if (row["error"], row["base"]) != (0, self.end):
            self.wrong.append(f"good batch after {what} v{version}: {row['error']} at {row['base']}, not at {self.end}")
        self.end = self.client.end(self.topic)

    def verdict(self):
        must(not self.wrong, f"{len(self.wrong)}: " + "; ".join(self.wrong))


def try_rows(run, rows, versions, purpose):
    topic = run.new_topic(purpose)
    with run.connect() as client:
        tried = Tried(run, client, topic)
        with FlatMemory(run.process, 32, f"refused batches: {purpose}"):
            for what, make in rows.items():
                for version in versions:
                    records, codes = make()
                    tried.refused(what, records, codes, version)
        tried.verdict()
        must_be_readable(client, topic)


def must_be_readable(client, topic, partition=0):
    """Every byte of the log is a whole right batch, one after the other without a gap; gives their number."""
    at, end, count = client.offset_for(topic, -2, partition)["offset"], client.end(topic, partition), 0
    while at < end:
        row = client.fetch(topic, at, partition)
        must(row["error"] == 0, f"fetch at {at}: {row['error']}")
        found = batches.read(row["records"])
        must(found and found[0]["base"] == at, f"nothing at {at} of {end}")
        for one in found:
            must(one["base"] == at and one["count"] == one["next"] - one["base"], f"batch at {at}: {one}")
            if one["attributes"] & 7 in (0, batches.GZIP):
                batches.read_records(one)
            at, count = one["next"], count + 1
    return count


@check
def bad_batch_headers_are_refused(run):
    try_rows(run, HEADERS, (3, 8, 9, 13), "headers")


@check
def bad_records_are_refused(run):
    try_rows(run, RECORDS, (3, 8, 9, 13), "records")


@check
def bad_compressed_batches_are_refused(run):
    try_rows(run, COMPRESSED, (7, 9, 13), "compressed")


@check
def compressed_batches_come_back_as_they_were(run):
    topic = run.new_topic("gzip")
    with run.connect() as client:
        sent = three(compress=gzipped, attributes=batches.GZIP)
        for version in range(3, 10):
            must(client.produce(topic, sent, version)["error"] == 0, f"gzip v{version}")
        found = batches.read(client.fetch(topic, 0)["records"])
        must(all(one["payload"] == sent[batches.HEADER.size:] for one in found) and len(found) == 7, f"{found}")
        must_be_readable(client, topic)


@check
def zstd_needs_version_seven(run):
    topic = run.new_topic("zstd")
    with run.connect() as client:
        tried = Tried(run, client, topic)
        for version in (3, 6):
            tried.refused("zstd", three(attributes=batches.ZSTD), {BAD_COMPRESSION}, version)
        tried.verdict()


@check
def bombs_are_refused_with_little_memory(run):
    """A batch of a few hundred KB that unpacks to 300 MB: one record of it, and millions of them."""
    topic = run.new_topic("bomb")
    big = 300 << 20
    one = framed(b"\0\0\0" + nullable(b"k") + varint(big))  # its value follows, zeros
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed_one = pack.compress(varint(big + 20) + one[2:])
    for _ in range(300):
        packed_one += pack.compress(bytes(1 << 20))
    packed_one += pack.flush()
    many = b"".join(record(index, b"", None) for index in range(1000)) * 1000
    packed_many = gzipped(many)
    with run.connect() as client:
        tried = Tried(run, client, topic)
        with FlatMemory(run.process, 48, "bombs"):
            for version in (3, 9):
                tried.refused("one record of 300 MB", batch(packed_one, count=1, attributes=batches.GZIP),
                              {TOO_LARGE, INVALID_RECORD}, version)
                tried.refused("a million records", batch(packed_many, count=2**31 - 1, attributes=batches.GZIP),
                              {TOO_LARGE, INVALID_RECORD}, version)
        tried.verdict()


@check
def record_at_fault_is_named(run):
    """record_errors from version 8 on: the index of the record, and only of that."""
    topic = run.new_topic("fault")
    with run.connect() as client:
        tried = Tried(run, client, topic)
        ahead = [record(0), record(1, timestamp=2 * HOUR_MS), record(2)]
        for version in (8, 9, 12, 13):
            row = tried.refused("two hours ahead", batch(ahead), {INVALID_TIMESTAMP}, version)
            named = [error["index"] for error in row.get("record_errors", [])]
            must(named == [1], f"v{version}: records {named} are named, not 1")
            must(row["message"], f"v{version}: no message")
        tried.taken("half an hour ahead", batch([record(0), record(1, timestamp=HOUR_MS // 2)],
                                                max_timestamp=now_ms() + HOUR_MS // 2))
        tried.taken("half an hour ahead", batches.good())
        tried.verdict()


@check
def log_append_time_takes_any_timestamp(run):
    """The broker's time stands in the batch, whatever the client says; its CRC is right."""
    topic = run.new_topic("append-time", configs={"message.timestamp.type": "LogAppendTime"})
    with run.connect() as client:
        before = now_ms()
        sent = batch([record(0), record(1, timestamp=20 * HOUR_MS)], timestamp=now_ms() + 10 * HOUR_MS)
        row = client.produce(topic, sent)
        after = now_ms()
        must(row["error"] == 0 and before - 50 <= row["append_time"] <= after + 50, f"{row}, between {before} and {after}")
        found = batches.read(client.fetch(topic, 0)["records"])[0]
        must(found["max_ms"] == row["append_time"] and found["attributes"] & batches.LOG_APPEND_TIME, f"{found}")
        asked = client.offset_for(topic, before - 1000)
        must(asked["offset"] == 0 and asked["timestamp"] == row["append_time"], f"{asked}")


@check
def missing_largest_timestamp_is_filled_in(run):
    """Sarama leaves it at -1; time lookups must find the record all the same."""
    topic = run.new_topic("max-time")
    with run.connect() as client:
        stamp = now_ms() - 10_000
        records = [record(0), record(1, timestamp=5), record(2, timestamp=9)]
        for codec, compress in ((0, None), (batches.GZIP, gzipped)):
            stamp += 1000
            row = client.produce(topic, batch(records, timestamp=stamp, max_timestamp=-1, attributes=codec,
                                              compress=compress))
            must(row["error"] == 0, f"codec {codec}: {row}")
            found = batches.read(client.fetch(topic, row["base"])["records"])[0]
            must(found["max_ms"] == stamp + 9, f"codec {codec}: {found['max_ms'] - stamp}")
            for timestamp in (stamp + 6, -3):
                asked = client.offset_for(topic, timestamp)
                must((asked["offset"], asked["timestamp"]) == (row["base"] + 2, stamp + 9), f"codec {codec}: {asked}")
        for claimed in (0, stamp + HOUR_MS // 2, 2**63 - 1):
            row = client.produce(topic, batch(records, timestamp=stamp, max_timestamp=claimed))
            if row["error"] == 0:
                found = batches.read(client.fetch(topic, row["base"])["records"])[0]
                must(found["max_ms"] == stamp + 9, f"a claim of {claimed} is believed: {found['max_ms']}")


@check
def sizes_are_bounded_by_the_topic(run):
    with run.connect() as client:
        small = run.new_topic("small-batches", configs={"max.message.bytes": 1000})
        tried = Tried(run, client, small)
        for version in (3, 9, 13):
            tried.refused("a batch of 1001", sized(1001), {TOO_LARGE}, version)
            tried.taken("a batch of 1000", sized(1000), version)
        tried.verdict()
        segments = run.new_topic("small-segments", configs={"segment.bytes": 1000})
        tried = Tried(run, client, segments)
        tried.refused("a batch above a segment", sized(1001), {LIST_TOO_LARGE}, 9)
        tried.taken("a batch of a segment", sized(1000))
        tried.verdict()


def sized(length):
    """A batch of exactly so many bytes."""
    for value in range(length - 80, length):
        data = batches.good(1, value=bytes(value))
        if len(data) == length:
            return data
    raise AssertionError(length)


@check
def compaction_is_refused_while_it_does_not_exist(run):
    """Better no topic than one that is accepted and never compacted (log-3)."""
    with run.connect() as client:
        for policy in ("compact", "compact,delete"):
            error, message = client.create(f"{run.stamp}-compacted", [run.nodes], {"cleanup.policy": policy})
            must(error == INVALID_CONFIG and message, f"{policy}: {error} {message}")


@check
def produce_to_what_is_not_there(run):
    with run.connect() as client:
        for version in (3, 9, 12):
            row = client.produce(f"{run.stamp}-absent", batches.good(), version)
            must(row["error"] == UNKNOWN_TOPIC, f"absent topic v{version}: {row}")
        row = client.produce(b"\x07" * 16, batches.good(), 13)
        must(row["error"] == UNKNOWN_TOPIC_ID, f"unknown id: {row}")
        for partition in (1, -1, 2**31 - 1, -2**31):
            row = client.produce(run.topic, batches.good(), partition=partition)
            must(row["error"] == UNKNOWN_TOPIC and row["index"] == partition, f"partition {partition}: {row}")
        must(client.topic(run.topic)["error"] == 0, "the connection is not usable")


@check
def produce_to_another_broker_is_told_who_leads(run):
    with run.connect() as client, run.connect(run.second) as follower:
        led_here = run.new_topic("led")
        wait_for("the other broker to know the topic", lambda: follower.topic(led_here)["error"] == 0, 5)
        for version in (3, 9, 12):
            row = follower.produce(led_here, batches.good(), version)
            must(row["error"] == NOT_LEADER, f"v{version}: {row}")
            if version >= 10:
                tag = row["tags"].get(0)
                must(tag and struct.unpack(">i", tag[:4])[0] == run.nodes[0], f"v{version}: nobody told who leads: {row}")
        must(client.end(led_here) == 0, "something was written")


@check
def internal_topics_are_not_written_by_clients(run):
    with run.connect() as client:
        wait_for("the offsets topic", lambda: client.ask("FindCoordinator", 2, key="x")["error"] == 0, 15)
        internal = [row for row in client.metadata(None)["topics"] if row["internal"]]
        must(any(row["name"] == "__consumer_offsets" for row in internal), f"{[row['name'] for row in internal]}")
        for row in internal:
            before = [client.offset_for(row["name"], -1, part["index"])["offset"] for part in row["partitions"][:5]]
            for part in row["partitions"][:5]:
                for version, topic in ((9, row["name"]), (13, row["id"])):
                    found = client.produce(topic, batches.good(), version, partition=part["index"])
                    must(found["error"] == INVALID_TOPIC, f"{row['name']} v{version}: {found}")
            after = [client.offset_for(row["name"], -1, part["index"])["offset"] for part in row["partitions"][:5]]
            must(row["name"] != "__consumer_offsets" or before == after, f"{row['name']} was written: {before} {after}")


@check
def acks_of_two_are_refused(run):
    topic = run.new_topic("acks")
    with run.connect() as client:
        tried = Tried(run, client, topic)
        for acks in (2, -2, 32_767, -32_768):
            for version in (3, 9, 13):
                tried.refused(f"acks={acks}", batches.good(), {BAD_ACKS}, version, acks=acks)
        tried.verdict()


@check
def acks_of_zero_have_no_answer(run):
    """Silence for a good batch; the connection is closed for a bad one, the only way to tell."""
    topic = run.new_topic("silent")
    send = lambda records: request("Produce", 9, 2, acks=0, topics=[
        {"name": topic, "partitions": [{"index": 0, "records": records}]}])
    with run.connect() as client:
        client.send(send(batches.good(4)))
        must(client.receive(0.3) is SILENT, "there was an answer")
        client.metadata([])
        wait_for("the batch", lambda: client.end(topic) == 4, 5)
        client.send(send(flipped(batches.good(), -3)))
        must(client.receive(2) is CLOSED, "a bad batch did not close the connection")
    with run.connect() as client:
        must(client.end(topic) == 4, "something was written")


@check
def transactions_are_refused_while_they_do_not_exist(run):
    with run.connect() as client:
        row = client.produce(run.topic, batches.good(), transactional_id="t")
        must(row["error"] == TRANSACTIONAL_ID_REFUSED, f"{row}")
        answer = client.ask("InitProducerId", 4, transactional_id="t")
        must(answer["error"] != 0 and answer["producer"] == -1, f"{answer}")
        end = client.end(run.topic)
        row = client.produce(run.topic, batches.good(attributes=batches.TRANSACTIONAL, producer=7, epoch=0, sequence=0))
        must(row["error"] == TRANSACTIONAL_ID_REFUSED, f"a transactional batch without a transaction: {row}")
        must(client.end(run.topic) == end, "the end moved")


@check
def one_bad_partition_does_not_spoil_the_others(run):
    topic = run.new_topic("mixed", partitions=4)
    with run.connect() as client:
        rows = [{"index": 0, "records": batches.good()}, {"index": 1, "records": flipped(batches.good(), -3)},
                {"index": 9, "records": batches.good()}, {"index": 2, "records": b""},
                {"index": 3, "records": batches.good()}]
        answer = client.ask("Produce", 9, topics=[{"name": topic, "partitions": rows}])
        told = [(row["index"], row["error"]) for row in answer["topics"][0]["partitions"]]
        must(told == [(0, 0), (1, CORRUPT), (9, UNKNOWN_TOPIC), (2, INVALID_RECORD), (3, 0)], f"{told}")
        ends = [client.end(topic, index) for index in range(4)]
        must(ends == [3, 0, 0, 3], f"ends {ends}")


@check
def same_partition_twice_in_a_request_keeps_order(run):
    topic = run.new_topic("twice")
    with run.connect() as client:
        rows = [{"index": 0, "records": batches.good(2)}, {"index": 0, "records": batches.good(3)}]
        answer = client.ask("Produce", 9, topics=[{"name": topic, "partitions": rows}])
        told = [(row["error"], row["base"]) for row in answer["topics"][0]["partitions"]]
        must(told in ([(0, 0), (0, 2)], [(INVALID_RECORD, -1)] * 2), f"{told}")
        must_be_readable(client, topic)
