"""Segment files that a broker wrote, found below its data folder, and what DumpLogSegments says about them.

Always: a file of the broker is only read. A segment in use may be longer than its records (blocks padded with zeros);
`copy_of_records` cuts a copy behind the last whole batch.
"""
import pathlib
import re
import struct

from tool import Failed, Tool

BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*position: (\d+) .*size: (\d+) .*isvalid: (\w+)")
RECORD = re.compile(r"^\| offset: (\d+) .*? payload: (.*)$")


def logs_of(data: pathlib.Path, partition: str) -> dict[pathlib.Path, list[pathlib.Path]]:
    """Replica folder -> its segments in order, for every folder named `partition` below `data`."""
    folders = sorted(path for path in data.rglob(partition) if path.is_dir())
    if not folders:
        raise Failed(f"no folder {partition} below {data}")
    return {folder: sorted(folder.glob("*.log")) for folder in folders}


def records_length(bytes_: bytes) -> int:
    """Where the last whole batch ends. Batch header: base offset i64, length i32, both big-endian."""
    position = 0
    while position + 12 <= len(bytes_):
        (length,) = struct.unpack_from(">i", bytes_, position + 8)
        if length <= 0 or position + 12 + length > len(bytes_):
            break
        position += 12 + length
    return position


def copy_of_records(segment: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Copies a segment, without padding, into `folder` under its own name (the name is its base offset)."""
    content = segment.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / segment.name
    copy.write_bytes(content[: records_length(content)])
    return copy


def dump(tool: Tool, segment: pathlib.Path) -> tuple[list[str], int]:
    """Payloads of a segment in offset order and the offset behind the last; every batch valid, no gap, no rest."""
    text = tool.offline("DumpLogSegments", "--files", str(segment), "--print-data-log")
    payloads, expected, size = [], int(segment.stem), 0
    next_record = expected
    for line in text.splitlines():
        if batch := BATCH.match(line):
            base, last, count, position, length = (int(batch.group(n)) for n in range(1, 6))
            if batch.group(6) != "true":
                raise Failed(f"{segment.name}: batch at {base} is not valid: {line}")
            if base != expected or last - base + 1 != count or position != size:
                raise Failed(f"{segment.name}: batch out of place: {line}")
            expected, size = last + 1, size + length
        elif record := RECORD.match(line):
            if int(record.group(1)) != next_record:
                raise Failed(f"{segment.name}: record {record.group(1)} where {next_record} belongs")
            next_record += 1
            payloads.append(record.group(2))
    if size != segment.stat().st_size:
        raise Failed(f"{segment}: batches end at {size}, the file at {segment.stat().st_size}")
    return payloads, expected
