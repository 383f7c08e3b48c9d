"""The module ``uwsgi`` that applications import: names of uWSGI 2.0.31 with its types, a thin layer over the native module.

It must not know sockets or protocols. ``bolide.uwsgi.names`` describes the names. Runs in every process that loads an
application, and is in ``sys.modules`` before that.
"""

import importlib.machinery
import operator
import os
import stat
import struct
import sys
import time
import types

from bolide.uwsgi import decorators as uwsgi_decorators
from bolide.uwsgi import names as uwsgi_names
from bolide.uwsgi.messages import Messages
from bolide.uwsgi.rpc import Calls
from bolide.uwsgi.signals import Signals

#: Maximum number of threads that a worker has with `threads = auto`.
MAX_THREADS = 64

#: Maximum size of a part of a chunked body, in bytes.
CHUNK_BYTES = 32 * 1024

#: Offset in bytes of tcpi_unacked in Linux's tcp_info, which counts the queued connections of a listening socket.
UNACKED_AT = 24
#: Bytes of a tcp_info up to the end of that field.
TCP_INFO_BYTES = 28


#: The entry of a worker that does not run.
NOBODY = {
    "pid": 0,
    "requests": 0,
    "signals": 0,
    "exceptions": 0,
    "sent_bytes": 0,
    "is_busy": False,
    "spent_us": 0,
    "average_us": 0,
    "applications": (),
}


class Options(dict):
    """``uwsgi.opt``. Its keys are text, as in uWSGI for Python 3; lookups with bytes work too."""

    def __missing__(self, key):
        if isinstance(key, bytes) and (text := key.decode("utf-8", "replace")) in self:
            return self[text]
        raise KeyError(key)

    def __contains__(self, key):
        return super().__contains__(key) or (isinstance(key, bytes) and super().__contains__(key.decode("utf-8", "replace")))

    def get(self, key, default=None):
        return self[key] if key in self else default  # noqa: SIM401


