"""Returns the contents of the module `uwsgi`: names, types and values, as JSON. Also runs on uWSGI."""

import json
import types

import uwsgi


def told(value):
    """Returns a value with its types, recursively."""
    if isinstance(value, dict):
        return {"dict": sorted([told(key), told(item)] for key, item in value.items())}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [told(item) for item in value]}
    if callable(value):
        return "callable"
    return f"{type(value).__name__} {value!r}"


def called(text):
    """Returns the value of an expression over the module, or the type of its exception."""
    try:
        return told(eval(text, {"uwsgi": uwsgi}))
    except Exception as error:
        return f"raises {type(error).__name__}"


LOADED = {name: told(value) for name, value in vars(uwsgi).items() if not isinstance(value, types.ModuleType)}


def application(environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    expressions = json.loads(environ["wsgi.input"].read(length)) if length else []
    body = json.dumps({"loaded": LOADED, "called": [called(text) for text in expressions]}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
