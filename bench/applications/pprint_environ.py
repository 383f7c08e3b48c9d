"""A generator without a Content-Length that yields the printed environ in pieces: many writes and a chunked answer.

Runs in the servers' workers.
"""

from pprint import pformat

PIECE_CHARACTERS = 256


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    text = pformat(environ)
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield text[start : start + PIECE_CHARACTERS].encode("utf-8", "replace")
