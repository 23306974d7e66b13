"""Every API in every version that the broker lists gets a small valid request: a whole answer, within two seconds.

Cases: protocol-1, protocol-3. An unanswered version is worse than one that is not listed.
"""
import struct
import time

import batches
from apis import APIS, BY_NAME
from checks import check, must
from client import CLOSED, SILENT, frame, read_answer, request
from codec import Malformed, encode

ANSWER_WITHIN = 2.0
NODE_TOPIC, NODE_BROKER = 2, 4
UNSUPPORTED_VERSION = 35


def listed(client):
    """Key to lowest and highest version, as the broker lists them."""
    answer = client.ask("ApiVersions", 3, software="hostile", software_version="1")
    must(answer["error"] == 0, f"ApiVersions: error {answer['error']}")
    return {row["key"]: (row["min"], row["max"]) for row in answer["apis"]}


def by_topic(run, version):
    return {"id": run.topic_id} if version >= 13 else {"name": run.topic}


def small_request(run, name, version):
    """Values of a request that asks for little and changes nothing that matters."""
    rows = lambda **row: [{"name": run.topic, "partitions": [{"index": 0, **row}]}]
    group = f"{run.stamp}-group"
    requests = {
        "Produce": lambda: {"topics": [{**by_topic(run, version),
                                        "partitions": [{"index": 0, "records": batches.good(1)}]}]},
        "Fetch": lambda: {"max_wait": 500, "max_bytes": 1 << 20,
                          "topics": [{**by_topic(run, version),
                                      "partitions": [{"index": 0, "offset": 0, "max_bytes": 1 << 20}]}]},
        "ListOffsets": lambda: {"topics": rows(timestamp=-1)},
        "Metadata": lambda: {"topics": [{"name": run.topic}]},
        "OffsetCommit": lambda: {"group": group, "topics": rows(offset=0, metadata="")},
        "OffsetFetch": lambda: {"group": group, "topics": [{"name": run.topic, "partitions": [0]}],
                                "groups": [{"group": group, "topics": [{"name": run.topic, "partitions": [0]}]}]},
        "FindCoordinator": lambda: {"key": group, "keys": [group]},
        "JoinGroup": lambda: {"group": f"{group}-{version}-{time.monotonic_ns()}", "protocol_type": "consumer",
                              "protocols": [{"name": "range", "metadata": b"\0"}]},
        "Heartbeat": lambda: {"group": group, "generation": 1, "member": "nobody"},
        "LeaveGroup": lambda: {"group": group, "member": "nobody", "members": [{"id": "nobody"}]},
        "SyncGroup": lambda: {"group": group, "generation": 1, "member": "nobody", "protocol_type": "consumer",
                              "protocol": "range"},
        "DescribeGroups": lambda: {"groups": [group]},
        "ApiVersions": lambda: {"software": "hostile", "software_version": "1"},
        "CreateTopics": lambda: {"validate_only": True,
                                 "topics": [{"name": f"{run.stamp}-never", "partitions": 1, "replicas": 1}]},
        "DeleteTopics": lambda: {"names": [f"{run.stamp}-absent"], "topics": [{"name": f"{run.stamp}-absent"}]},
        "DeleteRecords": lambda: {"topics": rows(offset=0)},
        "OffsetForLeaderEpoch": lambda: {"topics": rows(wanted=0)},
        "DescribeConfigs": lambda: {"resources": [{"type": NODE_TOPIC, "name": run.topic},
                                                  {"type": NODE_BROKER, "name": str(run.nodes[0])}]},
        "CreatePartitions": lambda: {"validate_only": True, "topics": [{"name": run.topic, "count": 2}]},
        "DeleteGroups": lambda: {"groups": [group + "-absent"]},
        "IncrementalAlterConfigs": lambda: {"validate_only": True, "resources": [{"type": NODE_TOPIC, "name": run.topic}]},
        "OffsetDelete": lambda: {"group": group, "topics": rows()},
    }
    return requests.get(name, dict)()


def lowest_served(key, low):
    """Produce is listed from 0 for old clients' sake; what is served begins at 3."""
    return 3 if key == BY_NAME["Produce"].key else low


def versions(client):
    """(name, version) of everything that must be answered."""
    pairs = []
    for key, (low, high) in sorted(listed(client).items()):
        must(key in APIS, f"API {key} is listed and not known here: add it to apis.py")
        pairs += [(APIS[key].name, version) for version in range(lowest_served(key, low), high + 1)]
    return pairs


