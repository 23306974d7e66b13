"""Record batches by hand: any field as we like it, with the right CRC unless the CRC is the subject; and a reader.

Layout (Kafka, magic 2): base_offset i64 · length i32 · leader_epoch i32 · magic i8 · crc u32 · attributes i16 ·
last_offset_delta i32 · base_timestamp i64 · max_timestamp i64 · producer_id i64 · producer_epoch i16 ·
base_sequence i32 · record_count i32 · records. The CRC-32C covers everything behind it.
"""
import gzip
import struct
import time

from codec import Malformed, Reader

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END, CRC_END = 12, 21
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


def _crc_table():
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


CRC_TABLE = _crc_table()


def crc32c(data):
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def varint(number):
    """A signed (zigzag) varint."""
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def nullable(data):
    return varint(-1) if data is None else varint(len(data)) + data


def record(index, value=b"value", key=b"key", timestamp=0, headers=None):
    """One record: `headers` is a list of (key, value), or the bytes that stand in their place."""
    if not isinstance(headers, bytes):
        headers = headers or []
        headers = varint(len(headers)) + b"".join(nullable(name) + nullable(content) for name, content in headers)
    return framed(b"\0" + varint(timestamp) + varint(index) + nullable(key) + nullable(value) + headers)


def framed(body):
    """A record's bytes behind their length."""
    return varint(len(body)) + body


def now_ms():
    return int(time.time() * 1000)


def batch(records, **fields):
    """A batch over the bytes of records; its header fields follow from them unless given. `length` and `crc` are
    patched in last; `compress` is applied to the records."""
    count = fields.pop("count", None)
    if not isinstance(records, bytes):
        count = len(records) if count is None else count
        records = b"".join(records)
    compress = fields.pop("compress", None)
    payload = compress(records) if compress else records
    stamp = fields.pop("timestamp", None)
    stamp = now_ms() if stamp is None else stamp
    length, crc = fields.pop("length", None), fields.pop("crc", None)
    data = bytearray(HEADER.pack(
        fields.pop("base_offset", 0), HEADER.size - LENGTH_END + len(payload) if length is None else length,
        fields.pop("leader_epoch", -1), fields.pop("magic", 2), 0, fields.pop("attributes", 0),
        fields.pop("last_delta", count - 1), stamp, fields.pop("max_timestamp", stamp), fields.pop("producer", -1),
        fields.pop("epoch", -1), fields.pop("sequence", -1), count)) + payload
    assert not fields, f"unknown fields: {fields}"
    struct.pack_into(">I", data, CRC_END - 4, crc32c(data[CRC_END:]) if crc is None else crc)
    return bytes(data)


def good(count=3, value=b"value", **fields):
    """A batch that any topic takes."""
    return batch([record(index, value) for index in range(count)], **fields)


def gzipped(data):
    return gzip.compress(data, 1)


def with_right_crc(data):
    """The same batch with the CRC that its bytes have."""
    data = bytearray(data)
    struct.pack_into(">I", data, CRC_END - 4, crc32c(data[CRC_END:]))
    return bytes(data)


def read(data):
    """The batches of a fetched records field, header fields by name; a cut batch or anything malformed is refused."""
    found, at = [], 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise Malformed(f"{len(data) - at} bytes that are no batch")
        (base, length, epoch, magic, crc, attributes, last_delta, first_ms, max_ms, producer, producer_epoch, sequence,
         count) = HEADER.unpack_from(data, at)
        whole = data[at:at + LENGTH_END + length]
        if len(whole) != LENGTH_END + length:
            raise Malformed(f"batch {base} is cut: {len(whole)} of {LENGTH_END + length} bytes")
        if magic != 2 or crc32c(whole[CRC_END:]) != crc:
            raise Malformed(f"batch {base}: magic {magic}, crc {crc:08x}")
        found.append({"base": base, "next": base + last_delta + 1, "epoch": epoch, "attributes": attributes,
                      "first_ms": first_ms, "max_ms": max_ms, "producer": producer, "producer_epoch": producer_epoch,
                      "sequence": sequence, "count": count, "payload": whole[HEADER.size:], "bytes": len(whole)})
        at += len(whole)
    return found


def read_records(found):
    """(key, value, timestamp) of an uncompressed or gzip batch; raises Malformed unless every byte is where it must be."""
    codec = found["attributes"] & 7
    payload = found["payload"]
    if codec == GZIP:
        payload = gzip.decompress(payload)
    elif codec != 0:
        raise Malformed(f"codec {codec} is not read here")
    reader, rows = Reader(payload), []
    for index in range(found["count"]):
        inner = Reader(reader.take(reader.varlong()))
        inner.take(1)
        stamp, delta = inner.varlong(), inner.varlong()
        if delta != index:
            raise Malformed(f"record {index} has delta {delta}")
        key, value = _nullable(inner), _nullable(inner)
        for _ in range(inner.varlong()):
            if _nullable(inner) is None:
                raise Malformed("a header without a key")
            _nullable(inner)
        inner.end()
        rows.append((key, value, found["first_ms"] + stamp))
    reader.end()
    return rows


def _nullable(reader):
    length = reader.varlong()
    return None if length == -1 else reader.take(length)
