"""The spooler beside uWSGI's own: each works on the jobs of the other, and the functions have the same results."""

import json
import os
import signal
import subprocess
from urllib.parse import urlencode

import pytest
from support.client import Client
from support.spooler import jobs_in
from support.waiting import wait_until

SHOP = """\
import json, os, time, uwsgi
from urllib.parse import parse_qsl
from uwsgidecorators import spool, spoolraw, spoolforever
NOTES = os.path.abspath("notes")
def note(what):
    with open(NOTES, "ab", buffering=0) as file:
        file.write(json.dumps(what).encode() + b"\\n")
def shown(job):
    pairs = [(repr(name), repr(value)) for name, value in job.items() if name != "spooler_task_name"]
    return [sorted(pairs), type(job["spooler_task_name"]).__name__, os.path.basename(job["spooler_task_name"]).decode()]
@spool
def plain(job):
    note(["plain", {name: job[name] for name in ("color", "ud_spool_ret")}])
@spool(pass_arguments=True)
def passed(*arguments, **named):
    note(["passed", arguments, named])
@spoolraw
def raw(job):
    note(["raw", job["color"]])
    return uwsgi.SPOOL_OK
@spoolforever
def forever(job):
    note(["forever"])
of_decorators = uwsgi.spooler
def work(job):
    if "hold" in uwsgi.opt:
        return uwsgi.SPOOL_RETRY
    if b"ud_spool_func" in job:
        return of_decorators(job)
    note(shown(job))
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
def answer(expression):
    try:
        value = eval(expression)
        return f"{type(value).__name__} {value!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def application(environ, start_response):
    said = answer(dict(parse_qsl(environ["QUERY_STRING"]))["say"]).encode()
    start_response("200 OK", [("Content-Length", str(len(said)))])
    return [said]
"""

#: Calls that write jobs, and the notes of the jobs without their names.
WRITTEN = [
    "uwsgi.spool({b'color': b'red', b'size': b''})",
    "uwsgi.spool({b'color': b'blue', b'body': bytes(range(256))})",
    "uwsgi.spool({b'at': str(int(time.time()) - 5).encode(), b'priority': b'3'})",
    "uwsgi.send_to_spooler({b'large': b'v' * 60000, b'body': b'b' * 200000})",
    "uwsgi.spool({})",
    "plain(color='green')",
    "plain.spool({'color': 'white'})",
    "passed(1, 'two', three=[3])",
    "raw({'color': 'black'})",
]

#: Calls whose results have the same type, and errors the same words or more of them.
SAME = [
    "uwsgi.spool()",
    "uwsgi.spool('text')",
    "uwsgi.spool({b'a': None})",
    "uwsgi.spool({7: b'a'})",
    "uwsgi.spool({b'spooler': b'/absent'})",
    "uwsgi.spool({b'one': b'v' * 40000, b'two': b'v' * 40000})",
    "type(uwsgi.spool({b'color': b'red', b'at': b'4000000000.5'}))",
    "[os.path.basename(path)[:19] for path in uwsgi.spooler_jobs()]",
    "sorted(map(repr, uwsgi.spooler_get_task(uwsgi.spooler_jobs()[0].decode()).items()))[1:]",
    "uwsgi.spooler_get_task('/absent')",
    "type(uwsgi.spooler_pid()), type(uwsgi.spooler_pids()), len(uwsgi.spooler_pids())",
    "type(uwsgi.spoolers), [os.path.basename(directory) for directory in uwsgi.spoolers]",
    "uwsgi.set_spooler_frequency(5), uwsgi.i_am_the_spooler()",
    "uwsgi.set_spooler_frequency('5')",
    "uwsgi.SPOOL_OK, uwsgi.SPOOL_RETRY, uwsgi.SPOOL_IGNORE",
]

#: uWSGI refuses text, as Python 2 had no other; here it is UTF-8.
WIDER = {"uwsgi.spool(name='text')": "bytes", "uwsgi.spool({'name': 3})": "bytes"}


#: The instance writes jobs and does not work on them.
HOLD = "set-placeholder = hold=1"


#: After it, uWSGI's own processes are killed.
STOP_SECONDS = 60


class Real:
    """uWSGI itself with this application."""

    def __init__(self, program, directory, port, options):
        self.directory, self.port = directory, port
        directory.mkdir(exist_ok=True)
        (directory / "shop.py").write_text(SHOP)
        lines = ["[uwsgi]", f"http-socket = 127.0.0.1:{port}", "master = true", "die-on-term = true", "module = shop:application"]
        (directory / "uwsgi.ini").write_text("\n".join([*lines, *options]))
        self.log = directory / "log"
        with open(self.log, "wb") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.process = subprocess.Popen([program, "uwsgi.ini"], cwd=directory, **streams)
        wait_until(lambda: "spawned uWSGI worker 1" in self.log.read_text(), "uWSGI to serve")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # uWSGI's master waits for a spooler that has missed the signal, for as long as it lives.
            self.process.send_signal(signal.SIGQUIT)
            subprocess.run(["pkill", "-KILL", "-P", str(self.process.pid)], check=False)
            self.process.wait()


