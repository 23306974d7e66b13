"""The list of checks, and how a check says that something does not hold.

Path: every file of checks puts its functions here with `@check`; run.py runs them in that order and counts.
"""
import time

CHECKS = []


class Failed(Exception):
    """A claim does not hold; the text says what was seen."""


class Skipped(Exception):
    """This cannot be seen here; the text says why."""


def check(function):
    """Puts a function into the list; its name is the claim that is printed."""
    CHECKS.append(function)
    return function


def must(holds, why):
    """A claim of a check."""
    if not holds:
        raise Failed(why)


def wait_for(what, condition, within):
    """Waits until condition() is true, and gives what it gave."""
    limit = time.monotonic() + within
    while True:
        result = condition()
        if result:
            return result
        must(time.monotonic() < limit, f"not within {within} s: {what}")
        time.sleep(0.02)
