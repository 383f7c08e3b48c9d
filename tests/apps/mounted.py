"""Applications to mount, each of which returns its name and its mount point."""

import json


def named(name):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps([name, environ["SCRIPT_NAME"], environ["PATH_INFO"], environ["REQUEST_URI"]]).encode()]

    return application


one = named("one")
two = named("two")
deep = named("deep")
application = named("root")
