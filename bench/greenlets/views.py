"""Views for gevent: one that never waits, one that lets other greenlets run once, and one that waits a second."""

import gevent

HEAD = [("Content-Type", "text/plain"), ("Content-Length", "12")]


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/once":
        gevent.sleep(0)
    elif path == "/second":
        gevent.sleep(1)
    start_response("200 OK", HEAD)
    return [b"Hello world!"]
