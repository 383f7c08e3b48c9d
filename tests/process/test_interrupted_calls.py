"""A signal by which Bolide asks a process for its stack changes nothing of the system call that it interrupts."""

import os
import signal

import pytest
from support.waiting import wait_until

#: The signal of a report about a blocked event loop, and of a harakiri.
STACK_SIGNAL = signal.SIGRTMIN + 10
#: Reports, one after the other. The handler left another error number behind in most of them.
REPORTS = 40
LOOKS = '''\
"""Looks for a file that is missing until the gate opens. An error other than "no such file" is the response."""

import os


def look(gate):
    with open(f"{gate}.waiting", "w") as file:
        file.write(str(os.getpid()))
    found = b"only missing"
    while not os.path.exists(gate):
        try:
            os.stat("/missing")
        except FileNotFoundError:
            pass
        except OSError as error:
            found = repr(error).encode()
    return found


def application(environ, start_response):
    found = look(environ["QUERY_STRING"])
    start_response("200 OK", [("Content-Length", str(len(found)))])
    return [found]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    found = look(scope["query_string"].decode())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(found))]})
    await send({"type": "http.response.body", "body": found})
'''


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_a_stack_that_is_asked_for_changes_no_error_of_the_application(interface, start, tmp_path):
    (tmp_path / "looks.py").write_text(LOOKS)
    options = ("--asgi", "looks:asgi") if interface == "asgi" else ("--module", "looks")
    instance = start("--pythonpath", tmp_path, *options, module=None)
    gate, waiting = tmp_path / "gate", tmp_path / "gate.waiting"
    client = instance.connect()
    client.send(f"GET /?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    pid = int(wait_until(lambda: waiting.exists() and waiting.read_text(), "the application to look"))

    def stacks():
        return instance.everything().count("in look")

    for number in range(REPORTS):
        os.kill(pid, STACK_SIGNAL)
        wait_until(lambda number=number: stacks() > number, "the stack")
    gate.touch()
    assert client.read_response().text == "only missing"
