"""The statistics have the same keys, types and numbers as uWSGI's under the same configuration and requests. Readers of uWSGI's
statistics work with them: uwsgitop and two exporters.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from pathlib import Path

import pytest
from support import processes
from support.client import Client
from support.server import Server
from support.statistics import connect, read_raw, read_statistics
from support.waiting import TIMEOUT_SECONDS, wait_until

APPLICATION = """\
import os, time

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/boom":
        raise ValueError("boom")
    if path == "/wait":
        open(environ["QUERY_STRING"] + ".waiting", "w").close()
        while not os.path.exists(environ["QUERY_STRING"]):
            time.sleep(0.01)
    if path == "/slow":
        time.sleep(0.2)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1000")])
    return [b"x" * 1000]
"""
LISTEN = ("http-socket = {directory}/http.sock", "stats = {directory}/stats.sock")
#: With `memory-report` uWSGI measures its memory after each request.
SETTINGS = (
    "wsgi-file = main.py\nmaster = true\nthreads = 2\nmemory-report = true\nstatic-map = /files={directory}/files\nharakiri = 60"
)

#: Keys that uWSGI does not have.
OURS_ALONE = ("reloads", "failed_reloads", "last_reload")

#: Values that naturally differ from uWSGI's, and their comparison.
OWN = {
    "version",
    "pid",
    "locks",
    "name",
    "cwd",
    "vars",
    "rss",
    "vsz",
    "last_spawn",
    "request_start",
    "max_queue",
    "running_time",
    "avg_rt",
    "tx",
}


def started(server):
    (server.directory / "main.py").write_text(APPLICATION)
    (server.directory / "files").mkdir()
    (server.directory / "files" / "a.txt").write_text("hello")
    stats = str(server.directory / "stats.sock")

    def serves():
        with contextlib.suppress(OSError):
            return read_statistics(stats)["workers"][0]["accepting"] == 1

    server.launch()
    server.wait_for(lambda: serves() or server.process.poll() is not None, "it serves")
    return server, stats


def ask(server, target):
    with Client(str(server.directory / "http.sock")) as client:
        client.send(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return client.read_to_end()


def traffic(server, stats):
    """Sends some requests of each kind, and one that is in flight when the numbers are read."""
    for target in ["/"] * 5 + ["/slow", "/boom", "/files/a.txt"]:
        ask(server, target)
    gate = server.directory / "gate"
    with Client(str(server.directory / "http.sock")) as client:
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        wait_until(lambda: os.path.exists(f"{gate}.waiting"), "the request is in flight")
        wait_until(lambda: read_statistics(stats)["workers"][0]["requests"] == 8, "the others are counted")
        told = read_statistics(stats)
        gate.touch()
        client.read_to_end()
    return told


def shape(value):
    """Returns keys and types; for a list those of its first entry."""
    if isinstance(value, dict):
        return {key: shape(inner) if key not in ("vars", "locks") else list for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value)


def numbers(value, place=()):
    """Returns every number and string that must be equal, by its path."""
    if isinstance(value, dict):
        return {
            found: number
            for key, inner in value.items()
            if key not in OWN
            for found, number in numbers(inner, (*place, key)).items()
        }
    if isinstance(value, list):
        return {found: number for index, inner in enumerate(value) for found, number in numbers(inner, (*place, index)).items()}
    return {place: value}


@pytest.fixture
def both(uwsgi, bolide, tmp_path):
    """Returns the statistics of uWSGI, and of Bolide."""
    servers = [
        Server(tmp_path / "uwsgi", SETTINGS, LISTEN, command=[uwsgi]),
        Server(tmp_path / "bolide", SETTINGS, LISTEN, command=[bolide]),
    ]
    try:
        yield [traffic(*started(server)) for server in servers]
    finally:
        for server in servers:
            server.expects_alarms = True
            server.finish()


def merged(told):
    """Which thread handles a request is random: sums up the threads of a worker."""
    for worker in told["workers"]:
        cores = worker["cores"]
        for key in cores[0]:
            if isinstance(cores[0][key], int) and key != "id":
                cores[0][key] = sum(core[key] for core in cores)
        del cores[1:]
    return told


def test_keys_types_and_numbers_are_uwsgis_under_the_same_traffic(both):
    theirs, ours = both
    # The core with the request in flight has more keys.
    for told in both:
        for worker in told["workers"]:
            worker["cores"].sort(key=lambda core: -core["in_request"])
    assert {key: ours.pop(key) for key in OURS_ALONE} == {"reloads": 0, "failed_reloads": 0, "last_reload": {}}
    assert shape(ours) == shape(theirs)
    their_variables, our_variables = (told["workers"][0]["cores"][0]["vars"] for told in both)
    assert {name.partition("=")[0] for name in our_variables} <= {name.partition("=")[0] for name in their_variables}
    assert abs(ours["workers"][0]["cores"][0]["req_info"]["request_start"] - time.time()) < 60
    theirs, ours = merged(theirs), merged(ours)
    differences = {place: (value, numbers(ours).get(place)) for place, value in numbers(theirs).items()}
    # uWSGI's count of the application includes the request in flight; here a request counts when it is answered.
    differences.pop(("workers", 0, "apps", 0, "requests"))
    # Which thread handles the request in flight is random.
    differences.pop(("workers", 0, "cores", 0, "id"))
    # The application was loaded in whole seconds, of which a busy machine may need one.
    differences.pop(("workers", 0, "apps", 0, "startup_time"))
    assert theirs["workers"][0]["apps"][0]["requests"] == ours["workers"][0]["apps"][0]["requests"] + 1 == 8
    assert {place: pair for place, pair in differences.items() if pair[0] != pair[1]} == {}
    for worker in (theirs["workers"][0], ours["workers"][0]):
        assert worker["apps"][0]["startup_time"] < 60
        assert 200_000 <= worker["running_time"] < 20_000_000
        assert 6000 < worker["tx"] < 9000
        assert 1_000_000 < worker["rss"] < worker["vsz"]
        assert abs(worker["last_spawn"] - time.time()) < 600


#: A cron job that runs when the numbers are read, two that are never due; a daemon, one with a pidfile, one that is restarted.
#: uWSGI only kills the shell of a daemon, so the commands use exec.
BESIDE = (
    "wsgi-file = main.py\nmaster = true\n"
    'cron = -1 -1 -1 -1 -1 while [ ! -e {directory}/enough ]; do sleep 0.1; done # "a\\b"\nunique-cron = 59 23 31 2 -1 never\n'
    "cron2 = minute=-5,hour=3,week=2,unique=1,harakiri=9 echo never\n"
    "attach-daemon = exec sleep 1000\nsmart-attach-daemon2 = {directory}/smart.pid exec sleep 1000\n"
    "attach-daemon = exec {directory}/second"
)


def test_daemons_and_crons_are_reported_as_by_uwsgi(uwsgi, bolide, tmp_path):
    # uWSGI counts the starts, but always reports 0.
    respawns = {"uwsgi": [0, 0, 0], "bolide": [0, 0, 1]}

    def stands(stats, directory):
        with contextlib.suppress(OSError, KeyError):
            told = read_statistics(stats)
            is_second = (directory / "second.again").exists()
            counted = [daemon["respawns"] for daemon in told["daemons"]]
            is_whole = all(daemon["pid"] for daemon in told["daemons"]) and told["crons"][0]["pid"] > 0
            return told if is_second and is_whole and counted == respawns[directory.name] else None

    told = {}
    for name, command in (("uwsgi", uwsgi), ("bolide", bolide)):
        directory = tmp_path / name
        server = Server(directory, BESIDE.replace("{directory}", str(directory)), LISTEN, command=[command])
        try:
            script = directory / "second"
            script.write_text("#!/bin/sh\n[ -e $0.first ] || exec touch $0.first\n: > $0.again\nexec sleep 1000\n")
            script.chmod(0o755)
            server, stats = started(server)
            told[name] = wait_until(
                lambda stats=stats, directory=directory: stands(stats, directory),
                f"everything runs with {name}",
                # The job starts with the next minute.
                seconds=2 * TIMEOUT_SECONDS,
            )
        finally:
            (directory / "enough").touch()
            server.expects_alarms = True
            server.send_signal(signal.SIGQUIT)
            server.process.wait(timeout=TIMEOUT_SECONDS)
            if (directory / "smart.pid").exists():
                # It outlives its server.
                processes.kill(int((directory / "smart.pid").read_text()))
            server.finish()
    theirs, ours = told["uwsgi"], told["bolide"]
    # Keys that uWSGI does not have come last.
    assert list(ours)[: len(theirs)] == list(theirs)
    assert shape(ours["daemons"]) == shape(theirs["daemons"])
    assert [daemon["cmd"].replace("/bolide/", "/uwsgi/") for daemon in ours["daemons"]] == [
        daemon["cmd"] for daemon in theirs["daemons"]
    ]
    for jobs in (theirs["crons"], ours["crons"]):
        assert jobs[0].pop("pid") > 0
        assert abs(jobs[0].pop("started_at") - time.time()) < 600
    # Each command names its own directory.
    assert json.loads(json.dumps(ours["crons"]).replace("/bolide/", "/uwsgi/")) == theirs["crons"]


def listens(path):
    """Whether a connection is accepted: the file of a socket is there before it listens."""
    with contextlib.suppress(OSError), connect(path):
        return True
    return False


def test_http_has_uwsgis_head(uwsgi, bolide, tmp_path):
    heads = []
    for name, command in (("uwsgi", uwsgi), ("bolide", bolide)):
        server = Server(
            tmp_path / name, "wsgi-file = main.py\nmaster = true\nstats-http = true\nstats-min = true", LISTEN, command=[command]
        )
        try:
            (server.directory / "main.py").write_text(APPLICATION)
            server.launch()
            stats = str(server.directory / "stats.sock")
            server.wait_for_log("spawned uWSGI worker 1 |bolide: ready")
            # uWSGI's worker loses a signal that comes before its first request.
            assert ask(server, "/").startswith(b"HTTP/1.1 200 ")
            wait_until(lambda stats=stats: listens(stats), "it listens")
            head, _, body = read_raw(stats, b"GET / HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
            assert json.loads(body)["workers"]
            assert b"\n" not in body
            heads.append({line for line in head.decode().split("\r\n") if not line.startswith("Content-Length:")})
        finally:
            server.expects_alarms = True
            server.finish()
    assert heads[0] == heads[1]


# Readers of uWSGI's statistics.


@pytest.fixture
def instance(bolide, tmp_path):
    """Bolide with statistics over HTTP at a free port, after three requests and an exception."""
    listen = ("http-socket = {directory}/http.sock", "stats = 127.0.0.1:0", "stats-http = true")
    server = Server(tmp_path / "shop", "wsgi-file = main.py\nmaster = true\nprocesses = 2", listen, command=[bolide])
    (server.directory / "main.py").write_text(APPLICATION)
    server.expects_alarms = True
    try:
        server.start()
        port = server.wait_for_log(r"statistics at 127\.0\.0\.1:(\d+), over HTTP$")[1]
        for target in ("/", "/", "/boom"):
            ask(server, target)
        server.url_of_statistics = f"http://127.0.0.1:{port}"
        wait_until(lambda: sum(worker["requests"] for worker in told_by_http(server)["workers"]) == 3, "they are counted")
        yield server
    finally:
        server.finish()


def told_by_http(server):
    with urllib.request.urlopen(server.url_of_statistics, timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)


@contextlib.contextmanager
def at_a_terminal(command):
    """Runs a program in a terminal of 50 lines. Returns a function that waits for a text on it."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    # These would override the terminal's own size.
    environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env={**environment, "TERM": "xterm"})
    os.close(child)
    seen = ""

    def wait_for(pattern):
        nonlocal seen
        end = time.monotonic() + TIMEOUT_SECONDS
        while not re.search(pattern, seen):
            assert time.monotonic() < end, f"no {pattern!r}: {seen!r}"
            if select.select([parent], [], [], 0.1)[0]:
                seen += os.read(parent, 65536).decode("utf-8", "replace")
        return seen

    try:
        yield process, wait_for, lambda keys: os.write(parent, keys)
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def test_the_real_uwsgitop_shows_the_workers(instance):
    program = str(Path(sys.executable).parent / "uwsgitop")
    with at_a_terminal([sys.executable, program, instance.url_of_statistics]) as (process, wait_for, press):
        shown = wait_for(r"req: 3 .*masterpid: \d+.*WID.*ReSpwn")
        assert f"masterpid: {instance.process.pid}" in shown
        wait_for(r"idle\S*\s*\d+ms")
        press(b"a")
        wait_for(r"[12]:0")
        press(b"q")
        assert process.wait(timeout=TIMEOUT_SECONDS) == 0


