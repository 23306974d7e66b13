"""Processes of `sakia server` that a check starts itself: settings as it likes, ports of their own, gone at its end.

Always: every process reads the end of its standard input as the word to stop, so none outlives the tests.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from checks import Failed, must, wait_for
from client import Connection
from process import Process

READY_WITHIN = 30
STOP_WITHIN = 12
CONTROLLER = 3


def free_ports(count):
    """Ports that nobody has right now."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def environment():
    """Ours without settings and keys meant for others; the bucket's keys are any text."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "SAKIA_", "AWS_", "RUST_"))}
    return {**kept, "AWS_ACCESS_KEY_ID": "hostile", "AWS_SECRET_ACCESS_KEY": "hostile"}


def write_properties(path, settings):
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


class Server:
    """One `sakia server`."""

    def __init__(self, binary, folder, name, settings):
        self.config = folder / f"{name}.properties"
        self.log = folder / f"{name}.log"
        write_properties(self.config, settings)
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen([binary, "server", "--config", str(self.config), "--input", "watched"],
                                          stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment())

    def said(self):
        return self.log.read_text(errors="replace")

    def ended_with(self, within):
        """Exit code, or None if it still runs after so many seconds."""
        try:
            return self.child.wait(within)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        """A clean stop; its exit code."""
        self.child.stdin.close()
        return self.ended_with(STOP_WITHIN)

    def kill(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()


class OwnCluster:
    """A controller and two brokers; with `connect` and `new_topic` it is a `Run` for the checks of other files."""

    def __init__(self, run, overrides=None, folders=None):
        self.binary = run.process.binary
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="sakia-hostile-"))
        self.overrides = overrides or {}
        self.ports = dict(zip((CONTROLLER, 1, 2), free_ports(3)))
        self.folders = {node: pathlib.Path(path) for node, path in (folders or {}).items()}
        self.servers = {}
        self.stamp, self.count, self.seed, self.nodes = "own", 0, run.seed, [1, 2]

    def __enter__(self):
        try:
            for node in (CONTROLLER, 1, 2):
                self.start(node)
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    def address(self, node=1):
        return f"127.0.0.1:{self.ports[node]}"

    bootstrap = property(address)

    @property
    def second(self):
        return self.address(2)

    @property
    def process(self):
        return Process(self.servers[1].child.pid)

    def folder(self, node):
        return self.folders.get(node, self.scratch / f"data-{node}")

    def settings(self, node):
        role, listener = ("controller", "CONTROLLER") if node == CONTROLLER else ("broker", "PLAINTEXT")
        return {
            "process.roles": role, "node.id": node, "listeners": f"{listener}://127.0.0.1:{self.ports[node]}",
            "controller.listener.names": "CONTROLLER", "http.port": 0, "log.dirs": self.folder(node),
            "controller.quorum.voters": f"{CONTROLLER}@{self.address(CONTROLLER)}",
            "offsets.topic.replication.factor": 2, "broker.session.timeout.ms": 3000, **self.overrides,
        }

    def start(self, node, **settings):
        self.servers[node] = Server(self.binary, self.scratch, f"node-{node}", {**self.settings(node), **settings})

    def wait_until_ready(self, brokers=2):
        def ready():
            for node, server in self.servers.items():
                must(server.child.poll() is None, f"node {node} ended: {server.said()[-600:]}")
            try:
                with self.connect() as client:
                    return len(client.metadata([])["brokers"]) == brokers
            except (OSError, Failed):
                return False
        wait_for("the cluster to be ready", ready, READY_WITHIN)

    def connect(self, address=None, limit=10.0):
        return Connection(address or self.bootstrap, limit)

    def new_topic(self, purpose, client=None, partitions=1, configs=None, replicas=None):
        self.count += 1
        name = f"{self.stamp}-{purpose}-{self.count}"
        with self.connect() as fresh:
            fresh.ready_topic(name, [replicas or self.nodes for _ in range(partitions)], configs)
        return name


def refuses(run, settings, within=5.0):
    """Exit code, words and seconds of a server that is to be refused: it ends by itself, quickly, without a panic."""
    with tempfile.TemporaryDirectory(prefix="sakia-hostile-") as scratch:
        folder = pathlib.Path(scratch)
        base = {"process.roles": "broker", "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0", "http.port": 0,
                "controller.quorum.voters": "3@127.0.0.1:1", "log.dirs": folder / "data"}
        server = Server(run.process.binary, folder, "refused", {**base, **settings})
        started = time.monotonic()
        code = server.ended_with(within)
        server.kill()
        said = server.said().strip()
        must(code is not None, f"{settings} was not refused within {within} s: {said[-300:]}")
        must(code in (1, 2) and "panicked" not in said, f"{settings}: exit code {code}: {said[-300:]}")
        return code, said, time.monotonic() - started
