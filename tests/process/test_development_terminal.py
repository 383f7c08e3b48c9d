"""A server at a terminal, mostly in development: `breakpoint()`, Ctrl-C and Ctrl-D, the end of the terminal, colors."""

import os
import re
import signal
import termios
import threading

import pytest
from support.client import Client, Closed
from support.terminal import Terminal
from support.waiting import TIMEOUT_SECONDS, wait_until

APPLICATION = """\
TEXT = "{text}"
def application(environ, start_response):
    if environ["PATH_INFO"] == "/stop":
        basket = 42
        breakpoint()
        basket += 1
    start_response("200 OK", [("Content-Length", str(len(TEXT)))])
    return [TEXT.encode()]
"""
ASGI = """\
TEXT = "{text}"
async def application(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/stop":
        basket = 42
        breakpoint()
        basket += 1
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": TEXT.encode()}})
"""


TICKING = """\
import threading, time
def tick():
    while True:
        print("tick")
        time.sleep(0.1)
threading.Thread(target=tick, daemon=True).start()
async def application(scope, receive, send):
    if scope["type"] == "http":
        breakpoint()
        raise RuntimeError("no answer")
"""


@pytest.fixture
def terminal(tmp_path):
    terminals = []

    def open_terminal(*arguments, **environment):
        terminals.append(Terminal(tmp_path, *arguments, **environment))
        return terminals[-1]

    yield open_terminal
    for one in terminals:
        one.close()


class Asking:
    """A request that may wait, in a separate thread."""

    def __init__(self, port, target):
        self.answer = None
        self.port, self.target = port, target
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        try:
            with Client(("127.0.0.1", self.port)) as client:
                self.answer = client.request("GET", self.target)
        except (OSError, Closed):
            # The server has exited first, as some of these tests require.
            pass

    def result(self):
        self.thread.join(TIMEOUT_SECONDS)
        assert not self.thread.is_alive()
        return self.answer


def develop(terminal, tmp_path, application=APPLICATION, arguments=("--reload",), **environment):
    (tmp_path / "shop.py").write_text(application.format(text="old"))
    shown = terminal("shop", *arguments, "--http", "127.0.0.1:0", **environment)
    return shown, int(shown.wait_for(r"open http://127\.0\.0\.1:(\d+)")[1])


@pytest.mark.parametrize("application", [APPLICATION, ASGI], ids=["wsgi", "asgi"])
def test_a_reload_waits_until_the_debugger_lets_go(application, terminal, tmp_path):
    shown, port = develop(terminal, tmp_path, application)
    asking = Asking(port, "/stop")
    shown.wait_for(r"\(Pdb\) ")
    (tmp_path / "shop.py").write_text(application.format(text="young"))
    shown.wait_for("shop.py has changed: the reload waits until the debugger continues")
    shown.type("p basket * 2\n")
    shown.wait_for(r"\b84\b")
    shown.type("c\n")
    assert asking.result().text == "old"
    shown.wait_for(r"the debugger has continued: reloading[^$]*reloaded in")
    # The old worker may still accept a connection when the new one serves.
    wait_until(lambda: Asking(port, "/").result().text == "young", "the new code's answer")


@pytest.mark.parametrize("application", [APPLICATION, ASGI], ids=["wsgi", "asgi"])
def test_ipdb_has_the_terminal_and_the_reload_waits_for_it(application, terminal, tmp_path):
    # This terminal does not answer prompt_toolkit's question where its cursor is.
    variables = {"PYTHONBREAKPOINT": "ipdb.set_trace", "IPYTHONDIR": str(tmp_path / "ipython"), "PROMPT_TOOLKIT_NO_CPR": "1"}
    shown, port = develop(terminal, tmp_path, application, TERM="xterm", **variables)
    asking = Asking(port, "/stop")
    shown.wait_for("ipdb>")
    (tmp_path / "shop.py").write_text(application.format(text="young"))
    shown.wait_for("the reload waits until the debugger continues")
    shown.type("p basket * 2\r")
    shown.wait_for("84\n")
    shown.type("c\r")
    assert asking.result().text == "old"
    wait_until(lambda: Asking(port, "/").result().text == "young", "the new code's answer")


@pytest.mark.parametrize("arguments", [("--reload",), ()], ids=["develop", "plain"])
def test_ctrl_c_at_the_debugger_ends_at_once_and_leaves_the_terminal_as_it_was(arguments, terminal, tmp_path):
    shown, port = develop(terminal, tmp_path, arguments=arguments, TERM="xterm")
    before = termios.tcgetattr(shown.ours)
    asking = Asking(port, "/stop")
    shown.wait_for(r"\(Pdb\) ")
    # Line editors disable the terminal's echo.
    wait_until(lambda: termios.tcgetattr(shown.ours) != before, "the debugger to have taken the terminal")
    shown.type("\x03")
    assert shown.process.wait(TIMEOUT_SECONDS) == 0
    assert "again stops immediately" not in shown.text
    assert termios.tcgetattr(shown.ours) == before
    assert asking.result() is None


