"""No process of Bolide outlives its master, however that dies: within two seconds all have ended and the port is free."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import processes
from support.client import Closed
from support.waiting import assert_once_below, wait_until
from support_instance import port_is_free
from support_load import Load

#: Time limit after `kill -9` of the master within which all processes of Bolide end, in seconds, on a machine that is not
#: overloaded.
ORPHANS_SECONDS = 2.0


@pytest.fixture
def start(start, free_port):
    """Each instance has a port that is not reused when it has ended."""
    return lambda *arguments, **options: start(*arguments, **{"socket": f"127.0.0.1:{free_port()}", **options})


def kill_master(instance, port):
    instance.send_signal(signal.SIGKILL)
    instance.wait_until_gone()
    assert port_is_free(port)


ENDED_MAIN_THREAD = """\
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_with_a_thread_that_runs_is_not_gone():
    with subprocess.Popen([sys.executable, "-c", ENDED_MAIN_THREAD]) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: ") Z " in stat.read_text(), "the end of the main thread")
            assert processes.look(process.pid) is not None
        finally:
            process.kill()
    assert processes.look(process.pid) is None


@pytest.mark.parametrize("options", [(), ("--lazy-apps",), ("--threads", "4")], ids=["plain", "lazy", "threads"])
def test_kill_9_of_an_idle_master_leaves_no_process(options, start):
    instance = start("--processes", "2", *options)
    instance.connect().request()
    kill_master(instance, instance.port)


def test_kill_9_of_a_master_under_load_leaves_no_process(start):
    instance = start("--processes", "2")
    with Load(instance.address()) as load:
        port = instance.port
        kill_master(instance, port)
        load.stop()
    assert load.answers > 0


def test_kill_9_of_a_master_finishes_a_request_that_ends_soon(start, tmp_path):
    """Its worker has a second for that, in which this process may be suspended: one attempt of several is enough."""

    def is_finished(number):
        instance = start()
        gate = tmp_path / f"gate{number}"
        client = instance.connect()
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
        instance.send_signal(signal.SIGKILL)
        instance.wait_for_log("^bolide: the master is gone")
        gate.touch()
        try:
            assert client.read_response().text == "waited"
        except Closed:
            return False
        finally:
            instance.wait_until_gone()
        return True

    assert any(is_finished(number) for number in range(5))


@pytest.mark.parametrize("threads", ["1", "4"])
def test_kill_9_of_a_master_with_a_worker_stuck_leaves_no_process_for_long(threads, start, tmp_path):
    def seconds_to_the_end():
        instance = start("--processes", "2", "--threads", threads)
        client = instance.connect()
        client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
        (tmp_path / "never.waiting").unlink()
        began = time.monotonic()
        kill_master(instance, instance.port)
        return time.monotonic() - began

    assert_once_below(seconds_to_the_end, ORPHANS_SECONDS)


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
def test_kill_9_of_a_master_while_the_application_is_loaded_leaves_no_process(lazy, start, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance = start(*lazy, module="slow", ready=False)
    instance.wait_for_log("^loading$")
    kill_master(instance, instance.port)


def test_kill_9_of_a_master_during_a_reload_leaves_no_process(start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start(module="shop")
    (tmp_path / "shop.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$")
    kill_master(instance, instance.port)


def test_a_killed_master_can_be_started_again_on_its_port_at_once(start):
    instance = start("--processes", "2")
    port = instance.port
    kill_master(instance, port)
    again = start(socket=f"127.0.0.1:{port}")
    assert again.body() == str(again.worker())


STUCK = """\
import ctypes
from probe import application as probe
def application(environ, start_response):
    if environ["PATH_INFO"] == "/gil":
        open(environ["QUERY_STRING"], "w").close()
        # A function of a library that keeps the interpreter: no other thread of the process runs Python in the meantime.
        while True:
            ctypes.PyDLL(None).sleep(300)
    return probe(environ, start_response)
"""


@pytest.mark.parametrize("first", ["master", "prototype"])
@pytest.mark.parametrize("threads", ["1", "4"])
def test_kill_9_of_master_and_prototype_leaves_no_process_though_a_worker_is_stuck_with_the_gil(threads, first, start, tmp_path):
    (tmp_path / "shop.py").write_text(STUCK)
    instance = start("--processes", "2", "--threads", threads, module="shop", alarms=True)
    client = instance.connect()
    client.send(f"GET /gil?{tmp_path / 'stuck'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "stuck").exists, "the application to be stuck")
    pids = [instance.pid, instance.prototype()]
    port = instance.port
    for pid in pids if first == "master" else reversed(pids):
        processes.kill(pid)
    instance.wait_until_gone()
    assert port_is_free(port)


ENDLESS = """\
import atexit, ctypes, os
from probe import application
prototype = os.getpid()
def stay():
    if os.getpid() == prototype:
        print("staying", flush=True)
        ctypes.PyDLL(None).sleep(300)
atexit.register(stay)
"""


@pytest.mark.parametrize("stopping", [False, True], ids=["serving", "stopping"])
def test_kill_9_of_a_master_leaves_no_process_though_the_prototypes_interpreter_does_not_end(stopping, start, tmp_path):
    (tmp_path / "shop.py").write_text(ENDLESS)
    instance = start("--processes", "2", module="shop", alarms=True)
    port = instance.port
    if stopping:
        instance.send_signal(signal.SIGTERM)
        instance.wait_for_log("^staying$")
    kill_master(instance, port)


def test_kill_9_of_a_master_whose_prototype_is_stopped_leaves_no_process(start, tmp_path):
    instance = start("--processes", "2")
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    processes.kill(instance.prototype(), signal.SIGSTOP)
    kill_master(instance, instance.port)


def test_no_process_is_left_if_the_reader_of_the_log_ends_before_the_master(start, tmp_path):
    instance = start("--processes", "2")
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    instance.close_log()
    kill_master(instance, instance.port)


def test_a_start_right_after_kill_9_of_the_master_waits_for_the_port(start, tmp_path):
    instance = start()
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    port = instance.port
    instance.send_signal(signal.SIGKILL)
    again = start(socket=f"127.0.0.1:{port}")
    assert again.get("/pid").status == 200
