"""``catch-exceptions``: the answer to a request shows the traceback of the application's exception.

For development only: a traceback reveals internals to strangers. It wraps the application when that is loaded, so other
configurations pay nothing for it. Runs in prototypes and workers.
"""

import sys
import traceback

from bolide import log, wsgi

HEADERS = [("Content-Type", "text/plain; charset=utf-8")]


def show_exceptions(application):
    """Return the application, wrapped so that its exceptions become answers."""

    def shown(environ, start_response):
        try:
            result = application(environ, start_response)
        except Exception as error:
            return [explain(error, environ, start_response)]
        if isinstance(result, (list, tuple, bytes, wsgi.FileWrapper)):
            return result
        return iterate(result, environ, start_response)

    return shown


def iterate(result, environ, start_response):
    try:
        yield from result
    except Exception as error:
        yield explain(error, environ, start_response)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()


def explain(error, environ, start_response):
    """Log the exception and return its traceback. An answer that has begun is cut off: ``start_response`` raises."""
    start_response("500 Internal Server Error", HEADERS, sys.exc_info())
    request = f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']}"
    log.log_exception(error, request, request=(request,))
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines).encode("utf-8", "backslashreplace")
