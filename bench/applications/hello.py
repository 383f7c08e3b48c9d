"""The smallest WSGI application: a constant, so that only the server's own cost is measured. Runs in the servers' workers."""

BODY = b"Hello, World!"
HEADERS = [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))]


def application(environ, start_response):
    start_response("200 OK", HEADERS)
    return [BODY]
