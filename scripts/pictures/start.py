"""Pictures of a configuration that is checked, and of a request that is killed for its time."""

import re

from running import free_port, logged, said_by

CONFIGURATION = """[uwsgi]
http = 127.0.0.1:8000
module = shop.wsgi:application
proccesses = 4
harakiri = 60 ; seconds
lazy-apps = false # not yet
master = true
"""
SERVING = """[uwsgi]
http = 127.0.0.1:{port}
module = shop.wsgi:application
processes = 2
harakiri = 2
"""
APPLICATION = """import prices


def application(environ, start_response):
    body = report() if environ["PATH_INFO"] == "/report" else b"hello"
    start_response("200 OK", [])
    return [body]


def report():
    return prices.of_today()
"""
PRICES = """import time


def of_today():
    time.sleep(3600)
"""


def check(directory):
    (directory / "uwsgi.ini").write_text(CONFIGURATION)
    return {"check": ["$ bolide check uwsgi.ini", *said_by(directory, "check", "uwsgi.ini")]}


def stuck(directory):
    (directory / "shop").mkdir()
    (directory / "shop" / "__init__.py").touch()
    (directory / "shop" / "wsgi.py").write_text(APPLICATION)
    (directory / "prices.py").write_text(PRICES)
    port = free_port()
    (directory / "serve.ini").write_text(SERVING.format(port=port))
    lines = logged(directory, port, "/report", "killing worker")
    begin = next(number for number, line in enumerate(lines) if "harakiri:" in line)
    return {"stuck": ["$ bolide uwsgi.ini", "…", *own_frames(lines[begin:])]}


def own_frames(lines):
    """Returns the application's part of the stack, without the server's frames below it."""
    return [line for line in lines if not re.search(r'File ".*/bolide/[a-z_]+\.py"', line)]
