"""An application that reports about its process, and manipulates it as tests request. The path selects the action."""

import ctypes
import gc
import json
import mmap
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid

LOADED_IN = os.getpid()
AFTER_FORK = []
os.register_at_fork(after_in_child=lambda: AFTER_FORK.append(os.getpid()))

#: Memory that requests have allocated permanently.
GROWN = []

#: Timeout of `wait` requests, which wait for a file of their name, in seconds.
WAIT_SECONDS = 120


def application(environ, start_response):
    name, _, argument = environ["PATH_INFO"].strip("/").partition("/")
    body = globals()["do_" + (name or "pid")](argument, environ).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def do_pid(_argument, _environ):
    return str(os.getpid())


def do_client(_argument, environ):
    return f"{os.getpid()} {environ['REMOTE_ADDR']} {environ['REMOTE_PORT']}"


def do_sleep(seconds, _environ):
    """Sleeps with the GIL released, like a query of a slow database."""
    time.sleep(float(seconds))
    return str(os.getpid())


def do_stuck(seconds, _environ):
    """The function whose name a stack in the log shows."""
    return stuck_in_the_database(float(seconds))


def stuck_in_the_database(seconds):
    time.sleep(seconds)
    return "late"


def do_wait(_argument, environ):
    """Answers when the file in the query string exists, and creates one beside it to show that it waits."""
    path = environ["QUERY_STRING"]
    with open(path + ".waiting", "w") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + WAIT_SECONDS
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return "waited"


def do_grow(mebibytes, _environ):
    """Allocates this much memory permanently, and touches it."""
    GROWN.append(b"x" * (int(mebibytes) * 1024 * 1024))
    return str(os.getpid())


def do_reserve(mebibytes, _environ):
    """Reserves this much address space, without touching a page of it."""
    GROWN.append(mmap.mmap(-1, int(mebibytes) * 1024 * 1024))
    return str(os.getpid())


def do_kill(number, _environ):
    os.kill(os.getpid(), int(number))
    return "alive"


def do_segv(_argument, _environ):
    return str(ctypes.string_at(0))


def do_exit(status, _environ):
    os._exit(int(status))


def do_facts(_argument, _environ):
    return json.dumps(
        {
            "pid": os.getpid(),
            "loaded_in": LOADED_IN,
            "after_fork": AFTER_FORK,
            "random": random.random(),
            "uuid": str(uuid.uuid4()),
            "ssl": ssl.RAND_bytes(16).hex(),
            "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
            "pipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
            "frozen": gc.get_freeze_count(),
            "user": [os.getuid(), os.getgid()],
            "groups": os.getgroups(),
            "directory": os.getcwd(),
            "path": sys.path,
            "prefix": sys.prefix,
            "environment": dict(os.environ),
            "threads": threading.active_count(),
        }
    )


def do_subprocess(_argument, _environ):
    """Returns the descriptors in a program that the application starts without closing any itself."""
    code = (
        "import os; links = [f'/proc/self/fd/{number}' for number in os.listdir('/proc/self/fd')]; "
        "print(*[os.readlink(link) for link in links if os.path.lexists(link)])"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, close_fds=False, check=True)
    return done.stdout.decode()


def do_close(number, _environ):
    """Closes a descriptor, as programs do when they daemonize."""
    os.close(int(number))
    return "closed"


def do_script(_argument, environ):
    return environ["SCRIPT_NAME"]


def do_multi(_argument, environ):
    return f"{environ['wsgi.multithread']} {environ['wsgi.multiprocess']}"


def do_thread(_argument, _environ):
    return threading.current_thread().name


def do_bytes(count, _environ):
    return "x" * int(count)
