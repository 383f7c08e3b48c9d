"""An application for the container: a page, and the path that probes ask for."""


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/health":
        # Ask here what the application can't serve without, and nothing slow: probes come every few seconds.
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"well\n"]
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{path} of {environ['REMOTE_ADDR']}\n".encode()]
