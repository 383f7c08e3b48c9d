"""Responses of every shape that PEP 3333 allows, one for each path."""

import io
import os
import sys
import tempfile
import threading

PLAIN = [("Content-Type", "text/plain")]
LARGE = b"0123456789abcdef" * 1_250_000
PART = 100_000


def say(text):
    print(text, file=sys.stderr, flush=True)


class Told:
    """An iterable that logs its close(), and the thread that calls it."""

    def __init__(self, parts, name, fails=False):
        self.parts = iter(parts)
        self.name = name
        self.fails = fails

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.parts)

    def close(self):
        say(f"closed {self.name}")
        if self.fails:
            raise RuntimeError(f"the close of {self.name} failed")


def at_list(environ, start_response):
    start_response("200 OK", PLAIN)
    return [b"one ", b"two ", b"three"]


def at_tuple(environ, start_response):
    start_response("200 OK", PLAIN)
    return (b"one ", b"two ", b"three")


def at_headers_as_tuple(environ, start_response):
    start_response("200 OK", tuple(PLAIN))
    return [b"one two three"]


def at_keywords(environ, start_response):
    start_response(status="200 OK", headers=PLAIN, exc_info=None)
    return [b"one two three"]


def at_generator(environ, start_response):
    start_response("200 OK", PLAIN)
    yield b"one "
    yield b"two "
    yield b"three"


def at_start_in_generator(environ, start_response):
    yield b""
    start_response("200 OK", PLAIN)
    yield b"one two "
    yield b"three"


class at_iterable_class:
    def __init__(self, environ, start_response):
        self.start = start_response

    def __iter__(self):
        self.start("200 OK", PLAIN)
        return iter([b"one ", b"two ", b"three"])


