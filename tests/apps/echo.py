"""Returns its input as JSON: the strings of its environ, the types of the rest, and the body."""

import json


def application(environ, start_response):
    body = environ["wsgi.input"].read()
    told = {
        "environ": {name: value for name, value in environ.items() if isinstance(value, str)},
        "types": {name: type(value).__name__ for name, value in environ.items()},
        "body": body.decode("latin-1"),
    }
    answer = json.dumps(told).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
    return [answer]
