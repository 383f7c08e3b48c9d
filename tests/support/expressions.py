"""Expressions that the application `tests/apps/expressions.py` evaluates in a worker."""

import contextlib
import threading

from support.client import Client, Closed
from support.waiting import wait_until


def evaluate(address, *expressions):
    """Returns the values of these expressions in one worker, as text."""
    with Client(address) as client:
        answer = client.request("POST", "/", [("Connection", "close")], "\n".join(expressions).encode())
    assert answer.status == 200, answer
    return answer.text.split("\n")


def value(address, expression):
    (text,) = evaluate(address, expression)
    return text


class Evaluation(threading.Thread):
    """Expressions that a worker evaluates in the meantime. ``values`` is None if the worker was killed."""

    def __init__(self, address, *expressions):
        super().__init__(daemon=True)
        self.address = address
        self.expressions = expressions
        self.values = None
        self.start()

    def run(self):
        with contextlib.suppress(Closed, OSError):
            self.values = evaluate(self.address, *self.expressions)

    def result(self):
        self.join()
        return self.values


def holder(server, *expressions, name="held"):
    """Has a worker evaluate these expressions and then stay in its request. Returns its pid and its evaluation."""
    done = server.directory / name
    evaluation = Evaluation(
        server.address(), *expressions, f"open({name!r}, 'w').write(str(os.getpid()) + '.')", "time.sleep(300)"
    )
    text = wait_until(lambda: done.exists() and done.read_text(), "the worker has evaluated them")
    return int(text.rstrip(".")), evaluation
