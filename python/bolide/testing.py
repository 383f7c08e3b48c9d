"""A server for the duration of a test: ``with bolide.testing.serve("shop:app") as server: get(server.url)``.

The server is a child of the test process, and ends with it for whatever reason. It must not know any framework or testing
library: a plugin that shows logs beside failed tests registers itself by being loaded. The process of the tests runs it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Callable

from bolide._run import OptionValue, arguments_of, command, environment_of
from bolide.application_process import refuse_to_nest
from bolide.loading.application_name import name_of

__all__ = ["Server", "StartFailed", "serve"]

#: Backlog of the listening socket: connections can queue before the server serves.
BACKLOG = 128
#: How long a server may take to start, in seconds.
START_SECONDS = 60.0
#: How long requests in flight may go on at the end of a test before they are cut off, in seconds.
STOP_SECONDS = 5
#: How long the server may take to end after each signal, in seconds.
END_SECONDS = 10
#: Default timeout of :meth:`Server.wait_for_log`, in seconds.
LOG_SECONDS = 10.0
#: Most bytes of one message about the server's state (sd_notify).
MESSAGE_BYTES = 8192
#: Most bytes of the log that are read at a time.
READ_BYTES = 65536
#: The last characters of the log that are kept.
MAX_LOG_CHARACTERS = 8 << 20

#: A failed test waits until its server has logged nothing for this time, in seconds, and at most for the second one.
QUIET_SECONDS = 0.1
MAX_QUIET_SECONDS = 1.0
#: The module of the plugin for pytest, which shows the logs of servers beside failed tests.
PLUGIN = "pytest_bolide"

#: Options that `serve` sets itself: where to listen, and whether the server is a child of this process.
SETTLED = {
    "host", "uds", "fd", "http", "http_socket", "http11_socket", "https", "https_socket", "https2", "socket", "uwsgi_socket",
    "fastcgi_socket", "scgi_socket", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "reload",
}  # fmt: skip


class StartFailed(RuntimeError):
    """The server did not start. The message contains the last line of its log, and `log` all of it."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def serve(
    app: str | os.PathLike[str] | Callable[..., Any],
    *,
    port: int = 0,
    start_timeout: float = START_SECONDS,
    **options: OptionValue,
) -> Server:
    """Return a context manager that serves an application at a free port of 127.0.0.1, or at `port`.

    `app` and `options` are those of :func:`bolide.run`. There is one worker unless `processes` is given. Variables for the
    application alone are passed as ``env={"NAME": "value"}``.

    Raises RuntimeError, TypeError and ValueError as :func:`bolide.run`. Entering the context raises StartFailed if the server
    did not start.
    """
    refuse_to_nest("bolide.testing.serve()")
    settled = sorted(SETTLED.intersection(options))
    if settled:
        raise TypeError(f"{', '.join(settled)}: a test server listens only at http://127.0.0.1; `port` chooses the port")
    application = name_of(app, sys._getframe(1).f_globals)
    return Server(application, options, port, start_timeout)


