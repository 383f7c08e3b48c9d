"""Django's lazy parts: the URLconf with its views, which Django imports at the first request, and what ``runserver`` adds.

It must not know generations or requests. Runs where the application is loaded, and in workers before they serve.
"""

import sys


def is_set_up():
    """Return whether the application has set up Django."""
    registry = sys.modules.get("django.apps")
    return registry is not None and registry.apps.ready


def load_urlconf():
    """Import the URLconf of the project, and with it the views.

    Without this, code with a mistake in a view loads, serves, and fails at each request. Exceptions of the import pass through.
    """
    if not is_set_up():
        return
    from django.conf import settings
    from django.urls import get_resolver

    if getattr(settings, "ROOT_URLCONF", None):
        # The attribute is computed at its first use.
        _ = get_resolver().url_patterns


def developed(applications, tell):
    """Return the applications of a project that is being developed: changed templates are seen, and with DEBUG the files of
    ``django.contrib.staticfiles`` are served, both as ``runserver`` does. `tell` gets a line about that.
    """
    if not is_set_up():
        return applications
    from django.core.signals import request_started
    from django.template import autoreload

    # Django caches compiled templates, in DEBUG too.
    request_started.connect(lambda **_: autoreload.reset_loaders(), weak=False)
    if not has_static_files():
        return applications
    from django.conf import settings
    from django.contrib.staticfiles import handlers

    wrappers = {"wsgi": handlers.StaticFilesHandler, "asgi": handlers.ASGIStaticFilesHandler}
    wrapped = [
        (mount, wrappers[interface](application) if is_of_django(application) else application, interface)
        for mount, application, interface in applications
    ]
    if wrapped != applications:
        tell(f"static files of Django are served at {settings.STATIC_URL} while developing (in production: `static-map`)")
    return wrapped


def has_static_files():
    from django.conf import settings

    # WhiteNoise's application says that it serves them itself.
    others = "whitenoise.runserver_nostatic"
    installed = settings.INSTALLED_APPS
    return settings.DEBUG and settings.STATIC_URL and "django.contrib.staticfiles" in installed and others not in installed


def is_of_django(application):
    from django.core.handlers.base import BaseHandler

    channels = sys.modules.get("channels.routing")
    kinds = (BaseHandler,) if channels is None else (BaseHandler, channels.ProtocolTypeRouter)
    return isinstance(application, kinds)
