"""Apache Kafka's own command-line tools: topics, console producer and consumer, performance test, groups, log dump."""

import os
import re
import subprocess

from cluster import arguments, run, wait_for
from records import records

TOPIC = "java"
PARTITIONS = 3
LINES = 2_000
PERFORMANCE_RECORDS = 30_000

ARGUMENTS = arguments()
TOOLS = "org.apache.kafka.tools"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def java(main, *words, text=None):
    """Runs a tool, gives its output; the tools do not always say in their exit code that something failed."""
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
               "-Dlog4j2.statusLoggerLevel=OFF", "-cp", os.path.join(ARGUMENTS.kafka_libs, "*"), main, *words]
    out = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
    told = out.stdout[-3000:]
    assert out.returncode == 0, f"{main} {' '.join(words)}: exit code {out.returncode}\n{told}"
    assert "Exception" not in out.stdout, f"{main} {' '.join(words)}:\n{told}"
    return out.stdout


def topics(cluster):
    bootstrap = ["--bootstrap-server", cluster.bootstrap]
    command = f"{TOOLS}.TopicCommand"
    java(command, *bootstrap, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor",
         "2", "--config", f"segment.bytes={1 << 20}")
    wait_for("topic on both brokers", lambda: all(len(cluster.topic(TOPIC, node)) == PARTITIONS for node in (1, 2)), 20)
    assert TOPIC in java(command, *bootstrap, "--list").split()
    described = java(command, *bootstrap, "--describe", "--topic", TOPIC)
    assert f"PartitionCount: {PARTITIONS}" in described and "ReplicationFactor: 2" in described, described
    assert f"segment.bytes={1 << 20}" in described, described


def console(cluster):
    sent = {record.value.decode() for record in records(LINES)}
    java(f"{TOOLS}.ConsoleProducer", "--bootstrap-server", cluster.bootstrap, "--topic", TOPIC,
         "--command-property" if has_new_names() else "--producer-property", "acks=all",
         text="".join(line + "\n" for line in sorted(sent)))
    out = java(f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", TOPIC,
               "--from-beginning", "--max-messages", str(LINES), "--group", "console", "--timeout-ms", "60000")
    received = {line for line in out.splitlines() if line[:8].isdigit()}
    assert received == sent, f"{len(received)} of {LINES} lines, {len(received - sent)} unknown"


def has_new_names():
    """Kafka 4.2 renamed --producer-property."""
    jars = os.listdir(ARGUMENTS.kafka_libs)
    version = next(re.match(r"kafka-tools-(\d+)\.(\d+)", jar) for jar in jars if jar.startswith("kafka-tools-4"))
    return (int(version[1]), int(version[2])) >= (4, 2)


def groups(cluster):
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    bootstrap = ["--bootstrap-server", cluster.bootstrap]
    assert "console" in java(command, *bootstrap, "--list").split()
    out = java(command, *bootstrap, "--describe", "--group", "console")
    rows = [line.split() for line in out.splitlines() if line.startswith("console ")]
    assert len(rows) == PARTITIONS and all(row[1] == TOPIC for row in rows), out
    assert sum(int(row[3]) for row in rows) == LINES and all(row[5] == "0" for row in rows), out


def performance(cluster):
    out = java(f"{TOOLS}.ProducerPerformance", "--topic", TOPIC, "--num-records", str(PERFORMANCE_RECORDS),
               "--record-size", "1000", "--throughput", "-1", "--producer-props",
               f"bootstrap.servers={cluster.bootstrap}", "acks=all", "linger.ms=5")
    line = [line for line in out.splitlines() if f"{PERFORMANCE_RECORDS} records sent" in line]
    assert line, out
    print("  " + line[-1])


def dump(cluster):
    """Kafka reads the segments of leader and follower."""
    for node in (1, 2):
        segments = cluster.segments(node, TOPIC, 0)
        assert len(segments) >= 3, segments
        out = java(DUMP, "--files", segments[0], "--print-data-log")
        assert "isvalid: true" in out and "isvalid: false" not in out, out[-2000:]
        ours = cluster.tool("log", "dump", segments[0])
        theirs = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", out)
        assert [(b["base_offset"], b["last_offset"], b["records"]) for b in ours["batches"]] == \
            [tuple(map(int, batch)) for batch in theirs], "two readers of one segment differ"


def test(cluster):
    topics(cluster)
    console(cluster)
    groups(cluster)
    performance(cluster)
    dump(cluster)
    java(f"{TOOLS}.TopicCommand", "--bootstrap-server", cluster.bootstrap, "--delete", "--topic", TOPIC)
    wait_for("topic is gone", lambda: TOPIC not in cluster.tool("topic", "list", "--bootstrap-server",
                                                                cluster.broker(2)), 20)


if __name__ == "__main__":
    run(test, ARGUMENTS, "java", 24000)
