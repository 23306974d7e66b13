#!/usr/bin/env python3
"""Apache Kafka's own tools judge a running Sakia: topics, console clients, perf tests, groups, configs, segment files.

Path: `cargo xtask test` starts `sakia dev` and calls this; it runs the tools of Apache Kafka 4.3.1 (pom.xml) unchanged
against it and compares what they print with what must hold. Runs as well against Apache Kafka: that is how the checks
themselves are checked.

Usage: run.py --bootstrap HOST:PORT [--follower HOST:PORT] --libs DIR --data DIR [--rack ZONE] [--only NAME,NAME]
One line a check: `ok NAME` or `FAILED NAME why`; last line `N passed, N failed`; exit code 0 only without a failure.
Without mvn or java nothing is checked: exit code 0 with a line, or 1 under CI=true.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import segment
from tool import Failed, Tool, end, fetch

GROUPS = "consumer.group.ConsumerGroupCommand"
CONSUMER = "consumer.ConsoleConsumer"
PARTITIONS = 3
CONSOLE_RECORDS = 2_000
SEGMENT_RECORDS = 3_000
PERF_RECORDS = 20_000
PERF_BYTES = 1_000
CHECKS = []


def check(function):
    """Puts a function into the list of checks; its name is what is printed."""
    CHECKS.append(function)
    return function


def must(holds: bool, why: str) -> None:
    """A claim of a check."""
    if not holds:
        raise Failed(why)


class Run:
    """What the checks share: the tools, the names of this run, what was produced."""

    def __init__(self, arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
        self.tool = Tool(arguments.libs, arguments.bootstrap)
        self.follower = Tool(arguments.libs, arguments.follower) if arguments.follower else None
        self.rack = arguments.rack
        self.data = arguments.data
        self.scratch = scratch
        stamp = time.strftime("%H%M%S") + f"-{os.getpid()}"
        self.topic, self.perf, self.segments = f"java-{stamp}", f"java-perf-{stamp}", f"java-segments-{stamp}"
        self.group = f"java-group-{stamp}"
        self.replicas = 2 if self.follower else 1
        self.lines = [f"key-{n % 50}\tvalue {n} é世界 " + "x" * (n % 97) for n in range(CONSOLE_RECORDS)]
        self.texts = [f"{n:06d} " + chr(97 + n % 26) * 993 for n in range(SEGMENT_RECORDS)]

    def create(self, topic: str, partitions: int, *more: str) -> None:
        self.tool.run("TopicCommand", "--create", "--topic", topic, "--partitions", partitions,
                      "--replication-factor", self.replicas, *more)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> end offset, by kafka-get-offsets."""
        rows = self.tool.run("GetOffsetShell", "--topic", topic).split()
        return {int(row.split(":")[1]): int(row.split(":")[2]) for row in rows if row.startswith(f"{topic}:")}


@check
def broker_api_versions(run: Run) -> None:
    text = run.tool.run("BrokerApiVersionsCommand")
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "ApiVersions(18)", "CreateTopics(19)"):
        must(api in text, f"{api} is missing")
    must("ERROR" not in text, "a broker gave no answer")


@check
def topics_create(run: Run) -> None:
    run.create(run.topic, PARTITIONS)
    run.create(run.perf, PARTITIONS)
    run.create(run.segments, 1, "--config", "segment.bytes=1048576")


@check
def topics_list(run: Run) -> None:
    names = run.tool.run("TopicCommand", "--list").split()
    for topic in (run.topic, run.perf, run.segments):
        must(names.count(topic) == 1, f"{topic} is listed {names.count(topic)} times")


@check
def topics_describe(run: Run) -> None:
    text = run.tool.run("TopicCommand", "--describe", "--topic", run.topic)
    must(re.search(rf"PartitionCount: {PARTITIONS}\s+ReplicationFactor: {run.replicas}\b", text) is not None, text)
    rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", text)
    must([int(row[0]) for row in rows] == list(range(PARTITIONS)), text)
    for _, leader, replicas, isr in rows:
        must(leader in replicas.split(","), f"leader {leader} is no replica of {replicas}")
        must(sorted(isr.split(",")) == sorted(replicas.split(",")), f"in sync {isr} of {replicas}")
        must(len(set(replicas.split(","))) == run.replicas, f"replicas {replicas}")