def test_a_prometheus_exporter_tells_the_numbers(instance):
    import prometheus_client
    from uwsgi_prometheus.collectors import UWSGIStatsCollector

    registry = prometheus_client.CollectorRegistry()
    registry.register(UWSGIStatsCollector(stats_url=instance.url_of_statistics))
    page = prometheus_client.generate_latest(registry).decode()
    assert "uwsgi_requests_total 3.0" in page
    assert "uwsgi_harakiris_total 0.0" in page
    assert "uwsgi_listen_queue_requests 0.0" in page


def test_an_exporter_of_every_number_understands_them(instance):
    # The exporter is a script, not an importable module.
    script = Path(sys.executable).parent / "uwsgi_exporter.py"
    code = (
        "import runpy, sys\nfrom prometheus_client import CollectorRegistry, generate_latest\n"
        f"exporter = runpy.run_path({str(script)!r})\nregistry = CollectorRegistry()\n"
        f"told = lambda: exporter['build_prometheus_stats']({instance.url_of_statistics!r})\n"
        "registry.register(exporter['get_stats_collector'](told))\n"
        "print(generate_latest(registry).decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    counted = [
        float(number) for number in re.findall(r'^uwsgi_workers_requests\{worker="\d"\} (\S+)$', done.stdout, re.MULTILINE)
    ]
    assert sum(counted) == 3.0
    assert len(counted) == 2
    assert re.search(r'^uwsgi_workers_rss\{worker="1"\} \d', done.stdout, re.MULTILINE)
    assert re.search(r'^uwsgi_workers_cores_in_request\{core="0",worker="1"\} 0.0$', done.stdout, re.MULTILINE)
