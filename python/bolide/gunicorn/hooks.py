"""The hooks of a ``gunicorn.conf.py`` (``gunicorn-hooks``).

Bolide has no arbiter that holds the application's code. So hooks of gunicorn's master run in the prototype, which forks the
workers and is notified of their ends, and the other hooks run in workers. Hooks get small objects with the attributes of
gunicorn's that they commonly use. It must not know anything of a request but a WSGI environ.
"""

import inspect
import logging
import logging.config
import os
import sys

from bolide import log, server_loggers, shutdown
from bolide.gunicorn.configuration import lines_of, run

#: gunicorn's defaults of settings that hooks read.
DEFAULTS = {
    "bind": ["127.0.0.1:8000"],
    "chdir": None,
    "debug": False,
    "graceful_timeout": 30,
    "keepalive": 2,
    "loglevel": "info",
    "max_requests": 0,
    "preload_app": False,
    "proc_name": "bolide",
    "timeout": 30,
    "worker_class": "sync",
}
#: gunicorn's default loggers; ``logconfig_dict`` is merged into it. The access logger is not among them: the server
#: writes request lines itself unless a file lists that logger.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "root": {"level": "INFO", "handlers": ["console"]},
    "loggers": {
        "gunicorn.error": {"level": "INFO", "handlers": ["error_console"], "propagate": True, "qualname": "gunicorn.error"},
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "generic", "stream": "ext://sys.stdout"},
        "error_console": {"class": "logging.StreamHandler", "formatter": "generic", "stream": "ext://sys.stderr"},
    },
    "formatters": {
        "generic": {
            "format": "%(asctime)s [%(process)d] [%(levelname)s] %(message)s",
            "datefmt": "[%Y-%m-%d %H:%M:%S %z]",
            "class": "logging.Formatter",
        }
    },
}


class Configuration:
    """``server.cfg`` and ``worker.cfg``: the file's settings, and gunicorn's defaults of those that hooks usually read."""

    def __init__(self, module, workers):
        fixed = {"workers": workers["processes"], "threads": getattr(module, "threads", 1)}
        set_there = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        self.__dict__.update({**DEFAULTS, **set_there, **fixed})

    def __getattr__(self, name):
        raise AttributeError(f"gunicorn.conf.py does not set {name!r}, and Bolide has no default for it")


class Log:
    """``server.log`` and ``worker.log``: the methods of gunicorn's logger, which write to the logger ``gunicorn.error``."""

    def __init__(self):
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")
        for name in ("debug", "info", "warning", "error", "critical", "exception", "log"):
            setattr(self, name, getattr(self.error_log, name))


class Server:
    """Takes the role of gunicorn's arbiter."""

    def __init__(self, cfg, settings):
        self.cfg = cfg
        self.log = Log()
        #: The master: the prototype is its child.
        self.pid = os.getppid()
        #: As in gunicorn: host and port of a TCP socket, else the path.
        self.address = [address_of(text) for text in ([cfg.bind] if isinstance(cfg.bind, str) else cfg.bind)]
        self.num_workers = settings["workers"]["processes"]
        self.proc_name = cfg.proc_name
        self.worker_age = 0
        #: Running workers of this generation, by pid.
        self.WORKERS = {}


def address_of(text):
    """Return an address of ``bind`` in the form of gunicorn's ``server.address``."""
    text = text.rpartition("//")[2] if "://" in text else text
    if text.startswith("unix:"):
        return text[len("unix:") :]
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon and port.isdigit() else text


class Worker:
    """A worker as hooks see it."""

    def __init__(self, age, server):
        self.age = age
        self.cfg = server.cfg
        self.log = server.log
        self.ppid = os.getpid()
        self.pid = "[booting]"
        self.alive = True
        self.booted = False
        self.aborted = False
        self.timeout = server.cfg.timeout
        self.wsgi = None

    def __str__(self):
        return f"<Worker {self.pid}>"


class Hooks:
    """The hooks of one file, in a prototype and in the workers that are forked from it."""

    def __init__(self, described, boot):
        """Execute the file. Its changes of the environment and of ``sys.path`` stay in effect."""
        self.path = described["file"]
        self.boot = boot
        self.module = run(self.path)
        settings = boot["settings"]
        cfg = Configuration(self.module, settings["workers"])
        set_up_logging(cfg)
        self.server = Server(cfg, settings)
        #: The worker that is about to be forked; in a worker, itself.
        self.worker = None
        if boot["generation"] == 1:
            self.tell_uncalled(described["uncalled"])

    def tell_uncalled(self, names):
        """Log the hooks of the file that are never called."""
        lines = lines_of(self.path)
        for name in names:
            if callable(getattr(self.module, name, None)):
                log.tell(f"{self.path}:{lines.get(name, 0)}: the hook {name} is not called here")

    # In the prototype.

    def begin(self):
        """Everything is loaded, and no worker is forked yet. The sockets are open."""
        self.call("on_starting" if self.boot["generation"] == 1 else "on_reload", self.server)
        if self.boot["generation"] == 1:
            self.call("when_ready", self.server)

    def before_fork(self):
        self.server.worker_age += 1
        self.worker = Worker(self.server.worker_age, self.server)
        self.call("pre_fork", self.server, self.worker)

    def after_fork(self, pid):
        """The fork has succeeded. `pid` is 0 in the child."""
        self.worker.pid = pid or os.getpid()
        if pid:
            self.server.WORKERS[pid] = self.worker

    def note_end(self, pid):
        """A worker's process has exited, for whatever reason."""
        worker = self.server.WORKERS.pop(pid, None)
        if worker is not None:
            worker.alive = False
            self.call("child_exit", self.server, worker)

    # In workers.

    def begin_worker(self):
        """This process is a worker; with ``lazy-apps`` the application is not loaded yet."""
        self.server.WORKERS = {}
        self.call("post_fork", self.server, self.worker)

    def note_loaded(self, applications):
        """The worker has its applications and is about to serve."""
        self.worker.wsgi = applications[0][1]
        self.worker.booted = True
        self.call("post_worker_init", self.worker)

    def end_worker(self):
        shutdown.running_hook = "worker_exit"
        self.call("worker_exit", self.server, self.worker)
        shutdown.running_hook = None

    def around_all(self, applications):
        """Return the applications, with the hooks of requests around the WSGI ones, if the file contains such hooks."""
        before, after = self.function("pre_request"), self.function("post_request")
        if before is None and after is None:
            return applications
        after = after and with_arguments(after)
        return [
            (mount, WithHooks(application, self, before, after) if interface == "wsgi" else application, interface)
            for mount, application, interface in applications
        ]

    def function(self, name):
        found = getattr(self.module, name, None)
        return found if callable(found) else None

    def call(self, name, *arguments):
        """Call a hook if the file defines it. Its exception is logged, and the server goes on."""
        function = self.function(name)
        if function is None:
            return
        try:
            function(*arguments)
        except BaseException as error:
            # Also SystemExit: a hook does not decide when the process exits.
            log.log_exception(error, f"{self.path}: {name}")