def test_ctrl_d_at_the_debugger_ends_the_request_and_the_worker_serves_on(terminal, tmp_path):
    shown, port = develop(terminal, tmp_path)
    asking = Asking(port, "/stop")
    shown.wait_for(r"\(Pdb\) ")
    shown.type("\x04")
    assert asking.result().status == 500
    assert Asking(port, "/").result().text == "old"


def test_a_breakpoint_of_one_of_several_workers_says_what_it_needs(terminal, tmp_path):
    shown, port = develop(terminal, tmp_path, arguments=("--workers", "2"))
    assert Asking(port, "/stop").result().status == 500
    shown.wait_for("breakpoint\\(\\) needs the terminal: start Bolide in one, with `--reload` or with one worker")
    # The place is shown as ever.
    shown.wait_for(r"shop\.py\(6\)application\(\)[^$]*bdb\.BdbQuit")


@pytest.mark.parametrize("arguments", [("--reload",), ()], ids=["develop", "plain"])
def test_the_time_in_the_debugger_is_not_a_blocked_event_loop(arguments, terminal, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    shown = terminal("shop", *arguments, "--http", "127.0.0.1:0", "--loop-stall", "0.3")
    asking = Asking(int(shown.wait_for(r"open http://127\.0\.0\.1:(\d+)")[1]), "/")
    shown.wait_for(r"\(Pdb\) [^$]*" + r"tick\s*" * 8)
    shown.type("c\n")
    assert asking.result().status == 500
    assert "has been blocked" not in shown.words


def closed(terminal, *arguments):
    """A server whose terminal has been closed, and its log."""
    shown = terminal(*arguments, "--http", "127.0.0.1:0", "--logto", "log")
    wait_until(lambda: "open http" in log_of(shown), "the start")
    os.close(shown.ours)
    # Closed again at the end of the test.
    shown.ours = os.open(os.devnull, os.O_RDONLY)
    return shown


def log_of(shown):
    log = shown.directory / "log"
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("arguments", [("shop", "--reload"), ("shop",)], ids=["develop", "plain"])
def test_a_server_ends_with_its_terminal(arguments, terminal, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION.format(text="old"))
    shown = closed(terminal, *arguments)
    assert shown.process.wait(TIMEOUT_SECONDS) == 0
    assert len(re.findall("bolide: the terminal has been closed\n", log_of(shown))) == 1


@pytest.mark.parametrize("is_kept", ["configuration", "hang-ups ignored"])
def test_a_closed_terminal_reloads_what_has_a_configuration_or_was_to_stay(is_kept, terminal, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION.format(text="old"))
    (tmp_path / "shop.ini").write_text("[uwsgi]\nmodule = shop\n")
    usual = signal.getsignal(signal.SIGHUP)
    if is_kept != "configuration":
        # The server inherits it, as from nohup(1).
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        shown = closed(terminal, "shop.ini" if is_kept == "configuration" else "shop")
    finally:
        signal.signal(signal.SIGHUP, usual)
    wait_until(lambda: re.search("reload.* generation 2", log_of(shown)), "the reload")
    assert shown.process.poll() is None


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"TERM": "dumb", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
    ids=["terminal", "dumb", "no-color", "force-color", "both"],
)
def test_lines_are_short_and_colored_where_the_terminal_can_show_it(environment, is_colored, terminal, tmp_path):
    shown, port = develop(terminal, tmp_path, **environment)
    Asking(port, "/").result()
    shown.wait_for(r"(?m)^\d\d:\d\d:\d\d GET  /  (\x1b\[32m)?200(\x1b\[0m)?  \d+ ms  3 B")
    (tmp_path / "shop.py").write_text("TEXT = prices\n")
    shown.wait_for(r"(?m)^\d\d:\d\d:\d\d bolide: (\x1b\[31m)?the new code could not be loaded")
    # Own lines show only the time of day, and no worker number if there is one worker.
    assert not re.search(r"\d{4}-\d\d-\d\d|worker 1: ", shown.text)
    assert ("\x1b[" in shown.text) == is_colored


def test_a_file_has_no_colors(terminal, tmp_path):
    (tmp_path / "shop.py").write_text("TEXT = prices\n")
    shown = terminal("shop", "--reload", "--http", "127.0.0.1:0", "--logto", "log", TERM="xterm")
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "open http" in log.read_text(), "the start")
    assert "\x1b[" not in log.read_text()
    assert os.path.exists(f"/proc/{shown.process.pid}")
