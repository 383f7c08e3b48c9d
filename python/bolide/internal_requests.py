"""Requests that come from no client: `warmup` after the application is loaded, and `reload-probe` before a worker serves.

They call the application directly, without a connection, a route or a line of the access log. It runs in the prototype, and in
workers of a new generation before they serve.
"""

import asyncio
import faulthandler
import io
import os
import sys
from urllib.parse import unquote_to_bytes

from bolide import threads
from bolide.log import errors, log_exception, tell

#: An answer with this status or a higher one counts as a failure of the application.
FAILED_STATUS = 500


def warm_up(applications, settings):
    """Call the application for each path of `warmup`. A failure is logged and has no other effect."""
    for target in settings["reloading"]["warmup"]:
        mount, application, interface = choose(applications, target)
        if interface == "asgi":
            tell(f"warmup = {target}: an ASGI application has an event loop in each worker; use its lifespan instead")
            continue
        try:
            status = ask(application, target, mount, settings)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            log_exception(error, f"warmup = {target}")
            continue
        if status >= FAILED_STATUS:
            tell(f"warmup = {target}: the application answered {status}")
    close_database_connections()


def close_database_connections():
    """Close Django's connections, which workers would share otherwise."""
    database = sys.modules.get("django.db")
    if database is None:
        return
    try:
        database.connections.close_all()
    except Exception as error:
        log_exception(error, "closing Django's database connections after warmup")


class Trial:
    """`reload-probe`: calls the application of this worker once. If that fails, the master gets the reason."""

    def __init__(self, native, assignment, applications, settings):
        self.native = native
        self.assignment = assignment
        self.applications = applications
        self.settings = settings
        self.target = settings["reloading"]["probe"]
        self.timeout = settings["reloading"]["probe_timeout_ms"] / 1000

    def passes(self):
        """Probe a WSGI application. Return whether it passes."""
        mount, application, _ = choose(self.applications, self.target)
        with self.time_limit():
            try:
                status = ask(application, self.target, mount, self.settings)
            except BaseException as error:
                return self.raised(error)
        return self.is_passed(status)

    async def passes_in_loop(self, states):
        """Probe the application of a worker with an event loop; `states` has the lifespan state of each application."""
        chosen = choose(self.applications, self.target)
        mount, application, interface = chosen
        if interface != "asgi":
            return self.passes()
        with self.time_limit():
            try:
                state = states[self.applications.index(chosen)]
                status = await ask_in_loop(application, self.target, mount, self.settings, state)
            except BaseException as error:
                return self.raised(error)
        return self.is_passed(status)

    def is_passed(self, status):
        if status is None:
            return self.fails("did not answer")
        return status < FAILED_STATUS or self.fails(f"answered {status}")

    def raised(self, error):
        if isinstance(error, asyncio.CancelledError):
            raise error
        log_exception(error, f"reload-probe = {self.target}")
        return self.fails(f"raised {type(error).__name__}: {error}")

    def fails(self, how):
        self.assignment.note_failure(f"reload-probe: GET {self.target} {how}")
        return False

    def time_limit(self):
        return TimeLimit(self.timeout, self.late)

    def late(self):
        """The answer is late, and the application may be stuck anywhere: end the process. Runs in a thread of its own."""
        faulthandler.dump_traceback(file=self.native.log_descriptor(), all_threads=True)
        self.fails(f"did not answer within {self.timeout:g} s (reload-probe-timeout)")
        os._exit(self.native.EXIT_LOAD_FAILED)


class TimeLimit:
    """A context manager that calls a function if its block takes too long."""

    def __init__(self, seconds, function):
        self.seconds = seconds
        self.function = function
        # Locks and threads are the interpreter's own, since those of gevent would wait for the block.
        self.is_left, self.has_ended = threads.allocate_lock(), threads.allocate_lock()

    def __enter__(self):
        self.is_left.acquire()
        self.has_ended.acquire()
        threads.start("bolide reload-probe", self.watch)

    def watch(self):
        if not self.is_left.acquire(timeout=self.seconds):
            self.function()
        self.has_ended.release()

    def __exit__(self, *_):
        self.is_left.release()
        self.has_ended.acquire()


def choose(applications, target):
    """Return the application for a path: the one with the longest matching mount, else the first."""
    path = target.partition("?")[0]
    mounted = [one for one in applications if one[0] and (path == one[0] or path.startswith(one[0].rstrip("/") + "/"))]
    return max(mounted, key=lambda one: len(one[0])) if mounted else applications[0]


def host_of(settings):
    """Return a host name for the request: frameworks refuse hosts that they don't know."""
    names = settings["clients"].get("server_names") or ["localhost"]
    return str(names[0]).lstrip("*.") if isinstance(names[0], str) else "localhost"


def ask(application, target, mount, settings):
    """Call a WSGI application. Return the status, or None if it has not set one."""
    path, _, query = target.partition("?")
    plain = unquote_to_bytes(path).decode("latin-1")
    script = mount.rstrip("/") if settings["application"]["manage_script_name"] else ""
    host = host_of(settings)
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": script,
        "PATH_INFO": plain[len(script) :],
        "QUERY_STRING": query,
        "REQUEST_URI": target,
        "RAW_URI": target,
        "SERVER_NAME": host,
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": host,
        "HTTP_USER_AGENT": "bolide",
        "CONTENT_LENGTH": "",
        "CONTENT_TYPE": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": errors,
        "wsgi.multithread": settings["workers"]["threads"] != {"Fixed": 1},
        "wsgi.multiprocess": settings["workers"]["processes"] > 1,
        "wsgi.run_once": False,
    }
    statuses = []

    def start_response(status, headers, exc_info=None):
        statuses.append(int(status.split(" ", 1)[0]))
        return lambda data: None

    body = application(environ, start_response)
    try:
        for _ in body:
            # The beginning of the answer is enough: a stream may be endless.
            break
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
    return statuses[-1] if statuses else None


async def ask_in_loop(application, target, mount, settings, state):
    """Call an ASGI application. Return the status, or None if it has not sent one."""
    path, _, query = target.partition("?")
    host = host_of(settings)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": mount.rstrip("/"),
        "headers": [(b"host", host.encode()), (b"user-agent", b"bolide")],
        "client": ("127.0.0.1", 0),
        "server": (host, 80),
        "state": dict(state),
    }
    status = None
    answered = asyncio.get_running_loop().create_future()
    sent = False

    async def receive():
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await answered
        return {"type": "http.disconnect"}

    async def send(message):
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body" and not answered.done():
            answered.set_result(None)

    task = asyncio.ensure_future(application(scope, receive, send))
    await asyncio.wait([task, answered], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        # Background work after the answer may take a moment; a stream may be endless.
        await asyncio.wait([task], timeout=AFTER_ANSWER_SECONDS)
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    finally:
        if not answered.done():
            answered.cancel()
    return status


#: How long an application may go on after it has answered a probe, in seconds.
AFTER_ANSWER_SECONDS = 1
