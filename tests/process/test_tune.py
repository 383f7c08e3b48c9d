"""`bolide tune`: it records a running instance, proposes settings with reasons, writes them, and tries them."""

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from support.server import program
from support_instance import DONE, MISUSED, REFUSED
from support_load import Load

#: Requests take 8 ms, most of which is a wait, so a few threads serve what the usual hand tuning can't.
VIEWS = """
import time

def application(environ, start_response):
    end = time.thread_time() + 0.0005
    while time.thread_time() < end:
        pass
    time.sleep(0.0075)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""

#: The loads below are enough for a record.
REQUESTS = 700


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Other tests on the CPUs are not a reason to refuse a record."""
    monkeypatch.setenv("BOLIDE_TEST_QUIET_CPUS", "1")


@pytest.fixture
def shop(start, tmp_path):
    """An instance with the usual hand tuning."""
    (tmp_path / "shop.py").write_text(VIEWS)
    (tmp_path / "uwsgi.ini").write_text(
        "[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = shop\nmaster = true\nworkers=4  \nthreads = 2\nenable-threads = true\n"
        f"disable-logging = true\nstats = stats.sock\npythonpath = {tmp_path}\n; the end\n"
    )

    def shop():
        return start("--ini", tmp_path / "uwsgi.ini", socket=None, module=None)

    return shop


def serve_some(instance):
    with Load(("127.0.0.1", instance.port), kept_alive=10, fresh=0) as load:
        load.wait_for_more(REQUESTS)


