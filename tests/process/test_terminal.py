"""In a terminal one worker has the input, so that `breakpoint()` works, and Ctrl-C still reaches the master only."""

import os
import threading
import time

import pytest
from support.client import Client
from support.terminal import Terminal
from support.waiting import TIMEOUT_SECONDS

APPLICATION = """\
def application(environ, start_response):
    basket = 42
    breakpoint()
    start_response("200 OK", [("Content-Length", "7")])
    return [b"resumed"]
"""


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
    client.join(TIMEOUT_SECONDS)
    assert answers == ["resumed"]
    shown.type("\x03")
    assert shown.process.wait(TIMEOUT_SECONDS) == 0


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
    end = time.monotonic() + TIMEOUT_SECONDS
    while not os.path.exists(f"{gate}.waiting") and time.monotonic() < end:
        time.sleep(0.01)
    shown.type("\x03")
    shown.wait_for("stop: ")
    gate.touch()
    client.join(TIMEOUT_SECONDS)
    assert answers == ["finished"]
    assert shown.process.wait(TIMEOUT_SECONDS) == 0


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
    # Within its own timeout, which is shorter than that of requests: no second Ctrl-C is needed, and nothing is killed.
    shown.wait_for(r"streams still open 3 s after the order to stop, closing them: 3")
    shown.wait_for(r"stopped after ")
    assert shown.process.wait(TIMEOUT_SECONDS) == 0
    assert "killing " not in shown.text
    for tab in tabs:
        tab.close()