class Server:
    """A server of a test, returned by `serve`."""

    def __init__(self, application: str, options: dict[str, OptionValue], port: int, start_timeout: float) -> None:
        self._environment = environment_of(options)
        if "processes" not in options and "workers" not in options:
            options["processes"] = 1
        options.setdefault("reload_mercy", STOP_SECONDS)
        self._arguments = arguments_of(application, options)
        self._wanted_port = port
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble: BaseException | None = None
        self._is_serving = False
        self._text = ""
        #: Number of characters that were logged and are not kept any more.
        self._forgotten = 0
        self._is_complete = False
        self._news = threading.Condition()
        self._reader: threading.Thread | None = None
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port at which it listens, once the `with` block has begun."""
        if self._port is None:
            raise RuntimeError("`with` starts the server: it has no port before")
        return self._port

    @property
    def url(self) -> str:
        """Its URL without a trailing slash, such as ``http://127.0.0.1:54321``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The output of the server and its application so far. A request's line may appear a moment after its answer."""
        with self._news:
            return self._text

    def wait_for_log(self, pattern: str, seconds: float = LOG_SECONDS) -> re.Match[str]:
        """Wait until a regular expression matches in the log, and return its first match. TimeoutError: no match in time."""
        expression = re.compile(pattern, re.MULTILINE)
        end = time.monotonic() + seconds
        with self._news:
            while True:
                found = expression.search(self._text)
                if found is not None:
                    return found
                left = end - time.monotonic()
                if left <= 0 or self._is_complete:
                    raise TimeoutError(f"{pattern!r} is not in the log:\n{self._text}")
                self._news.wait(left)

    def _is_running(self) -> bool:
        return self._process is not None

    def _position(self) -> int:
        """Return the number of characters that were logged so far."""
        with self._news:
            return self._forgotten + len(self._text)

    def _log_since(self, position: int) -> str:
        """Return the log from a position on. Lines of the last request may still be on their way, so it waits for them."""
        end = time.monotonic() + MAX_QUIET_SECONDS
        with self._news:
            while not self._is_complete and time.monotonic() < end and self._news.wait(QUIET_SECONDS):
                pass
            return self._text[max(0, position - self._forgotten) :]

    def __enter__(self) -> Server:
        if PLUGIN in sys.modules:
            sys.modules[PLUGIN].note(self)
        # The kernel ends the server when the thread that started it ends, so this thread lives as long as the server.
        self._reader = threading.Thread(target=self._live, name="bolide", daemon=True)
        self._reader.start()
        try:
            with self._news:
                self._news.wait_for(lambda: self._is_serving or self._is_complete, self._start_timeout)
                is_serving, is_complete = self._is_serving, self._is_complete
            if is_serving:
                return self
            if self._trouble is not None:
                raise self._trouble
            status = self._process.wait() if self._process is not None and is_complete else None
        except BaseException:
            self._end()
            raise
        self._end()
        how = f"does not serve after {self._start_timeout:g} s" if status is None else f"ended with status {status}"
        lines = self.log.splitlines()
        raise StartFailed(f"the server {how}: {lines[-1] if lines else 'its log is empty'}", self.log)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end()

    def _live(self) -> None:
        """Start the process, and read its output until it ends."""
        try:
            self._start_and_listen()
        except BaseException as error:
            self._trouble = error
        with self._news:
            self._is_complete = True
            self._news.notify_all()

    def _start_and_listen(self) -> None:
        with contextlib.ExitStack() as opened:
            manager = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            # The kernel chooses an unused name in the abstract namespace.
            manager.bind("")
            environment = {**self._environment, "NOTIFY_SOCKET": "@" + manager.getsockname()[1:].decode()}
            with socket.create_server(("127.0.0.1", self._wanted_port), backlog=BACKLOG) as listening:
                self._port = listening.getsockname()[1]
                process = subprocess.Popen(
                    command([*self._arguments, f"--http-socket=fd://{listening.fileno()}"]),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[listening.fileno()],
                    start_new_session=True,
                )
            self._process = process
            assert process.stdout is not None
            log = opened.enter_context(process.stdout)
            ended = os.pidfd_open(process.pid)
            opened.callback(os.close, ended)
            self._listen(log.fileno(), manager, ended)
            process.wait()

    def _listen(self, log: int, manager: socket.socket, ended: int) -> None:
        """Read the log, and the messages to the service manager (sd_notify), until the server has exited and nothing is left to
        read.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        poll = select.poll()
        for descriptor in (log, manager.fileno(), ended):
            poll.register(descriptor, select.POLLIN)
        has_ended = False
        # A process of the application may keep the log open after the server has exited.
        while events := dict(poll.poll(0 if has_ended else None)):
            part, is_serving = b"", False
            if log in events:
                part = os.read(log, READ_BYTES)
                if not part:
                    poll.unregister(log)
            if manager.fileno() in events:
                is_serving = b"READY=1" in manager.recv(MESSAGE_BYTES).split(b"\n")
            if ended in events:
                has_ended = True
                poll.unregister(ended)
            with self._news:
                text = self._text + decoder.decode(part)
                self._text = text[-MAX_LOG_CHARACTERS:]
                self._forgotten += len(text) - len(self._text)
                self._is_serving = self._is_serving or is_serving
                self._news.notify_all()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        self._process = None
        # Requests in flight are finished first. Then the server is stopped immediately, and at last killed.
        for number, seconds in (
            (signal.SIGTERM, STOP_SECONDS + END_SECONDS),
            (signal.SIGQUIT, END_SECONDS),
            (signal.SIGKILL, None),
        ):
            if process.poll() is None:
                process.send_signal(number)
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        if self._reader is not None:
            self._reader.join()
