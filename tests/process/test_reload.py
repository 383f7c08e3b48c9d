"""SIGHUP: a new generation loads the application and serves before the old one ends, and no request is lost."""

import contextlib
import os
import re
import signal
import subprocess

import pytest
from support import processes
from support.client import Client
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import LOAD_FAILED
from support_load import Load

#: An application that returns its version.
VERSION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""
VARIANTS = {
    "plain": (),
    "lazy": ("--lazy-apps",),
    "threads": ("--threads", "3"),
    "gevent": ("--gevent", "50", "--gevent-monkey-patch"),
    "gevent-lazy": ("--gevent", "50", "--gevent-monkey-patch", "--lazy-apps"),
}


def write(tmp_path, version, before=""):
    (tmp_path / "shop.py").write_text(before + VERSION.format(version=version, length=len(version)))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_reload_under_load_loses_no_request(options, start, tmp_path):
    write(tmp_path, "version-1")
    instance = start("--processes", "2", *options, module="shop")
    with Load(instance.address(), kept_alive=4, fresh=3) as load:
        for number in range(2, 6):
            # Each version has a different length: Python detects changes by size and by modification time in seconds.
            write(tmp_path, f"version-{'x' * number}")
            instance.reload(number)
            load.wait(lambda number=number: load.bodies[f"version-{'x' * number}"] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert set(load.bodies) == {"version-1", *(f"version-{'x' * number}" for number in range(2, 6))}


def test_after_a_reload_only_new_code_is_served(start, tmp_path):
    write(tmp_path, "old")
    instance = start("--processes", "2", module="shop")
    workers = set(instance.workers())
    write(tmp_path, "young")
    instance.reload(2)
    assert {instance.body() for _ in range(20)} == {"young"}
    assert not workers & set(instance.workers())


def test_a_kept_alive_connection_moves_to_the_new_generation_unnoticed_by_its_client(start):
    instance = start()
    client = instance.connect()
    old = client.request().text
    assert old == str(instance.worker())
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: 1 worker of generation 2 in [\d.]+ m?s; generation 1 ends")
    # The order to drain is on its way: until it arrives, the old worker answers as before.
    new = wait_until(lambda: ask_for_another(client, old), "an answer of the new generation")
    instance.wait_for_generation(2)
    assert new == str(instance.worker())
    assert ask_for_another(client, old) == new


def ask_for_another(client, old):
    answer = client.request()
    assert answer.status == 200
    assert not answer.says_close
    return answer.text if answer.text != old else None


@pytest.mark.parametrize("options", [VARIANTS["plain"], VARIANTS["gevent"]], ids=["plain", "gevent"])
def test_a_request_in_flight_is_finished_by_the_old_generation(options, start, tmp_path):
    instance = start(*options)
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    old = instance.worker()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    # The order to drain is on its way: until it arrives, a worker with a free greenlet takes connections as before.
    wait_until(lambda: instance.body() != str(old), "an answer of the new generation")
    gate.touch()
    assert client.read_response().text == "waited"
    instance.wait_for_generation(2)


def test_a_request_that_outlives_reload_mercy_ends_with_the_old_generation(start, tmp_path):
    instance = start("--reload-mercy", "1")
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    instance.reload(2)
    assert client.is_closed()
    instance.wait_for_text("did not finish within 1 s (reload-mercy): killing it while it serves GET /wait")


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
def test_an_application_that_does_not_load_leaves_the_old_generation_serving(lazy, start, tmp_path):
    write(tmp_path, "sound")
    instance = start("--processes", "2", *lazy, module="shop")
    with Load(instance.address()) as load:
        write(tmp_path, "broken", before="def (:\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(
            r"^bolide: generation 2 could not be loaded \(SyntaxError: .*shop\.py, line 1\)\): generation 1 keeps"
        )
        load.wait_for_more()
        wait_until(lambda: len(instance.processes()) == 4, "the end of the broken generation")
        write(tmp_path, "mended")
        instance.reload(3)
        load.wait(lambda: load.bodies["mended"] > 0, "the mended version")
    assert load.losses == []
    assert set(load.bodies) == {"sound", "mended"}


def test_a_reload_whose_workers_fail_early_is_given_up(start, tmp_path):
    write(tmp_path, "sound")
    instance = start(module="shop", alarms=True)
    write(tmp_path, "dying", before="import os\nos.register_at_fork(after_in_child=lambda: os._exit(9))\n")
    with Load(instance.address()) as load:
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(
            r"^bolide: generation 2 could not be loaded \(its workers exit before they are ready\): generation 1 keeps"
        )
        load.wait_for_more()
    assert load.losses == []
    assert set(load.bodies) == {"sound"}


#: The ways to request a reload, and the name of the requester in the log.
ASKERS = {
    "signal": (lambda directory, instance: instance.send_signal(signal.SIGHUP), "SIGHUP"),
    "file": (lambda directory, instance: os.utime(directory / "reload.txt", (1, 1)), "touch-reload"),
    "letter": (lambda directory, instance: (directory / "fifo").write_text("r"), "master-fifo .*fifo"),
    "command": (
        lambda directory, instance: subprocess.run([*program(), "reload", str(instance.pid)], check=True),
        "the control socket",
    ),
}


def write_gated(directory):
    """An application that shows that it is being loaded, and finishes loading when a file exists. Returns its path."""
    gate = directory / "gate"
    gate.touch()
    waits = f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    write(directory, "gated", before=f"import os, time\nprint('loading', flush=True)\n{waits}\n")
    return gate


#: A generation for which another one waits may load for as long as a test takes, or is abandoned immediately.
PATIENT, IMPATIENT = ({"BOLIDE_TEST_LOAD_PATIENCE_MS": time} for time in ("600000", "1"))
FOLLOWS = r"^bolide: reload: generation 2 is still starting \(for .*\): one more reload follows it, requested by {}$"


@pytest.mark.parametrize("asker", ASKERS)
def test_the_log_names_the_requester_of_a_reload_that_follows_a_pending_one(asker, start, tmp_path):
    ask, name = ASKERS[asker]
    (tmp_path / "reload.txt").touch()
    gate = write_gated(tmp_path)
    options = ("--touch-reload", tmp_path / "reload.txt", "--master-fifo", tmp_path / "fifo")
    instance = start(*options, module="shop", environment=PATIENT)
    gate.unlink()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$", count=2)
    ask(tmp_path, instance)
    instance.wait_for_log(FOLLOWS.format(name))
    gate.touch()
    instance.wait_for_generation(3)


def test_reloads_that_are_requested_faster_than_code_loads_are_one_more_reload_with_the_last_code(start, tmp_path):
    gate = write_gated(tmp_path)
    instance = start(module="shop", environment=PATIENT)
    worker = instance.worker()
    gate.unlink()
    for _ in range(4):
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^loading$", count=2)
        # The master has read the signal.
        instance.log_until_now()
        assert instance.body() == "gated"
        assert worker in instance.workers()
    write(tmp_path, "the-last")
    with subprocess.Popen([*program(), "reload", "--wait", str(instance.pid)], stdout=subprocess.PIPE, text=True) as command:
        instance.wait_for_log("^bolide: control socket: ")
        gate.touch()
        assert "generation 3 serves" in command.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert instance.body() == "the-last"
    instance.wait_for_generation(3)
    log = instance.log_until_now()
    assert log.count("one more reload follows it") == 1
    assert not re.search("abandoned|generation 4", log)


def test_a_generation_that_takes_too_long_is_abandoned_for_the_reload_that_waits(start, tmp_path):
    gate = write_gated(tmp_path)
    instance = start(module="shop", environment=IMPATIENT)
    gate.unlink()
    for number in range(2, 5):
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^loading$", count=number)
    gate.touch()
    instance.wait_for_generation(4)
    given_up = r"^bolide: reload: generation {}, which is still starting, is abandoned for a new one, requested by SIGHUP$"
    for number in (2, 3):
        instance.wait_for_log(given_up.format(number))


#: The first worker is ready immediately, the second when the gate is open. The version is that of the file at the load.
HALF_STARTED = """\
import asyncio, os, uwsgi
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        while uwsgi.worker_id() > 1 and not os.path.exists("gate"):
            await asyncio.sleep(0.01)
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        return await send({{"type": "lifespan.shutdown.complete"}})
    if scope["path"] == "/slow":
        print("slow has begun", flush=True)
        while not os.path.exists("slow-gate"):
            await asyncio.sleep(0.01)
    body = b"{version}"
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}})
    await send({{"type": "http.response.body", "body": body}})
"""


def test_workers_that_serve_before_the_first_generation_is_complete_serve_until_a_reload_is_done(start, free_port, tmp_path):
    (tmp_path / "shop.py").write_text(HALF_STARTED.format(version="old"))
    address = ("127.0.0.1", free_port())
    instance = start("--processes", "2", module="shop", socket=f"127.0.0.1:{address[1]}", ready=False)

    def is_answered(version):
        with contextlib.suppress(OSError), Client(address) as client:
            return client.request().text == version
        return False

    wait_until(lambda: is_answered("old"), "the first worker serves")
    with Client(address) as client:
        client.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        instance.wait_for_log("^slow has begun$")
        # Code that hangs: nothing of it serves, and the old worker goes on.
        (tmp_path / "shop.py").write_text("import time\nprint('hanging', flush=True)\ntime.sleep(300)\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^hanging$")
        assert all(is_answered("old") for _ in range(20))
        (tmp_path / "shop.py").write_text(HALF_STARTED.format(version="new"))
        (tmp_path / "gate").touch()
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^bolide: ready")
        wait_until(lambda: is_answered("new"), "the new code")
        (tmp_path / "slow-gate").touch()
        assert client.read_response().text == "old"
    wait_until(lambda: len(instance.prototypes()) == 1, "the end of the abandoned generations")
    assert all(is_answered("new") for _ in range(20))


#: Places where a new version may hang, and the log line about each. The second is in the worker, after loading.
HANGS = {
    "load": ("import time\nprint('hanging', flush=True)\ntime.sleep(300)\n", ()),
    "fork": (
        "import os, time\nos.register_at_fork(after_in_child=lambda: print('hanging', flush=True) or time.sleep(300))\n",
        (),
    ),
    "lazy": ("import time\nprint('hanging', flush=True)\ntime.sleep(300)\n", ("--lazy-apps",)),
    "helper": (
        "import os, time\nos.fork() or time.sleep(300)\nprint('hanging', flush=True)\ntime.sleep(300)\n",
        (),
    ),
}


@pytest.mark.parametrize("hang", HANGS)
def test_code_that_hangs_while_it_loads_does_not_keep_mended_code_out(hang, start, tmp_path):
    before, options = HANGS[hang]
    write(tmp_path, "sound")
    instance = start("--processes", "2", *options, module="shop", environment=IMPATIENT)
    with Load(instance.address()) as load:
        write(tmp_path, "hanging", before=before)
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^hanging$")
        write(tmp_path, "mended-at-last")
        instance.reload(3)
        load.wait(lambda: load.bodies["mended-at-last"] > 0, "the mended version")
        wait_until(lambda: len(instance.processes()) == 4, "the end of all that hung")
    assert load.losses == []
    assert set(load.bodies) == {"sound", "mended-at-last"}


#: The first worker of a new version hangs while it loads; the other one loads it, and answers its probe.
HALF_HANGING = """\
import os, pathlib, time
try:
    os.close(os.open(pathlib.Path(__file__).with_name("first"), os.O_CREAT | os.O_EXCL))
except FileExistsError:
    pass
else:
    print("hanging", flush=True)
    time.sleep(300)
def application(environ, start_response):
    print("probed", flush=True)
    start_response("200 OK", [])
    return []
"""


def test_a_worker_that_ends_with_its_abandoned_generation_is_not_reported_as_killed(start, tmp_path):
    write(tmp_path, "sound")
    instance = start("--processes", "2", "--lazy-apps", "--reload-probe", "/", module="shop", environment=IMPATIENT)
    (tmp_path / "shop.py").write_text(HALF_HANGING)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^hanging$")
    # It is ready, and waits for the other one.
    instance.wait_for_log("^probed$")
    write(tmp_path, "mended-at-last")
    instance.reload(3)
    wait_until(lambda: len(instance.processes()) == 4, "the end of the abandoned generation")
    assert instance.body() == "mended-at-last"
    assert "was killed by" not in instance.log


def test_a_sighup_restarts_a_hanging_first_start(start, tmp_path):
    write(tmp_path, "hanging", before=HANGS["load"][0])
    instance = start(module="shop", ready=False)
    instance.wait_for_log("^hanging$")
    write(tmp_path, "mended-at-last")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: 1 worker")
    assert instance.body() == "mended-at-last"


@pytest.mark.parametrize("hang", HANGS)
def test_load_timeout_gives_a_generation_up_that_does_not_serve_in_time(hang, start, tmp_path):
    before, options = HANGS[hang]
    write(tmp_path, "sound")
    # Longer than the good version needs on a busy machine.
    instance = start("--load-timeout", "10", *options, module="shop")
    write(tmp_path, "hanging", before=before)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(
        r"^bolide: generation 2 could not be loaded \(it was not ready within 10 s \(load-timeout\)\): generation 1 keeps"
    )
    wait_until(lambda: len(instance.processes()) == 3, "the end of all that hung")
    assert instance.body() == "sound"


def test_load_timeout_ends_a_start_that_hangs(fail, tmp_path):
    (tmp_path / "shop.py").write_text("import time\ntime.sleep(300)\n")
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "shop", "--load-timeout", "1")
    assert status == LOAD_FAILED
    reason = "it was not ready within 1 s (load-timeout)"
    assert lines[-1] == f"bolide: the application could not be loaded: {reason}; nothing is served"


