"""Callables of every form that a configuration may name."""


def answer(text, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text]


def application(environ, start_response):
    return answer(b"application", start_response)


def app(environ, start_response):
    return answer(b"app", start_response)


class Site:
    """An instance is an application, and so is its method."""

    def __call__(self, environ, start_response):
        return answer(b"instance", start_response)

    def method(self, environ, start_response):
        return answer(b"method", start_response)


site = Site()


class ClassApplication:
    """The class is the application, the instance its answer (PEP 3333, "The Application/Framework Side")."""

    def __init__(self, environ, start_response):
        self.start_response = start_response

    def __iter__(self):
        yield from answer(b"class", self.start_response)


def create_app():
    return app


not_callable = 42
