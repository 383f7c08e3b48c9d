"""Instances without an application: they do their other work, and answer requests as for unknown paths."""

import pytest
from support.waiting import wait_until
from support_instance import reload_by_command

WORK = """\
import time
open("works", "a").write("mule\\n")
while True:
    time.sleep(60)
"""
ABSENT = "no application is named"

#: Lines beside a socket.
KINDS = {
    "a mule": "mule = work.py",
    "a spooler": "spooler = {directory}/jobs",
    "a timer": "timer = 17 60",
    "a cron job": "cron = 59 23 31 12 -1 true",
    "a daemon": "attach-daemon = sleep 600",
    "a cache": "cache2 = name=shop,items=10",
    "nothing else": "",
    "an application that is not needed": "need-app = false",
}
#: What runs without a socket, as in uWSGI, and the line of its start.
ALONE = {
    "spooler = {directory}/jobs": "spooler 1",
    "attach-daemon = sleep 600": "daemon sleep: started",
    "cron = 59 23 31 12 -1 true": "ready: 0 workers",
}


def prepared(serve, lines, **options):
    server = serve.prepare(lines, **options)
    (server.directory / "work.py").write_text(WORK)
    (server.directory / "jobs").mkdir()
    return server


@pytest.mark.parametrize("kind", KINDS)
def test_an_instance_without_an_application_starts_says_so_and_answers_404(kind, serve):
    server = prepared(serve, KINDS[kind] + "\nmaster = true").start()
    assert server.get("/").status == 404
    assert server.log.count(ABSENT) == 1
    if kind == "a mule":
        wait_until((server.directory / "works").exists, "the mule works")
    reload_by_command(server)
    assert server.get("/").status == 404
    assert server.stop() == 0


@pytest.mark.parametrize("line", ALONE)
def test_daemons_jobs_and_spoolers_run_without_a_socket(line, serve):
    server = prepared(serve, line, listen=()).launch()
    server.wait_for(lambda: ALONE[line] in server.log, "it runs")
    server.wait_for(lambda: "ready: 0 workers" in server.log, "it is ready")
    assert "there is no socket: no request worker starts" in server.log
    assert server.stop() == 0


def test_an_application_without_a_socket_is_a_warning_beside_a_daemon(serve):
    server = prepared(serve, "wsgi-file = {apps}/echo.py\nattach-daemon = sleep 600", listen=()).launch()
    server.wait_for(lambda: "daemon sleep: started" in server.log, "it runs")
    assert "warning: there is no socket" in server.log
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("need-app = true", "there is no application to serve"),
        ("need-app = true\nmule = work.py", "there is no application to serve"),
        ("vhost = true", "there is no application to serve (the variables UWSGI_SCRIPT"),
        ("psgi = app.psgi", "`bolide plugin build psgi` builds it"),
        ("module = no_such_module\nmule = work.py", "no_such_module"),
    ],
)
def test_an_application_that_is_promised_is_still_needed(lines, words, serve):
    server = prepared(serve, lines)
    server.launch()
    assert server.wait_for_exit() != 0
    assert words in server.lines[-1]


def test_a_mule_without_a_socket_lacks_one_as_in_uwsgi(serve):
    server = prepared(serve, "mule = work.py\nmaster = true", listen=())
    server.launch()
    assert server.wait_for_exit() == 1
    assert "there is no socket to serve on" in server.lines[-1]
