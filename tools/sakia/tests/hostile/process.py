"""A running process seen from outside: memory, open files, threads, its log, whether it is still the same one."""
import os
import re
import time

from checks import must, wait_for

MIB = 1 << 20


class Process:
    """A process by its id."""

    def __init__(self, pid):
        self.pid = pid
        self.started = self._start_time()
        log = os.readlink(f"/proc/{pid}/fd/2")
        self.log = log if os.path.isfile(log) else None
        self.binary = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")

    def _start_time(self):
        with open(f"/proc/{self.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[19]

    def must_live(self, after):
        """It is there and was not restarted."""
        try:
            same = self._start_time() == self.started
        except OSError:
            same = False
        must(same, f"the broker is gone after {after}: {self.last_lines()}")

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def settled_memory(self, seconds=3.0):
        """The least resident bytes within some seconds: what stays when nothing happens."""
        least, limit = self.memory(), time.monotonic() + seconds
        while time.monotonic() < limit:
            time.sleep(0.1)
            least = min(least, self.memory())
        return least

    def files(self):
        """Open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def files_back_to(self, count, within=10):
        wait_for(f"{self.files()} open files to become {count} again", lambda: self.files() <= count, within)

    def log_size(self):
        return os.path.getsize(self.log) if self.log else 0

    def lines_since(self, position):
        """Lines written to the log from a position on."""
        if not self.log:
            return []
        with open(self.log, errors="replace") as file:
            file.seek(position)
            return file.read().splitlines()

    def last_lines(self):
        try:
            return " | ".join(self.lines_since(max(0, self.log_size() - 1500))[-4:])
        except OSError:
            return ""


class FlatMemory:
    """`with FlatMemory(process, mib):` memory may not stand more than so much higher afterwards."""

    def __init__(self, process, mib, what):
        self.process, self.bytes, self.what = process, mib * MIB, what

    def __enter__(self):
        self.before = self.process.memory()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.process.must_live(self.what)
            grown = lambda: self.process.memory() - self.before
            limit = time.monotonic() + 5
            while grown() > self.bytes and time.monotonic() < limit:
                time.sleep(0.1)
            must(grown() <= self.bytes, f"{self.what}: memory stands {grown() // MIB} MiB higher, "
                                        f"{self.bytes // MIB} MiB allowed")
        return False
