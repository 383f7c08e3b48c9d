"""Waiting for conditions, always with a bound."""

import threading
import time

#: How long a condition may take to come true, in seconds: far beyond what a slow machine needs that does much else.
PATIENCE_SECONDS = 60
#: How often a condition that nobody announces is looked at, in seconds.
LOOK_SECONDS = 0.01

_nobody = threading.Event()


def wait_until(condition, what, seconds=PATIENCE_SECONDS, look_seconds=LOOK_SECONDS):
    """Return the first true value of ``condition()``; fail with ``what`` when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        _nobody.wait(look_seconds)


def assert_once_below(attempt, bound, tries=10):
    """Fail if each attempt gives this or more; an attempt gives the seconds that it took, or another measure of its wait.

    What waits for the server waits in each of them, and what a busy machine has held up does not.
    """
    measured = []
    while not measured or measured[-1] >= bound:
        assert len(measured) < tries, f"none is below {bound}: {measured}"
        measured.append(attempt())
