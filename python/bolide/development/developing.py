"""``develop``: the differences while an application is being developed.

If code can't be loaded, a page with the reason is served until a change fixes it. While older code still serves, browsers that
ask for a page see that page, and the older code answers all other requests. Exceptions of requests are shown too, also those that
a framework turns into a response itself. It wraps applications when they are loaded, so that other configurations have no branch
for it. Runs in prototypes and workers.
"""

import contextlib
import ipaddress
import json
import os
import re
import sys
import threading
import time

from bolide import log
from bolide.development import debuggers, framework_errors, traceback_page

#: Maximum size of the error page that is kept for other processes, in bytes.
ERROR_REPORT_BYTES = 4 * 1024 * 1024

#: The path that pages poll for changes, and the time between two polls, in milliseconds.
BROWSER_PATH = "/.bolide/reload"
BROWSER_RETRY_MS = 500

#: The script of an error page that reloads it after a change.
SCRIPT = f"<script>new EventSource('{BROWSER_PATH}').addEventListener('reload', () => location.reload())</script>\n"

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

WAITING = "The application could not be loaded. Bolide loads it again when a file changes."
OLDER = (
    "The new code could not be loaded; the previous code answers everything but pages. It is loaded again when a file changes."
)
FAILED = "500 Internal Server Error"

#: Maximum size of a response with status 500 that waits for the end of the call, in bytes: the call may raise the exception that
#: caused it.
HELD_BYTES = 256 * 1024
#: The body of an error for clients that may not see tracebacks.
NOTHING = "Internal Server Error\n"

#: Attempts to read a report that another process is writing.
MAX_READS = 10