@check
def topics_create_twice_is_refused(run: Run) -> None:
    try:
        run.create(run.topic, PARTITIONS)
    except Failed as refusal:
        must("TopicExistsException" in str(refusal), str(refusal))
    else:
        raise Failed("it was created again")


@check
def configs_describe(run: Run) -> None:
    text = run.tool.run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", run.segments)
    must("segment.bytes=1048576" in text, text)


@check
def configs_alter_works_or_is_not_offered(run: Run) -> None:
    versions = run.tool.run("BrokerApiVersionsCommand")
    entity = ("--entity-type", "topics", "--entity-name", run.segments)
    alter = ("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=123456789")
    if re.search(r"IncrementalAlterConfigs\(44\): UNSUPPORTED", versions):
        try:
            run.tool.run(*alter)
        except Failed as refusal:
            must("INCREMENTAL_ALTER_CONFIGS API is not supported" in str(refusal), str(refusal))
            return
        raise Failed("what is not offered was done")
    run.tool.run(*alter)
    limit = time.monotonic() + 10
    while "retention.ms=123456789" not in run.tool.run("kafka.admin.ConfigCommand", "--describe", *entity):
        must(time.monotonic() < limit, "the new retention.ms is not described")


@check
def console_produce(run: Run) -> None:
    run.tool.run("ConsoleProducer", "--topic", run.topic, "--reader-property", "parse.key=true",
                 "--request-required-acks", "all", given="\n".join(run.lines) + "\n")
    ends = run.end_offsets(run.topic)
    must(sum(ends.values()) == CONSOLE_RECORDS, f"end offsets {ends}")


def consumed(tool: Tool, topic: str, count: int, *more: str) -> list[tuple[int, int, str]]:
    """Partition, offset and `key TAB value` of `count` records, as kafka-console-consumer gives them."""
    show = [word for name in ("print.partition", "print.offset", "print.key")
            for word in ("--formatter-property", f"{name}=true")]
    text = tool.run(CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", count, "--timeout-ms", 30_000,
                    *show, *more)
    rows = re.findall(r"^Partition:(\d+)\tOffset:(\d+)\t(.*)$", text, re.MULTILINE)
    return [(int(partition), int(offset), line) for partition, offset, line in rows]


def compare(rows: list[tuple[int, int, str]], lines: list[str]) -> None:
    """Every line once, offsets without a gap, lines of one key in the order in which they were produced."""
    must(sorted(row[2] for row in rows) == sorted(lines), f"{len(rows)} records differ from {len(lines)} produced")
    next_offset, order = {}, {line: place for place, line in enumerate(lines)}
    last_of_key = {}
    for partition, offset, line in rows:
        must(offset == next_offset.get(partition, 0), f"partition {partition}: offset {offset} after a gap")
        next_offset[partition] = offset + 1
        key = line.split("\t")[0]
        must(last_of_key.get(key, (partition, -1))[0] == partition, f"{key} is in two partitions")
        must(last_of_key.get(key, (partition, -1))[1] < order[line], f"{key}: order lost at {line[:40]}")
        last_of_key[key] = (partition, order[line])


@check
def console_consume(run: Run) -> None:
    compare(consumed(run.tool, run.topic, CONSOLE_RECORDS, "--group", run.group), run.lines)


@check
def console_consume_of_the_followers_zone(run: Run) -> None:
    if run.follower is not None:
        compare(consumed(run.follower, run.topic, CONSOLE_RECORDS, "--command-property", f"client.rack={run.rack}"), run.lines)


@check
def groups_list(run: Run) -> None:
    must(run.group in run.tool.run(GROUPS, "--list").split(), "the group is not listed")


