"""kcat (an old librdkafka): the topic is created by asking for it; produce and consume from leader and follower."""

import json
import subprocess

from cluster import arguments, run, wait_for
from object_path import ObjectPath, bytes_out, check_follower_read, check_segments
from records import Record, Seen, bursts

COUNT = 100_000
PARTITIONS = 6
TOPIC = "kcat"
# kcat gives every record of a run the same headers.
HEADERS = [("text", b"same for all")]


def kcat(*words, text=None):
    out = subprocess.run(["kcat", *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180)
    assert out.returncode == 0, f"kcat {' '.join(words)}: {out.stderr.decode()}"
    return out.stdout


def create_by_asking(cluster):
    """Metadata for an unknown topic creates it; the first answers may say that it has no leader yet."""

    def known():
        listed = json.loads(kcat("-b", cluster.bootstrap, "-L", "-J", "-t", TOPIC))
        topics = [topic for topic in listed["topics"] if topic["topic"] == TOPIC]
        return topics and len(topics[0]["partitions"]) == PARTITIONS

    wait_for("topic exists", known, 20)
    wait_for("topic on both brokers", lambda: all(len(cluster.topic(TOPIC, node)) == PARTITIONS for node in (1, 2)), 20)


def produce(cluster):
    # This client puts one partition into a request. Unless told otherwise it also leaves Nagle's algorithm on, so that the
    # end of a request waits until the one before is acknowledged by TCP: partitions then come apart by more than a window.
    words = ["kcat", "-b", cluster.bootstrap, "-P", "-t", TOPIC, "-K", "\t", "-H", "text=same for all",
             "-X", "acks=all", "-X", "linger.ms=40", "-X", "enable.idempotence=true", "-X", "socket.nagle.disable=true"]
    sending = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    for burst in bursts(COUNT):
        sending.stdin.write(b"".join(record.key + b"\t" + record.value + b"\n" for record in burst))
        sending.stdin.flush()
    _, said = sending.communicate(timeout=60)
    assert sending.returncode == 0, f"kcat -P: {said.decode()}"


def consume(cluster, *more):
    out = kcat("-b", cluster.bootstrap, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q", "-J", *more)
    seen = Seen(COUNT, lambda _record: HEADERS)
    by_partition = {}
    for line in out.decode().splitlines():
        message = json.loads(line)
        by_partition.setdefault(message["partition"], []).append(message)
    for partition, messages in by_partition.items():
        for message in messages:
            headers = message["headers"]
            headers = [(name, value.encode()) for name, value in zip(headers[::2], headers[1::2])]
            seen.add(partition, message["offset"], message["key"].encode(), message["payload"].encode(), headers)
    seen.check(PARTITIONS)


def test(cluster):
    create_by_asking(cluster)
    path = ObjectPath(cluster)
    produce(cluster)
    path.check(TOPIC)
    consume(cluster)
    check_segments(cluster, TOPIC, PARTITIONS)
    before = bytes_out(cluster, TOPIC)
    consume(cluster, "-X", "client.rack=az2")
    check_follower_read(cluster, TOPIC, before, sum(len(Record(n).value) for n in range(COUNT)))


if __name__ == "__main__":
    run(test, arguments(), "kcat", 22000, overrides=[f"log.segment.bytes={1 << 20}"], partitions=PARTITIONS)
