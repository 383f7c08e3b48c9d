"""The routes of the benchmark as a plain WSGI application."""

TEXT = ("Content-Type", "text/plain; charset=utf-8")
USER = "/user/"


def app(environ, start_response):
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    if (method, path) in (("GET", "/"), ("POST", "/user")):
        body = b""
    elif method == "GET" and path.startswith(USER) and path != USER:
        # WSGI's strings have a character for each byte (PEP 3333).
        body = path[len(USER) :].encode("latin-1")
    else:
        start_response("404 Not Found", [TEXT, ("Content-Length", "0")])
        return []
    start_response("200 OK", [TEXT, ("Content-Length", str(len(body)))])
    return [body]
