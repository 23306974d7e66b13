"""Claims of a fault test, each told in one line as it is judged; the last line counts them."""

import random
import sys
import time
import traceback

from cluster import Cluster


class Claims:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.started = time.monotonic()

    def say(self, line):
        """What was measured, with the time since the start."""
        print(f"  {time.monotonic() - self.started:6.1f} s  {line}", flush=True)

    def judge(self, name, why_not):
        """why_not: None or empty if the claim holds."""
        if why_not:
            self.failed += 1
            print(f"FAILED {name} {why_not}", flush=True)
        else:
            self.passed += 1
            print(f"ok {name}", flush=True)

    def check(self, name, test):
        """Runs test(), which raises if the claim does not hold. Gives what it gave."""
        try:
            result = test()
        except Exception as error:  # Whatever went wrong, the other claims are judged as well.
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            self.judge(name, str(error) or type(error).__name__)
            return None
        self.judge(name, None)
        return result

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)


def seed_of(arguments):
    """The seed of the command line or a fresh one, told so that the run can be repeated."""
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    return seed


def run(test, arguments, name, *more):
    """Runs test(cluster, claims, *more) on a fresh cluster, leaves nothing of it running, and ends the script."""
    claims = Claims()
    cluster = Cluster(arguments, name, arguments.port_base)
    try:
        test(cluster, claims, *more)
    finally:
        if claims.failed or sys.exc_info()[0] or cluster.process.poll() is None:
            cluster.abandon()
    claims.finish()