def offsets_of(run: Run) -> dict[int, tuple[str, str, str]]:
    """Partition -> current offset, end offset, lag, by kafka-consumer-groups."""
    text = run.tool.run(GROUPS, "--describe", "--group", run.group)
    rows = re.findall(rf"^{run.group}\s+{run.topic}\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    must(len(rows) == PARTITIONS, f"{len(rows)} rows: {text}")
    return {int(partition): (current, log_end, lag) for partition, current, log_end, lag in rows}


@check
def groups_describe(run: Run) -> None:
    ends = run.end_offsets(run.topic)
    for partition, row in offsets_of(run).items():
        must(row == (str(ends[partition]), str(ends[partition]), "0"), f"partition {partition}: {row}, end {ends[partition]}")


@check
def groups_describe_members(run: Run) -> None:
    member = run.tool.start(CONSUMER, "--topic", run.topic, "--group", run.group)
    try:
        limit = time.monotonic() + 40
        while True:
            text = run.tool.run(GROUPS, "--describe", "--group", run.group, "--members")
            rows = re.findall(rf"^{run.group}\s+\S+\s+\S+\s+\S+\s+(\d+)", text, re.MULTILINE)
            if rows == [str(PARTITIONS)]:
                break
            must(time.monotonic() < limit, f"no member with {PARTITIONS} partitions: {text}")
    finally:
        end(member)


@check
def groups_reset_offsets(run: Run) -> None:
    run.tool.run(GROUPS, "--reset-offsets", "--to-earliest", "--execute", "--group", run.group, "--topic", run.topic)
    ends = run.end_offsets(run.topic)
    for partition, row in offsets_of(run).items():
        must(row == ("0", str(ends[partition]), str(ends[partition])), f"partition {partition}: {row}")


@check
def producer_perf_acks_all(run: Run) -> None:
    text = run.tool.run("ProducerPerformance", "--topic", run.perf, "--num-records", PERF_RECORDS, "--record-size",
                        PERF_BYTES, "--throughput", -1, "--command-property", "acks=all")
    last = text.strip().splitlines()[-1]
    must(last.startswith(f"{PERF_RECORDS} records sent"), last)
    ends = run.end_offsets(run.perf)
    must(sum(ends.values()) == PERF_RECORDS, f"end offsets {ends}: lost or doubled")


@check
def producer_perf_compressed(run: Run) -> None:
    before = sum(run.end_offsets(run.perf).values())
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        run.tool.run("ProducerPerformance", "--topic", run.perf, "--num-records", 1_000, "--payload-monotonic",
                     "--throughput", -1, "--command-property", "acks=all", f"compression.type={codec}")
    must(sum(run.end_offsets(run.perf).values()) == before + 4_000, "end offsets do not fit")


@check
def consumer_perf(run: Run) -> None:
    total = sum(run.end_offsets(run.perf).values())
    text = run.tool.run("ConsumerPerformance", "--topic", run.perf, "--num-records", total, "--hide-header",
                        "--timeout", 20_000)
    read = int(text.strip().splitlines()[-1].split(", ")[4])
    must(read == total, f"{read} records read of {total}")


@check
def dump_sealed_segments(run: Run) -> None:
    run.tool.run("ConsoleProducer", "--topic", run.segments, "--request-required-acks", "all",
                 given="\n".join(run.texts) + "\n")
    must(run.end_offsets(run.segments) == {0: SEGMENT_RECORDS}, f"end offset {run.end_offsets(run.segments)}")
    for files in segment.logs_of(run.data, f"{run.segments}-0").values():
        must(len(files) >= 2, f"{len(files)} segments: none was sealed")
        next_offset = 0
        for file in files[:-1]:
            must(int(file.stem) == next_offset, f"{file} begins away from {next_offset}")
            payloads, next_offset = segment.dump(run.tool, file)
            must(payloads == run.texts[int(file.stem) : next_offset], f"{file}: payloads differ")
        must(int(files[-1].stem) == next_offset, f"{files[-1]} begins away from {next_offset}")


@check
def dump_segment_in_use(run: Run) -> None:
    for number, files in enumerate(segment.logs_of(run.data, f"{run.segments}-0").values()):
        copy = segment.copy_of_records(files[-1], run.scratch / f"replica-{number}")
        payloads, next_offset = segment.dump(run.tool, copy)
        must(next_offset == SEGMENT_RECORDS, f"{files[-1]} ends at {next_offset}")
        must(payloads == run.texts[int(copy.stem) :], f"{files[-1]}: payloads differ")


@check
def dump_indexes(run: Run) -> None:
    for files in segment.logs_of(run.data, f"{run.segments}-0").values():
        first = files[0].with_suffix("")
        text = run.tool.offline("DumpLogSegments", "--index-sanity-check", "--files", f"{first}.index")
        must("passed sanity check" in text, text)
        text = run.tool.offline("DumpLogSegments", "--files", f"{first}.index,{first}.timeindex")
        must(len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10, f"too few entries: {text[:300]}")
        must(re.search(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE) is not None, f"no timestamp: {text[:300]}")
        for trouble in ("Mismatches", "Found timestamp mismatch", "out of order"):
            must(trouble not in text, f"{trouble} in {first}")


@check
def dump_producer_snapshot(run: Run) -> None:
    for folder in segment.logs_of(run.data, f"{run.segments}-0"):
        files = sorted(folder.glob("*.snapshot"))
        must(files != [], f"no snapshot in {folder}")
        text = run.tool.offline("DumpLogSegments", "--files", str(files[-1]))
        must(re.search(r"producerId: \d+ producerEpoch: 0", text) is not None, text)


@check
def dump_offsets_topic(run: Run) -> None:
    for partition in sorted({path.name for path in run.data.rglob("__consumer_offsets-*") if path.is_dir()}):
        for folder, files in segment.logs_of(run.data, partition).items():
            if not files:
                continue
            copy = segment.copy_of_records(files[-1], run.scratch / folder.parent.name / partition)
            if run.group.encode() not in copy.read_bytes():
                continue
            text = run.tool.offline("DumpLogSegments", "--offsets-decoder", "--files", str(copy))
            keys = [json.loads(found) for found in re.findall(r" key: (\{.*?\}\}) payload: ", text)]
            mine = [key["data"] for key in keys if key["data"].get("group") == run.group and "topic" in key["data"]]
            must({key["partition"] for key in mine} == set(range(PARTITIONS)), f"commits {mine[:5]} in {text[-500:]}")
            return
    raise Failed("no segment of __consumer_offsets names the group")


@check
def replicas_hold_the_same_bytes(run: Run) -> None:
    replicas = segment.logs_of(run.data, f"{run.segments}-0")
    must(len(replicas) == run.replicas, f"{len(replicas)} folders of {run.replicas} replicas")
    joined = set()
    for files in replicas.values():
        contents = [file.read_bytes() for file in files]
        joined.add(b"".join(content[: segment.records_length(content)] for content in contents))
    must(len(joined) == 1, "the replicas differ")


@check
def groups_delete(run: Run) -> None:
    run.tool.run(GROUPS, "--delete", "--group", run.group)
    must(run.group not in run.tool.run(GROUPS, "--list").split(), "the group is still listed")


@check
def topics_delete(run: Run) -> None:
    for topic in (run.topic, run.perf, run.segments):
        run.tool.run("TopicCommand", "--delete", "--topic", topic)
    limit = time.monotonic() + 10
    while {run.topic, run.perf, run.segments} & set(run.tool.run("TopicCommand", "--list").split()):
        must(time.monotonic() < limit, "a deleted topic is still listed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--follower")
    parser.add_argument("--libs", required=True, type=pathlib.Path)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--rack", default="az2")
    parser.add_argument("--only", help="names of checks, separated by commas")
    arguments = parser.parse_args()
    try:
        fetch(arguments.libs)
    except FileNotFoundError as missing:
        print(f"skipped: {missing}")
        return 1 if os.environ.get("CI") == "true" else 0
    wanted = arguments.only.split(",") if arguments.only else [function.__name__ for function in CHECKS]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="sakia-java-"))
    run, passed, failed = Run(arguments, scratch), 0, 0
    for function in CHECKS:
        if function.__name__ not in wanted:
            continue
        try:
            function(run)
        except (Failed, OSError, ValueError, IndexError, KeyError) as why:
            failed += 1
            print(f"FAILED {function.__name__} {' '.join(str(why).split())}", flush=True)
        else:
            passed += 1
            print(f"ok {function.__name__}", flush=True)
    shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