class Uwsgi:
    """State of the module's functions: facts about this instance and this process."""

    def __init__(self, native, boot, log):
        self.native = native
        self.boot = boot
        self.log_settings = log
        self.settings = boot["settings"]
        self.messages = Messages(native, self.settings, log)
        self.calls = Calls(self.settings["language"]["python"]["module"]["rpc_most"])
        #: In a helper, its life: an object of `bolide.helpers.helper`.
        self.helper = None
        #: In a mule, the same object.
        self.mule = None
        #: With `gevent`, the functions that wait, and those of locks.
        self.waits = self.locks = None
        if self.settings["language"]["python"]["gevent"] is not None:
            from bolide.gevent import calls as gevent_calls
            from bolide.gevent import locks as gevent_locks

            self.waits, self.locks = gevent_calls, gevent_locks
        self.module = None
        self.started = time.time()
        #: This process is a spooler.
        self.is_spooler = False
        self.signals = Signals(native, log, self.settings)

    def register(self):
        """Put the module, and ``uwsgidecorators``, where applications find them."""
        module = types.ModuleType("uwsgi", __doc__)
        module.__spec__ = importlib.machinery.ModuleSpec("uwsgi", None, origin="Bolide")
        module.__dict__.update(self.values())
        for name in filter(self.is_configured, uwsgi_names.HERE):
            function = (
                getattr(self.waits, name, None)
                or getattr(self.locks, name, None)
                or getattr(self, name, None)
                or getattr(self.messages, name, None)
            )
            function = function or getattr(self.signals, name, None) or getattr(self.calls, name, None)
            function = function or getattr(self.native, f"uwsgi_{name}", None)
            if function is not None:
                setattr(module, name, function)
        module.__getattr__ = missing
        self.module = sys.modules["uwsgi"] = module
        sys.modules["uwsgidecorators"] = uwsgi_decorators

    def values(self):
        """Return the module's attributes that are not functions, by name."""
        described = self.settings["language"]["python"]["module"]
        queue = self.settings["services"]["queue"]
        gevent = self.settings["language"]["python"]["gevent"]
        magic = {letter.encode(): value.encode("utf-8", "surrogateescape") for letter, value in described["shown_magic"]}
        return {
            **({"queue_size": queue["slots"]} if queue else {}),
            **self.spooler_values(),
            "applications": None,
            "buffer_size": self.settings["limits"]["head_bytes"],
            "cores": gevent["greenlets"] if gevent else threads_of(self.settings["workers"]["threads"]),
            "has_threads": 1,
            "hostname": magic.get(b"h", b""),
            "is_a_reload": self.boot["generation"] > 1,
            "loop": b"gevent" if self.waits else None,
            "magic_table": magic,
            "numproc": self.settings["workers"]["processes"],
            "opt": options(described["shown_options"]),
            "sockets": [],
            "started_on": int(magic.get(b"t", b"0")),
            "unbit": None,
            "version": ".".join(map(str, uwsgi_names.VERSION)).encode(),
            "version_info": (*uwsgi_names.VERSION, 0, b""),
        }

    def is_configured(self, name):
        """Return whether the option that a name needs is set."""
        option, services = uwsgi_names.option_of(name), self.settings["services"]
        directories = self.settings["spooling"]["directories"]
        needed = {"queue": services["queue"], "sharedarea": services["areas"], "spooler": directories, "gevent": self.waits}
        return option is None or bool(needed[option])

    def spooler_values(self):
        """Return the module's attributes of spoolers. uWSGI counts directories of other instances as spoolers, too."""
        spooling = self.settings["spooling"]
        values = {"SPOOL_OK": -2, "SPOOL_RETRY": -1, "SPOOL_IGNORE": 0}
        if spooling["directories"]:
            values["send_to_spooler"] = self.native.uwsgi_spool
            values["spoolers"] = tuple(
                directory for directory in self.native.spool_directories() for _ in range(spooling["processes"])
            )
        return values

    def note_applications(self, applications):
        """Set the module's `applications`, unless the application has set it itself."""
        if self.module is not None and self.module.applications is None:
            self.module.applications = {mount: callable for mount, callable, _ in applications}

    def note_worker(self):
        """This process is a worker that is about to serve."""
        if self.module is not None:
            self.module.sockets = self.native.uwsgi_listeners()

    def hook(self, name):
        """Return a function that the application has set, or None."""
        function = vars(self.module).get(name) if self.module is not None else None
        return function if callable(function) else None

    # The module's functions.

    def accepting(self, accepting=True):
        return None

    # uWSGI ignores arguments here.
    def worker_id(self, *_):
        return self.log_settings.worker

    def masterpid(self):
        return self.boot["master_pid"]

    def mule_id(self, *_):
        return self.mule.number if self.mule is not None else 0

    def mule_get_msg(self, *arguments, **named):
        if self.mule is None:
            raise ValueError("you can receive mule messages only in a mule !!!")
        return self.mule.mule_get_msg(*arguments, **named)

    def farm_get_msg(self, *_):
        if self.mule is None:
            raise ValueError("you can receive farm messages only in a mule !!!")
        return self.mule.farm_get_msg()

    def i_am_the_spooler(self, *_):
        return True if self.is_spooler else None

    def spooler_pids(self, *_):
        pids = dict(self.native.uwsgi_helper_pids())
        helpers = enumerate(self.settings["helpers"], 1)
        return [pids.get(number, 0) for number, helper in helpers if "Spooler" in helper["task"]]

    def spooler_pid(self, *_):
        return next(iter(self.spooler_pids()), 0)

    def set_spooler_frequency(self, seconds):
        self.native.set_spool_frequency(operator.index(seconds), self.boot["master_pid"])
        return True

    def i_am_the_lord(self, legion):
        return False

    def set_user_harakiri(self, seconds):
        if self.helper is not None:
            return self.helper.limit(seconds)
        return self.native.uwsgi_set_user_harakiri(seconds)

    def in_farm(self, farm=None):
        return self.mule.in_farm(farm) if self.mule is not None else None

    def ready(self):
        return True if self.native.uwsgi_is_worker() else None

    def ready_fd(self):
        return -1

    def suspend(self):
        time.sleep(0)
        return True

    def micros(self):
        return time.time_ns() // 1000

    def log(self, text):
        if not isinstance(text, str):
            raise TypeError(f"log() argument 1 must be str, not {type(text).__name__}")
        self.native.write_output(f"{text}\n".encode("utf-8", "backslashreplace"))
        return True

    def logsize(self):
        status = os.fstat(self.native.log_descriptor())
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def setprocname(self, name):
        if not isinstance(name, str):
            raise TypeError(f"setprocname() argument 1 must be str, not {type(name).__name__}")
        self.native.set_process_name(name)

    def mem(self):
        return memory_of("self")

    def extract(self, path):
        try:
            with open(path, "rb") as file:
                return file.read() or None
        except OSError:
            return None

    def sendfile(self, what, chunk=0, position=0, size=0):
        """As in uWSGI: sends a path, or an object with a descriptor. The server chooses the size of chunks."""
        if isinstance(what, (str, bytes)):
            try:
                with open(what, "rb") as file:
                    return self.send_file(file.fileno(), position, size)
            except FileNotFoundError as error:
                self.native.write_log(f"uwsgi.sendfile: {error}\n".encode("utf-8", "backslashreplace"))
                return None
        return self.send_file(what if isinstance(what, int) else what.fileno(), position, size)

    def send_file(self, descriptor, position, size):
        if position < 0 or size < 0:
            raise ValueError(f"sendfile: position {position} and size {size} must not be negative")
        rest = max(0, os.fstat(descriptor).st_size - position)
        self.native.uwsgi_send_file(descriptor, position, min(size, rest) if size else rest)
        return True

    def chunked_read(self, timeout=0):
        """The body is complete before the application is called: an empty part marks its end."""
        environ = self.native.uwsgi_environ()
        if environ is None or "wsgi.input" not in environ or environ.get("HTTP_UPGRADE"):
            raise OSError("unable to receive chunked part: the body is not chunked")
        return environ["wsgi.input"].read(CHUNK_BYTES)

    chunked_read_nb = chunked_read

    def websocket_handshake(self, key=None, origin=None, protocol=None):
        environ = self.native.uwsgi_environ()
        if environ is None:
            raise OSError("unable to complete websocket handshake: the client did not ask for a WebSocket")
        self.native.uwsgi_accept_websocket(environ, encoded(key), encoded(protocol))

    def websocket_recv(self, request_context=None):
        return self.native.uwsgi_hear(True, request_context)

    def websocket_recv_nb(self, request_context=None):
        return self.native.uwsgi_hear(False, request_context) or b""

    def websocket_send(self, message, request_context=None):
        self.native.uwsgi_say(message, True, request_context)

    def websocket_send_binary(self, message, request_context=None):
        self.native.uwsgi_say(message, False, request_context)

    def websocket_send_from_sharedarea(self, area, position=0, length=0):
        self.native.uwsgi_say(self.native.uwsgi_sharedarea_read(area, position, length), True)

    def websocket_send_binary_from_sharedarea(self, area, position=0, length=0):
        self.native.uwsgi_say(self.native.uwsgi_sharedarea_read(area, position, length), False)

    def reload(self):
        return self.native.uwsgi_ask(self.native.ASK_RELOAD) or None

    def stop(self):
        return self.native.uwsgi_ask(self.native.ASK_STOP) or None

    def listen_queue(self, socket=0):
        """As in uWSGI: of one socket, by its position in the configuration."""
        sockets = self.module.sockets
        if not 0 <= socket < max(len(sockets), 1):
            raise ValueError(f"unable to find socket {socket}")
        # If the application is loaded before the fork, the sockets are not known yet.
        return waiting_at(sockets[socket]) if sockets else 0

    def request_id(self):
        own = self.worker_id()
        return next((row["requests"] for row in self.native.uwsgi_rows() if row["pid"] == os.getpid()), 0) if own else 0

    def total_requests(self):
        return sum(row["requests"] for row in self.native.uwsgi_rows())

    def workers(self):
        """As in uWSGI: one dict for each worker that the configuration asks for."""
        # If two generations have a worker of the same number, the later one counts.
        rows = {row["worker"]: row for row in sorted(self.native.uwsgi_rows(), key=lambda row: row["started_ms"])}
        return tuple(self.worker(number, rows.get(number)) for number in range(1, self.module.numproc + 1))

    def worker(self, number, row):
        began = 0
        resident = address_space = 0
        if row:
            began = int(time.time() - (time.monotonic() - row["started_ms"] / 1000))
            resident, address_space = memory_of(row["pid"])
        row = row or NOBODY
        applications = self.module.applications
        return {
            "id": number,
            "pid": row["pid"],
            "requests": row["requests"],
            "delta_requests": row["requests"],
            "signals": row["signals"],
            "exceptions": row["exceptions"],
            "status": b"cheap" if not row["pid"] else b"busy" if row["is_busy"] else b"idle",
            "rss": resident,
            "vsz": address_space,
            "running_time": row["spent_us"],
            "last_spawn": began,
            "respawn_count": self.boot["generation"] - 1,
            "tx": row["sent_bytes"],
            "avg_rt": row["average_us"],
            "apps": tuple(
                self.application(place, mount, callable, row["applications"])
                for place, (mount, callable) in enumerate(applications.items())
            )
            if isinstance(applications, dict)
            else (),
        }

    def application(self, place, mount, callable, counters):
        # Applications beyond those with counters of their own share the last counters.
        requests, exceptions = counters[place] if place < len(counters) else (0, 0)
        return {
            "id": place,
            "modifier1": 0,
            "mountpoint": str(mount).encode("utf-8", "surrogateescape"),
            "startup_time": 0,
            "interpreter": 0,
            "callable": id(callable),
            "requests": requests,
            "exceptions": exceptions,
            "chdir": (self.settings["application"]["chdir_after"] or "").encode("utf-8", "surrogateescape"),
        }


