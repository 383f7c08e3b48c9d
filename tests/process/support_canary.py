"""An application whose next version may fail, and a canary reload that detects it."""

import subprocess

from support.server import program
from support.waiting import wait_until
from support_instance import COMMAND_SECONDS

#: Longer than any test waits: a rollback within the test therefore comes before the end of the canary's time.
LONG = ("--reload-canary", "3600")

WSGI = """\
import itertools, os, signal, sys, time
calls = itertools.count()
def application(environ, start_response):
    call = next(calls)
    {fault}
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""
ASGI = """\
import asyncio, itertools
calls = itertools.count()
async def application(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError(scope["type"])
    call = next(calls)
    {fault}
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"{length}")]}})
    await send({{"type": "http.response.body", "body": b"{version}"}})
"""

NUMBERS = r"\d+ of \d+ answers? (?:were errors|was an error), the old workers' \d+ of \d+(?: since their start)?"


def write(tmp_path, version, template=WSGI, fault="pass"):
    (tmp_path / "shop.py").write_text(template.format(version=version, length=len(version), fault=fault))


def reload_and_wait(instance):
    """`bolide reload --wait`, running."""
    command = [*program(), "reload", "--wait", str(instance.pid)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def outcome_of(command):
    said, _ = command.communicate(timeout=COMMAND_SECONDS)
    return command.returncode, said


def wait_until_generation_is_gone(instance, number):
    wait_until(lambda: len(instance.prototypes()) == 1, f"the end of generation {number}")
