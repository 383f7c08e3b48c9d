"""A signal to one process of an instance: a worker, a helper, or the parent of workers, which hands it on to the master."""

import os
import shutil
import signal
import threading
import time

import pytest
from support import processes
from support.waiting import wait_until
from support_instance import APPLICATIONS
from support_load import Load
from support_users import python_for_everybody

SHOP = """\
import os, signal

def application(environ, start_response):
    word, _, whose = environ["PATH_INFO"].strip("/").partition("/")
    if word:
        os.kill(os.getppid() if whose == "parent" else os.getpid(), getattr(signal, word))
    start_response("200 OK", [("Content-Length", str(len(str(os.getpid()))))])
    return [str(os.getpid()).encode()]
"""
NAMES = ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"]
#: The master waits a little longer for its own signal of a group.
GROUP_SECONDS = 0.4


@pytest.fixture
def shop(start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return lambda *arguments, **options: start(*arguments, module="shop", **options)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("options", [(), ("--lazy-apps",), ("--threads", "3")], ids=["plain", "lazy", "threads"])
def test_a_worker_that_is_told_to_end_is_replaced_without_a_loss_and_the_log_says_so(options, name, start):
    instance = start("--processes", "2", *options)
    told = min(instance.workers())
    with Load(instance.address()) as load:
        os.kill(told, getattr(signal, name))
        instance.wait_for_log(rf"^bolide: worker \d [(]pid {told}[)] got {name} from pid {os.getpid()}: it is replaced$")
        instance.wait_for_replacement(told, count=2)
        load.wait_for_more()
    assert load.losses == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_request_can_have_its_own_worker_replaced_and_is_answered(name, shop):
    instance = shop()
    told = instance.worker()
    assert instance.body(f"/{name}") == str(told)
    instance.wait_for_log(rf"^bolide: worker 1 [(]pid {told}[)] got {name} from itself: it is replaced$")
    instance.wait_for_replacement(told)


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_a_worker_that_is_interrupted_ends_at_once_and_another_follows(name, start, tmp_path):
    instance = start("--processes", "1")
    told = instance.worker()
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'gate'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "gate.waiting").exists, "the application to have the request")
    os.kill(told, getattr(signal, name))
    instance.wait_for_log(rf"^bolide: worker 1 [(]pid {told}[)] got {name} from pid {os.getpid()}: it exits immediately$")
    instance.wait_for_log(rf"^bolide: killing worker 1 [(]pid {told}[)] while it serves")
    assert instance.body() != str(told)


@pytest.mark.parametrize("name", NAMES)
def test_a_mule_that_gets_a_signal_is_replaced(name, start):
    instance = start("--mule")
    wait_until(lambda: len(instance.workers()) == 2, "the mule")
    mule = next(pid for pid in instance.workers() if str(pid) != instance.body())
    os.kill(mule, getattr(signal, name))
    instance.wait_for_log(rf"^bolide: mule 1 [(]pid {mule}[)] got {name} from pid {os.getpid()}: it exits ")
    instance.wait_for_replacement(mule, count=2)


def test_sighup_of_a_worker_to_its_parent_reloads(shop):
    instance = shop()
    parent = instance.prototype()
    instance.body("/SIGHUP/parent")
    instance.wait_for_log(
        rf"^bolide: the prototype of generation 1 [(]pid {parent}[)] got SIGHUP from pid \d+: the master reloads$"
    )
    instance.wait_for_generation(2)
    assert instance.body().isdigit()


def test_signals_to_the_parent_that_come_while_a_generation_starts_are_one_reload(shop, tmp_path):
    # The new generation loads until all signals are sent, however long that takes.
    instance = shop(environment={"BOLIDE_TEST_LOAD_PATIENCE_MS": "600000"})
    gate = tmp_path / "gate"
    waits = f"import time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    (tmp_path / "shop.py").write_text(SHOP + waits)
    for _ in range(30):
        instance.body("/SIGHUP/parent")
    instance.wait_for(lambda: instance.body("/SIGHUP/parent") and "one more reload follows it" in instance.log, "a second reload")
    gate.touch()
    instance.wait_for_generation(3)
    instance.body("/SIGTERM/parent")
    assert instance.wait_for_exit() == 0
    assert instance.log.count("starting generation") == 2


def test_sigterm_of_a_worker_to_its_parent_stops_the_instance_gracefully(shop, tmp_path):
    instance = shop()
    parent = instance.prototype()
    instance.body("/SIGTERM/parent")
    instance.wait_for_log(
        rf"^bolide: the prototype of generation 1 [(]pid {parent}[)] got SIGTERM from pid \d+: the master stops$"
    )
    assert instance.wait_for_exit() == 0
    assert "stopping immediately" not in instance.log


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: the master keeps its rights")
def test_sigterm_to_the_parent_of_another_user_does_not_stop_the_master(start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here that every user may run")
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    instance = start("--uid", "nobody", "--chdir", open_directory, command=[python, "-m", "bolide"])
    os.kill(instance.prototype(), signal.SIGTERM)
    instance.wait_for_log("got SIGTERM from pid .*: the master runs as another user and does not stop; ")
    instance.wait_for_generation(2)
    assert instance.body().isdigit()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_the_whole_group_acts_once_and_answers_the_request_in_flight(name, start, tmp_path):
    rounds, acted = 20, 0
    for number in range(rounds):
        instance = start("--processes", "2")
        gate = tmp_path / f"gate-{number}"
        client = instance.connect()
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
        pids = sorted((process.pid for process in instance.processes()), reverse=number % 2 == 0)
        began = time.monotonic()
        for pid in pids:
            processes.kill(pid, getattr(signal, name))
        if time.monotonic() - began > GROUP_SECONDS:
            # A busy machine has interrupted it: to the master these are several signals.
            instance.expects_alarms = True
            continue
        acted += 1
        opener = threading.Timer(3 if number == 0 else 0.7, gate.touch)
        opener.start()
        assert client.read_response().text == "waited", instance.log
        opener.join()
        if name == "SIGHUP":
            instance.wait_for_generation(2)
            instance.send_signal(signal.SIGTERM)
        assert instance.wait_for_exit() == 0
        assert " got SIG" not in instance.log, instance.log
        assert "stopping immediately" not in instance.log, instance.log
        assert instance.log.count("starting generation") == (name == "SIGHUP"), instance.log
    assert acted > 0


def test_sigquit_to_the_whole_group_stops_immediately(start, tmp_path):
    instance = start("--processes", "2")
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    for pid in sorted((process.pid for process in instance.processes()), reverse=True):
        processes.kill(pid, signal.SIGQUIT)
    instance.wait_for_log(r"^bolide: stopping immediately [(]SIGQUIT[)]")
    assert instance.wait_for_exit() == 0
