"""The native module: the door to the master, and what prototypes and workers are served by.

Functions that begin with `uwsgi_` are what the module `uwsgi` is made of; those about a request know that of the calling thread
alone, and raise RuntimeError where it serves none. Times are in the unit that a name ends with; descriptors stay the caller's.
"""

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypedDict

__version__: str
#: Exit status of a process whose application can't be loaded.
EXIT_LOAD_FAILED: int
#: Signals that whole process groups are sent: prototypes and workers catch them, an application's programs have them as usual.
GROUP_SIGNALS: list[int]
#: The signal at which a worker writes its Python stack to the log.
STACK_SIGNAL: int
#: What `uwsgi_ask` asks for.
ASK_RELOAD: int
ASK_STOP: int

def main(arguments: list[str], interpreter: str | None, package_folder: str | None, imports: list[str]) -> None:
    """Has the master run when this interpreter has ended, with the arguments of the command line without the program's name.

    ``imports`` is what this interpreter imports from, and the script that it executes.

    RuntimeError: the interpreter takes no further function to run at its end.
    """

def keyword_words(name: str, switch: bool | None, texts: list[str]) -> list[str]:
    """The words of the command line for a keyword of `bolide.run`, whose value has these texts. `switch`: it is True or False.

    TypeError: there is no such keyword. ValueError: the value is none of it.
    """

def end_with_parent(parent: int) -> bool:
    """Has this process be told to end (SIGTERM) when its parent does. False: the process of this number is its parent no more."""

def run_prototype(boot: int, half: Any) -> int:
    """Lives the life of a prototype, and in each worker that of a worker; gives the exit status of the process.

    `boot` is the descriptor of the boot file; `half` has the methods that are Python's (`bolide/prototype.py`), whose exceptions
    come out.
    """

def serve(
    assignment: Assignment,
    applications: list[tuple[str, Callable[..., Any]]],
    module: ModuleType,
    after_request: Callable[[], Any] | None,
) -> None:
    """Serves WSGI applications, each with its mount, until the order to end has been carried out; `module` is `bolide.wsgi`.

    RuntimeError: the assignment was served before. OSError: the kernel refuses what a worker needs.
    """

def write_log(lines: bytes) -> None:
    """Writes whole lines, each with its line end, and never waits: what the reader has no room for is dropped and counted."""

def tell_log(text: str) -> None:
    """Writes one line of the server's own, with the time or the JSON that such lines have; it never waits."""

def finish_log() -> None:
    """Gives lines that wait for a reader a last moment, without the interpreter."""

def log_descriptor() -> int | None:
    """The log's descriptor, for what writes from a signal handler: none of 0, 1 and 2. None where this process has no log."""

def set_process_name(name: str) -> None:
    """Names this process for `ps` and `top`, as far as there is room."""

def ask_for_replacement() -> None:
    """Asks the master to replace this worker."""

def note_child() -> None:
    """This process was forked by the application, from a worker: it serves nothing."""

def prepare_fork() -> None:
    """The application is about to fork a child of this worker."""

def note_fork() -> None:
    """The application has forked a child of this worker."""

class WorkerRow(TypedDict):
    """What the scoreboard has of a worker that lives."""

    worker: int
    pid: int
    requests: int
    exceptions: int
    sent_bytes: int
    #: By the monotonic clock.
    started_ms: int
    is_busy: bool
    spent_us: int
    average_us: int
    #: Requests and exceptions of each application.
    applications: list[tuple[int, int]]

def log_is_coloured() -> bool:
    """Whether lines of the log are short ones that may have colours."""

def note_debugger(is_halted: bool) -> None:
    """Tells the master that a debugger has stopped this worker, or has let it go on."""

def uwsgi_is_worker() -> bool:
    """This process is a worker that serves, and no prototype."""

def uwsgi_listeners() -> list[int]:
    """The descriptors of the listening sockets; none in a prototype."""

