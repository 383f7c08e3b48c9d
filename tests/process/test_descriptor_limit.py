"""A master without free descriptors: failed operations are retried at increasing intervals, and fill neither the CPU
nor the log.
"""

import contextlib
import os
import re
import resource
import signal
import socket
import time

import pytest
from support.waiting import wait_until
from support_processes import descriptors_of

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def no_free_descriptor(instance):
    """Within the block the master can open nothing; its open descriptors stay."""
    # Descriptors that it opened for startup are closed by the time it logs its status.
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: generation in service: 1")
    pid = instance.pid
    taken = descriptors_of(pid)
    first_free = next(number for number in range(len(taken) + 1) if number not in taken)
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, limit[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)


def processor_seconds(pid):
    """Returns the CPU time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


@pytest.fixture
def asked():
    """A client of a master's control socket."""
    with socket.socket(socket.AF_UNIX) as client:
        yield client


def test_a_client_that_no_descriptor_is_left_for_waits_and_is_answered_later(start, asked):
    instance = start()
    with no_free_descriptor(instance):
        asked.connect(f"\0bolide/{instance.pid}")
        asked.sendall(b'{"ask": "identity"}\n')
        used, began = processor_seconds(instance.pid), time.monotonic()
        wait_until(lambda: time.monotonic() > began + 2, "two seconds")
        # A master that is notified of the client repeatedly would use all CPU time.
        assert processor_seconds(instance.pid) - used < 0.05 * (time.monotonic() - began)
        assert instance.body() == str(instance.worker())
    assert b'"ok":true' in asked.recv(65536)


def test_a_worker_that_cannot_be_ordered_is_tried_again_in_growing_pauses(start):
    instance = start(alarms=True)
    with no_free_descriptor(instance):
        os.kill(instance.worker(), signal.SIGKILL)
        line = r"^bolide: worker 1 can't be ordered: Too many open files .*; next attempt in (.*)$"
        instance.wait_for_log(line, count=3)
        assert re.findall(line, instance.log, re.MULTILINE)[:3] == ["200 ms", "400 ms", "800 ms"]
    wait_until(lambda: instance.workers(), "another worker")
    assert instance.body() == str(instance.worker())
