"""Formats of log lines: timestamps, JSON, JSON templates, the short line of a terminal."""

import contextlib
import json
import os
import re
import signal
import socket

import pytest
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
    place = re.search(r'"message":"listening on http://127\.0\.0\.1:(\d+)', instance.log)
    with socket.create_connection(("127.0.0.1", int(place[1]))) as client:
        client.sendall(b'GET /x?" HTTP/1.1\r\nHost: x\r\nUser-Agent: ' + HOSTILE + b"\r\nConnection: close\r\n\r\n")
        while client.recv(4096):
            pass
    instance.wait_for(lambda: '"type":"request"' in instance.log, "the request's line")
    lines = [json.loads(line) for line in instance.lines]
    assert {line["type"] for line in lines} == {"message", "output", "request"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d", line["time"]) for line in lines)
    (request,) = [line for line in lines if line["type"] == "request"]
    wanted = {"method": "GET", "uri": '/x?"', "status": 200, "bytes": 2, "user_agent": HOSTILE.decode("utf-8", "replace")}
    assert {name: request[name] for name in wanted} == wanted
    said = [(line["message"], line["worker"]) for line in lines if line["type"] == "output"]
    assert ('said "so"', 1) in said, said


def test_a_format_that_is_json_stays_json_whatever_bytes_are_in_it(start):
    instance = start("--log-format", '{"agent": "%(uagent)", "uri": "%(uri)", "ms": %(msecs)}', logging=True)
    ask_with(instance, HOSTILE)
    line = instance.wait_for_log(r'^\{"agent".*$').group(0)
    assert json.loads(line)["agent"] == HOSTILE.decode("utf-8", "replace")


#: A field of a line: between quotes, or up to a blank.
LOGGED_FIELD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')

#: Formats with quotes: the translation of gunicorn's default, the combined formats of nginx and Apache, and similar ones in a
#: different order.
QUOTED_FORMATS = [
    ("--log-format", '%(addr) - %(user) [%(ltime)] "%(method) %(uri) %(proto)" %(status) %(rsize) "%(referer)" "%(uagent)"'),
    ("--access-logformat", '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s"'),
]

#: Client data that would end its field and add others.
FORGERIES = [b'x" 200 "y\\', b'"', b"\\", b'\\"', b"a\tb", "caf\u00e9 \u20ac".encode(), b'" "" "']


def plain(text):
    """Returns the text between quotes, unescaped as a log parser does."""
    names = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(
        r"\\(?:x([0-9a-f]{2})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else names.get(m[2], m[2]), text, flags=re.DOTALL
    )


def fields_of(line):
    """Returns the fields of a line with quotes; text in brackets is a time."""
    found = LOGGED_FIELD.findall(re.sub(r"\[[^]]*\]", "[time]", line, count=1))
    return [plain(quoted) if quoted or not bare else bare for quoted, bare in found]


@pytest.mark.parametrize("arguments", QUOTED_FORMATS, ids=["log-format", "access-logformat"])
def test_a_client_can_not_end_a_field_in_quotes(start, arguments):
    instance = start(*arguments, logging=True)
    for number, text in enumerate(FORGERIES):
        path = b"/" + str(number).encode() + b'"x"'
        with Client(instance.address()) as client:
            head = [
                b"GET " + path + b" HTTP/1.1",
                b"Host: x",
                b"Connection: close",
                b"Referer: r" + text,
                b"User-Agent: u" + text,
            ]
            client.send(b"\r\n".join([*head, b"", b""]))
            client.read_to_end()
        line = instance.wait_for_log(rf'^.*GET /{number}\\"x\\".*$').group(0)
        fields = fields_of(line)
        shown = text.decode()
        assert len(fields) == 9, line
        assert fields[4] == f"GET {path.decode()} HTTP/1.1", line
        assert fields[7:] == [f"r{shown}", f"u{shown}"], line


def test_a_users_name_and_what_a_reverse_proxy_sends_can_not_end_a_field(start):
    arguments = ("--log-format", '"%(user)" "%(var.HTTP_X_FORWARDED_FOR)" "%(uri)" "%(mine)" end')
    instance = start(*arguments, logging=True, socket="127.0.0.1:0")
    with Client(instance.address()) as client:
        client.send(b'GET /a"b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1" "2\\\r\nConnection: close\r\n\r\n')
        client.read_to_end()
    line = instance.wait_for_log(r"^.* end$").group(0)
    assert fields_of(line) == ["-", '1" "2\\', '/a"b', "-", "end"]


def test_a_format_without_quotes_has_texts_as_uwsgi_writes_them(start):
    instance = start("--log-format", "agent %(uagent)", logging=True)
    ask_with(instance, b'x" "y\\')
    assert instance.wait_for_log(r"^agent .*$").group(0) == 'agent x" "y\\'


def test_a_slow_request_has_its_line_and_a_quick_one_none(start):
    instance = start("--log-slow", "2000", "--log-format", "line %(uri)")
    instance.body("/pid")
    instance.body("/sleep/2.1")
    instance.wait_for_log("^line /sleep")
    assert "line /pid" not in instance.log


def test_an_answer_that_is_a_file_and_one_that_its_client_does_not_take_have_their_lines_and_others_none(start, tmp_path):
    (tmp_path / "file").write_text("x")
    instance = start(
        "--log-sendfile=true", "--log-ioerror=true", "--log-format", "line %(uri)", "--static-map", f"/file={tmp_path}/file"
    )
    instance.body("/pid")
    with Client(instance.address()) as client:
        client.send(b"GET /bytes/50000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.receive()
    instance.wait_for_log("^line /bytes/50000000$")
    instance.body("/file")
    instance.wait_for_log("^line /file$")
    assert "line /pid" not in instance.log


def test_log_micros_has_uwsgis_line_count_microseconds(start):
    instance = start("--log-micros", logging=True)
    instance.body("/sleep/0.1")
    micros = instance.wait_for_log(r"GET /sleep/0\.1 => generated \d+ bytes in (\d+) micros ")[1]
    assert int(micros) >= 100_000


@pytest.mark.parametrize(
    ("style", "line"),
    [
        ("uwsgi", r"^\[pid: \d+\|.* GET /pid => generated \d+ bytes in \d+ msecs "),
        ("short", r"^\d\d:\d\d:\d\d GET  /pid  200  \d+ ms  \d+ B$"),
        ("json", r'^\{.*"type":"request".*"uri":"/pid".*\}$'),
    ],
)
def test_log_style_is_the_form_of_lines_without_a_format(start, style, line):
    instance = start("--log-style", style, logging=True, ready=False)
    port = instance.wait_for_log(r"open http://127\.0\.0\.1:(\d+)")[1]
    with Client(("127.0.0.1", int(port))) as client:
        client.request("GET", "/pid", [("Connection", "close")])
    instance.wait_for_log(line)


def read_of_terminal(arguments, environment, directory):
    """Returns the output of a server in a terminal until it has answered one request."""
    import pty
    import subprocess

    from support.server import program

    near, far = pty.openpty()
    both = {**os.environ, **environment}
    command = [*program(), *arguments]
    process = subprocess.Popen(command, cwd=directory, stdin=far, stdout=far, stderr=far, env=both, start_new_session=True)
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


def test_a_developer_at_a_terminal_has_a_short_colored_line(tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    arguments = ["says:application", "--http-socket", "127.0.0.1:0"]
    text = read_of_terminal(arguments, {"NO_COLOR": ""}, tmp_path)
    assert re.search(r"^\d\d:\d\d:\d\d GET  /here  \x1b\[32m200\x1b\[0m  \d+ ms  2 B\r?$", text, re.MULTILINE), text
    # So has the operator of a configuration, in the server's own lines.
    text = read_of_terminal(["--module", *arguments], {"NO_COLOR": ""}, tmp_path)
    assert "bolide: \x1b[32mready: 1 worker" in text, text
    assert "bolide: \x1b[1mopen http://" in text, text
    assert re.search(r"(?m)^[^\x1b]*GET /here[^\x1b]*$", text), text
    text = read_of_terminal(arguments, {"NO_COLOR": "1"}, tmp_path)
    assert re.search(r"^\d\d:\d\d:\d\d GET  /here  200  \d+ ms  2 B\r?$", text, re.MULTILINE), text
