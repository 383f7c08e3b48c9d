"""Exceptions that a framework turns into a response with status 500 itself, noted for the developer's traceback page.

It must not know the page. It uses what each framework offers for this: signals, hooks, handlers. Frameworks that raise the
exception again (Starlette, FastAPI, Flask in its debug mode) need nothing here. Runs in workers, with ``develop``.
"""

import contextvars
import sys

#: The exceptions of the request that is being served, each with whether the framework logs it: a list that
#: :mod:`bolide.development.developing` puts here. Tasks and threads that copy the context share it.
noted = contextvars.ContextVar("bolide_noted_exceptions")


def note(error, is_logged=True):
    box = noted.get(None)
    if box is not None and error is not None:
        box.append((error, is_logged))


def follow(applications):
    """Follow the frameworks that are loaded, and of those that have no global hook, these application objects."""
    for module, connect in (("flask", follow_flask), ("quart", follow_flask), ("django", follow_django)):
        if module in sys.modules:
            connect(sys.modules[module])
    for application in applications:
        follow_object(application)


def follow_flask(module):
    """Flask 2.3 and newer, and Quart."""
    signal = getattr(module, "got_request_exception", None)
    if signal is not None:
        # A weak reference to a function would end with this call.
        signal.connect(lambda _sender, exception=None, **_rest: note(exception), weak=False)


def follow_django(_module):
    """Django without DEBUG: with it, Django shows a page of its own, also to clients that this module's user would not answer."""
    from django.conf import settings
    from django.core.signals import got_request_exception

    def noticed(sender, **_rest):
        if not settings.DEBUG:
            # Django logs it for mails to the administrators only.
            note(sys.exc_info()[1], is_logged=False)

    got_request_exception.connect(noticed, weak=False)


def follow_object(application):
    module = type(application).__module__.partition(".")[0]
    if module == "falcon":
        follow_falcon(application)
    elif module == "litestar" and isinstance(getattr(application, "after_exception", None), list):

        async def after_exception(exception, _scope):
            note(exception, is_logged=False)

        application.after_exception.append(after_exception)


def follow_falcon(application):
    """Falcon's own handler of exceptions; one of the application's stays as it is."""
    usual = getattr(application, "_python_error_handler", None)
    handlers = getattr(application, "_error_handlers", {})
    if usual is None or handlers.get(Exception) != usual:
        return
    if "asgi" in type(application).__module__:

        async def handle(request, response, error, params, ws=None):
            note(error)
            await usual(request, response, error, params, ws=ws)
    else:

        def handle(request, response, error, params):
            note(error)
            usual(request, response, error, params)

    application.add_error_handler(Exception, handle)
