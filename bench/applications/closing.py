"""Tests whether a server calls close() of an answer, for the two kinds of answers that frameworks return. Runs in the servers'
workers.

PEP 3333: "If the iterable returned by the application has a close() method, the server or gateway must call that method upon
completion of the current request". Django ends a request in it, and Flask its context's callbacks.
"""

closed = {"/iterable": 0, "/iterator": 0}


class Iterable:
    """Like Django's HttpResponse."""

    def __init__(self, path):
        self.path = path
        self.parts = [str(closed[path]).encode()]

    def __iter__(self):
        return iter(self.parts)

    def close(self):
        closed[self.path] += 1


class Iterator(Iterable):
    """Like werkzeug's ClosingIterator."""

    def __init__(self, path):
        super().__init__(path)
        self.rest = iter(self.parts)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.rest)


def application(environ, start_response):
    path = environ["PATH_INFO"]
    answer = (Iterable if path == "/iterable" else Iterator)(path)
    length = str(len(answer.parts[0]))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", length)])
    return answer
