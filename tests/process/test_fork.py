"""A worker after the fork: hooks have run, no random state is shared, signals are right, no descriptor leaks."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from support.waiting import wait_until
from support_processes import descriptors_of, listening_sockets, status_field

LAZY = pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])


def facts_of_workers(instance, count=2):
    """Returns the probe's report from each of the workers."""
    found = {}

    def ask():
        # Open connections are distributed among the workers.
        facts = json.loads(instance.connect().request("GET", "/facts").text)
        found[facts["pid"]] = facts
        return len(found) == count

    wait_until(ask, lambda: f"facts of {count} workers: {list(found)}")
    return list(found.values())


def sequenced_sockets():
    """Returns the UNIX sockets of the type that carries orders, as `/proc/PID/fd` names them."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return {f"socket:[{fields[6]}]" for fields in map(str.split, lines) if int(fields[4], 16) == 5}


def test_the_application_is_loaded_once_in_the_prototype_and_hooks_run_in_each_worker(start):
    instance = start("--processes", "2")
    for facts in facts_of_workers(instance):
        assert facts["loaded_in"] == instance.prototype()
        assert facts["after_fork"] == [facts["pid"]]


def test_with_lazy_apps_each_worker_loads_the_application_itself(start):
    instance = start("--processes", "2", "--lazy-apps")
    for facts in facts_of_workers(instance):
        assert facts["loaded_in"] == facts["pid"]
        assert facts["after_fork"] == []


@LAZY
@pytest.mark.parametrize("source", ["random", "uuid", "ssl"])
def test_nothing_random_is_the_same_in_two_workers(source, lazy, start):
    first, second = facts_of_workers(start("--processes", "2", *lazy))
    assert first[source] != second[source]


@LAZY
def test_signals_are_what_python_applications_expect(lazy, start):
    instance = start(*lazy)
    (facts,) = facts_of_workers(instance, 1)
    assert facts["child"], "SIGCHLD is not the default"
    assert facts["pipe"], "SIGPIPE is not ignored"
    assert int(status_field(facts["pid"], "SigBlk"), 16) == 0, "signals are blocked"
    assert int(status_field(facts["pid"], "SigIgn"), 16) & (1 << (signal.SIGPIPE - 1))


def test_loaded_objects_are_frozen_before_the_fork(start):
    (facts,) = facts_of_workers(start(), 1)
    assert facts["frozen"] > 1000


def test_workers_hold_no_descriptors_of_their_siblings(start):
    instance = start("--processes", "4", alarms=True)
    wait_until(lambda: len(instance.workers()) == 4, "four workers")

    def descriptors():
        return {worker: sorted(descriptors_of(worker).values()) for worker in instance.workers()}

    def lines_to_the_master():
        # All processes share the queue of connections that are looking for a worker.
        shared = set(descriptors_of(instance.pid).values()).intersection(*descriptors().values())
        return {worker: sequenced_sockets().intersection(held) - shared for worker, held in descriptors().items()}

    # A worker may have a file open for a moment.
    wait_until(lambda: all(len(lines) == 1 for lines in lines_to_the_master().values()), descriptors)
    wait_until(lambda: len({len(held) for held in descriptors().values()}) == 1, descriptors)
    # Nor do workers that are forked later, when the prototype has seen some start and end.
    before = set(instance.workers())
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(set(instance.workers()) - before) == 4, "four new workers")
    wait_until(lambda: all(len(lines) == 1 for lines in lines_to_the_master().values()), descriptors)
    wait_until(lambda: len({len(held) for held in descriptors().values()}) == 1, descriptors)


def test_the_master_and_the_prototype_keep_no_descriptors_of_what_has_ended(start):
    instance = start("--processes", "2", alarms=True)

    def counts():
        return len(descriptors_of(instance.pid)), len(descriptors_of(instance.prototype()))

    wait_until(lambda: len(instance.workers()) == 2, "two workers")
    before = counts()
    for number in range(2, 5):
        instance.reload(number)
        for worker in instance.workers():
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: "killed by" in instance.log and len(instance.workers()) == 2, "two workers")
    # Not more than before: the first count may have included one that was about to be closed.
    wait_until(
        lambda: all(now <= then for now, then in zip(counts(), before)),
        lambda: f"{before}, now {counts()}: {descriptors_of(instance.pid)}",
    )


def test_a_program_that_the_application_starts_inherits_no_socket(start):
    instance = start("--processes", "2", "--uwsgi-socket", "127.0.0.1:0")
    assert listening_sockets()
    seen = instance.body("/subprocess").split()
    assert seen
    assert not [target for target in seen if target.startswith(("socket:", "anon_inode:", "/memfd:"))], seen


def test_standard_input_is_empty_and_the_log_is_standard_error(start):
    instance = start()
    held = descriptors_of(instance.worker())
    assert held[0] == "/dev/null"
    assert stat.S_ISFIFO(os.stat(f"/proc/{instance.worker()}/fd/2").st_mode)