#: Requests only compute: more threads can't serve more of them, whatever else runs on the CPUs.
COMPUTING = """
import time

def application(environ, start_response):
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


@contextlib.contextmanager
def busy_cpus(programs_per_cpu):
    """Other programs that always compute."""
    command = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(command) for _ in range(programs_per_cpu * os.cpu_count())]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_time_without_a_cpu_is_not_taken_for_a_wait_that_threads_could_use(shop, call, tmp_path, monkeypatch):
    monkeypatch.delenv("BOLIDE_TEST_QUIET_CPUS")
    instance = shop()
    (tmp_path / "shop.py").write_text(COMPUTING)
    instance.reload(2)
    with busy_cpus(3):
        serve_some(instance)
        status, said = call("tune", "--json", "uwsgi.ini")
    # A request takes several times what it computes, and none of that is a wait.
    assert status == REFUSED, said
    assert "the CPUs were busy with other programs" in said


def test_a_proposal_is_a_change_of_the_configuration_with_the_reason_of_each_line(shop, call, tmp_path):
    instance = shop()
    serve_some(instance)
    before = (tmp_path / "uwsgi.ini").read_text()
    status, said = call("tune", "uwsgi.ini")
    assert status == DONE, said
    for pattern in [
        r"^master \d+: \d+ requests in \d+ s \([\d.]+ a second\), p50 \S+ ms, p99 .*; a request needs .* of CPU$",
        r"^now: 4 workers, each with 2 requests at a time; the machine has \d+ CPUs? and \d+ MiB$",
        r"^--- .*/uwsgi.ini\n\+\+\+ .*/uwsgi.ini \(proposed\)\n@@ -\d+,\d+ \+",
        r"^-threads = 2$",
        r"^\+threads = \d+$",
        r"^\+; bolide tune: a request takes \S+ ms and waits \d+ % of that",
        r"^\+harakiri = 30$",
        r"^expected +now +proposed$",
        r"^at most +\d+ a second +\d+ a second$",
    ]:
        assert re.search(pattern, said, re.M), said
    assert len(re.findall(r"^\d+ requests a second .*p99 .*$", said, re.M)) == 2
    # The diff is one that patch(1) applies, and nothing was written.
    assert (tmp_path / "uwsgi.ini").read_text() == before
    hunks = said[said.index("--- ") : said.index("\nexpected")]
    subprocess.run(["patch", "--quiet", "uwsgi.ini"], input=hunks, text=True, cwd=tmp_path, check=True)


def test_the_proposal_is_written_only_on_request_and_the_old_file_is_kept(shop, call, tmp_path):
    serve_some(shop())
    before = (tmp_path / "uwsgi.ini").read_text()
    (tmp_path / "uwsgi.ini").chmod(0o640)
    status, said = call("tune", "--write", "uwsgi.ini")
    assert status == DONE, said
    assert f"written; the original file is {tmp_path}/uwsgi.ini.before-tune" in said
    assert (tmp_path / "uwsgi.ini.before-tune").read_text() == before
    assert "; bolide tune: " in (tmp_path / "uwsgi.ini").read_text()
    assert (tmp_path / "uwsgi.ini").stat().st_mode & 0o777 == 0o640
    assert call("check", "uwsgi.ini")[0] == DONE


def test_a_trial_reloads_and_keeps_what_is_better(shop, call, tmp_path):
    instance = shop()
    with Load(("127.0.0.1", instance.port), kept_alive=10, fresh=0) as load:
        load.wait_for_more(100)
        status, said = call("tune", "--try", "--seconds", "6", "uwsgi.ini")
    assert status in (DONE, REFUSED), said
    assert re.search(r"^before +\d+ a second, p50 .*\nafter +\d+ a second, p50 ", said, re.M), said
    text = (tmp_path / "uwsgi.ini").read_text()
    if status == DONE:
        assert re.search(r"^kept: p99 ", said, re.M)
        assert "; bolide tune: " in text
    else:
        assert re.search(r"^not kept: .*; the file and the instance are as they were before$", said, re.M)
        assert "; bolide tune: " not in text
    assert not load.losses


def test_a_proposal_that_does_not_load_is_taken_back(shop, call, tmp_path):
    instance = shop()
    serve_some(instance)
    before = (tmp_path / "uwsgi.ini").read_text()
    (tmp_path / "shop.py").write_text("raise RuntimeError('broken in the meantime')\n")
    with Load(("127.0.0.1", instance.port), kept_alive=10, fresh=0) as load:
        load.wait_for_more(1)
        status, said = call("tune", "--try", "--seconds", "6", "uwsgi.ini")
    assert status == REFUSED
    assert "the original file is restored" in said, said
    assert (tmp_path / "uwsgi.ini").read_text() == before
    assert not load.losses


def test_a_trial_without_requests_is_taken_back(shop, tmp_path):
    instance = shop()
    before = (tmp_path / "uwsgi.ini").read_text()
    command = [*program(), "tune", "--try", "--seconds", "6", "uwsgi.ini"]
    with (
        Load(("127.0.0.1", instance.port), kept_alive=10, fresh=0) as load,
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as trial,
    ):
        for line in trial.stdout:
            if line.startswith("reloaded; "):
                break
        load.stop()
        said = trial.stdout.read()
        assert trial.wait() == REFUSED
    assert "not kept: " in said, said
    assert (tmp_path / "uwsgi.ini").read_text() == before


def test_json_is_one_object_with_the_same_numbers(shop, call):
    serve_some(shop())
    status, said = call("tune", "--json", "uwsgi.ini")
    assert status == DONE, said
    told = json.loads(said)
    assert told["requests"] >= REQUESTS
    assert (told["processes"], told["threads"]) == (4, 2)
    assert told["p50_us"] > 7500
    assert told["cpu_us"] > 400
    assert {line["option"] for line in told["lines"]} >= {"threads", "harakiri"}
    assert [entry["proposed"]["overloaded"] for entry in told["expected"]] == [False, False]


def test_what_can_not_be_proposed_is_said(start, call, tmp_path):
    instance = start("--stats", "stats.sock")
    status, said = call("tune", instance.pid)
    assert status == REFUSED
    assert "its workers have measured no request in this time" in said, said
    silent = start("--disable-logging")
    status, said = call("tune", silent.pid)
    assert status == REFUSED
    assert "do not measure durations" in said, said
    status, said = call("tune", "--seconds", "0", instance.pid)
    assert status == MISUSED
    assert said.startswith("bolide: `--seconds 0`: write a number from 1 to"), said
    for flag in ("--write", "--try"):
        status, said = call("tune", "--json", flag, instance.pid)
        assert status == MISUSED
        assert f"`--json` and `{flag}` can't be combined" in said, said
    assert "`--fast` is not expected here" in call("tune", "--fast")[1]
