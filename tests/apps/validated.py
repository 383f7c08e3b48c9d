"""The responses, with wsgiref's validator between them and the server: a violation of PEP 3333 by either side is an error 500."""

import os
import sys
from wsgiref.validate import validator

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import answers


def reads(environ, start_response):
    """Reads its body in every way that the validator allows."""
    stream = environ["wsgi.input"]
    parts = [stream.read(3), stream.readline(), *stream.readlines(), *stream, stream.read(10)]
    environ["wsgi.errors"].write("read\n")
    environ["wsgi.errors"].flush()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"|".join(parts)]


def choose(environ, start_response):
    if environ["PATH_INFO"] == "/reads":
        return reads(environ, start_response)
    return answers.application(environ, start_response)


application = validator(choose)
