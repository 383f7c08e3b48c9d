"""Applications that fail, one for each path."""

import os
import sys

PLAIN = [("Content-Type", "text/plain")]


class Told:
    """An iterable that fails after its first part, and logs its close()."""

    def __init__(self, error, name, parts=(b"begun",)):
        self.error = error
        self.name = name
        self.parts = list(parts)

    def __iter__(self):
        return self

    def __next__(self):
        if self.parts:
            return self.parts.pop(0)
        raise self.error

    def close(self):
        print(f"closed {self.name}", file=sys.stderr, flush=True)


def at_fine(environ, start_response):
    start_response("200 OK", PLAIN)
    return [b"fine"]


def at_pid(environ, start_response):
    start_response("200 OK", PLAIN)
    return [str(os.getpid()).encode()]


def at_exception(environ, start_response):
    raise RuntimeError("as the test asked, with a d\u00e9tail \u20ac")


def at_exception_after_start(environ, start_response):
    start_response("200 OK", [("X-Begun", "yes"), ("Content-Length", "1000")])
    raise RuntimeError("after start_response")


def at_exception_after_write(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"begun")
    raise RuntimeError("after write")


def at_exception_before_first_part(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told(RuntimeError("before the first part"), "before_first_part", ())


def at_exception_mid_stream(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told(RuntimeError("in the middle"), "mid_stream")


def at_exception_mid_stream_with_length(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "1000")])
    return Told(RuntimeError("in the middle"), "mid_stream_with_length")


def at_group(environ, start_response):
    try:
        raise KeyError("the first one")
    except KeyError as error:
        raise ValueError("the second one") from error


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this works")


def at_unprintable(environ, start_response):
    raise Unprintable


def at_system_exit(environ, start_response):
    sys.exit(3)


def at_system_exit_mid_stream(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told(SystemExit("enough"), "system_exit_mid_stream")


def at_keyboard_interrupt(environ, start_response):
    raise KeyboardInterrupt


def at_memory_error(environ, start_response):
    return [b"x" * (1 << 62)]


def at_memory_error_raised(environ, start_response):
    raise MemoryError


def deeper(number):
    return deeper(number + 1) + 1


def at_recursion_error(environ, start_response):
    return [str(deeper(0)).encode()]


def at_generator_exit(environ, start_response):
    raise GeneratorExit


def at_stop_iteration(environ, start_response):
    raise StopIteration


def at_os_exit(environ, start_response):
    os._exit(3)


def at_crash(environ, start_response):
    import ctypes

    ctypes.string_at(0)


def at_none(environ, start_response):
    start_response("200 OK", PLAIN)


def at_str(environ, start_response):
    start_response("200 OK", PLAIN)
    return "text"


def at_list_of_str(environ, start_response):
    start_response("200 OK", PLAIN)
    return ["text"]


def at_generator_of_str(environ, start_response):
    start_response("200 OK", PLAIN)
    return iter(["text"])


def at_number(environ, start_response):
    start_response("200 OK", PLAIN)
    return 42


def at_write_str(environ, start_response):
    start_response("200 OK", PLAIN)("text")
    return []


def at_never_started(environ, start_response):
    return []


def at_never_started_with_body(environ, start_response):
    return [b"body"]


def at_started_twice(environ, start_response):
    start_response("200 OK", PLAIN)
    start_response("201 Created", PLAIN)
    return [b"twice"]


kept = {}


def at_keep(environ, start_response):
    kept["start_response"] = start_response
    kept["write"] = start_response("200 OK", PLAIN)
    return [b"kept"]


def at_use_kept(environ, start_response):
    told = []
    for call in (lambda: kept["start_response"]("200 OK", []), lambda: kept["write"](b"to another's client")):
        try:
            call()
        except RuntimeError as error:
            told.append(str(error))
    start_response("200 OK", PLAIN)
    return ["; ".join(told).encode()]


#: Arguments of start_response, by the number in the path; each violates PEP 3333 or RFC 9110.
BAD_HEADS = [
    (b"200 OK", []),
    (200, []),
    (None, []),
    ("", []),
    ("OK", []),
    ("20 OK", []),
    ("2000 OK", []),
    ("200OK", []),
    ("100 Continue", []),
    ("101 Switching Protocols", []),
    ("200 OK\r\nX-Injected: yes", []),
    ("200 O\nK", []),
    ("200 \u20ac", []),
    ("200 OK", None),
    ("200 OK", {"A": "b"}),
    ("200 OK", iter([("A", "b")])),
    ("200 OK", ["A: b"]),
    ("200 OK", [["A", "b"]]),
    ("200 OK", [("A",)]),
    ("200 OK", [("A", "b", "c")]),
    ("200 OK", [(b"A", "b")]),
    ("200 OK", [("A", b"b")]),
    ("200 OK", [("A", 1)]),
    ("200 OK", [("A", None)]),
    ("200 OK", [("", "b")]),
    ("200 OK", [("A:", "b")]),
    ("200 OK", [("A B", "c")]),
    ("200 OK", [("A\r\nB", "c")]),
    ("200 OK", [("\u00e9", "c")]),
    ("200 OK", [("A", "b\r\nX-Injected: yes")]),
    ("200 OK", [("A", "b\nX-Injected: yes")]),
    ("200 OK", [("A", "b\rc")]),
    ("200 OK", [("A", "b\0c")]),
    ("200 OK", [("A", "b\x7fc")]),
    ("200 OK", [("A", "\u20ac")]),
    ("200 OK", [("Connection", "close")]),
    ("200 OK", [("connection", "keep-alive")]),
    ("200 OK", [("Keep-Alive", "timeout=5")]),
    ("200 OK", [("Transfer-Encoding", "chunked")]),
    ("200 OK", [("TRANSFER-ENCODING", "gzip")]),
    ("200 OK", [("TE", "trailers")]),
    ("200 OK", [("Trailer", "X")]),
    ("200 OK", [("Upgrade", "websocket")]),
    ("200 OK", [("Proxy-Authorization", "Basic x")]),
    ("200 OK", [("Content-Length", "five")]),
    ("200 OK", [("Content-Length", "-5")]),
    ("200 OK", [("Content-Length", "")]),
    ("200 OK", [("Content-Length", "5"), ("Content-Length", "6")]),
]


def at_bad_head(environ, start_response):
    status, headers = BAD_HEADS[int(environ["QUERY_STRING"])]
    start_response(status, headers)
    return [b"never sent"]


def at_bad_head_caught(environ, start_response):
    """An error handler, as frameworks have: it answers again after the head was refused."""
    try:
        return at_bad_head(environ, start_response)
    except (TypeError, ValueError):
        start_response("500 Caught", PLAIN, sys.exc_info())
        return [b"caught"]


def application(environ, start_response):
    return globals()["at_" + environ["PATH_INFO"].strip("/")](environ, start_response)
