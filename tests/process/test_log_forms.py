"""Forms of the log's lines: times of messages, JSON, formats that are JSON, the short line of a terminal."""

import contextlib
import json
import os
import re
import signal
import socket

from support.client import Client
from support.waiting import wait_until

#: Bytes that break lines, quotes and UTF-8.
HOSTILE = b'a"b\\c\xff\xfe\xe2\x82{}<\t>'

SAYS = """\
import sys
def application(environ, start_response):
    environ['wsgi.errors'].write('said "so"\\n')
    start_response('200 OK', [('Content-Length', '2')])
    return [b'ok']
"""


def ask_with(instance, value):
    with Client(instance.address()) as client:
        client.send(b"GET /x HTTP/1.1\r\nHost: x\r\nUser-Agent: " + value + b"\r\nConnection: close\r\n\r\n")
        return client.read_to_end()


def test_messages_of_the_server_carry_their_time(start):
    instance = start()
    own = [line for line in instance.raw_log.splitlines() if "bolide: " in line]
    assert own
    for line in own:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d bolide: ", line), line


def test_log_date_is_the_form_of_that_time(start):
    instance = start("--log-date=day %d", ready=False)
    instance.wait_for_log(r"^day \d\d - bolide: ready: ")


def test_every_line_is_json_whatever_bytes_are_in_it(start, tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    instance = start("--log-json", "--pythonpath", tmp_path, module="says", logging=True, ready=False)
    instance.wait_for(lambda: '"message":"ready: ' in instance.log, "it is ready")
    place = re.search(r'"message":"listening at http://127\.0\.0\.1:(\d+)', instance.log)
    with socket.create_connection(("127.0.0.1", int(place[1]))) as client:
        client.sendall(b'GET /x?" HTTP/1.1\r\nHost: x\r\nUser-Agent: ' + HOSTILE + b"\r\nConnection: close\r\n\r\n")
        while client.recv(4096):
            pass
    instance.wait_for(lambda: '"type":"request"' in instance.log, "the request's line")
    lines = [json.loads(line) for line in instance.lines]
    assert {line["type"] for line in lines} == {"message", "request"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d", line["time"]) for line in lines)
    (request,) = [line for line in lines if line["type"] == "request"]
    wanted = {"method": "GET", "uri": '/x?"', "status": 200, "bytes": 2, "user_agent": HOSTILE.decode("utf-8", "replace")}
    assert {name: request[name] for name in wanted} == wanted
    messages = [line["message"] for line in lines if line["type"] == "message"]
    assert 'worker 1: said "so"' in messages, messages


def test_a_format_that_is_json_stays_json_whatever_bytes_are_in_it(start):
    instance = start("--log-format", '{"agent": "%(uagent)", "uri": "%(uri)", "ms": %(msecs)}', logging=True)
    ask_with(instance, HOSTILE)
    line = instance.wait_for_log(r'^\{"agent".*$').group(0)
    assert json.loads(line)["agent"] == HOSTILE.decode("utf-8", "replace")


def test_a_slow_request_has_its_line_and_a_quick_one_none(start):
    instance = start("--log-slow", "2000", "--log-format", "line %(uri)")
    instance.body("/pid")
    instance.body("/sleep/2.1")
    instance.wait_for_log("^line /sleep")
    assert "line /pid" not in instance.log


def read_of_terminal(arguments, environment, folder):
    """What a server writes to a terminal until it has answered one request."""
    import pty
    import subprocess

    from support.server import program

    near, far = pty.openpty()
    both = {**os.environ, **environment}
    command = [*program(), *arguments]
    process = subprocess.Popen(command, cwd=folder, stdin=far, stdout=far, stderr=far, env=both, start_new_session=True)
    os.close(far)
    os.set_blocking(near, False)
    text = ""

    def more():
        nonlocal text
        with contextlib.suppress(OSError):
            text += os.read(near, 65536).decode()
        return text

    try:
        place = wait_until(lambda: re.search(r"open http://127\.0\.0\.1:(\d+)", more()), lambda: text)
        with Client(("127.0.0.1", int(place[1]))) as client:
            client.request("GET", "/here", [("Connection", "close")])
        wait_until(lambda: re.search("/here.*\n", more()), lambda: text)
        return text
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=60)
        os.close(near)


def test_a_developer_at_a_terminal_has_a_short_coloured_line(tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    arguments = ["says:application", "--http-socket", "127.0.0.1:0"]
    text = read_of_terminal(arguments, {"NO_COLOR": ""}, tmp_path)
    assert re.search(r"^\d\d:\d\d:\d\d GET  /here  \x1b\[32m200\x1b\[0m  \d+ ms  2 B\r?$", text, re.MULTILINE), text
    text = read_of_terminal(arguments, {"NO_COLOR": "1"}, tmp_path)
    assert re.search(r"^\d\d:\d\d:\d\d GET  /here  200  \d+ ms  2 B\r?$", text, re.MULTILINE), text
