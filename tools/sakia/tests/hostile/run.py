#!/usr/bin/env python3
"""Hostile and careless peers against a running Sakia, by raw sockets: it must answer as Kafka does, or close, and live.

Path: `cargo xtask test` starts `sakia dev` and calls this with its addresses. Python's standard library only; the wire
format, the batches and their CRC are written by hand (codec.py, apis.py, batches.py), so that Sakia is judged by
something that it does not share.

Usage: run.py --bootstrap HOST:PORT --second HOST:PORT --http HOST:PORT --pid BROKERPID [--seed N] [--only NAME,NAME]
`--pid` is the broker of `--bootstrap` and `--http`; `--second` is another broker of the cluster.
One line a check: `ok NAME`, `skipped NAME why` or `FAILED NAME why`; last line `N passed, N failed`; exit code 0 only
without a failure.
"""
import argparse
import os
import sys
import time
import traceback

from checks import CHECKS, Failed, Skipped
from client import Connection
from process import Process

# Order of the checks.
import every_api  # noqa: F401
import reading  # noqa: F401
import producing  # noqa: F401
import idempotence  # noqa: F401
import hostile_frames  # noqa: F401
import bad_connections  # noqa: F401
import command_line  # noqa: F401


class Run:
    """What the checks share."""

    def __init__(self, arguments):
        self.bootstrap, self.second, self.http = arguments.bootstrap, arguments.second, arguments.http
        self.seed = arguments.seed
        self.process = Process(arguments.pid)
        self.stamp = f"hostile-{os.getpid()}"
        self.count = 0
        with self.connect() as first, self.connect(self.second) as second:
            self.nodes = [first.node(), second.node()]
            self.topic = self.new_topic("shared", first)
            self.topic_id = first.topic(self.topic)["id"]

    def connect(self, address=None, limit=10.0):
        return Connection(address or self.bootstrap, limit)

    def new_topic(self, purpose, client=None, partitions=1, configs=None, replicas=None):
        """A topic of this run, led by the broker of --bootstrap and served there; its name."""
        self.count += 1
        name = f"{self.stamp}-{purpose}-{self.count}"
        rows = [replicas or self.nodes for _ in range(partitions)]
        if client is not None:
            client.ready_topic(name, rows, configs)
        else:
            with self.connect() as fresh:
                fresh.ready_topic(name, rows, configs)
        return name


def one(check, run):
    """Runs a check, prints its line, and gives whether it did not fail."""
    started = time.monotonic()
    try:
        check(run)
        run.process.must_live(check.__name__)
    except Skipped as why:
        print(f"skipped {check.__name__} {why}", flush=True)
        return True
    except Failed as why:
        print(f"FAILED {check.__name__} {why}", flush=True)
        return False
    except Exception as why:
        print(f"FAILED {check.__name__} {why!r}", flush=True)
        traceback.print_exc()
        return False
    print(f"ok {check.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap", "--second", "--http"):
        parser.add_argument(name, required=True, metavar="HOST:PORT")
    parser.add_argument("--pid", required=True, type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="names of checks")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [check.__name__ for check in CHECKS]
    chosen = [check for check in CHECKS if check.__name__ in wanted]
    run = Run(arguments)
    outcomes = [one(check, run) for check in chosen]
    with run.connect() as client:
        names = [topic["name"] for topic in client.metadata(None)["topics"]]
        client.delete(*[name for name in names if name.startswith(run.stamp)])
    passed = sum(outcomes)
    print(f"{passed} passed, {len(outcomes) - passed} failed")
    sys.exit(0 if passed == len(outcomes) and outcomes else 1)


if __name__ == "__main__":
    main()
