"""Deaths of workers and prototypes: the process is replaced, the log gives the reason, and only the requests that it served are
lost.
"""

import os
import random
import signal

import pytest
from support import processes
from support.client import Closed
from support.waiting import wait_until
from support_load import Load

LOADED_CLIENTS = 4


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        (f"/kill/{int(signal.SIGKILL)}", "was killed by SIGKILL"),
        ("/segv", "was killed by SIGSEGV"),
        (f"/kill/{int(signal.SIGRTMIN) + 5}", r"was killed by SIGRTMIN\+5"),
        ("/exit/7", "exited with status 7"),
    ],
    ids=["SIGKILL", "SIGSEGV", "a real-time signal", "os._exit"],
)
def test_a_worker_that_dies_under_load_loses_only_requests_in_flight(target, cause, start):
    instance = start("--processes", "2", alarms=True)
    before = set(instance.workers())
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        with pytest.raises(Closed):
            instance.connect().request("GET", target)
        (dead,) = wait_until(lambda: before - set(instance.workers()), "the worker's end")
        said = instance.wait_for_log(rf"^bolide: worker \d \(pid {dead}\) {cause}.*$")[0]
        (new,) = wait_until(lambda: set(instance.workers()) - before, "its replacement")
        load.wait(lambda: str(new) in load.bodies, "an answer of the replacement")
        load.wait_for_more()
    assert f"while it served GET {target} (for " in said
    assert "it is replaced" in said or "next attempt in" in said
    # Each client has at most one request in flight.
    assert len(load.losses) <= LOADED_CLIENTS
    assert len(instance.workers()) == 2


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_application_that_raises_system_exit_loses_nothing_else(processes, start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import sys\nfrom probe import application as probe\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/leave':\n"
        "        sys.exit(3)\n"
        "    return probe(environ, start_response)\n"
    )
    instance = start("--processes", processes, module="shop", alarms=True)
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        for _ in range(3):
            before = set(instance.workers())
            assert instance.get("/leave").status == 500
            wait_until(lambda before=before: before - set(instance.workers()), "the end of the worker that left")
            load.wait_for_more()
    assert load.losses == []
    instance.wait_for_text("SystemExit: 3")


def test_deaths_at_birth_pause_growingly(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os\nfrom probe import application\n"
        "os.register_at_fork(after_in_child=lambda: os.path.exists('sound') or os._exit(9))\n"
    )
    instance = start(module="shop", ready=False, alarms=True)
    for pause in ["100 ms", "200 ms", "400 ms"]:
        instance.wait_for_log(
            rf"^bolide: worker 1 \(pid \d+\) exited with status 9 before its first request; next attempt in {pause}"
        )
    (tmp_path / "sound").touch()
    instance.wait_for_log("^bolide: ready: 1 worker")
    assert instance.body() == str(instance.worker())


def test_a_request_that_crashes_its_worker_again_and_again_does_not_delay_the_next_worker(start):
    instance = start("--processes", "1", alarms=True)
    for _ in range(6):
        with pytest.raises(Closed):
            instance.connect().request("GET", "/exit/7")
        # Connections that queue at the port in the meantime are served by the next worker.
        assert instance.body().isdigit()
    instance.wait_for_log(r"exited with status 7 while it served GET /exit/7 \(for .*\); it is replaced$", count=6)
    assert "next attempt in" not in instance.log


def test_a_stop_during_the_pause_after_deaths_at_birth_ends_at_once(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os\nos.register_at_fork(after_in_child=lambda: os._exit(9))\ndef application(environ, start_response): pass\n"
    )
    instance = start(module="shop", ready=False, alarms=True)
    instance.wait_for_log("next attempt in 400 ms")
    assert instance.stop() == 0


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
def test_a_prototype_that_dies_under_load_loses_nothing_and_a_new_generation_takes_over(lazy, start):
    instance = start("--processes", "2", *lazy, alarms=True)
    old = instance.prototype()
    with Load(instance.address()) as load:
        os.kill(old, signal.SIGKILL)
        instance.wait_for_log(rf"^bolide: the prototype of generation 1 \(pid {old}\) was killed by SIGKILL")
        instance.wait_for_generation(2)
        wait_until(lambda: len(instance.processes()) == 4, "master, prototype and two workers")
        load.wait_for_more()
    assert load.losses == []
    assert instance.prototype() != old
    instance.wait_for_text("its workers keep serving; starting a new generation")