class ErrorReport:
    """A memory file of the instance: the page of the last failure to load, or empty once the application is loaded."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        # Programs that the application starts must not inherit it.
        os.set_inheritable(descriptor, False)

    def write(self, page, text, status=FAILED):
        kept = json.dumps({"version": str(time.time_ns()), "page": page, "text": text, "status": status}).encode()
        if len(kept) <= ERROR_REPORT_BYTES:
            # Blanks cover the rest of a longer page. Without a page in between, a request would get the old code.
            os.pwrite(self.descriptor, kept.ljust(os.fstat(self.descriptor).st_size), 0)

    def clear(self):
        os.ftruncate(self.descriptor, 0)

    def read(self):
        """Return the report as a dict, or None."""
        for _ in range(MAX_READS):
            if not os.fstat(self.descriptor).st_size:
                return None
            # A process may be writing it.
            with contextlib.suppress(ValueError):
                return json.loads(os.pread(self.descriptor, ERROR_REPORT_BYTES, 0))
        return None


class Question:
    """The properties of a request that decide about its answer."""

    def __init__(self, method, path, fields):
        self.method = method
        self.path = path
        self.accepts_html = "text/html" in fields("accept")
        #: A page that the user has opened, and not a resource that a script or another page fetches.
        self.is_for_page = method == "GET" and self.accepts_html and fields("sec-fetch-dest") in ("", "document")
        self.seen = fields("last-event-id")
        self.is_local = names_this_machine(fields("host"))

    @classmethod
    def of_environ(cls, environ):
        def field(name):
            return environ.get("HTTP_" + name.upper().replace("-", "_"), "")

        return cls(environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), field)

    @classmethod
    def of_scope(cls, scope):
        fields = {name: value.decode("latin-1") for name, value in reversed(list(scope["headers"]))}
        return cls(scope["method"], scope["path"], lambda name: fields.get(name.encode(), ""))


def names_this_machine(host):
    """Return whether a Host header names this machine. A stranger's page may have pointed its own name here to read our answers
    (DNS rebinding).
    """
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class Development:
    """Development mode of one generation, in its prototype and its worker."""

    def __init__(self, boot, native):
        settings = boot["settings"]["development"]
        self.native = native
        self.shows_tracebacks = settings["shows_tracebacks"]
        self.tells_browsers = settings["tells_browsers"]
        self.script = SCRIPT if self.tells_browsers else ""
        traceback_page.editor = settings["editor"] or traceback_page.editor
        traceback_page.shows_values = settings["shows_values"]
        # As `flask run --debug` and `quart run` do.
        for name in ("FLASK_DEBUG", "QUART_DEBUG"):
            os.environ.setdefault(name, "1")
        sys.meta_path.insert(0, debuggers.PortWait())
        self.error_report = ErrorReport(boot["error_page"])
        self.no_generation_serves = boot["no_generation_serves"]
        self.identity = f"{boot['master_pid']}.{boot['generation']}"
        self.page_to_open = settings["opens"]
        self.is_first = boot["generation"] == 1
        #: The application that is served instead of one that could not be loaded.
        self.stand_in = None
        #: What debuggers have stopped in this worker.
        self.halts = None

    def wrap(self, applications):
        """Return the applications, wrapped so that their exceptions are shown."""
        kinds = {"wsgi": self.developed_wsgi, "asgi": self.developed_asgi}
        framework_errors.follow([application for _, application, _ in applications])
        return [(mount, kinds[interface](application), interface) for mount, application, interface in applications]

    def slow_page(self):
        """Return where the page goes that says where a slow import stands, or None if no client may see it."""
        return self.error_report if self.shows_tracebacks else None

    def note_failure(self, error):
        """Keep the page of an application that can't be loaded. Return the application to serve instead, or None if older code
        serves.
        """
        what = WAITING if self.no_generation_serves else OLDER
        if self.shows_tracebacks:
            self.error_report.write(traceback_page.page(error, what, self.script), traceback_page.plain(error))
        if not self.no_generation_serves:
            return None
        self.stand_in = self.failed_application()
        return [("", self.stand_in, "wsgi")]

    def note_success(self):
        """The application is loaded and is about to serve."""
        if self.stand_in is None:
            self.error_report.clear()
        if self.page_to_open is not None and self.is_first:
            # It may wait for the browser, which in turn waits for the application.
            threading.Thread(target=open_in_browser, args=(self.page_to_open,), daemon=True).start()

    # Answers without the application.

    def failed_application(self):
        """Return the stand-in application, which serves the page of the last failure."""
        kept = self.error_report.read()

        def failed(environ, start_response):
            nonlocal kept
            kept = self.error_report.read() or kept
            question = Question.of_environ(environ)
            status, headers, body = self.answer_of_browser(question) or self.failure(kept, question)
            start_response(status, headers)
            return [body]

        return failed

    def failure(self, kept, question):
        if kept is None or not self.may_see(question):
            return answer(FAILED, TEXT, NOTHING)
        kind, text = (HTML, kept["page"]) if question.accepts_html else (TEXT, kept["text"])
        return answer(kept["status"], kind, text)

    def may_see(self, question):
        return self.shows_tracebacks and question.is_local

    def answer_of_browser(self, question):
        """Answer a page that polls for changes (``reload-browser``). Return None for any other request.

        The answer ends immediately, and the browser asks again with the version that it has seen, so no thread waits for it.
        """
        if not self.tells_browsers or question.path != BROWSER_PATH:
            return None
        kept = self.error_report.read()
        version = f"{self.identity}.{kept['version']}" if kept else self.identity
        news = "event: reload\ndata: reload\n" if question.seen not in ("", version) else ""
        return answer("200 OK", "text/event-stream", f"retry: {BROWSER_RETRY_MS}\nid: {version}\n{news}\n")

    def page_for(self, question):
        """Return an answer that takes precedence over the application's, or None."""
        told = self.answer_of_browser(question)
        if told is not None or not question.is_for_page or not self.may_see(question):
            return told
        kept = self.error_report.read()
        return kept and self.failure(kept, question)

    def exception(self, error, place, question):
        if not self.may_see(question):
            return answer(FAILED, TEXT, NOTHING)
        log.strip(error)
        if question.accepts_html:
            return answer(FAILED, HTML, traceback_page.page(error, place, self.script))
        return answer(FAILED, TEXT, traceback_page.plain(error))

    # Wrapped applications.

    def developed_wsgi(self, application):
        def developed(environ, start_response):
            question = Question.of_environ(environ)
            own = self.page_for(question)
            if own is not None:
                start_response(*own[:2])
                return [own[2]]
            place = f"{question.method} {environ.get('REQUEST_URI', question.path)}"
            start = HeldStart(start_response, question.accepts_html and self.may_see(question))
            try:
                result = application(environ, start)
            except Exception as error:
                return [self.raised(error, place, question, start)]
            finally:
                start.leave()
                log_unlogged(start.exceptions, place)
                self.let_go()
            # The server has fast paths for complete bodies and for files: they pass unchanged.
            if isinstance(result, (list, tuple, bytes)) or type(result).__module__.startswith("bolide."):
                return [self.noted(start, place, question)] if start.is_held else result
            return self.iterated(result, place, question, start)

        return developed

    def iterated(self, result, place, question, start):
        try:
            for part in result:
                if start.is_held:
                    yield self.noted(start, place, question)
                    return
                yield part
        except Exception as error:
            yield self.raised(error, place, question, start)
        finally:
            self.let_go()
            close = getattr(result, "close", None)
            if close is not None:
                close()

    def noted(self, start, place, question):
        """Answer with the page of an exception that the framework has turned into a response."""
        status, headers, body = self.exception(start.exceptions[-1][0], place, question)
        start.start(status, headers)
        return body

    def raised(self, error, place, question, start):
        status, headers, body = self.exception(error, place, question)
        # If the answer has begun, this raises the exception again, and the answer is cut off.
        start.start(status, headers, sys.exc_info())
        log.log_exception(error, place, request=(place,))
        return body

    def developed_asgi(self, application):
        from bolide.asgi import is_client_disconnect

        async def developed(scope, receive, send):
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            question = Question.of_scope(scope)
            own = self.page_for(question)
            if own is not None:
                await respond(send, *own)
                return
            place = f"{question.method} {question.path}"
            held = HeldSend(send, question.accepts_html and self.may_see(question))
            try:
                await application(scope, receive, held)
            except Exception as error:
                if held.has_begun or is_client_disconnect(error):
                    raise
                log.log_exception(error, place, request=(place,))
                await respond(send, *self.exception(error, place, question))
            else:
                log_unlogged(held.exceptions, place)
                if held.messages and held.exceptions:
                    await respond(send, *self.exception(held.exceptions[-1][0], place, question))
                else:
                    await held.let_go()
            finally:
                self.let_go()

        return developed

    # Debuggers.

    def watch_debuggers(self):
        """Notify the master when a debugger stops this worker, and when it continues."""
        self.halts = debuggers.follow_halts(self.native, keeps_breakpoints=True)
        if debuggers.listens_for_editor():
            self.native.note_debugger_port()

    def let_go(self):
        self.halts.let_go()