class Sequence:
    """Has a length and items, and no __iter__: the old iteration protocol."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return [b"one ", b"two ", b"three"][index]


def at_old_sequence(environ, start_response):
    start_response("200 OK", PLAIN)
    return Sequence()


class Complete:
    """Iterates with a list's own iterator, like Django's HttpResponse, and logs its close()."""

    def __init__(self, parts, name):
        self.parts = parts
        self.name = name

    def __iter__(self):
        return iter(self.parts)

    def close(self):
        say(f"closed {self.name}")


def at_list_iterator(environ, start_response):
    start_response("200 OK", PLAIN)
    return iter([b"one ", b"two ", b"three"])


def at_tuple_iterator(environ, start_response):
    start_response("200 OK", PLAIN)
    parts = iter((b"not this ", b"one ", b"two three"))
    next(parts)
    return parts


def at_complete(environ, start_response):
    start_response("200 OK", PLAIN)
    return Complete([b"one ", b"", b"two ", b"three"], "complete")


def at_complete_of_text(environ, start_response):
    start_response("200 OK", PLAIN)
    return Complete([b"one ", "two"], "complete_of_text")


def at_complete_with_file(environ, start_response):
    start_response("200 OK", PLAIN)
    file = environ["wsgi.file_wrapper"](ToldFile(temporary(len(LARGE))))
    return Complete([b"before ", file, b" after"], "complete_with_file")


def at_complete_after_write(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"one ")
    return Complete([b"two ", b"three"], "complete_after_write")


def at_very_many_parts(environ, start_response):
    start_response("200 OK", PLAIN)
    return Complete([b"part "] * 50_000, "very_many_parts")


class MyBytes(bytes):
    pass


class MyList(list):
    def close(self):
        say("closed my_list")


def at_subclasses(environ, start_response):
    start_response("200 OK", MyList(PLAIN))
    return MyList([MyBytes(b"one two "), b"three"])


def at_bytes(environ, start_response):
    start_response("200 OK", PLAIN)
    return b"one two three"


def at_bytes_of_a_subclass(environ, start_response):
    start_response("200 OK", PLAIN)
    return MyBytes(b"one two three")


def at_write(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"one ")
    write(b"")
    write(b"two ")
    return [b"three"]


def at_write_only(environ, start_response):
    write = start_response("200 OK", [*PLAIN, ("Content-Length", "13")])
    write(b"one two three")
    return []


def at_write_large(environ, start_response):
    write = start_response("200 OK", PLAIN)
    for start in range(0, len(LARGE), PART):
        write(LARGE[start : start + PART])
    write(LARGE[:10])
    return [b"end"]


def at_stream_large(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told((LARGE[start : start + PART] for start in range(0, len(LARGE), PART)), "stream_large")


def at_one_large_part(environ, start_response):
    start_response("200 OK", PLAIN)
    return [LARGE]


def at_told(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told([b"one ", b"two ", b"three"], "told")


def at_told_head(environ, start_response):
    start_response("204 No Content", [])
    return Told([], "told_head")


def at_close_fails(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told([b"one two three"], "close_fails", fails=True)


def endless():
    while True:
        yield LARGE[:PART]


def at_endless(environ, start_response):
    start_response("200 OK", PLAIN)
    return Told(endless(), f"endless {environ['QUERY_STRING']}")


def trickle(event):
    yield b"first"
    event.wait(60)
    yield b"second"


#: Set by /release; a generator waits for it between its parts.
released = threading.Event()


def at_trickle(environ, start_response):
    released.clear()
    start_response("200 OK", PLAIN)
    return trickle(released)


def at_release(environ, start_response):
    released.set()
    start_response("200 OK", PLAIN)
    return [b"released"]


def at_changed_mind(environ, start_response):
    start_response("200 OK", [("X-First", "yes"), ("Content-Length", "99")])
    try:
        raise ValueError("found out too late")
    except ValueError:
        start_response("503 Sorry", [("X-Second", "yes"), *PLAIN], sys.exc_info())
    return [b"sorry"]


def at_changed_mind_too_late(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"begun")
    try:
        raise ValueError("found out too late")
    except ValueError:
        start_response("503 Sorry", PLAIN, sys.exc_info())
    say("this line is never reached")
    return [b"sorry"]


def temporary(size):
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the sender closes it)
    for start in range(0, size, len(LARGE)):
        file.write(LARGE[: size - start])
    file.seek(0)
    return file


def at_file(environ, start_response):
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](temporary(len(LARGE)))


def at_file_with_length(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", str(len(LARGE)))])
    return environ["wsgi.file_wrapper"](temporary(len(LARGE)), 8192)


def at_file_from_the_middle(environ, start_response):
    file = temporary(100)
    file.seek(90)
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](file)


def at_file_part(environ, start_response):
    # A range: the length limits the part of the file.
    file = temporary(1000)
    file.seek(10)
    start_response("206 Partial Content", [*PLAIN, ("Content-Length", "6")])
    return environ["wsgi.file_wrapper"](file)


def at_file_shorter_than_said(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "200")])
    return environ["wsgi.file_wrapper"](temporary(100))


def at_file_empty(environ, start_response):
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](temporary(0))


class ToldFile:
    """A file that logs its close()."""

    def __init__(self, file):
        self.file = file
        self.read = file.read
        self.fileno = file.fileno
        self.tell = file.tell

    def close(self):
        say("closed told_file")
        self.file.close()


def at_file_told(environ, start_response):
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](ToldFile(temporary(len(LARGE))))


def at_file_in_memory(environ, start_response):
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](io.BytesIO(LARGE))


def at_file_pipe(environ, start_response):
    reader, writer = os.pipe()
    os.write(writer, b"through a pipe")
    os.close(writer)
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](os.fdopen(reader, "rb"))


def at_file_after_write(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"before ")
    file = temporary(16)
    return environ["wsgi.file_wrapper"](file)


def in_parts(wrapper, kind):
    yield b"before "
    if kind != "memory":
        yield wrapper(ToldFile(temporary(len(LARGE))))
    if kind != "file":
        yield wrapper(ToldFile(io.BytesIO(LARGE)))
    yield b" after"


def at_file_in_parts(environ, start_response):
    start_response("200 OK", PLAIN)
    kind = environ["QUERY_STRING"]
    parts = in_parts(environ["wsgi.file_wrapper"], "file" if kind == "list" else kind)
    return list(parts) if kind == "list" else parts


def at_file_iterated(environ, start_response):
    start_response("200 OK", PLAIN)
    return [part.upper() for part in environ["wsgi.file_wrapper"](io.BytesIO(b"one two three"), 4)]


def at_too_many(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "5")])
    return [b"one two three"]


def at_too_many_generated(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "5")])
    return iter([b"one", b" two", b" three"])


def at_too_few(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "50")])
    return [b"one two three"]


def at_latin_1(environ, start_response):
    start_response("200 Tr\xe8s bien", [("X-Name", "caf\xe9"), *PLAIN])
    return [environ["HTTP_X_NAME"].encode("latin-1"), b" ", environ["PATH_INFO"].encode("latin-1")]


def at_many_headers(environ, start_response):
    start_response("200 OK", [("Set-Cookie", f"n={number}") for number in range(50)] + PLAIN)
    return [b"cookies"]


def at_errors(environ, start_response):
    errors = environ["wsgi.errors"]
    errors.write("one line\n")
    errors.writelines(["two ", "halves\n", "three\nfour"])
    errors.flush()
    print("printed \u20ac", file=errors)
    start_response("200 OK", PLAIN)
    return [b"told"]


def application(environ, start_response):
    name = environ["PATH_INFO"].split("/")[1]
    return globals()["at_" + name](environ, start_response)