def uwsgi_rows() -> list[WorkerRow]:
    """What is known of each worker that lives; nothing in a prototype."""

def uwsgi_ask(code: int) -> bool:
    """Asks the master for `ASK_RELOAD` or `ASK_STOP`; False where there is none to ask."""

def uwsgi_set_logvar(name: str | bytes, value: str | bytes) -> None:
    """Sets a variable of the request's log line; names and values are cut to 255 bytes."""

def uwsgi_get_logvar(name: str | bytes) -> bytes | None:
    """What was set for the request's log line."""

def uwsgi_log_this_request() -> None:
    """The request has a log line, whatever the settings say."""

def uwsgi_connection_fd() -> int:
    """The descriptor of the client's connection, which stays the server's."""

def uwsgi_disconnect() -> bool:
    """Ends the connection to the client; the application goes on."""

def uwsgi_set_user_harakiri(seconds: int) -> None:
    """The request may take so many seconds from now on; 0 takes that back."""

def uwsgi_send_file(descriptor: int, offset: int, length: int) -> None:
    """Sends `length` bytes of a file as a part of the body, and comes back when they have left.

    RuntimeError: `start_response` was not called. OSError: the client has gone, or takes nothing any more.
    """

def uwsgi_environ() -> dict[str, Any] | None:
    """The `environ` of a request whose body came in chunks, or that asks for another protocol."""

def uwsgi_accept_websocket(environ: dict[str, Any], key: bytes | None, protocol: bytes | None) -> None:
    """Switches to WebSocket; `key` takes the place of the request's own, `protocol` is the subprotocol.

    OSError: the request asks for no WebSocket, or for one that can't be.
    """

def uwsgi_hear(waits: bool) -> bytes | None:
    """The next message; with `waits`, when it has come. None: there is none now. OSError: the connection has ended."""

def uwsgi_say(payload: str | bytes, is_text: bool) -> None:
    """Sends a message, and comes back when the kernel has it.

    ValueError: a text is no UTF-8. OSError: the client has gone, or takes nothing any more.
    """

class Assignment:
    """What a worker is to serve with; good for one service."""

    def note_failure(self, reason: str) -> None:
        """Leaves a line for the master that says why the application does not start."""

    def is_first_to_fail(self) -> bool:
        """No other worker has told lately why the application does not start: this one is to tell it."""

    def report_imports(self, list: bytes) -> None:
        """Has the master watch the files of a list (`bolide/autoreload.py`), where it wants to hear of imports."""

class ThreadBody:
    """What a further thread of a worker runs: a callable, good for one call."""

    def __call__(self) -> None: ...

class AsgiWorker:
    """A worker within an event loop, whose thread alone may use it."""

    def __init__(
        self,
        assignment: Assignment,
        applications: list[tuple[str, Callable[..., Any], dict[str, Any] | None]],
        event_loop: asyncio.AbstractEventLoop,
        module: ModuleType,
        on_drained: Callable[[], None],
    ) -> None:
        """Each application comes with its mount and the `state` that its lifespan has left; `module` is `bolide.asgi`.

        `on_drained` is called once, when there is nothing more to serve. RuntimeError: the assignment was served before.
        """

    def start(self) -> None:
        """Begins to serve: the loop watches the worker's descriptor from now on, and the master knows."""

    def turn(self) -> None:
        """Does what there is to do, and has the loop call again in time."""

    def tick(self) -> None:
        """The loop's timer is over."""

    def stop(self) -> None:
        """Serves no more; what the loop does now may take its time."""

    def report_leaving(self) -> None:
        """The applications' lifespans have ended: the master gives the interpreter's end a time of its own."""

    def leave(self) -> None:
        """The application asked the process to exit: what is in flight is finished first."""

    @property
    def seconds_of_stop(self) -> float | None:
        """Seconds since the order to stop; None where the worker ends for another reason, or not at all."""

    @property
    def running(self) -> int:
        """Tasks of applications that have not ended."""
