"""`reload-canary`: one worker of the new code serves beside the old ones first; if it performs worse, the reload is
rolled back.
"""

import os
import re
import signal
import subprocess

import pytest
from support.server import program
from support.waiting import wait_until
from support_canary import ASGI, LONG, NUMBERS, WSGI, outcome_of, reload_and_wait, wait_until_generation_is_gone, write
from support_instance import REFUSED, port_is_free
from support_load import Load
from support_processes import children_of

SHORT = ("--reload-canary", "1")
#: Long enough for answers of the canary, on any machine.
BRIEF = ("--reload-canary", "5")

BEGIN_ASGI = "await send({'type': 'http.response.start', 'status': 200, 'headers': []})"

#: The response to every third request of a new version, an error.
FAULTS = {
    "503": (WSGI, "if call % 3 == 2: start_response('503 No', [('Content-Length', '0')]); return [b'']"),
    "raise": (WSGI, "if call % 3 == 2: raise RuntimeError('no database')"),
    "broken-off": (WSGI, "if call % 3 == 2: start_response('200 OK', [])(b'x'); raise RuntimeError('no database')"),
    "asgi-raise": (ASGI, "if call % 3 == 2: raise RuntimeError('no database')"),
    "asgi-raise-later": (ASGI, "await asyncio.sleep(0)\n    if call % 3 == 2: raise RuntimeError('no database')"),
    "asgi-broken-off": (ASGI, f"await asyncio.sleep(0)\n    if call % 3 == 2: {BEGIN_ASGI}; raise RuntimeError('no database')"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_code_that_fails_more_often_than_the_old_code_is_rolled_back(fault, start, tmp_path):
    template, text = FAULTS[fault]
    write(tmp_path, "first", template)
    instance = start("--processes", "2", *LONG, module="shop", alarms=True)
    before = sorted(instance.workers())
    with Load(instance.address(), kept_alive=0, fresh=4) as load:
        write(tmp_path, "second!", template, text)
        status, said = outcome_of(reload_and_wait(instance))
        rolled_back = rf"canary: {NUMBERS}: generation 2 is rolled back"
        assert status == REFUSED
        assert re.search(rolled_back, said), said
        instance.wait_for_log(rf"^bolide: {rolled_back}, generation 1 keeps serving$")
        instance.wait_for_log(
            r"^bolide: canary: worker 1 \(pid \d+\) of generation 2 handles requests beside those of generation 1 for 1 h"
        )
        wait_until_generation_is_gone(instance, 2)
        assert sorted(instance.workers()) == before
        # It has served, and later requests go to the old code. A client may be late to read its answer.
        load.wait_for_more()
        assert load.bodies["second!"] > 0
        seen = load.bodies["second!"]
        load.wait_for_more()
        assert load.bodies["second!"] == seen
    assert "worker 2 " not in "".join(line for line in instance.lines if "generation 2" in line)


def test_code_that_works_as_well_as_the_old_code_passes(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "3", *BRIEF, module="shop")
    with Load(instance.address()) as load:
        write(tmp_path, "second!")
        status, said = outcome_of(reload_and_wait(instance))
        assert (status, "generation 2 serves" in said) == (0, True), said
        instance.wait_for_log(rf"^bolide: canary: {NUMBERS}, in \d+(\.\d)? s: generation 2 passes$")
        instance.wait_for_generation(2)
        load.wait_for_more()
    assert load.losses == []
    assert len(instance.workers()) == 3
    assert instance.body() == "second!"


def test_only_the_canary_is_forked_while_it_is_watched_and_the_status_says_how_it_does(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *LONG, module="shop")
    write(tmp_path, "second!")
    old = instance.prototype()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: canary: worker 1 ")
    (new,) = [prototype for prototype in instance.prototypes() if prototype != old]
    assert (len(children_of(old)), len(children_of(new))) == (2, 1)
    with Load(instance.address(), kept_alive=0, fresh=2) as load:
        load.wait(lambda: load.bodies["first"] > 0 and load.bodies["second!"] > 0, "answers of both generations")
    said = subprocess.run([*program(), "status", str(instance.pid)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^master \d+: reloading, generation 1, ", said)
    assert re.search(
        r"^canary: 0 of \d+ answers? were errors, the old workers' 0 of \d+.*; 59 min \d+ s to go$", said, re.MULTILINE
    )
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: canary: 0 of ")
    assert len(children_of(new)) == 1
    assert instance.stop() == 0


def test_errors_that_the_old_code_makes_as_well_let_the_new_code_in(start, tmp_path):
    fault = FAULTS["503"][1]
    write(tmp_path, "first", fault=fault)
    instance = start("--processes", "2", *BRIEF, module="shop")
    with Load(instance.address(), kept_alive=0, fresh=4) as load:
        load.wait_for_more()
        write(tmp_path, "second!", fault=fault)
        instance.reload(2)
        load.wait(lambda: load.bodies["second!"] > 0, "the new code")
    instance.wait_for_log(r"^bolide: canary: [1-9]\d* of \d+ answers were errors, .*: generation 2 passes$")


def test_a_canary_without_requests_passes_and_the_log_says_so(start, tmp_path):
    write(tmp_path, "first")
    instance = start(*SHORT, module="shop")
    write(tmp_path, "second!")
    instance.reload(2)
    instance.wait_for_log(
        r"^bolide: canary: 0 of 0 answers were errors, the old workers' 0 of 0 since their start, in \d+(\.\d)? s: "
        r"too few to judge, generation 2 passes$"
    )
    assert instance.body() == "second!"


def test_a_canary_that_dies_is_rolled_back_at_once(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *LONG, module="shop", alarms=True)
    before = sorted(instance.workers())
    write(tmp_path, "second!")
    command = reload_and_wait(instance)
    canary = int(instance.wait_for_log(r"^bolide: canary: worker 1 \(pid (\d+)\)")[1])
    os.kill(canary, signal.SIGKILL)
    status, said = outcome_of(command)
    assert status == REFUSED
    assert f"canary: worker 1 (pid {canary}) was killed by SIGKILL: generation 2 is rolled back" in said
    wait_until_generation_is_gone(instance, 2)
    assert sorted(instance.workers()) == before
    assert instance.body() == "first"


def test_requests_over_their_time_are_errors_of_the_canary(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", "--harakiri", "3", *LONG, module="shop", alarms=True)
    with Load(instance.address(), kept_alive=0, fresh=3) as load:
        load.wait_for_more(200)
        write(tmp_path, "second!", fault="time.sleep(300)")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(rf"^bolide: canary: {NUMBERS}: generation 2 is rolled back, generation 1 keeps serving$")
        wait_until_generation_is_gone(instance, 2)
        load.wait_for_more()
    assert instance.body() == "first"


def test_a_further_reload_gives_the_canary_up_and_begins_with_another(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *LONG, module="shop")
    with Load(instance.address()) as load:
        for number in (2, 3):
            write(tmp_path, "version " + "x" * number)
            instance.send_signal(signal.SIGHUP)
            instance.wait_for_log(rf"^bolide: canary: worker 1 \(pid \d+\) of generation {number} handles requests")
        instance.wait_for_log("generation 2, which is still starting, is abandoned for a new one, requested by SIGHUP$")
        wait_until(lambda: len(instance.prototypes()) == 2, "the end of generation 2")
        load.wait(lambda: load.bodies["version xxx"] > 0, "the newest code")
    assert load.losses == []
    assert instance.stop() == 0


def test_a_stop_while_a_canary_serves_ends_all_and_the_reload_has_failed(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *LONG, module="shop")
    command = reload_and_wait(instance)
    instance.wait_for_log("^bolide: canary: worker 1 ")
    assert instance.stop() == 0
    status, said = outcome_of(command)
    assert (status, "it is being stopped" in said) == (REFUSED, True), said


def test_a_rollback_reverts_settings_and_sockets(start, tmp_path, free_port):
    write(tmp_path, "first")

    def configure(*lines):
        listed = ("http-socket = 127.0.0.1:0", "module = shop", "master = true", "reload-canary = 3600", *lines)
        (tmp_path / "uwsgi.ini").write_text("\n".join(("[uwsgi]", *listed)) + "\n")

    configure("processes = 2")
    instance = start("--ini", "uwsgi.ini", socket=None, module=None, alarms=True)
    port = free_port()
    configure("processes = 3", f"http-socket = 127.0.0.1:{port}")
    instance.send_signal(signal.SIGHUP)
    canary = int(instance.wait_for_log(r"^bolide: canary: worker 1 \(pid (\d+)\)")[1])
    assert not port_is_free(port)
    os.kill(canary, signal.SIGKILL)
    instance.wait_for_log("generation 2 is rolled back")
    wait_until_generation_is_gone(instance, 2)
    wait_until(lambda: port_is_free(port), "the socket to be closed")
    assert len(instance.workers()) == 2
    # The next one is judged from zero.
    configure("processes = 3", "http-socket = 127.0.0.1:0", "reload-canary = 1")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_generation(3)
    assert len(instance.workers()) == 3


def test_automatic_reloads_and_the_start_have_no_canary(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *LONG, module="shop", alarms=True)
    os.kill(instance.prototype(), signal.SIGKILL)
    instance.wait_for_log("^bolide: ready: 2 workers of generation 2 in")
    assert "canary" not in instance.log


def test_a_canary_has_the_load_timeout_for_its_start_and_all_its_time_beside(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--reload-canary", "12", "--load-timeout", "10", "--lazy-apps", module="shop")
    write(tmp_path, "second!")
    instance.reload(2)
    assert instance.body() == "second!"
    assert "load-timeout" not in instance.whole_log()


def test_a_canary_beside_workers_that_have_ended_is_refused(fail, tmp_path):
    write(tmp_path, "first")
    status, lines = fail(
        "--reload-canary", "3", "--reload-order", "stop-first", "--module", "shop", "--http-socket", "127.0.0.1:0"
    )
    assert status != 0
    assert any("`reload-canary` and `reload-order = stop-first` can't be combined" in line for line in lines), lines


def test_a_canary_is_asked_for_the_probe_and_so_are_the_workers_after_it(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "3", "--reload-probe", "/health", *SHORT, module="shop", alarms=True)
    write(tmp_path, "second!", fault="if environ['PATH_INFO'] == '/health': raise RuntimeError('no database')")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"generation 2 could not be loaded \(reload-probe: GET /health raised RuntimeError: no database\)")
    wait_until_generation_is_gone(instance, 2)
    assert "canary: " not in instance.log
    with Load(instance.address()) as load:
        write(tmp_path, "third version")
        instance.reload(3)
        load.wait(lambda: load.bodies["third version"] > 0, "the new code")
    assert load.losses == []
    assert len(instance.workers()) == 3
