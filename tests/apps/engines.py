"""Evaluates an expression of a test in a worker, with the module `uwsgi` and what earlier expressions have kept."""

import os
from urllib.parse import unquote

import bolide
import uwsgi

kept = {}


def keep(name, value):
    kept[name] = value
    return value


def in_a_fork(expression):
    """Evaluates in a forked child, and returns what it says."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, evaluated(expression).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader) as said:
        return said.read()


def evaluated(expression):
    names = {"bolide": bolide, "in_a_fork": in_a_fork, "keep": keep, "os": os, "uwsgi": uwsgi, **kept}
    try:
        return repr(eval(expression, names))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def application(environ, start_response):
    said = evaluated(unquote(environ["QUERY_STRING"]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said.encode()]
