"""Hostile and careless peers: the checks of ../hostile against a cluster of this script's own."""

import os
import subprocess
import sys

from cluster import arguments, run

ARGUMENTS = arguments({"--only": {"default": None, "help": "names of checks, with commas between"}})
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hostile", "run.py")


def test(cluster):
    words = [sys.executable, CHECKS, "--bootstrap", cluster.broker(1), "--second", cluster.broker(2)]
    words += ["--http", f"127.0.0.1:{cluster.base + 644}", "--pid", str(cluster.pid(1))]
    if ARGUMENTS.only:
        words += ["--only", ARGUMENTS.only]
    subprocess.run(words, check=True, timeout=900)


if __name__ == "__main__":
    run(test, ARGUMENTS, "hostile", 29000, overrides=["log.retention.check.interval.ms=500"])
