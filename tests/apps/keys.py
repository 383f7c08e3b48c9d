"""A WSGI application that reports how the interpreter stores the keys of its environ."""

import sys

PLAIN = [("Content-Type", "text/plain")]

#: Keys of earlier requests, by their text.
seen = {}


def is_interned(key):
    """Returns whether the interpreter's table of interned strings contains this very object."""
    return sys.intern("".join(list(key))) is key


def application(environ, start_response):
    start_response("200 OK", PLAIN)
    if environ["PATH_INFO"] == "/interned":
        return ["\n".join(sorted(key for key in environ if is_interned(key))).encode()]
    wanted = environ["QUERY_STRING"]
    key = next((key for key in environ if key == wanted), None)
    before = seen.setdefault(wanted, key)
    return [b"the same" if before is key else b"another"]
