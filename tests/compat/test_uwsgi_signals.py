"""uWSGI's signals, timers, cron times and monitors of files: the same application leaves the same notes on uWSGI itself and here.

One difference is not compared. A signal that is raised while the application is loaded has no pipe in uWSGI yet and is lost with
"Bad file descriptor" in its log; here a worker handles it (tests/process/test_signals.py).
"""

import os
from collections import Counter

from support.client import Client
from support.real_uwsgi import prepared, real_uwsgi
from support.waiting import wait_until

APPLICATION = """
import uwsgi
from uwsgidecorators import cron, filemon, rbtimer, signal, timer

def note(*words):
    with open("notes", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@signal(17, target="workers")
def everywhere(number):
    note("everywhere", number, uwsgi.worker_id())

@signal(18, target="worker2")
def second(number):
    note("second", number, uwsgi.worker_id())

@signal(19)
def anywhere(number):
    note("anywhere", number)

@signal(20, target="mules")
def in_mules(number):
    note("mule", number, uwsgi.mule_id())

@timer(1)
def tick(number):
    note("tick", number)

@rbtimer(1)
def tock(number):
    note("tock", number)

@cron(-1, -1, -1, -1, -1)
def minute(number):
    note("minute", number)

open("watched", "a").close()
@filemon("watched")
def changed(number):
    note("changed", number)

@signal(21)
def failing(number):
    note("failing", number)
    raise ValueError("no")

CALLS = [
    lambda: uwsgi.signal_registered(17),
    lambda: uwsgi.signal_registered(99),
    lambda: uwsgi.register_signal(17, "x" * 64, print),
    lambda: uwsgi.register_signal(30, "", print),
    lambda: uwsgi.add_cron(30, 0, 0, 31, 2, -1),
    lambda: uwsgi.add_timer(30, 1000),
    lambda: uwsgi.add_rb_timer(30, 1000, 1),
    lambda: uwsgi.add_timer(30, "1"),
    lambda: uwsgi.signal("1"),
    lambda: uwsgi.signal_received(),
]

def result(call):
    try:
        return repr(call())
    except Exception as error:
        return type(error).__name__

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/calls":
        body = "\\n".join(map(result, CALLS)).encode()
    else:
        uwsgi.signal(int(path[1:]))
        body = b"raised"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""
CONFIGURATION = """\
chdir = {directory}
wsgi-file = {directory}/app.py
need-app = true
master = true
processes = 2
mule = true
mule = true"""
#: Notes that do not depend on time.
LASTING = ("everywhere", "second", "anywhere", "mule", "failing")


def results_of(address, directory, log):
    """Raises each signal. Returns how often which notes were left, and what the functions returned."""
    notes = directory / "notes"

    def words():
        return [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []

    def ask(path):
        with Client(address) as client:
            return client.request("GET", path, [("Connection", "close")]).text

    def wait_for(name, count):
        wait_until(lambda: sum(line[0] == name for line in words()) >= count, lambda: f"{count} of {name}: {words()}\n{log()}")

    for name in ("tick", "tock", "minute"):
        wait_for(name, 1)
    # A timer has fired, so the master watches the file.
    os.utime(directory / "watched", (1, 1))
    wait_for("changed", 1)
    for number, name, count in ((17, "everywhere", 2), (18, "second", 1), (20, "mule", 2), (21, "failing", 1)):
        assert ask(f"/{number}") == "raised"
        wait_for(name, count)
    # The workers go on after an exception.
    assert ask("/19") == "raised"
    wait_for("anywhere", 1)
    calls = ask("/calls").splitlines()
    return Counter(" ".join(line) for line in words() if line[0] in LASTING), calls


def test_an_application_of_signals_leaves_the_notes_that_it_leaves_in_uwsgi(serve, uwsgi, tmp_path, free_port):
    directory, configuration = prepared(tmp_path / "theirs", CONFIGURATION, app=APPLICATION)
    with real_uwsgi(uwsgi, directory, free_port(), configuration) as address:
        theirs = results_of(address, directory, (directory / "log").read_text)
    directory, configuration = prepared(tmp_path / "ours", CONFIGURATION, app=APPLICATION)
    instance = serve(configuration)
    assert results_of(instance.address(), directory, lambda: instance.log) == theirs