class WithHooks:
    """A WSGI application with ``pre_request`` and ``post_request`` around it."""

    def __init__(self, application, hooks, before, after):
        self.application = application
        self.hooks = hooks
        self.before = before
        self.after = after

    def __call__(self, environ, start_response):
        request = Request(environ)
        if self.before is not None:
            # As in gunicorn, an exception of it ends the request.
            self.before(self.hooks.worker, request)
        if self.after is None:
            return self.application(environ, start_response)
        response = Response(start_response)
        try:
            parts = self.application(environ, response.start)
        except BaseException:
            self.finish(request, environ, response)
            raise
        return self.with_end(parts, lambda: self.finish(request, environ, response))

    def finish(self, request, environ, response):
        try:
            self.after(self.hooks.worker, request, environ, response)
        except Exception as error:
            log.log_exception(error, f"{self.hooks.path}: post_request")

    @staticmethod
    def with_end(parts, end):
        if isinstance(parts, (list, tuple)):
            # The application has finished its work, and the list keeps its length.
            end()
            return parts
        return Parts(parts, end)


class Parts:
    """The body of an answer; calls `end` when it is closed."""

    def __init__(self, parts, end):
        self.parts = parts
        self.end = end

    def __iter__(self):
        return iter(self.parts)

    def close(self):
        try:
            if hasattr(self.parts, "close"):
                self.parts.close()
        finally:
            self.end()


class Response:
    """The attributes of the answer that ``post_request`` reads."""

    def __init__(self, start_response):
        self.start_response = start_response
        self.status = self.status_code = None
        self.headers = []

    def start(self, status, headers, *error):
        self.status = status
        self.status_code = int(status[:3]) if status[:3].isdigit() else None
        self.headers = list(headers)
        return self.start_response(status, headers, *error)


class Request:
    """The attributes of gunicorn's request that hooks read, taken from environ."""

    def __init__(self, environ):
        self.method = environ.get("REQUEST_METHOD", "")
        self.uri = environ.get("RAW_URI", environ.get("PATH_INFO", ""))
        #: As the client has sent it, without decoding.
        self.path = self.uri.partition("?")[0]
        self.query = environ.get("QUERY_STRING", "")
        self.scheme = environ.get("wsgi.url_scheme", "http")
        self.remote_addr = (environ.get("REMOTE_ADDR", ""), environ.get("REMOTE_PORT", ""))
        numbers = environ.get("SERVER_PROTOCOL", "").partition("/")[2].split(".")
        self.version = tuple(int(number) for number in numbers if number.isdigit())
        self.headers = [(name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")] + [
            (name.replace("_", "-"), environ[name]) for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)
        ]


def with_arguments(function):
    """Return ``post_request`` as a function of four arguments. As in gunicorn, it may have two, three or four parameters."""
    try:
        count = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        count = 4
    return lambda *arguments: function(*arguments[: max(2, min(count, 4))])


def set_up_logging(cfg):
    """Set up ``logging`` for the whole process as gunicorn does, so that records of ``gunicorn.error`` reach the log."""
    logger = logging.getLogger("gunicorn.error")
    logger.propagate = False
    logger.setLevel(getattr(logging, str(cfg.loglevel).upper(), logging.INFO))
    handler = logging.StreamHandler(log.errors)
    generic = LOGGING["formatters"]["generic"]
    handler.setFormatter(logging.Formatter(generic["format"], generic["datefmt"]))
    logger.handlers = [handler]
    server_loggers.around_file(lambda: apply_files(cfg))


def apply_files(cfg):
    """Apply the settings of the file that configure ``logging``."""
    given = vars(cfg)
    if given.get("logconfig_dict"):
        logging.config.dictConfig({**LOGGING, **given["logconfig_dict"]})
    elif given.get("logconfig_json"):
        import json

        with open(given["logconfig_json"], encoding="utf-8") as file:
            logging.config.dictConfig({**LOGGING, **json.load(file)})
    elif given.get("logconfig"):
        path = given["logconfig"]
        defaults = {"__file__": path, "here": os.path.dirname(path)}
        logging.config.fileConfig(path, defaults=defaults, disable_existing_loggers=False)


def made(described, boot):
    """Return the hooks and None, or None and the reason why the file can't be executed."""
    try:
        return Hooks(described, boot), None
    except BaseException as error:
        log.log_exception(error, described["file"])
        sys.modules.pop("__config__", None)
        return None, f"{described['file']}: {type(error).__name__}: {error}"
