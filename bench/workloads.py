"""The applications that are served, what is asked of each, and what a right answer is.

Runs in the suite's own process.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """`module` is a file in bench/applications; `check` says what is wrong with a body, or None."""

    module: str
    path: str
    check: Callable
    packages: tuple = ()


def _check_hello(body):
    return None if body == b"Hello, World!" else "the body is not `Hello, World!`"


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


HELLO = Workload("hello", "/", _check_hello)
PPRINT = Workload("pprint_environ", "/", _check_pprint)
FIBONACCI = Workload("fibonacci", "/9000", _check_fibonacci, ("flask",))
DJANGO = Workload("django_view", "/hello/bench", _check_django, ("django",))
