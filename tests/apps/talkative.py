"""Writes to the log in pieces while it answers, and from several places."""

import sys


def application(environ, start_response):
    number = environ["QUERY_STRING"]
    environ["wsgi.errors"].write(f"begun {number} ")
    environ["wsgi.errors"].write(f"and ended {number}\nanother line {number}\n")
    sys.stderr.write(f"from sys.stderr {number}\n")
    sys.stderr.flush()
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Number", number)])
    return [b"told " + number.encode()]