def encoded(text):
    """Return text or bytes as bytes, and None for an empty value."""
    if isinstance(text, str):
        text = text.encode("latin-1", "replace")
    return text or None


def threads_of(threads):
    """Return how many threads a worker may have."""
    return threads["Fixed"] if isinstance(threads, dict) else MAX_THREADS


def options(pairs):
    """Return ``uwsgi.opt``. It includes options that uWSGI needs and that always hold here: sentry-sdk and others check them."""
    found = Options({"enable-threads": True, "py-call-uwsgi-fork-hooks": True})
    for name, value in pairs:
        found.pop(name, None)
        found[name] = True if value is None else value.encode("utf-8", "surrogateescape")
    return found


def missing(name):
    """The module's ``__getattr__``."""
    if name in uwsgi_names.LATER or uwsgi_names.option_of(name):
        raise AttributeError(uwsgi_names.missing(name))
    raise AttributeError(f"module 'uwsgi' has no attribute {name!r}")


def memory_of(process):
    """Return resident memory and address space of a process, in bytes."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:
            address_space, resident = map(int, file.read().split()[:2])
    except OSError:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page, address_space * page


def waiting_at(descriptor):
    """Return how many connections are queued at a listening socket. Linux has no such count for UNIX sockets."""
    import socket

    with socket.socket(fileno=os.dup(descriptor)) as listening:
        if listening.family == socket.AF_UNIX:
            return 0
        facts = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return struct.unpack_from("=I", facts, UNACKED_AT)[0]
