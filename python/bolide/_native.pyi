"""The native module: it starts the master, and prototypes and workers run in it.

Functions that begin with `uwsgi_` implement the module `uwsgi`. Those about a request apply to the request of the calling thread,
and raise RuntimeError if it serves none. A name ends with the unit of its time. Descriptors stay the caller's.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypedDict

__version__: str
#: Exit status of a process whose application can't be loaded.
EXIT_LOAD_FAILED: int
#: Exit status of a helper that has worked on as many jobs as it may.
EXIT_RECYCLED: int
#: Signals that are sent to whole process groups. Prototypes and workers catch them; programs of the application get the defaults.
GROUP_SIGNALS: list[int]
#: The signal at which a helper reads its orders.
HELPER_SIGNAL: int
#: The outcomes of `send_message`: it is in the queue, the queue is full, no queue can hold it.
MESSAGE_SENT: int
MESSAGE_FULL: int
MESSAGE_TOO_LONG: int
#: The signal at which a worker writes its Python stack to the log.
#: Requests for `uwsgi_ask`.
ASK_RELOAD: int
ASK_STOP: int

class ClientDisconnected(OSError):
    """The client has disconnected, or stopped reading, and the application sends to it (ASGI 2.4: "a server-specific subclass of
    OSError"; `write` of WSGI; WebSockets of `uwsgi`).
    """

def main(arguments: list[str], interpreter: str | None, package_directory: str | None, imports: list[str]) -> None:
    """Have the master run when this interpreter has ended. `arguments` are those of the command line, without the program's name.

    ``imports`` has the entries of ``sys.path``, and the script that this interpreter executes.

    RuntimeError: the interpreter accepts no further function to run at its end (Py_AtExit).
    """

def keyword_words(name: str, switch: bool | None, texts: list[str]) -> list[str]:
    """Return the command-line arguments for a keyword of `bolide.run` with these values. `switch` is set if the value is a bool.

    TypeError: the keyword does not exist. ValueError: the value is invalid for it.
    """

def end_with_parent(parent: int) -> bool:
    """Have the kernel send this process SIGTERM when its parent ends. Return False if that process is no longer its parent."""

def run_prototype(boot: int, half: Any) -> int:
    """Run a prototype, and in each forked child a worker. Return the exit status of the process.

    `boot` is the descriptor of the boot file. `half` has the Python methods (`bolide/prototype.py`); their exceptions propagate.
    """

def serve(
    assignment: Assignment,
    applications: list[tuple[str, Callable[..., Any]]],
    module: ModuleType,
    after_request: Callable[[], Any] | None,
) -> None:
    """Serve WSGI applications, each with its mount, until the order to stop has been carried out. `module` is `bolide.wsgi`.

    RuntimeError: the assignment was used before. OSError: the kernel refuses a resource of the worker.
    """

class SpoolerWork:
    """The jobs of a spooler: those of a directory, or of the engine that the directory stands for."""

    def __init__(self, path: str, is_ordered: bool, link: HelperLink) -> None: ...
    @property
    def path(self) -> bytes:
        """The path of the directory, without links."""

    def begin(self) -> None:
        """Begin to look for jobs from the start."""

    def next(self) -> tuple[str, dict[str | bytes, bytes]] | None:
        """Claim the next job. Return its name and its dict, or None."""

    def finish(self, is_done: bool) -> None:
        """Say that the attempt at the claimed job has ended. A job that is done is removed."""

    def wait(self, seconds: int) -> None:
        """Wait until there may be a job, `seconds` have passed, or there is an order of the master."""

    def frequency(self, master: int) -> int | None:
        """Return the seconds between two looks at the directory that the application has set, or None."""

def uwsgi_spool(*arguments: dict[Any, Any], **named: Any) -> bytes:
    """Write a job. Return its path. ValueError: it can't be written."""

def uwsgi_spooler_jobs() -> list[bytes]:
    """Return the paths of the jobs in the first directory."""

def uwsgi_spooler_get_task(path: str) -> dict[str | bytes, bytes] | None:
    """Return a job's dict by its path without working on it, or None."""

def spool_directories() -> list[bytes]:
    """Return the directories of the spoolers, without links."""

def set_spool_frequency(seconds: int, master: int) -> None:
    """Have the spoolers of the instance with this master look for jobs so often. 0 or less is as configured."""

def uwsgi_alarm(alarm: str, text: str) -> None:
    """Raise an alarm. The master logs it if there is no such alarm."""

def uwsgi_helper_pids() -> list[tuple[int, int]]:
    """Return number and pid of each running helper."""

class Lease:
    """A lease that this process has taken. ConnectionError: the engine is away."""

    @property
    def token(self) -> int: ...
    def remaining(self) -> float: ...
    def renew(self, seconds: float) -> bool: ...
    def release(self) -> bool: ...

class Firing:
    """A period of a timer that this process fires."""

    def finish(self) -> bool:
        """Say that the period is done. False: another process may have fired too, or the engine is away."""

def has_timer_engine() -> bool:
    """Return whether the option `timer-engine` is set."""

def claim_timer(name: str, seconds: int, period: int | None) -> Firing | None:
    """Ask whether this process fires a timer. Without `period`, it is that of the engine's clock, of `seconds`.

    None: another process has fired or fires, or the engine is away. RuntimeError: there is no such engine. ValueError: a bound.
    """

def take_lease(name: str, seconds: float, wait: float) -> Lease | None:
    """Take a lease from the engine of `lock-engine`. None: another process holds it for longer than `wait` seconds.

    ConnectionError: the engine is away. RuntimeError: there is no such engine. ValueError: a bound.
    """

def publish_message(channel: str, data: bytes | bytearray | str, only_own: bool) -> tuple[int, bool]:
    """Put a message into the inbox of each process that listens to this channel, without waiting.

    Return the number of inboxes that have it, and whether this process' own had no room: the caller empties it, and calls again
    with `only_own`. RuntimeError: there are no inboxes. ValueError: a bound.
    """

def finish_publishing() -> None:
    """Wait until this process' messages have got to the server of ``publish``, for at most the time limits of its engine."""

class Inbox:
    """This process' own inbox. RuntimeError: there are none, or all are taken."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """Return the descriptor that is readable when there are messages."""

    def close(self) -> None:
        """Give the place back."""

    def listen(self, channel: str) -> int:
        """Listen to this channel from now on. Return the number of its bit."""

    def ignore(self, channel: str, frees_bit: bool) -> None:
        """Listen to this channel no longer. With `frees_bit`, no other channel of its bit is listened to."""

    def take(self, most: int) -> list[tuple[str, bytes | str]]:
        """Take up to this many messages out, as `(channel, data)`. An empty list: there are none."""

    def missed(self, channel: str) -> int:
        """Return how many messages of this channel the inbox had no room for. Others of its group count too."""

    def gaps(self) -> int:
        """Return how often messages of other machines may be missing, because the connection to the engine was interrupted."""

    def missed_of_all(self) -> int:
        """Return how many messages the inbox had no room for, of all channels."""

    def wait(self, bell: int, seconds: float | None) -> None:
        """Wait until the inbox or the descriptor `bell` is readable, at most this long. Other threads run in the meantime."""

    @property
    def is_leaving(self) -> bool:
        """Whether this worker drains or stops."""

def write_log(lines: bytes) -> None:
    """Write whole lines, each with its newline, without blocking. Lines that do not fit are dropped and counted."""

def write_output(lines: bytes) -> None:
    """Write whole lines of the application, each with its newline, as :func:`write_log` does."""

def report_log(lines: bytes) -> None:
    """Write the lines of one event of the server. The first one gets the time, or all of them are one JSON object."""

def log_event(level: str, kind: str, message: bytes, members: bytes) -> None:
    """Write an event as a JSON object. ``members`` are further members of the object, each with a comma before it."""

def name_log(worker: int, helper: str) -> None:
    """Say that this process is the worker of a number, or the helper of a name."""

def log_is_json() -> bool:
    """Return whether each line of the log is a JSON object."""

def tell_log(text: str) -> None:
    """Write one line of the server itself, with its timestamp or as JSON, without blocking."""

def finish_log() -> None:
    """Flush buffered lines for a short time, with the interpreter released."""

def log_descriptor() -> int | None:
    """Return the log's descriptor, for writing from a signal handler; it is above 2. None if this process has no log."""

def write_stack_at_signal() -> None:
    """Have a thread that gets the server's signal for it write its stack to the log, and set the handler. Raise OSError."""

def set_process_name(name: str) -> None:
    """Set the process title for `ps` and `top`, cut to the room there is."""

def ask_for_replacement() -> None:
    """Ask the master to replace this worker."""

def note_child() -> None:
    """This process was forked by the application, from a worker: it serves nothing."""

def prepare_fork() -> None:
    """The application is about to fork a child of this worker."""

def note_collection(phase: str, info: dict[str, int], /) -> None:
    """A collection of garbage begins or has ended, as `gc.callbacks` say."""

def note_fork() -> None:
    """The application has forked a child of this worker."""

class WorkerRow(TypedDict):
    """A worker's row of the scoreboard."""

    worker: int
    pid: int
    requests: int
    exceptions: int
    sent_bytes: int
    #: On the monotonic clock.
    started_ms: int
    is_busy: bool
    spent_us: int
    average_us: int
    #: Requests and exceptions of each application.
    applications: list[tuple[int, int]]

def judge_requests(judge: Callable[..., bool]) -> None:
    """Have this callable decide which requests have a line, for the rest of the process' life and in its forks."""

def early_hints(headers: Iterable[tuple[str, str]]) -> None:
    """Send these fields of the present request's response ahead of it, as 103 Early Hints (RFC 8297)."""

def log_is_colored() -> bool:
    """Return whether log lines are short and may be colored."""

def note_debugger(is_halted: bool) -> None:
    """Notify the master that a debugger has stopped this worker, or that it continues."""

def note_debugger_port() -> None:
    """Notify the master that the application listens for a debugger at a port (``debugpy.listen``)."""

def uwsgi_is_worker() -> bool:
    """Return whether this process is a serving worker, and not a prototype."""

def uwsgi_listeners() -> list[int]:
    """Return the descriptors of the listening sockets; none in a prototype."""

def uwsgi_rows() -> list[WorkerRow]:
    """Return the row of each running worker; none in a prototype."""

def uwsgi_ask(code: int) -> bool:
    """Ask the master for `ASK_RELOAD` or `ASK_STOP`. Return False if there is no master."""

def uwsgi_set_logvar(name: str | bytes, value: str | bytes) -> None:
    """Set a variable of the request's log line. Names and values are cut to 255 bytes."""

def uwsgi_get_logvar(name: str | bytes) -> bytes | None:
    """Return a variable of the request's log line, or None."""

def uwsgi_log_this_request() -> None:
    """Log this request, whatever the settings say."""

def uwsgi_connection_fd() -> int:
    """Return the descriptor of the client's connection, which the server keeps."""

def uwsgi_disconnect() -> bool:
    """End the connection to the client; the application goes on."""

def uwsgi_set_user_harakiri(seconds: int) -> None:
    """Limit the rest of the request to this time; 0 removes the limit."""

def uwsgi_send_file(descriptor: int, offset: int, length: int) -> None:
    """Send `length` bytes of a file as a part of the body, and return when they are sent.

    RuntimeError: `start_response` was not called. OSError: the client has disconnected, or receives nothing any more.
    """

def uwsgi_environ() -> dict[str, Any] | None:
    """Return the `environ` of a request with a chunked body or an Upgrade field; else None."""

def uwsgi_accept_websocket(
    environ: dict[str, Any], key: bytes | None, protocol: bytes | None, context: RequestContext | None = None
) -> None:
    """Switch to WebSocket. `key` replaces the request's own, `protocol` is the subprotocol.

    OSError: the request is no valid WebSocket handshake.
    """

class RequestContext:
    """A request of a worker that serves in greenlets, for greenlets other than its own."""

def uwsgi_request_context(environ: dict[str, Any] | None = None) -> RequestContext:
    """Return the request that the current greenlet serves, or the one with this `environ`. SystemError: there is none."""

def uwsgi_hear(waits: bool, context: RequestContext | None = None, by_kind: bool = False) -> bytes | str | None:
    """Return the next message, or None if there is none now; with `waits`, wait for it. `by_kind`: a text is a str.

    OSError: the connection has ended.
    """

def uwsgi_close_websocket(code: int, reason: bytes, context: RequestContext) -> None:
    """Close the WebSocket of a request in a greenlet. ValueError: the code can't be sent."""

def uwsgi_say(payload: str | bytes, is_text: bool, context: RequestContext | None = None) -> None:
    """Send a message, and return when the kernel has it.

    ValueError: a text is not UTF-8. OSError: the client has disconnected, or receives nothing any more.
    """

def message_queues() -> list[str]:
    """Return the names of the queues of messages, in the order of their numbers: `mules`, `mule 1`, `farm mail`."""

def send_message(place: int, message: bytes) -> int:
    """Put a message into the queue of this number, without waiting. Return the outcome. IndexError: there is no such queue."""

def send_call(place: int) -> int | None:
    """Put a call into the queue of this number, without waiting. Return the descriptor of the caller's end; None: it is full."""

def count_refused_message() -> None:
    """Count a message that found its queue full, for statistics."""

class HelperLink:
    """The link of a helper to its master."""

    @property
    def descriptor(self) -> int:
        """The descriptor that is readable when there is an order."""

    def end(self) -> str | None:
        """Read the pending orders. Return "reload" or "stop" if the helper must end, and None if it goes on."""

    def receive(
        self, queues: list[int], bytes: int | None, seconds: float | None, signals: bool
    ) -> bytes | tuple[int, int] | bool | None:
        """Wait for a message in one of these queues. Return it, None if the time is over, and False if the helper must end.

        A call is the number of its queue and the descriptor of the connection to the caller.

        `bytes` is the most that is taken of a message; None takes it whole. With `signals`, the handlers of signals run
        meanwhile. The work of the calling thread before this call is done, and the message is its work from here on.
        """

    def begin_work(self, text: str) -> None:
        """A piece of work of the calling thread begins. The order to end does not interrupt it."""

    def end_work(self) -> None:
        """The piece of work of the calling thread has ended, if there was one."""

    def limit_work(self, seconds: int) -> bool:
        """Limit the piece of work in progress to this time from now; 0 removes the limit.

        Outside of any piece of work, one begins that ends with the limit 0. Return True if it has ended.
        """

    def run_signals(self) -> bool:
        """Run the handlers of the signals that wait. Return False if one of them requests the end of the process."""

    def is_at_work(self) -> bool:
        """Return whether any thread has a piece of work in progress."""

#: Results of the function that runs handlers of signals.
SIGNAL_HANDLED: int
SIGNAL_FAILED: int
SIGNAL_FAILED_FATALLY: int

def set_signal_runner(runner: Callable[[int], int]) -> None:
    """Set the function that runs the handler of a signal, and returns one of the results above."""

def raise_signal(number: int) -> bool:
    """Raise a signal. Return False in a prototype, whose report has it."""

def is_loading() -> bool:
    """Return whether this process does not serve yet, so that each process of the instance makes the same registrations."""

def register_signals(list: str) -> bool:
    """Report registrations to the master, as JSON. Return False in a prototype, whose report has them.

    OSError: the master is gone or does not read.
    """

def signals_report(list: str, raised: list[int]) -> bytes:
    """Return the report of a process that has loaded the application. `list` has its registrations as JSON."""

def wait_for_signal() -> int | None:
    """Wait for a signal without the interpreter, and return its number; None if the process must end.

    SystemError: the process loads the application, and gets no signals.
    """

class Assignment:
    """The sockets and settings of a worker; it can be served once."""

    def note_failure(self, reason: str) -> None:
        """Leave the reason why the application does not start for the master, in one line."""

    def is_first_to_fail(self) -> bool:
        """Return whether this worker has to log why the application does not start: no other has done so lately."""

    def report_imports(self, list: bytes) -> None:
        """Have the master watch the files of a list (`bolide/development/autoreload.py`), if it watches imports."""

class ThreadBody:
    """The body of an additional thread of a worker; it can be called once."""

    def __call__(self) -> None: ...

class LoopWorker:
    """A worker within an event loop, asyncio's or gevent's. Only the loop's thread may use it."""

    def start(self) -> None:
        """Begin to serve: the loop watches the worker's descriptor from now on, and the master is notified."""

    def turn(self) -> None:
        """Handle all pending events, and schedule the next timer."""

    def tick(self) -> None:
        """The loop's timer has fired."""

    def stop(self) -> None:
        """Stop serving. From now on the loop may block."""

    def report_leaving(self) -> None:
        """Report that the application has ended: the master then limits the time of the interpreter's end separately."""

    def leave(self) -> None:
        """The application wants the process to exit: requests in flight are finished first."""

    @property
    def seconds_of_stop(self) -> float | None:
        """Seconds since the order to stop; None if the worker ends for another reason, or not at all."""

    @property
    def running(self) -> int:
        """The number of requests whose code still runs."""

    def left(self) -> list[Any]:
        """Return the greenlets of requests that go on although their clients have left."""

def asgi_worker(
    assignment: Assignment,
    applications: list[tuple[str, Callable[..., Any], dict[str, Any] | None]],
    event_loop: asyncio.AbstractEventLoop,
    module: ModuleType,
    on_drained: Callable[[], None],
) -> LoopWorker:
    """Make a worker of asynchronous applications. Each application comes with its mount and its lifespan `state`.

    `module` is `bolide.asgi`. `on_drained` is called once, when there is nothing more to serve. RuntimeError: the assignment was
    used before.
    """

def gevent_worker(
    assignment: Assignment,
    applications: list[tuple[str, Any]],
    event_loop: Any,
    module: ModuleType,
    after_request: Any | None,
    on_drained: Callable[[], object],
) -> LoopWorker:
    """Make a worker that serves WSGI applications in greenlets, inside gevent's hub."""
