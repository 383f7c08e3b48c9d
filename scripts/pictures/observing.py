"""Pictures of what shows a running instance: its status, a trace, metrics, and the lines of its log as JSON."""

import json
import re
import signal
import subprocess
import threading
import time

from running import TIMEOUT_SECONDS, ask, bolide, free_port, said_by

SERVING = """[uwsgi]
http = 127.0.0.1:{port}
module = shop.wsgi:application
master = true
processes = 1
mule = true
metrics = 127.0.0.1:{metrics}
log-json = true
"""
APPLICATION = """import prices


def application(environ, start_response):
    body = VIEWS[environ["PATH_INFO"]]()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def cart():
    return total([{"name": "tea"}])


def total(items):
    return items[0]["price"]


def report():
    return prices.of_today()


VIEWS = {"/": lambda: b"hello", "/cart": cart, "/report": report}
"""
PRICES = """import time


def of_today():
    time.sleep(3600)
"""
#: The families of the picture, which do not depend on the machine.
FAMILIES = (
    "requests_total|request_duration_seconds_count|requests_in_progress|exceptions_total|workers|threads|worker_starts_total"
)
MAX_LINE_CHARACTERS = 122


def observed(directory):
    (directory / "shop").mkdir()
    (directory / "shop" / "__init__.py").touch()
    (directory / "shop" / "wsgi.py").write_text(APPLICATION)
    (directory / "prices.py").write_text(PRICES)
    port, metrics = free_port(), free_port()
    (directory / "uwsgi.ini").write_text(SERVING.format(port=port, metrics=metrics))
    events = []
    with bolide(directory, "uwsgi.ini", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            log = (json.loads(line) for line in server.stderr)
            next(event for event in log if event["message"].startswith("open http"))
            for target in ("/", "/", "/", "/cart?id=7"):
                ask(port, target)
            while len(events) < 5:
                event = next(log)
                events += [event] if event["type"] in ("request", "exception") else []
            threading.Thread(target=ask, args=(port, "/report"), daemon=True).start()
            wait_for_report(directory)
            commands = {
                "status": ["$ bolide status uwsgi.ini", *said_by(directory, "status", "uwsgi.ini")],
                "trace": ["$ bolide trace 1 uwsgi.ini", *own_frames(said_by(directory, "trace", "1", "uwsgi.ini"))],
                "metrics": [f"$ curl --silent http://127.0.0.1:{metrics}/metrics", "…", *numbers(ask(metrics, "/metrics")), "…"],
                "log-json": ["$ tail -n 3 shop.log", *in_pieces(events[2:])],
            }
        finally:
            server.send_signal(signal.SIGQUIT)
            server.communicate(timeout=TIMEOUT_SECONDS)
    return {name: [settled(line, port, metrics) for line in lines] for name, lines in commands.items()}


def wait_for_report(directory):
    until = time.monotonic() + TIMEOUT_SECONDS
    while not re.search(r"/report .*^mule 1 [^\n]*: serving", "\n".join(said_by(directory, "status", "uwsgi.ini")), re.M | re.S):
        assert time.monotonic() < until, "no request in flight"


def own_frames(lines):
    """Leaves out the server's own frames, which change with it."""
    return [line for line in lines if not re.search(r"/bolide/[a-z_]+\.py:|threads without Python", line)]


def numbers(page):
    return [line for line in page.splitlines() if re.match(rf"bolide_({FAMILIES})[{{ ]", line)]


def in_pieces(events):
    """Returns each event as lines that are cut between two fields, and not in a text."""
    for event in events:
        event = {key: value for key, value in event.items() if key not in ("core", "address", "user_agent", "host", "head_bytes")}
        line = ""
        for piece in re.split(r'(?<=,)(?="[a-z_]+":)', json.dumps(event, separators=(",", ":"))):
            if len(line) + len(piece) > MAX_LINE_CHARACTERS:
                yield line
                line = "  "
            line += piece
        yield line


#: Values that differ between runs and machines.
SETTLED = [
    (r"\(pid \d+\)", "(pid 4129)"),
    (r"^master \d+", "master 4127"),
    (r"thread \d+", "thread 4129"),
    (r"version [\w.]+", "version 0.1.0"),
    (r"Python 3\.\d+", "Python 3.12"),
    (r"room for \d+", "room for 4096"),
    (r"\(for [^)]*\)", "(for 1.4 s)"),
    (r"up [^,;]+,", "up 3 min 12 s,"),
    (r"\d+ MiB \(\d+ private\)", "20 MiB (4 private)"),
    (r"\d+ MiB", "20 MiB"),
    (r"CPU [^,]+", "CPU 60 ms (0 %)"),
    (r"[\d.]+ requests/s", "0.1 requests/s"),
    (r": (runs|waits)(, holds the GIL)?, GET", ": waits, GET"),
    (r'"time":"[^"]*"', '"time":"2026-11-22T13:40:02.750280+01:00"'),
    (r'"pid":\d+', '"pid":4129'),
    (r'"microseconds":\d+', '"microseconds":412'),
    (r'"(request_id|id)":"[0-9a-f]{32}"', r'"\1":"c1c3b3fbaa6d8dac76532ea10e4f10a0"'),
]


def settled(line, port, metrics):
    line = line.replace(f":{port}", ":8000").replace(f":{metrics}", ":9192")
    for pattern, text in SETTLED:
        line = re.sub(pattern, text, line)
    return line
