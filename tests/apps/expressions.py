"""Evaluates the expressions of a request's body, one a line, and answers with a line for each: its value, or its exception.

``there(NAME)`` creates a file of this name in the working directory, ``await_it(NAME)`` waits for one.
"""

import itertools
import os
import time

import uwsgi

#: Seconds between two looks for a file.
LOOK_SECONDS = 0.01


def there(name):
    open(name, "w").close()


def await_it(name):
    while not os.path.exists(name):
        time.sleep(LOOK_SECONDS)


NAMES = {"uwsgi": uwsgi, "os": os, "time": time, "itertools": itertools, "there": there, "await_it": await_it}


def value_of(expression):
    try:
        return repr(eval(expression, NAMES))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def application(environ, start_response):
    text = environ["wsgi.input"].read().decode()
    body = "\n".join(value_of(line) for line in text.splitlines()).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
