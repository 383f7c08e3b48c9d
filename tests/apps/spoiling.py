"""Modifies its environ, as middleware does, and returns its content before that."""


def application(environ, start_response):
    told = repr(sorted(key for key in environ)).encode()
    for key in [key for key in environ if key.startswith("HTTP_")]:
        del environ[key]
    environ["REMOTE_ADDR"] = "spoilt"
    environ["wsgi.url_scheme"] = "gopher"
    environ["mine"] = environ
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [told]
