"""The served applications, the request for each, and the check of its answer.

Runs in the suite's own process.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """`module` is a file in bench/applications; `check` returns the error in a body, or None.

    With a `body` the request is a POST of JSON. `websocket`: messages are measured, not requests. `closing` is the path in
    closing.py of the framework's kind of answer, if the framework does work in its close().
    """

    module: str
    path: str
    check: Callable
    interface: str = "wsgi"
    body: bytes = b""
    websocket: bool = False
    closing: str | None = None


def _check_hello(body):
    return None if body == b"Hello, World!" else "the body is not `Hello, World!`"


def _check_count(body):
    return None if body.isdigit() else "the body is not a number"


def _check_pprint(body):
    text = body.decode("utf-8", "replace")
    wrong = not (text.startswith("{") and text.endswith("}") and "'REQUEST_METHOD': 'GET'" in text and "'PATH_INFO': '/'" in text)
    return "the body is not a printed environ" if wrong else None


def _check_fibonacci(body):
    numbers = [0, 1]
    while numbers[-1] + numbers[-2] < 9000:
        numbers.append(numbers[-1] + numbers[-2])
    return _check_json(body, numbers)


def _check_django(body):
    return _check_json(body, {"greeting": "Hello, bench!", "method": "GET"})


def _check_json(body, expected):
    try:
        answer = json.loads(body)
    except ValueError:
        return "the body is not JSON"
    return None if answer == expected else f"the body is not {json.dumps(expected)[:80]}"


def _check_view(body):
    return _check_json(body, {"greeting": "Hello, bench!", "items": [1, 2, 3]})


def _check_post(body):
    return _check_json(body, {"bytes": len(POSTED), "end": POSTED[-POST_END_BYTES:].decode()})


POST_BYTES = 10 * 1024
# The application answers with the length of the body and its end.
POST_END_BYTES = 16


def _posted():
    """Returns JSON of POST_BYTES, like the form of an application: a list of small records without an empty line."""
    records, head, end = [], b'{"records": [', b'], "note": "%s"}'
    while len(head) + len(b", ".join(records)) + 120 < POST_BYTES:
        number = len(records)
        records.append(b'{"id": %d, "name": "record %d", "price": %d.5, "tags": ["a", "b"]}' % (number, number, number * 3))
    text = head + b", ".join(records)
    return text + end % (b"x" * (POST_BYTES - len(text) - len(end) + len(b"%s")))


POSTED = _posted()

HELLO = Workload("hello", "/", _check_hello)
PPRINT = Workload("pprint_environ", "/", _check_pprint)
FIBONACCI = Workload("fibonacci", "/9000", _check_fibonacci, closing="/iterator")
DJANGO = Workload("django_view", "/hello/bench", _check_django, closing="/iterable")


def closing(path):
    """Asks how many answers of a kind were closed so far."""
    return Workload("closing", path, _check_count)


ASGI_HELLO = Workload("asgi_hello", "/", _check_hello, interface="asgi")
ASGI_SLEEP = Workload("asgi_sleep", "/", _check_hello, interface="asgi")
ASGI_STARLETTE = Workload("asgi_starlette", "/hello/bench", _check_view, interface="asgi")
ASGI_FASTAPI = Workload("asgi_fastapi", "/hello/bench", _check_view, interface="asgi")
ASGI_POST = Workload("asgi_post", "/", _check_post, interface="asgi", body=POSTED)
ASGI_ECHO = Workload("asgi_echo", "/", _check_hello, interface="asgi", websocket=True)
ASGI_STREAM = Workload("asgi_stream", "/", _check_hello, interface="asgi")

# The path contains the microseconds that the view sleeps for.
TAKES_TIME = Workload("takes_time", "/view/0", _check_hello)
ASGI_TAKES_TIME = Workload("asgi_takes_time", "/view/0", _check_hello, interface="asgi")
ASGI_BLOCKS = Workload("asgi_blocks", "/view/0", _check_hello, interface="asgi")
