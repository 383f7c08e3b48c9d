"""Log destinations out of reach: the application serves, lines wait, and the first line after a gap says what was lost."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
from support.metrics import fetch, metrics_address
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_upgrade import pidfile, upgrade
from support_upgrade import stop as stop_upgraded

SAYS = """\
import os, sys
def application(environ, start_response):
    text = environ['QUERY_STRING']
    if text == 'jail':
        os.chroot('jail')
    print(text, flush=True)
    start_response('200 OK', [('Content-Length', '2')])
    return [b'ok']
"""


@pytest.fixture
def says(start, call, tmp_path):
    """Starts a server with these lines in its configuration, whose application prints on request."""
    (tmp_path / "says.py").write_text(SAYS)

    def begin(*lines, form="line %(uri)", **more):
        (tmp_path / "log.ini").write_text("[uwsgi]\n" + "\n".join(lines) + f"\nlog-format = {form}\nmaster = true\n")
        more = {"alarms": True, "logging": True, "module": "says", **more}
        instance = start("--ini", tmp_path / "log.ini", "--pythonpath", tmp_path, "--pidfile", pidfile(tmp_path), **more)
        instance.bolide = lambda command, *options: call(command, pidfile(tmp_path), *options)
        return instance

    return begin


#: Lines of more than 12 kB.
LONG = "line" + " %(uri)" * 8


def ask(instance, text="", count=1):
    for _ in range(count):
        assert instance.body(f"/?{text}") == "ok"


class Reader:
    """A reader of datagrams, which may come and go."""

    def __init__(self, address):
        self.lines = []
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def read(self):
        while True:
            try:
                self.lines.append(self.socket.recv(65536).decode())
            except BlockingIOError:
                return self.lines

    def wait_for(self, text):
        wait_until(lambda: any(text in line for line in self.read()), lambda: f"{text!r} in {self.lines}")

    def leave(self):
        self.socket.close()


class PipeReader:
    """A reader of a named pipe, which may come and go."""

    def __init__(self, path):
        self.text = b""
        self.pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self):
        try:
            while data := os.read(self.pipe, 65536):
                self.text += data
        except BlockingIOError:
            pass
        return self.text.decode().splitlines()

    def wait_for(self, text):
        wait_until(lambda: any(text in line for line in self.read()), lambda: f"{text!r} in {self.text}")

    def leave(self):
        os.close(self.pipe)


def reader_of(kind, place):
    return PipeReader(place) if kind == "fifo" else Reader(place)


def log_entry(instance, number=1):
    status, said = instance.bolide("status", "--json")
    assert status == 0, said
    return json.loads(said)["logs"][number]


def logger(kind, directory):
    """Returns a destination of this kind, as a logger is told, and its path."""
    place = str(directory / "lines")
    if kind == "fifo":
        os.mkfifo(place)
    return {"socket": "socket:", "fifo": "file:"}[kind] + place, place


@pytest.mark.parametrize("kind", ["socket", "fifo"])
def test_an_application_serves_without_the_reader_of_its_log_and_every_line_arrives_later(says, tmp_path, kind):
    destination, place = logger(kind, tmp_path)
    instance = says(f"req-logger = {destination}")
    instance.wait_for_log(r"WARNING: the log can't reach .*lines: .*; each process keeps up to 1 MiB of lines for it")
    ask(instance, "kept", 3)
    entry = log_entry(instance)
    assert entry["out_of_reach"]
    assert entry["lost_lines"] == 0
    reader = reader_of(kind, place)
    reader.wait_for("lines again after")
    ask(instance, "after")
    reader.wait_for("/?after")
    lines = reader.read()
    assert re.search(r"bolide: the log can reach the (socket|named pipe) .*lines again after .* s; no line was lost$", lines[0])
    assert [line for line in lines if "/?" in line] == ["line /?kept"] * 3 + ["line /?after"]
    assert log_entry(instance)["out_of_reach"] is None


@pytest.mark.parametrize("kind", ["socket", "fifo"])
def test_a_reader_that_comes_back_gets_the_lines_of_its_absence_and_the_number_of_those_lost(says, tmp_path, kind):
    destination, place = logger(kind, tmp_path)
    first = reader_of(kind, place)
    instance = says(f"req-logger = {destination}", "processes = 2", form=LONG)
    ask(instance, "before")
    first.wait_for("/?before")
    first.leave()
    if kind == "socket":
        Path(place).unlink()
    ask(instance, "gone")
    instance.wait_for_log(r"WARNING: the log can't reach .*lines: ")
    # More than both workers keep.
    ask(instance, "x" * 1500, 300)
    wait_until(lambda: log_entry(instance)["lost_lines"], "lines are lost")
    second = reader_of(kind, place)
    second.wait_for("lines again after")
    lost = int(re.search(r"; (\d+) lines were lost$", second.read()[0])[1])
    assert log_entry(instance)["lost_lines"] == lost
    second.wait_for("/?gone")
    wait_until(lambda: len(second.read()) == 1 + 1 + 300 - lost, lambda: f"{len(second.read())} lines, {lost} are lost")
    assert not [line for line in second.read() if "are lost here" in line]


def test_lines_of_workers_in_a_jail_arrive_after_a_gap(says, tmp_path):
    (tmp_path / "jail").mkdir()
    if os.getuid() != 0:
        pytest.skip("only root can change the root directory")
    place = str(tmp_path / "lines")
    instance = says(f"req-logger = socket:{place}")
    ask(instance, "jail")
    reader = Reader(place)
    reader.wait_for("/?jail")


def test_lines_wait_through_a_reload_and_an_upgrade(says, tmp_path):
    place = str(tmp_path / "lines")
    instance = says(f"req-logger = socket:{place}")
    assert instance.bolide("reload", "--wait")[0] == 0
    ask(instance, "reloaded")
    upgrade(tmp_path)
    # The old master's worker may still answer until its master exits, and it loses its waiting lines then.
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    reader = Reader(place)
    ask(instance, "upgraded")
    reader.wait_for("/?upgraded")
    stop_upgraded(tmp_path)


def test_lines_that_are_drained_do_not_wait(says, tmp_path):
    place = str(tmp_path / "lines")
    instance = says(f"logger = socket:{place}", "logger = stdio", "log-drain = swallowed")
    ask(instance, "swallowed")
    ask(instance, "kept")
    reader = Reader(place)
    reader.wait_for("kept")
    assert not [line for line in reader.read() if "swallowed" in line]


def test_a_log_in_a_named_pipe_without_a_reader_holds_up_no_application(says, tmp_path):
    place = tmp_path / "lines"
    os.mkfifo(place)
    says(f"logto = {place}", ready=False)
    reader = PipeReader(place)
    reader.wait_for("bolide: open http://")
    port = int(re.search(r"open http://127\.0\.0\.1:(\d+)", reader.text.decode())[1])
    reader.leave()
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET /?{'y' * 1500} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            while client.recv(4096):
                pass
    again = PipeReader(place)
    again.wait_for("y" * 1500)


def test_a_name_that_can_not_be_looked_up_is_tried_again(says):
    instance = says("req-logger = rsyslog:nowhere.invalid:5514,shop")
    instance.wait_for_log(r"WARNING: the log can't reach nowhere\.invalid:5514: ")
    ask(instance, "served")
    assert log_entry(instance)["out_of_reach"]


def test_a_program_that_can_not_be_executed_keeps_nothing_from_serving(says, tmp_path):
    program_file, piped = tmp_path / "reader", tmp_path / "piped"
    instance = says(f"req-logger = pipe:exec {program_file} > {piped}")
    ask(instance, "kept")
    instance.wait_for_log(r"the log program .* exited with status 127")
    program_file.write_text("#!/bin/sh\nexec cat\n")
    program_file.chmod(0o755)
    wait_until(lambda: piped.exists() and "line /?kept\n" in piped.read_text(), "the line that has waited")


def test_check_names_a_log_that_is_out_of_reach(call, tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "app.ini").write_text(f"[uwsgi]\nhttp = :0\nmodule = says\nlogger = socket:{tmp_path}/nothing\n")
    status, said = call("check", "app.ini")
    assert f"there is no socket {tmp_path}/nothing now" in said
    assert "up to 1 MiB of lines" in said
    assert status == 0


def test_metrics_have_the_lines_that_a_log_has_lost(says, tmp_path):
    instance = says(f"req-logger = socket:{tmp_path}/lines", "metrics = 127.0.0.1:0", form=LONG)
    ask(instance, "x" * 1500, 150)
    wait_until(lambda: log_entry(instance)["lost_lines"], "lines are lost")
    page = fetch(metrics_address(instance), "/metrics").body
    assert f'bolide_log_reachable{{log="the socket {tmp_path}/lines"}} 0' in page
    assert re.search(rf'bolide_log_lost_lines_total{{log="the socket {tmp_path}/lines"}} [1-9]', page)