def test_load_timeout_replaces_a_worker_that_is_stopped_before_it_serves(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os, signal\nfrom probe import application\n"
        "def stop():\n"
        "    if os.path.exists('stop'):\n"
        "        os.unlink('stop')\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.register_at_fork(after_in_child=stop)\n"
    )
    instance = start("--load-timeout", "10", module="shop", alarms=True)
    before = instance.worker()
    (tmp_path / "stop").touch()
    processes.kill(before)
    instance.wait_for_log(r"^bolide: worker 1 \(.*\) was not ready in time \(load-timeout\): killing it")
    assert instance.body().isdigit()
    assert before not in instance.workers()


def test_a_second_reload_does_not_wait_for_the_requests_of_the_first(start, tmp_path):
    instance = start("--processes", "2", "--reload-mercy", "300")
    held = [hold(instance, tmp_path, f"first-{number}") for number in range(2)]
    for number in (2, 3):
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(rf"^bolide: ready: 2 workers of generation {number} in")
        held += [hold(instance, tmp_path, f"{number}-{place}") for place in range(2)]
    assert "must finish within" not in instance.log
    for client, gate in held:
        gate.touch()
        assert client.read_response().text == "waited"


def test_reloads_beyond_the_rows_of_the_scoreboard_hurry_the_oldest_generation_and_say_so(start, tmp_path):
    instance = start("--processes", "1", "--reload-mercy", "300")
    held = []
    for number in range(2, 7):
        held.append(hold(instance, tmp_path, f"before-{number}"))
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(rf"^bolide: ready: 1 worker of generation {number} in")
    instance.wait_for_log(
        r"^bolide: reload: there is no room for generation \d: 1 worker of generation 1 must finish within 2 s$"
    )
    instance.wait_for_log(r"did not make room for a newer generation: killing it while it serves GET /wait")
    # The newest of the held ones is not the one that had to end.
    client, gate = held[-1]
    gate.touch()
    assert client.read_response().text == "waited"


def hold(instance, tmp_path, name):
    gate = tmp_path / name
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    return client, gate


def test_a_reload_starts_a_fresh_interpreter(start, tmp_path):
    # Modules and environment of the old generation are gone.
    (tmp_path / "shop.py").write_text(
        "import os\nfrom probe import application\nassert 'LEFT' not in os.environ\nos.environ['LEFT'] = 'behind'\n"
    )
    instance = start(module="shop")
    first = instance.prototype()
    instance.reload(2)
    assert instance.prototype() != first
    assert instance.body() == str(instance.worker())
