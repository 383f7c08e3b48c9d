"""An application for the container: a page, and the path for health probes."""


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/health":
        # Check the services that the application cannot work without, but nothing slow. Probes come every few seconds.
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"well\n"]
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{path} of {environ['REMOTE_ADDR']}\n".encode()]