@pytest.fixture
def real(uwsgi, tmp_path, free_port):
    """``real("spooler = jobs")`` starts uWSGI."""
    started = []

    def start(*options):
        started.append(Real(uwsgi, tmp_path / "real", free_port(), options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def ours(serve, tmp_path):
    """``ours("spooler = …")`` starts Bolide."""

    def start(*options):
        directory = tmp_path / "ours"
        directory.mkdir(exist_ok=True)
        (directory / "shop.py").write_text(SHOP)
        server = serve("\n".join([f"chdir = {directory}", "module = shop:application", "master = true", *options]))
        server.directory_of_notes = directory
        return server

    return start


def say(port, expression):
    with Client(("127.0.0.1", port)) as client:
        return client.request("GET", f"/?{urlencode({'say': expression})}", [("Connection", "close")]).text


def notes_in(directory):
    file = directory / "notes"
    # A line that is still written has no end yet.
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def without_names(notes):
    """The notes in an order of their own: jobs are worked on in any."""
    return sorted(json.dumps([part for part in note if not str(part).startswith("uwsgi_spoolfile_on_")]) for note in notes)


def write_all(port):
    for expression in WRITTEN:
        assert say(port, expression).startswith("bytes b'/"), (expression, say(port, expression))


def test_jobs_of_uwsgi_are_worked_on_here_and_jobs_from_here_by_uwsgi(real, ours, tmp_path):
    theirs, here = tmp_path / "of-uwsgi", tmp_path / "of-bolide"
    options = ["spooler = {directory}", "spooler-ordered = true", HOLD]
    writing = real(*(option.format(directory=theirs) for option in options))
    write_all(writing.port)
    writing.stop()
    server = ours(*(option.format(directory=here) for option in options))
    write_all(server.port)
    assert server.stop() == 0
    names = {directory: jobs_in(directory) + jobs_in(directory / "3") for directory in (theirs, here)}
    assert len(names[theirs]) == len(names[here]) == len(WRITTEN)

    server = ours(f"spooler = {theirs}", "spooler-ordered = true")
    working = real(f"spooler = {here}", "spooler-ordered = true", "spooler-frequency = 1")
    for directory, notes, log in [
        (theirs, tmp_path / "ours", server.everything),
        (here, tmp_path / "real", working.log.read_text),
    ]:
        wait_until(lambda notes=notes: len(notes_in(notes)) >= len(WRITTEN), lambda log=log: log())
        wait_until(lambda directory=directory: jobs_in(directory) + jobs_in(directory / "3") == [], lambda log=log: log())
    by_us, by_uwsgi = notes_in(tmp_path / "ours"), notes_in(tmp_path / "real")

    def plain(notes):
        # The times of the two jobs with `at` differ.
        return [line for line in without_names(notes) if "b'at'" not in line]

    assert plain(by_us) == plain(by_uwsgi)
    assert len(plain(by_us)) == len(WRITTEN) - 1
    worked_on = {part for note in by_us for part in note if str(part).startswith("uwsgi_spoolfile_on_")}
    assert worked_on <= set(names[theirs])
    assert len(worked_on) == 5


def test_both_work_in_one_directory_at_the_same_time_and_no_job_is_worked_on_twice(real, ours, tmp_path):
    directory = tmp_path / "jobs"
    server = ours(f"spooler = {directory}", "spooler-processes = 2", "spooler-frequency = 1")
    working = real(f"spooler = {directory}", "spooler-processes = 2", "spooler-frequency = 1")
    for number in range(20):
        for port in (server.port, working.port):
            assert say(port, f"uwsgi.spool({{b'number': b'{number}-{port}'}})").startswith("bytes")
    notes = [tmp_path / "ours", tmp_path / "real"]
    wait_until(lambda: jobs_in(directory) == [], lambda: server.everything() + working.log.read_text())
    names = [note[2] for one in notes for note in notes_in(one)]
    assert len(names) == len(set(names)) == 40


def test_functions_of_the_spooler_have_uwsgis_types_results_and_errors(real, ours, tmp_path):
    options = ["spooler = {directory}/jobs", "spooler-frequency = 60"]
    theirs = real("spooler = jobs", *options[1:])
    server = ours(*options)
    assert os.path.isdir(server.directory / "jobs")
    for expression in SAME:
        one, other = say(theirs.port, expression), say(server.port, expression)
        # Our errors may say more.
        assert other.startswith(one), expression
    for expression, kind in WIDER.items():
        assert say(theirs.port, expression) == "ValueError: spooler callable dictionary must contains only bytes"
        assert say(server.port, expression).startswith(kind)


def test_a_job_of_each_is_retried_by_the_other(real, ours, tmp_path):
    theirs, here = tmp_path / "of-uwsgi", tmp_path / "of-bolide"
    writing = real(f"spooler = {theirs}", HOLD)
    assert say(writing.port, "forever()").startswith("bytes")
    writing.stop()
    server = ours(f"spooler = {here}", HOLD)
    assert say(server.port, "forever()").startswith("bytes")
    assert server.stop() == 0
    ours(f"spooler = {theirs}", "spooler-frequency = 1")
    real(f"spooler = {here}", "spooler-frequency = 1")
    for directory in (tmp_path / "ours", tmp_path / "real"):
        wait_until(
            lambda directory=directory: len(notes_in(directory)) >= 2, lambda directory=directory: str(notes_in(directory))
        )
    assert len(jobs_in(theirs)) == len(jobs_in(here)) == 1
