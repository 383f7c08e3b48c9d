"""An application whose handlers of uWSGI's signals note what they do in the file `notes`: a word, the worker and its pid.

The query string of a request is Python code that runs in the view.
"""

import os
import signal as kernel
import time
import urllib.parse
from pathlib import Path

import uwsgi

NOTES = Path("notes").absolute()


def note(word):
    """Appends one line in a single write."""
    with open(NOTES, "a") as file:
        file.write(f"{word} {uwsgi.worker_id()} {os.getpid()}\n")


def noting(word):
    return lambda number: note(f"{word}{number}")


def wait_for(name):
    """Waits for a file, and shows by another one that it does."""
    gate = Path(name).absolute()
    gate.with_suffix(".waiting").touch()
    end = time.monotonic() + 120
    while not gate.exists() and time.monotonic() < end:
        time.sleep(0.01)


def die_once(number):
    note(f"dying{number}")
    if not Path("dead").exists():
        Path("dead").touch()
        os.kill(os.getpid(), kernel.SIGKILL)


for number, target in {16: "workers", 17: "worker1", 18: "worker2", 19: "active-workers"}.items():
    uwsgi.register_signal(number, target, noting("at"))
uwsgi.register_signal(1, "", noting("any"))
uwsgi.register_signal(2, "", lambda number: 1 / number - "a")
uwsgi.register_signal(3, "", die_once)
uwsgi.register_signal(4, "worker1", die_once)
uwsgi.register_signal(5, "", lambda number: wait_for("handler"))
exec(os.environ.get("MORE", ""))


def application(environ, start_response):
    names = {**globals(), "result": ""}
    exec(urllib.parse.unquote(environ["QUERY_STRING"]), names)
    body = f"{os.getpid()} {names['result']}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