def test_the_master_notices_the_death_of_a_worker_whose_prototype_is_dead(start):
    instance = start("--processes", "2", alarms=True)
    prototype = instance.prototype()
    worker = instance.workers()[0]
    os.kill(prototype, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    os.kill(prototype, signal.SIGKILL)
    instance.wait_for_log(rf"^bolide: worker \d \(pid {worker}\) was killed by SIGKILL")
    instance.wait_for_generation(2)
    wait_until(lambda: len(instance.workers()) == 2, "two workers")


def test_every_worker_killed_again_and_again_comes_back(start):
    instance = start("--processes", "2", alarms=True)
    for _ in range(3):
        before = set(instance.workers())
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda before=before: len(set(instance.workers()) - before) == 2, "two new workers")
    instance.wait_for_text("was killed by SIGKILL")
    assert instance.body().isdigit()


def test_a_worker_that_closes_its_descriptors_is_replaced_and_not_kept(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os\nfrom probe import application as probe\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/close':\n"
        "        os.closerange(3, 256)\n"
        "    return probe(environ, start_response)\n"
    )
    instance = start(module="shop", alarms=True)
    before = instance.worker()
    with pytest.raises(Closed):
        instance.connect().request("GET", "/close")
    instance.wait_for_replacement(before)
    wait_until(lambda: f"(pid {before})" in instance.log, "a word about its end")
    assert instance.body().isdigit()


def test_a_prototype_that_was_stopped_is_replaced_and_so_are_its_workers(start):
    instance = start("--processes", "2", alarms=True)
    old = instance.prototype()
    os.kill(old, signal.SIGSTOP)
    instance.wait_for_log(rf"^bolide: the prototype of generation 1 \(pid {old}\) was stopped by SIGSTOP: it is killed unless")
    dead = instance.workers()[0]
    os.kill(dead, signal.SIGKILL)
    with Load(instance.address()) as load:
        instance.wait_for_log(rf"^bolide: the prototype of generation 1 \(pid {old}\) is still stopped: killing it$")
        instance.wait_for_generation(2)
        load.wait_for_more()
    assert load.losses == []
    wait_until(lambda: len(instance.workers()) == 2 and len(instance.processes()) == 4, "a prototype and two workers")


def test_a_prototype_that_was_stopped_and_continues_is_kept(start):
    instance = start("--processes", "1", alarms=True)
    old = instance.prototype()
    os.kill(old, signal.SIGSTOP)
    instance.wait_for_log("was stopped by SIGSTOP: it is killed unless")
    os.kill(old, signal.SIGCONT)
    before = instance.worker()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: [pid for pid in instance.workers() if pid != before], "the replacement")
    assert instance.prototype() == old
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: the prototype of generation 1 .*: Serving")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_in_whatever_order_the_chosen_workers_serve_in_the_end(seed, start):
    chance = random.Random(seed)
    instance = start("--processes", "2", alarms=True)

    def somebody(pids):
        pids = sorted(pids)
        return chance.choice(pids) if pids else None

    for _ in range(25):
        action = chance.choice(["worker", "worker", "prototype", "reload", "answer"])
        if action == "reload":
            instance.send_signal(signal.SIGHUP)
        elif action == "answer":
            # Requests of workers that are killed in the meantime are lost; the test only requires an answer.
            wait_until(lambda: answers(instance), lambda: f"an answer; the log:\n{instance.log}")
        else:
            victim = somebody(instance.workers() if action == "worker" else instance.prototypes())
            if victim is not None:
                processes.kill(victim)
    wait_until(
        lambda: len(instance.prototypes()) == 1 and len(instance.workers()) == 2 and len(instance.processes()) == 4,
        lambda: f"master, prototype and two workers: {instance.processes()}; the log:\n{instance.log}",
    )
    wait_until(lambda: answers(instance), "an answer")
    assert instance.process.poll() is None
    assert "panicked" not in instance.log
    assert instance.stop() == 0


def answers(instance):
    try:
        return instance.get().status == 200
    except (Closed, OSError):
        return False
