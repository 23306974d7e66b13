"""Kafka's wire format, small and slow: values to bytes and back by a line of text per message.

A message is a list of fields, `name:type`, with these marks behind:
    `?` may be null · `=V` what an absent value is · `@5-` `@-2` `@1-3` the versions that have the field
Types: i8 i16 i32 i64 bool str bytes uuid; `[…]` an array of structs, `[i32]` an array of one type.
Written by hand from Kafka's documentation and shared with nothing of Sakia: it judges Sakia's own tables.
Always: a decoded message was read to its last byte, or `Malformed` is raised.
"""
import re
import struct
from typing import NamedTuple

FIXED = {"i8": ">b", "i16": ">h", "i32": ">i", "i64": ">q", "bool": ">?"}
NOTHING = {"str": "", "bytes": b"", "uuid": bytes(16), "bool": False}
FIELD = re.compile(r"(\w+):(\w+|\[)")
MARKS = re.compile(r"(\?)?(?:=(-?\w+))?(?:@(\d*)(-?)(\d*))?")


class Malformed(Exception):
    """Bytes that are not the message they should be."""


class Field(NamedTuple):
    """One field of a message."""
    name: str
    kind: str            # a scalar, or "array"
    items: object        # of an array: a list of fields, or a scalar's name
    nullable: bool
    absent: object
    versions: range


def fields(text):
    """The fields of one message."""
    rest = text.split()
    words = " ".join(rest)
    parsed, at = _fields(words, 0)
    assert at == len(words), f"left over: {words[at:]}"
    return parsed


def _fields(text, at):
    parsed = []
    while at < len(text) and text[at] != "]":
        if text[at] == " ":
            at += 1
            continue
        found = FIELD.match(text, at)
        assert found, f"no field at: {text[at:]}"
        name, kind, items, at = found[1], found[2], None, found.end()
        if kind == "[":
            kind = "array"
            single = re.match(r"(\w+)\]", text[at:])
            if single:
                items, at = single[1], at + single.end()
            else:
                items, at = _fields(text, at)
                at += 1
        marks = MARKS.match(text, at)
        at = marks.end()
        nullable = bool(marks[1])
        absent = [] if kind == "array" else NOTHING.get(kind, 0)
        if nullable:
            absent = None
        if marks[2] is not None:
            absent = {"true": True, "false": False}.get(marks[2]) if kind == "bool" else int(marks[2])
        parsed.append(Field(name, kind, items, nullable, absent, _versions(marks)))
    return parsed, at


def _versions(marks):
    low = int(marks[3]) if marks[3] else 0
    if marks[4]:
        return range(low, int(marks[5]) + 1 if marks[5] else 1000)
    return range(low, low + 1) if marks[3] else range(0, 1000)


def uvarint(number):
    """An unsigned varint."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(message, values, version, compact):
    """The bytes of a message; what `values` does not name is absent."""
    out = []
    for field in message:
        if version in field.versions:
            out.append(_encode_field(field, values.get(field.name, field.absent), version, compact))
    if compact:
        tags = values.get("tags", {})
        out.append(uvarint(len(tags)))
        for tag, content in sorted(tags.items()):
            out.append(uvarint(tag) + uvarint(len(content)) + content)
    return b"".join(out)


def _encode_field(field, value, version, compact):
    if field.kind != "array":
        return _encode_scalar(field.kind, value, compact)
    if value is None:
        return uvarint(0) if compact else struct.pack(">i", -1)
    head = uvarint(len(value) + 1) if compact else struct.pack(">i", len(value))
    if isinstance(field.items, str):
        return head + b"".join(_encode_scalar(field.items, item, compact) for item in value)
    return head + b"".join(encode(field.items, item, version, compact) for item in value)


def _encode_scalar(kind, value, compact):
    if kind in FIXED:
        return struct.pack(FIXED[kind], value)
    if kind == "uuid":
        return value
    raw = value.encode() if isinstance(value, str) else value
    if compact:
        return uvarint(0) if raw is None else uvarint(len(raw) + 1) + raw
    form = ">h" if kind == "str" else ">i"
    return struct.pack(form, -1) if raw is None else struct.pack(form, len(raw)) + raw


class Reader:
    """Takes bytes off the front of a message."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise Malformed(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count:self.at]

    def fixed(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self):
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise Malformed("a varint of more than five bytes")

    def varlong(self):
        """A signed (zigzag) number of at most 64 bits, as in records."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return (number >> 1) ^ -(number & 1)
        raise Malformed("a varint of more than ten bytes")

    def tags(self):
        """Tagged fields: number to bytes."""
        found = {}
        for _ in range(self.uvarint()):
            tag, length = self.uvarint(), self.uvarint()
            if tag in found:
                raise Malformed(f"tag {tag} twice")
            found[tag] = self.take(length)
        return found

    def end(self):
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes are left over")


def decode(message, reader, version, compact):
    """The values of a message."""
    values = {}
    for field in message:
        if version in field.versions:
            values[field.name] = _decode_field(field, reader, version, compact)
    if compact:
        values["tags"] = reader.tags()
    return values


def _decode_field(field, reader, version, compact):
    if field.kind != "array":
        return _decode_scalar(field, field.kind, reader, compact)
    count = reader.uvarint() - 1 if compact else reader.fixed(">i")
    if count < 0:
        return _null(field, count)
    if isinstance(field.items, str):
        return [_decode_scalar(field, field.items, reader, compact) for _ in range(count)]
    return [decode(field.items, reader, version, compact) for _ in range(count)]


def _decode_scalar(field, kind, reader, compact):
    if kind in FIXED:
        return reader.fixed(FIXED[kind])
    if kind == "uuid":
        return reader.take(16)
    length = reader.uvarint() - 1 if compact else reader.fixed(">h" if kind == "str" else ">i")
    if length < 0:
        return _null(field, length)
    raw = reader.take(length)
    return raw.decode() if kind == "str" else raw


def _null(field, length):
    if length != -1 or not field.nullable:
        raise Malformed(f"{field.name} is null (length {length})")
    return None
