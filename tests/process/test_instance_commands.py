"""`bolide status`, `bolide reload` and similar commands: they find the instance, query it, and return an exit status."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import APPLICATIONS, DONE, MISUSED, NO_ANSWER, NO_INSTANCE, REFUSED
from support_processes import command_line_of


@pytest.fixture
def configured(start, tmp_path):
    """An instance with its configuration in the directory of the test."""

    def configured(text="", name="uwsgi.ini", module="shop", **options):
        (tmp_path / "shop.py").write_text("from probe import application\n")
        (tmp_path / name).write_text(
            f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = {module}\npythonpath = {APPLICATIONS}\n"
            f"pythonpath = {tmp_path}\nmaster = true\ndisable-logging = true\n{text}\n"
        )
        return start("--ini", tmp_path / name, socket=None, module=None, **options)

    return configured


def test_the_instance_is_found_by_configuration_pidfile_pid_fifo_socket_and_directory(configured, call, tmp_path):
    text = f"pidfile = {tmp_path}/app.pid\nmaster-fifo = {tmp_path}/fifo"
    instance = configured(text)
    for name in ["uwsgi.ini", tmp_path / "uwsgi.ini", "app.pid", instance.pid, None]:
        status, said = call("status", *([name] if name else []))
        assert status == DONE, said
        assert said.startswith(f"master {instance.pid}: serving, generation 1, ")
        assert f"worker 1 (pid {instance.worker()}) of generation 1: serving" in said
    assert call("reload", "fifo") == (DONE, "fifo: wrote `r`\n")
    instance.wait_for_generation(2)
    assert call("status", "fifo")[0] == NO_ANSWER
    assert call("stop", "--wait", "uwsgi.ini") == (DONE, f"master {instance.pid}: it has ended\n")
    assert instance.wait_for_exit() == 0


def test_status_says_age_memory_cpu_rate_and_errors_of_each_worker_in_the_order_of_their_numbers(start, call):
    instance = start("--processes", "3", alarms=True)
    assert instance.get("/bytes/none").status == 500
    # The second process of the number 1 is born last.
    first = next(pid for pid in instance.workers() if command_line_of(pid).startswith("bolide: worker 1 "))
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(set(instance.workers()) - {first}) == 3, "another worker 1")

    def said():
        status, text = call("status", instance.pid)
        assert status == DONE
        return text if len(re.findall(r"serving, .*; up ", text)) == 3 else None

    text = wait_until(said, "three workers that serve")
    assert re.findall(r"^worker (\d)", text, re.M) == ["1", "2", "3"]
    assert re.search(r"^queue: 0 connections waiting, room for \d+$", text, re.M)
    usage = r"; up \d+ m?s, \d+ MiB \(\d+ private\), CPU \S+ m?s \(\d+ %\), \d+\.\d requests/s, \d+ errors?$"
    assert len(re.findall(usage, text, re.M)) == 3, text
    answer = json.loads(call("status", "--json", instance.pid)[1])
    assert all(worker["resident_bytes"] > 1 << 20 and worker["cpu_ms"] >= 0 for worker in answer["workers"])
    assert answer["queue"]["waiting"] == 0


def test_watched_status_is_printed_again_until_the_reader_or_the_instance_is_gone(start, call):
    instance = start()
    command = [*program(), "status", "--json", "--watch", "1", str(instance.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        seen = [json.loads(watching.stdout.readline()) for _ in range(2)]
        # It must not ask while the instance exits: a master that exits between a question and its answer is another error.
        watching.send_signal(signal.SIGSTOP)
        instance.stop()
        watching.send_signal(signal.SIGCONT)
        rest = watching.stdout.read()
    assert [one["workers"][0]["pid"] for one in seen] == [seen[0]["workers"][0]["pid"]] * 2
    assert watching.returncode == NO_INSTANCE, rest


def test_an_instance_without_a_configuration_is_that_of_its_directory(start, call, tmp_path):
    instance = start()
    assert call("status")[0] == DONE
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    status, said = call("status", directory=elsewhere)
    assert status == NO_INSTANCE
    # The address tells several instances of one directory apart.
    assert f"pid {instance.pid} at http://127.0.0.1:{instance.address()[1]} ({tmp_path})" in said
    assert call("stop")[0] == DONE
    assert instance.wait_for_exit() == 0


def test_the_state_is_json_for_programs_and_names_the_request_in_flight(start, call, tmp_path):
    instance = start("--threads", "2", "--socket", "near.sock")
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    status, said = call("status", "--json", instance.pid)
    assert status == DONE
    state = json.loads(said)
    assert (state["pid"], state["phase"], state["generation"]) == (instance.pid, "serving", 1)
    (worker,) = state["workers"]
    assert worker["pid"] == instance.worker()
    assert worker["in_flight"][0]["request"].startswith("GET /wait")
    assert {f"http://127.0.0.1:{instance.port}", f"uwsgi unix:{tmp_path}/near.sock"} == set(state["addresses"])
    assert "GET /wait" in call("status", instance.pid)[1]
    gate.touch()
    assert client.read_response().status == 200


def test_the_state_counts_busy_greenlets(start, call, tmp_path):
    instance = start("--gevent", "10", "--gevent-monkey-patch")
    gate = tmp_path / "gate"
    clients = [instance.connect() for _ in range(3)]
    for client in clients:
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def is_busy():
        (worker,) = json.loads(call("status", "--json", instance.pid)[1])["workers"]
        return (worker["greenlets"], worker["ongoing"]) == ({"busy": 3, "most": 10}, 3)

    wait_until(is_busy, "three greenlets are busy")
    assert "3 requests in progress, 3 of 10 greenlets busy" in call("status", instance.pid)[1]
    gate.touch()
    assert [client.read_response().status for client in clients] == [200, 200, 200]


def test_a_reload_that_is_waited_for_says_whether_it_has_succeeded(configured, call, tmp_path):
    instance = configured()
    status, said = call("reload", "--wait", "uwsgi.ini")
    assert (status, said) == (DONE, f"master {instance.pid}: generation 2 serves\n")
    # The command does not wait for the end of the old worker.
    instance.wait_for_generation(2)
    (tmp_path / "shop.py").write_text("import no_such_module_at_all\n")
    status, said = call("reload", "--wait", "uwsgi.ini")
    assert status == REFUSED
    assert "the reload has failed: generation 3 could not be loaded" in said
    assert instance.body() == str(instance.worker())
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:no-port\n")
    status, said = call("reload", "--wait", instance.pid)
    assert status == REFUSED
    assert "the reload has failed" in said
    assert instance.body() == str(instance.worker())


def test_without_waiting_the_command_ends_at_once(configured, call, tmp_path):
    (tmp_path / "slow_to_load.py").write_text(
        f"import os, time\nfrom probe import application\nwhile os.path.exists({str(tmp_path / 'hold')!r}): time.sleep(0.01)\n"
    )
    instance = configured(module="slow_to_load")
    (tmp_path / "hold").touch()
    assert call("reload", "uwsgi.ini") == (DONE, f"master {instance.pid}: reloading\n")
    assert "reloading" in call("status")[1]
    (tmp_path / "hold").unlink()
    instance.wait_for_generation(2)


def test_an_immediate_stop_aborts_requests_in_flight(start, call, tmp_path):
    instance = start()
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    assert call("stop", "--now", "--wait", instance.pid)[0] == DONE
    assert client.is_closed()
    assert instance.wait_for_exit() == 0


def test_what_can_not_be_carried_out_is_an_error(start, call, tmp_path):
    instance = start("--pidfile", tmp_path / "app.pid")
    (tmp_path / "stale.pid").write_text("4194303\n")
    (tmp_path / "other.ini").write_text("[uwsgi]\nhttp-socket = :0\nmodule = shop\n")
    for arguments, wanted, words in [
        (["status", "missing.pid"], NO_INSTANCE, "there is no such file"),
        (["status", "stale.pid"], NO_INSTANCE, "process 4194303 does not exist"),
        (["stop", "other.ini"], NO_INSTANCE, "no instance of it is running"),
        (["stop", os.getpid()], NO_INSTANCE, "not Bolide"),
        (["status", "--wait"], MISUSED, "bolide status [--json] [--unmasked] [--watch [SECONDS]] [INSTANCE]"),
        (["workers", "0"], MISUSED, "bolide workers N | +N | -N [INSTANCE]"),
    ]:
        status, said = call(*arguments)
        assert (status, words in said) == (wanted, True), (arguments, said)
    assert instance.body() == str(instance.worker())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["workers", "+1"], "the maximum is 1 worker (processes)"),
        (["workers", "2"], "the maximum is 1 worker (processes)"),
        (["workers", "-1"], "the last one stays"),
        (["log-reopen"], "no log goes to a file"),
        (["log-rotate"], "no log goes to a file"),
        (["reload"], "error: `processes = 0` is out of range"),
    ],
    ids=["workers-more", "workers-number", "workers-less", "log-reopen", "log-rotate", "reload"],
)
def test_a_command_that_can_not_be_carried_out_is_refused_with_the_reason(arguments, words, configured, call, tmp_path):
    instance = configured()
    with (tmp_path / "uwsgi.ini").open("a") as file:
        file.write("processes = 0\n")
    status, said = call(*arguments)
    assert (status, words in said) == (REFUSED, True), said
    assert instance.body() == str(instance.worker())


def test_two_instances_of_one_configuration_are_told_apart_by_their_pids(configured, call, tmp_path):
    one, two = configured(), configured()
    status, said = call("stop", "uwsgi.ini")
    assert status == NO_INSTANCE
    assert f"pid {one.pid}" in said
    assert f"pid {two.pid}" in said
    assert call("stop", "--wait", two.pid)[0] == DONE
    assert call("status", "uwsgi.ini")[1].startswith(f"master {one.pid}: ")


def test_a_socket_of_ones_own_choice_and_none(start, call, tmp_path):
    place = tmp_path / "control.sock"
    instance = start("--control-socket", place)
    assert place.stat().st_mode & 0o777 == 0o600
    assert call("status", "control.sock")[1].startswith(f"master {instance.pid}: serving")
    assert call("status", instance.pid)[0] == NO_ANSWER
    # It cannot answer a query, but a signal still reaches it.
    assert call("reload", instance.pid)[0] == DONE
    instance.wait_for_generation(2)
    assert instance.stop() == 0
    assert not place.exists()
    instance = start("--control-socket", "off", "--pidfile", tmp_path / "app.pid")
    status, said = call("status", "app.pid")
    assert (status, "its control socket is not known here" in said) == (NO_ANSWER, True)
    assert call("stop", "app.pid")[0] == DONE
    assert instance.wait_for_exit() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_is_turned_away(start):
    instance = start()
    asked = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        f"s.connect('\\0bolide/{instance.pid}')\n"
        'try:\n s.sendall(b\'{"ask": "stop"}\\n\')\n sys.stdout.write(repr(s.recv(100)))\n'
        "except OSError as error:\n sys.stdout.write(type(error).__name__)\n"
    )
    done = subprocess.run(["/usr/bin/env", "python3", "-c", asked], user=65534, capture_output=True, check=False)
    if b"Permission" in done.stderr or done.returncode == 126:
        pytest.skip("no Python here may be run by other users")
    assert done.stdout.decode() in ("b''", "ConnectionResetError", "BrokenPipeError"), done
    assert instance.body() == str(instance.worker())
    assert "stop: " not in instance.log_until_now()


def test_junk_silence_and_a_crowd_at_the_control_socket_hold_nothing_up(start, call):
    instance = start()
    crowd = []
    for said in [b"", b"junk\n", b"x" * 5000, b'{"ask": "no such thing"}\n', b'{"ask": "workers", "change": 9999999}\n'] * 10:
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"\0bolide/{instance.pid}")
        crowd.append(client)
        try:
            client.sendall(said)
        except BrokenPipeError:
            continue
    assert instance.body() == str(instance.worker())
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_generation(2)
    for client in crowd:
        client.close()
    assert call("status", instance.pid)[0] == DONE
    assert "no worker is added" not in instance.whole_log()


def test_silent_clients_of_the_control_socket_do_not_block_an_active_one(start, call):
    instance = start()
    crowd = []
    for _ in range(80):
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"\0bolide/{instance.pid}")
        crowd.append(client)
    try:
        # A later client gets its answer without waiting for their timeout of 5 s. The command itself may take as long.
        with socket.socket(socket.AF_UNIX) as active:
            active.settimeout(TIMEOUT_SECONDS)
            active.connect(f"\0bolide/{instance.pid}")
            active.sendall(b'{"ask": "status"}\n')
            assert active.recv(1) == b"{"
        crowd[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            crowd[-1].recv(1)
        assert call("status", instance.pid)[0] == DONE
    finally:
        for client in crowd:
            client.close()


def test_the_status_says_how_the_last_reload_has_ended(configured, call, tmp_path):
    instance = configured()
    assert "reloads:" not in call("status")[1]
    (tmp_path / "shop.py").write_text("raise RuntimeError('no database')\n")
    assert call("reload", "--wait")[0] == REFUSED
    said = call("status")[1]
    assert re.search(
        r"^reloads: 0 done, 1 failed; last one .* ago: failed: generation 2 could not be loaded \(RuntimeError: no .*\)$",
        said,
        re.M,
    ), said
    last = json.loads(call("status", "--json")[1])["last_reload"]
    assert (last["outcome"], last["why"]) == ("failed", "generation 2 could not be loaded (RuntimeError: no database)")
    (tmp_path / "shop.py").write_text("from probe import application\n")
    assert call("reload", "--wait")[0] == DONE
    assert re.search(r"^reloads: 1 done, 1 failed; last one .* ago: done$", call("status")[1], re.M)
    assert instance.body()
