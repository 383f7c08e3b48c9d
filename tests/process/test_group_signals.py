"""A signal to every process of an instance, as systemd sends it (KillMode=control-group), has the same effect as a signal to the
master.
"""

import os
import signal

import pytest
from support import processes
from support.waiting import wait_until
from support_load import Load

SHOP = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""
VARIANTS = {"plain": (), "lazy": ("--lazy-apps",), "threads": ("--threads", "3")}


def send_to_all(instance, number, master_last):
    """Sends a signal to workers, prototype and master; the order within a process group is unspecified."""
    pids = sorted((process.pid for process in instance.processes()), reverse=master_last)
    for pid in pids:
        processes.kill(pid, number)


def hold(instance, tmp_path, name="gate"):
    gate = tmp_path / name
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    return client, gate


@pytest.mark.parametrize("master_last", [False, True], ids=["master first", "master last"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_a_stop_of_the_whole_group_finishes_the_request_in_flight(options, number, master_last, start, tmp_path):
    instance = start("--processes", "2", *options)
    client, gate = hold(instance, tmp_path)
    send_to_all(instance, number, master_last)
    instance.wait_for_log("^bolide: stop: ")
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_a_reload_of_the_whole_group_loses_no_request(options, start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP.format(version="old", length=3))
    instance = start("--processes", "2", *options, module="shop")
    with Load(instance.address()) as load:
        (tmp_path / "shop.py").write_text(SHOP.format(version="young", length=5))
        send_to_all(instance, signal.SIGHUP, master_last=True)
        instance.wait_for_generation(2)
        load.wait(lambda: load.bodies["young"] > 0, "the new version")
        load.wait_for_more()
    assert load.losses == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=["SIGUSR1", "SIGUSR2"])
def test_a_status_signal_to_the_whole_group_disturbs_no_process(number, start):
    instance = start("--processes", "2")
    before = instance.processes()
    send_to_all(instance, number, master_last=True)
    instance.wait_for_log("^bolide: status: generation in service: 1")
    assert instance.body().isdigit()
    assert [process.pid for process in instance.processes()] == [process.pid for process in before]


def test_ctrl_z_pauses_the_instance_and_suspends_no_process(start):
    instance = start("--processes", "2")
    before = instance.processes()
    send_to_all(instance, signal.SIGTSTP, master_last=True)
    again = r"SIGTSTP again \(Ctrl-Z in its terminal\)"
    instance.wait_for_log(rf"^bolide: paused \(SIGTSTP\): new requests wait until .* or {again}$")
    send_to_all(instance, signal.SIGTSTP, master_last=True)
    instance.wait_for_log("^bolide: resumed [(]SIGTSTP[)]")
    assert instance.body().isdigit()
    assert "was stopped by" not in instance.log
    assert [process.pid for process in instance.processes()] == [process.pid for process in before]


def test_a_signal_without_a_meaning_for_the_prototype_does_not_disturb_it_while_it_loads(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os, time\nfrom probe import application\n"
        "print('loading', flush=True)\nwhile not os.path.exists('gate'): time.sleep(0.01)\n"
    )
    instance = start(module="shop", ready=False)
    instance.wait_for_log("^loading$")
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTSTP):
        os.kill(instance.prototype(), number)
    (tmp_path / "gate").touch()
    instance.wait_for_log("^bolide: ready: 1 worker")
    assert instance.body() == str(instance.worker())


def test_what_the_application_starts_has_signals_as_usual(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import multiprocessing, subprocess, signal\n"
        "def application(environ, start_response):\n"
        "    fork = multiprocessing.get_context('fork')\n"
        "    child = fork.Process(target=__import__('time').sleep, args=(300,))\n"
        "    child.start()\n"
        "    child.terminate()\n"
        "    child.join()\n"
        "    program = subprocess.Popen(['sleep', '300'])\n"
        "    program.terminate()\n"
        "    body = f'{child.exitcode} {program.wait()}'.encode()\n"
        "    start_response('200 OK', [('Content-Length', str(len(body)))])\n"
        "    return [body]\n"
    )
    instance = start(module="shop")
    assert instance.body() == f"{-signal.SIGTERM} {-signal.SIGTERM}"


def test_a_handler_that_the_application_sets_stands(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import signal\nfrom probe import application\n"
        "signal.signal(signal.SIGUSR2, lambda *_: print('the application has it', flush=True))\n"
    )
    instance = start(module="shop")
    os.kill(instance.worker(), signal.SIGUSR2)
    instance.wait_for_log("^the application has it$")
    assert instance.body() == str(instance.worker())


@pytest.mark.parametrize("name", ["SIGALRM", "SIGVTALRM", "SIGIO", "SIGPWR", "SIGXCPU"])
def test_no_signal_stops_or_ends_the_master_in_silence(name, start):
    instance = start()
    instance.send_signal(getattr(signal, name))
    # Two of them have aliases: SIGIO is SIGPOLL.
    instance.wait_for_log(rf"^bolide: ignoring {name}$")
    instance.reload(2)
    assert instance.body() == str(instance.worker())


def test_a_real_time_signal_does_not_end_the_master_either(start):
    instance = start()
    instance.send_signal(signal.SIGRTMIN + 3)
    instance.wait_for_log(r"^bolide: ignoring SIGRTMIN\+3")
    assert instance.body() == str(instance.worker())
