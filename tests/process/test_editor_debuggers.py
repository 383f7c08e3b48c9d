"""Debuggers of editors, with debugpy and a client of its protocol: breakpoints are hit wherever the application runs."""

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest
import requests
from support.server import REMOVED_PREFIXES, Server
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_debugger import Session, launched

WSGI = """\
import threading

LOADED = True


def work(results):
    results.append("thread")


def application(environ, start_response):
    results = []
    thread = threading.Thread(target=work, args=(results,))
    thread.start()
    thread.join()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [results[0].encode()]
"""
ASGI = """\
import asyncio

LOADED = True


async def work():
    return b"task"


async def application(scope, receive, send):
    assert scope["type"] == "http"
    body = await asyncio.create_task(work())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
#: The lines of LOADED, of `work`, and of the first statement of `application`.
WSGI_LINES = (3, 7, 11)
ASGI_LINES = (3, 7, 12)
LISTENING = "import debugpy\n\ndebugpy.listen({port})\n" + WSGI
RUN = """\
import bolide

if __name__ == "__main__":
    bolide.run("shop:application", port={port}, log_style="short")
"""


@pytest.fixture
def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


class Request:
    """A request in a thread of its own: the view will be stopped."""

    def __init__(self, port):
        self._answers = []
        self._thread = threading.Thread(target=self._ask, args=(f"http://127.0.0.1:{port}/",))
        self._thread.start()

    def _ask(self, url):
        def answer():
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(url, timeout=TIMEOUT_SECONDS)

        self._answers.append(wait_until(answer, "it is served").text)

    def is_answered(self):
        return bool(self._answers)

    def text(self):
        self._thread.join()
        return self._answers[0]


def works_in(process, directory):
    with contextlib.suppress(OSError):
        return (process / "cwd").readlink() == directory
    return False


def wait_for_no_process_of(directory):
    def has_ended():
        return not any(works_in(process, directory) for process in Path("/proc").glob("[0-9]*"))

    wait_until(has_ended, "all processes have exited")


def test_breakpoints_are_hit_in_a_launched_module_and_after_a_reload_that_waited_for_one(tmp_path, free_port, environment):
    shop = tmp_path / "shop.py"
    shop.write_text(ASGI)
    port = free_port()
    arguments = ["shop:application", "--lifespan", "off", "--port", str(port), "--reload"]
    configuration = {"module": "bolide", "args": arguments, "cwd": str(tmp_path)}
    loading, working, answering = ASGI_LINES
    with launched(free_port(), configuration, [(shop, ASGI_LINES)], environment) as editor:
        worker = editor.subprocess()
        assert worker.pass_breakpoint() == loading
        request = Request(port)
        thread, line = worker.stop()
        assert line == answering
        shop.write_text(ASGI.replace('b"task"', 'b"changed"'))
        while "the reload waits until the debugger continues" not in editor.event("output")["output"]:
            pass
        worker.ask("continue", threadId=thread)
        assert worker.pass_breakpoint() == working
        assert request.text() == "task"
        worker.close()
        worker = editor.subprocess()
        assert worker.pass_breakpoint() == loading
        request = Request(port)
        assert [worker.pass_breakpoint(), worker.pass_breakpoint()] == [answering, working]
        assert request.text() == "changed"
        worker.close()
    wait_for_no_process_of(tmp_path)


@pytest.mark.parametrize("kind", ["console script", "bolide.run"])
def test_breakpoints_are_hit_in_a_launched_program(kind, tmp_path, free_port, environment):
    (tmp_path / "shop.py").write_text(WSGI)
    port = free_port()
    if kind == "bolide.run":
        (tmp_path / "main.py").write_text(RUN.format(port=port))
        configuration = {"program": str(tmp_path / "main.py"), "cwd": str(tmp_path)}
    else:
        script = Path(sys.executable).parent / "bolide"
        arguments = ["shop:application", "--port", str(port)]
        configuration = {"program": str(script), "args": arguments, "cwd": str(tmp_path)}
    loading, working, answering = WSGI_LINES
    with launched(free_port(), configuration, [(tmp_path / "shop.py", WSGI_LINES)], environment) as editor:
        worker = editor.subprocess()
        assert worker.pass_breakpoint() == loading
        request = Request(port)
        assert [worker.pass_breakpoint(), worker.pass_breakpoint()] == [answering, working]
        assert request.text() == "thread"
        worker.close()
    wait_for_no_process_of(tmp_path)


def debugged(tmp_path, port, arguments):
    return Server(
        tmp_path,
        arguments=["--listen", f"127.0.0.1:{port}", "-m", "bolide", "shop:application", *arguments],
        command=[sys.executable, "-m", "debugpy"],
        environment={"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )


def test_a_server_that_waits_for_no_editor_serves_and_an_editor_attaches_later(tmp_path, free_port):
    (tmp_path / "shop.py").write_text(WSGI)
    port, web = free_port(), free_port()
    server = debugged(tmp_path, port, ["--port", str(web)]).start()
    try:
        assert Request(web).text() == "thread"
        editor = Session(port, "attach", {"justMyCode": True}, [(tmp_path / "shop.py", WSGI_LINES)])
        worker = editor.subprocess()
        # A thread that runs already is followed a moment after the editor has its answer.
        requests = [Request(web)]

        def is_stopped():
            if requests[-1].is_answered() and not worker.has_event("stopped"):
                requests.append(Request(web))
            return worker.has_event("stopped")

        wait_until(is_stopped, "a request is stopped")
        assert [worker.pass_breakpoint(), worker.pass_breakpoint()] == [11, 7]
        assert {request.text() for request in requests} == {"thread"}
        editor.ask("disconnect")
        worker.close()
        editor.close()
        assert server.stop() == 0
    finally:
        server.finish()


def test_an_application_that_listens_for_an_editor_is_reloaded(tmp_path, free_port):
    port, web = free_port(), free_port()
    shop = tmp_path / "shop.py"
    shop.write_text(LISTENING.format(port=port))
    server = Server(tmp_path, arguments=["shop:application", "--port", str(web), "--reload"]).start()
    try:
        for word in ("first", "second"):
            editor = Session(port, "attach", {"justMyCode": True}, [(shop, [14])])
            request = Request(web)
            assert editor.pass_breakpoint() == 14
            assert request.text() == "thread"
            shop.write_text(shop.read_text() + f"# {word}\n")
            editor.event("terminated")
            # The adapter of the previous worker has the port until the editor has left.
            editor.ask("disconnect")
            editor.close()
            server.wait_for_log("ready: 1 worker of generation", count=("first", "second").index(word) + 1)
        assert "Address already in use" not in server.log
        assert server.stop() == 0
    finally:
        server.finish()


def test_a_debugger_that_is_in_each_process_starts_one_server(tmp_path, free_port):
    """Some debuggers start themselves in each Python process, and follow none."""
    (tmp_path / "shop.py").write_text(WSGI)
    (tmp_path / "sitecustomize.py").write_text("import sys, types\nsys.modules['pydevd'] = types.ModuleType('pydevd')\n")
    arguments = ["-m", "bolide", "shop:application", "--port", str(free_port())]
    server = Server(tmp_path, arguments=arguments, command=[sys.executable], environment={"PYTHONPATH": str(tmp_path)})
    try:
        server.start()
        assert server.stop() == 0
    finally:
        server.finish()
