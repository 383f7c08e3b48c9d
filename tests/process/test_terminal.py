"""At a terminal: one worker has its input, so that `breakpoint()` works, and Ctrl-C still reaches the master alone."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import threading
import time

import pytest
from support.client import Client
from support.server import program
from support.waiting import PATIENCE_SECONDS

APPLICATION = """\
def application(environ, start_response):
    basket = 42
    breakpoint()
    start_response("200 OK", [("Content-Length", "7")])
    return [b"resumed"]
"""


class Terminal:
    """A program with a terminal of its own, whose input and output are ours."""

    def __init__(self, folder, *arguments):
        self.ours, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UWSGI_", "BOLIDE_"))}

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*program(), *map(str, arguments)],
            cwd=folder,
            env={**environment, "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.search(pattern, self.text)
            if found:
                return found
            assert time.monotonic() < end, f"{pattern!r} is not in {self.text!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:
                    # Nobody has the terminal any more.
                    raise AssertionError(f"it ended before {pattern!r}: {self.text!r}") from None

    def type(self, text):
        os.write(self.ours, text.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)
        os.close(self.ours)


@pytest.fixture
def terminal(tmp_path):
    terminals = []

    def open_terminal(*arguments):
        terminals.append(Terminal(tmp_path, *arguments))
        return terminals[-1]

    yield open_terminal
    for one in terminals:
        one.close()


@pytest.mark.parametrize(
    "options", [(), ("--master",), ("--processes", "2", "--honour-stdin")], ids=["alone", "master", "honour-stdin"]
)
def test_breakpoint_works_at_a_terminal(options, terminal, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    shown = terminal("--http-socket", "127.0.0.1:0", "--module", "shop", *options)
    port = int(shown.wait_for(r"open http://127\.0\.0\.1:(\d+)")[1])
    answers = []
    client = threading.Thread(target=lambda: answers.append(Client(("127.0.0.1", port)).request().text))
    client.start()
    shown.wait_for(r"\(Pdb\)")
    shown.type("p basket * 2\n")
    shown.wait_for(r"\b84\b")
    shown.type("c\n")
    client.join(PATIENCE_SECONDS)
    assert answers == ["resumed"]
    shown.type("\x03")
    assert shown.process.wait(PATIENCE_SECONDS) == 0


def test_ctrl_c_lets_the_request_in_flight_finish(terminal, tmp_path):
    gate = tmp_path / "gate"
    (tmp_path / "shop.py").write_text(
        "import os, time\ndef application(environ, start_response):\n"
        f"    open({str(gate) + '.waiting'!r}, 'w').close()\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    start_response('200 OK', [('Content-Length', '8')])\n    return [b'finished']\n"
    )
    shown = terminal("--http-socket", "127.0.0.1:0", "--module", "shop")
    port = int(shown.wait_for(r"open http://127\.0\.0\.1:(\d+)")[1])
    answers = []
    client = threading.Thread(target=lambda: answers.append(Client(("127.0.0.1", port)).request().text))
    client.start()
    end = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(f"{gate}.waiting") and time.monotonic() < end:
        time.sleep(0.01)
    shown.type("\x03")
    shown.wait_for("stop: ")
    gate.touch()
    client.join(PATIENCE_SECONDS)
    assert answers == ["finished"]
    assert shown.process.wait(PATIENCE_SECONDS) == 0


def test_ctrl_c_ends_with_event_streams_open(terminal, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import asyncio\nasync def application(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/event-stream')]})\n"
        "    await send({'type': 'http.response.body', 'body': b'data: tick\\n\\n', 'more_body': True})\n"
        "    await asyncio.Event().wait()\n"
    )
    shown = terminal("--http-socket", "127.0.0.1:0", "--module", "shop", "--lifespan", "off")
    port = int(shown.wait_for(r"open http://127\.0\.0\.1:(\d+)")[1])
    tabs = [Client(("127.0.0.1", port)) for _ in range(3)]
    for tab in tabs:
        tab.send(b"GET /ticks HTTP/1.1\r\nHost: localhost\r\n\r\n")
        tab.read_head()
    shown.type("\x03")
    # In its own time, which is shorter than that of requests: nobody presses it twice, and nothing is killed.
    shown.wait_for(r"streams that go on 3 s after the order to stop, and are cut off: 3")
    shown.wait_for(r"stopped after ")
    assert shown.process.wait(PATIENCE_SECONDS) == 0
    assert "is killed" not in shown.text
    for tab in tabs:
        tab.close()
