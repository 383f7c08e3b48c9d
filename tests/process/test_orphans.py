"""No process of Bolide outlives its master, however that dies: within two seconds all are gone and the port is free."""

import signal

import pytest
from support.waiting import wait_until
from support_instance import ORPHANS_SECONDS, port_is_free
from support_load import Load


def kill_master(instance, port):
    instance.send_signal(signal.SIGKILL)
    instance.wait_until_gone(ORPHANS_SECONDS)
    assert port_is_free(port)


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
    instance = start()
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    instance.send_signal(signal.SIGKILL)
    instance.wait_for_log("^bolide: the master is gone")
    gate.touch()
    assert client.read_response().text == "waited"
    instance.wait_until_gone(ORPHANS_SECONDS)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_kill_9_of_a_master_with_a_worker_stuck_leaves_no_process(threads, start, tmp_path):
    instance = start("--processes", "2", "--threads", threads)
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    kill_master(instance, instance.port)


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
