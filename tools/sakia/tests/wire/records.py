"""Records of real text: the sources and pages of this repository, cut into pieces of 200 to 500 bytes.

A record's number is in its value, so whoever reads one knows what it must be.
"""

import hashlib
import os
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
FOLDERS = ["docs", "engine", "protocol", "remote", "metrics", "tools"]
LINE_BREAKS = {"\n": " ", "\r": " ", "\t": " ", "\0": " "}


def _text():
    pieces = []
    for folder in FOLDERS:
        for path, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".rs", ".md", ".py")):
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        pieces.append(file.read())
    text = " ".join(" ".join(pieces).split()).translate(str.maketrans(LINE_BREAKS))
    assert len(text) > 1_000_000, "the sources are the text"
    return text


TEXT = _text()
STEP = 263
BURST_RECORDS = 1000
BURST_EVERY = 0.05


class Record:
    """What is sent under a number. One line, no tab: console tools separate records by lines."""

    __slots__ = ("number", "key", "value", "headers")

    def __init__(self, number):
        start = number * STEP % (len(TEXT) - 1000)
        text = TEXT[start:start + 200 + number % 300]
        self.number = number
        self.key = f"key-{number % 1000}".encode()
        self.value = f"{number:08d} {text}".encode()
        self.headers = [("number", str(number).encode()), ("text", "Wörter".encode())]


def records(count, first=0):
    return (Record(number) for number in range(first, first + count))


def bursts(count):
    """The records in bursts of a thousand, twenty a second at most: steady load as many sources together make it."""
    due = time.monotonic()
    for first in range(0, count, BURST_RECORDS):
        time.sleep(max(0, due - time.monotonic()))
        due = max(due, time.monotonic() - 1) + BURST_EVERY
        yield [Record(number) for number in range(first, min(first + BURST_RECORDS, count))]


class Seen:
    """What was read. Checks each record as it comes, and all of them at the end."""

    def __init__(self, count, headers):
        self.count = count
        self.headers = headers
        self.numbers = set()
        self.last = {}
        self.digest = 0

    def add(self, partition, offset, key, value, headers):
        number = int(value[:8])
        expected = Record(number)
        assert value == expected.value, f"record {number}: other bytes"
        assert key == expected.key, f"record {number}: key {key}"
        expected_headers = self.headers(expected)
        assert headers == expected_headers, f"record {number}: headers {headers}, expected {expected_headers}"
        assert number not in self.numbers, f"record {number} came twice"
        self.numbers.add(number)
        last_number, last_offset = self.last.get(partition, (-1, -1))
        assert number > last_number and offset == last_offset + 1, \
            f"partition {partition}: record {number} at {offset} after {last_number} at {last_offset}"
        self.last[partition] = (number, offset)
        self.digest ^= int.from_bytes(hashlib.sha256(value).digest(), "big")

    def whole(self):
        return len(self.numbers) == self.count

    def check(self, partitions):
        assert self.whole(), f"{len(self.numbers)} of {self.count} records"
        assert len(self.last) == partitions, f"records in {len(self.last)} of {partitions} partitions"
        digest = 0
        for record in records(self.count):
            digest ^= int.from_bytes(hashlib.sha256(record.value).digest(), "big")
        assert digest == self.digest, "the content differs"