@check
def every_listed_version_is_answered(run):
    with run.connect() as client:
        pairs, wrong = versions(client), []
        for name, version in pairs:
            started = time.monotonic()
            with run.connect() as fresh:
                fresh.send(request(name, version, 41, **small_request(run, name, version)))
                data = fresh.receive(ANSWER_WITHIN + 5)
            took = time.monotonic() - started
            if data in (CLOSED, SILENT):
                wrong.append(f"{name} {version}: {data}")
                continue
            try:
                correlation, _ = read_answer(name, version, data)
                if correlation != 41:
                    wrong.append(f"{name} {version}: correlation {correlation}")
            except (Malformed, struct.error, UnicodeDecodeError) as why:
                wrong.append(f"{name} {version}: {why} in {data[:80].hex()}")
            if took > ANSWER_WITHIN:
                wrong.append(f"{name} {version}: {took:.1f} s")
        must(not wrong, f"{len(wrong)} of {len(pairs)}: " + "; ".join(wrong))
        print(f"   {len(pairs)} versions of {len(listed(client))} APIs")


@check
def every_listed_version_is_answered_pipelined_on_one_connection(run):
    """All of them behind one another: each answer in its place, whatever the others were."""
    with run.connect() as client:
        pairs = versions(client)
        for number, (name, version) in enumerate(pairs):
            client.send(request(name, version, number, **small_request(run, name, version)))
        for number, (name, version) in enumerate(pairs):
            data = client.receive(10)
            must(data not in (CLOSED, SILENT), f"{name} {version}: {data}")
            correlation, _ = read_answer(name, version, data)
            must(correlation == number, f"{name} {version}: answer to {correlation}, not {number}")


@check
def produce_is_listed_from_version_zero(run):
    """Older librdkafka switches compression off otherwise (protocol-1)."""
    with run.connect() as client:
        low, high = listed(client)[BY_NAME["Produce"].key]
        must(low == 0 and high >= 9, f"Produce {low}-{high}")


@check
def produce_below_three_is_refused_and_writes_nothing(run):
    topic = run.new_topic("old-produce")
    with run.connect() as client:
        for version in range(3):
            message = struct.pack(">bbiiii", 0, 0, -1, -1, 0, 0)[:6] + struct.pack(">ii", -1, -1)
            old = struct.pack(">qii", 0, 4 + len(message), 0) + message
            body = struct.pack(">hi", 1, 1000) + struct.pack(">ih", 1, len(topic)) + topic.encode()
            body += struct.pack(">iii", 1, 0, len(old)) + old
            with run.connect() as peer:
                peer.send(frame(BY_NAME["Produce"], version, body, 3))
                data = peer.receive(2)
                must(data is not SILENT, f"version {version}: no answer")
        must(client.end(topic) == 0, "something was written")


@check
def api_versions_of_the_future_lists_what_there_is(run):
    """Error 35, body of version 0, old header, and the range of ApiVersions itself."""
    for version in (5, 99, 32_767):
        with run.connect() as client:
            client.send(frame(BY_NAME["ApiVersions"], version, b"\x05what\x02x\0", 12))
            data = client.receive(2)
            must(data not in (CLOSED, SILENT), f"version {version}: {data}")
            correlation, answer = read_answer("ApiVersions", 0, data)
            must(correlation == 12 and answer["error"] == UNSUPPORTED_VERSION, f"version {version}: {answer}")
            must(any(row["key"] == BY_NAME["ApiVersions"].key and row["max"] >= 3 for row in answer["apis"]),
                 f"version {version}: {answer}")
            client.metadata([])


@check
def client_ids_of_any_kind_are_taken(run):
    """Null, empty, quotes, line feeds, colons, 30,000 characters; metrics stay readable (metrics-1)."""
    api = BY_NAME["Metadata"]
    for client_id in (None, "", 'a"b', "a\\b", "a\nevil_metric 1", "x} 1", "emoji-\U0001F600", "type=foo,name=bar:1",
                      "y" * 30_000):
        with run.connect() as client:
            client.send(frame(api, 12, encode(api.request, {"topics": []}, 12, True), 8, client_id))
            data = client.receive(2)
            must(data not in (CLOSED, SILENT), f"client id {str(client_id)[:30]!r}: {data}")
            read_answer("Metadata", 12, data)
