"""The applications of gevent's own tests of its server, one for each port: ``cases.json`` beside the configuration says which."""

import json
import os
import pathlib

from gevent.tests import test__pywsgi

made = {}


def application_of(port):
    cases = json.loads(pathlib.Path(os.environ["CASES"]).read_text())
    kind = getattr(test__pywsgi, cases[port])
    case = kind(next(name for name in dir(kind) if name.startswith("test")))
    return case.application if case.validator is None else case.validator(case.application)


def application(environ, start_response):
    port = environ["SERVER_PORT"]
    if port not in made:
        made[port] = application_of(port)
    return made[port](environ, start_response)
