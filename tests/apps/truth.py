"""Returns the variables of environ about how it is run."""

import json


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    names = ("wsgi.multithread", "wsgi.multiprocess", "wsgi.run_once", "wsgi.version")
    return [json.dumps({name: environ[name] for name in names}).encode()]
