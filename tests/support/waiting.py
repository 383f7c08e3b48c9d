"""Waiting for conditions, always with a timeout."""

import threading
import time

#: Timeout of a condition, in seconds: far beyond what a slow and busy machine needs.
TIMEOUT_SECONDS = 60
#: Polling interval of conditions without a notification, in seconds.
LOOK_SECONDS = 0.01

_nobody = threading.Event()


def wait_until(condition, what, seconds=TIMEOUT_SECONDS, look_seconds=LOOK_SECONDS):
    """Returns the first true value of ``condition()``; fails with ``what`` on timeout."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        _nobody.wait(look_seconds)


def assert_once_below(attempt, bound, tries=10):
    """Fails if each attempt returns this or more; an attempt returns its seconds, or another measure of its wait.

    A wait that the server causes occurs in each attempt; a delay of a busy machine does not.
    """
    measured = []
    while not measured or measured[-1] >= bound:
        assert len(measured) < tries, f"none is below {bound}: {measured}"
        measured.append(attempt())
