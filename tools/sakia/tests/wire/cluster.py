"""A cluster of `sakia dev` under test: started fresh, watched, stopped.

Every cluster has ports and a data folder of its own. Nothing here sleeps for a fixed time: each wait has a condition
and a bound.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

READY_WITHIN = 90
STOP_WITHIN = 15


def arguments(extra=None):
    """The command line of every script here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sakia", required=True, help="the binary")
    parser.add_argument("--work", required=True, help="folder for data of the clusters")
    parser.add_argument("--kafka-libs", help="folder with the jars of Apache Kafka's tools")
    for name, kwargs in (extra or {}).items():
        parser.add_argument(name, **kwargs)
    return parser.parse_args()


def wait_for(what, condition, within):
    """Waits until condition() is true, and gives what it gave."""
    deadline = time.monotonic() + within
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)


def member(node):
    """Name of a process by its node.id."""
    return "controller 3" if node == 3 else f"broker {node}"


class Cluster:
    """`sakia dev` in the background."""

    def __init__(self, arguments, name, port_base, overrides=(), partitions=6):
        self.sakia = arguments.sakia
        self.base = port_base
        self.data = os.path.join(arguments.work, name)
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.data)
        self.pids = {}
        self.restarted = []
        self.output = []
        self.ready = threading.Event()
        words = [self.sakia, "dev", "--data", self.data, "--fresh", "--port-base", str(port_base)]
        words += ["--partitions", str(partitions)]
        for override in overrides:
            words += ["--override", override]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        self.ready.wait(READY_WITHIN)
        if "ready" not in self.output:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(STOP_WITHIN)
            raise AssertionError("the cluster did not become ready:\n" + "\n".join(self.output))

    def _read(self):
        for line in self.process.stdout:
            line = line.rstrip("\n")
            found = re.match(r"(broker \d|controller \d|bucket) .* pid (\d+)", line)
            if found:
                self.pids.setdefault(found[1], int(found[2]))
            self.output.append(line)
            if line == "ready":
                self.ready.set()
        self.ready.set()

    def broker(self, node):
        return f"127.0.0.1:{self.base + 92 + 100 * (node - 1)}"

    @property
    def bootstrap(self):
        return self.broker(1) + "," + self.broker(2)

    def _get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def metrics(self, node):
        """{'name{labels}': value} of one process."""
        text = self._get(self.base + 644 + 100 * (node - 1), "/metrics")
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def metric(self, name, nodes=(1, 2)):
        """Sum over series of a family (or one series, with its labels) and over brokers."""
        whole = 0
        for node in nodes:
            for series, value in self.metrics(node).items():
                if series == name or series.startswith(name + "{"):
                    whole += value
        return whole

    def ledger(self):
        return json.loads(self._get(self.base, "/_ledger"))

    def fault(self, mode):
        """Switches what goes wrong in the bucket: none, hang, error503, lose-put-reply, spoil-get."""
        body = json.dumps({"mode": mode}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.base}/_fault", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()

    def tool(self, *words):
        """Runs `sakia …` and gives its JSON."""
        words = [self.sakia, *words, "--json"]
        out = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if out.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {out.stderr.strip()}")
        return json.loads(out.stdout)

    def topic(self, name, node=1):
        """Partitions of a topic as one broker tells them, in order."""
        described = self.tool("topic", "describe", name, "--bootstrap-server", self.broker(node))
        return sorted(described[0]["partitions"], key=lambda partition: partition["partition"])

    def segments(self, node, topic, partition):
        """Files of a log, oldest first."""
        folder = os.path.join(self.data, f"broker-{node}", f"{topic}-{partition}")
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".log")]

    def pid(self, node):
        return self.pids[member(node)]

    def kill(self, node):
        os.kill(self.pid(node), signal.SIGKILL)

    def restart(self, node):
        """A second terminal restarts a killed broker or controller."""
        words = [self.sakia, "dev", "--data", self.data, "--restart", str(node), "--port-base", str(self.base)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
        line = process.stdout.readline()
        found = re.search(r"pid (\d+)", line)
        if not found:
            raise AssertionError(f"restart of {member(node)}: {line}{process.stdout.read()}")
        self.pids[member(node)] = int(found[1])
        self.restarted.append(process)

    def stop(self):
        """Ctrl-C; everything must have ended well within the bound, whoever started it."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(STOP_WITHIN)
        for process in self.restarted:
            process.wait(STOP_WITHIN)
        took = time.monotonic() - started
        if code != 0:
            raise AssertionError(f"sakia dev ended with {code}:\n" + "\n".join(self.output[-10:]))
        if took > 11:
            raise AssertionError(f"stopping took {took:.1f} s")

    def abandon(self):
        """After a failure: show what was said last, leave nothing running."""
        for process in [self.process, *self.restarted]:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in [self.process, *self.restarted]:
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in sorted(os.listdir(os.path.join(self.data, "logs"))):
            with open(os.path.join(self.data, "logs", name), errors="replace") as log:
                tail = log.readlines()[-15:]
            print(f"--- {name}\n" + "".join(tail), file=sys.stderr)


def run(test, arguments, *cluster, **named):
    """Runs test(cluster) on a fresh cluster and stops it, however it ends."""
    under_test = Cluster(arguments, *cluster, **named)
    try:
        test(under_test)
        under_test.stop()
    except BaseException:
        under_test.abandon()
        raise