def open_in_browser(page):
    import webbrowser

    if not webbrowser.open(page):
        log.tell(f"no browser was found for {page} (open-browser): set the variable BROWSER")


def log_unlogged(exceptions, place):
    for error, is_logged in exceptions:
        if not is_logged:
            log.log_exception(error, place, request=(place,))


class HeldStart:
    """A request's ``start_response`` that keeps back a response with status 500 if the framework made it of an exception."""

    def __init__(self, start, may_hold):
        self.start = start
        self.exceptions = []
        self.is_held = False
        self._may_hold = may_hold
        self._token = framework_errors.noted.set(self.exceptions)

    def __call__(self, status, headers, *exception):
        if self._may_hold and self.exceptions and status.startswith("500"):
            self.is_held = True
            return lambda data: None
        return self.start(status, headers, *exception)

    def leave(self):
        """The call has ended; the iteration of its result may still note exceptions."""
        # An application may have changed the context.
        with contextlib.suppress(ValueError):
            framework_errors.noted.reset(self._token)


class HeldSend:
    """A request's ``send`` that keeps back a response with status 500 until the call ends or raises the exception."""

    def __init__(self, send, may_hold):
        self.messages = []
        self.exceptions = []
        self.has_begun = False
        self._send = send
        self._may_hold = may_hold
        self._bytes = 0
        framework_errors.noted.set(self.exceptions)

    async def __call__(self, message):
        begins = message["type"] == "http.response.start" and message["status"] == 500
        if not self.has_begun and (self.messages or (begins and self._may_hold)):
            self.messages.append(message)
            self._bytes += len(message.get("body", b""))
            if self._bytes > HELD_BYTES:
                await self.let_go()
            return
        self.has_begun = True
        await self._send(message)

    async def let_go(self):
        messages, self.messages = self.messages, []
        for message in messages:
            self.has_begun = True
            await self._send(message)


def answer(status, content_type, text):
    body = text.encode("utf-8", "backslashreplace")
    return status, [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")], body


async def respond(send, status, headers, body):
    plain = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": int(status.split(" ")[0]), "headers": plain})
    await send({"type": "http.response.body", "body": body})
