"""gevent in a process that loads an application: it patches the standard library before the application is imported, and makes
forks safe for gevent's loop.

gevent belongs to the application's environment and is imported only where a configuration or the application itself asks for it.
Must not know requests. Runs in prototypes, and in the processes that are forked from them.
"""

import os
import re
import sys

from bolide.gevent import engineio_modes

#: The oldest version that works with any greenlet and setuptools of today, as older ones do not.
OLDEST = (23, 7)

#: The line of the log if requests that wait would block others.
UNPATCHED = (
    "WARNING: gevent has not patched the standard library: a request that waits for a socket, a lock or a sleep of it blocks all "
    "others of its worker; only gevent's own functions and uwsgi's (`async_sleep`, `wait_fd_read`) let others run: write "
    "`gevent-monkey-patch = true`"
)


#: Why ASGI applications are not served by gevent.
BY_A_LOOP = "an event loop serves ASGI applications, and WSGI applications beside them"

#: gevent's threads run only while its own loop does, which asyncio's keeps from running.
PATCHED_ASGI = (
    "the application is ASGI, and its threads would never run with a standard library that gevent has patched: leave "
    "`gevent-monkey-patch` (gunicorn's `-k gevent`) out"
)


def prepare(settings):
    """Import gevent, and patch if the settings require it. Return None, or the reason why gevent can't be used."""
    described = settings["language"]["python"]["gevent"]
    origin = described["origin"]
    reason = missing(origin)
    if reason is None and described["patching"]:
        from gevent import monkey

        from bolide import log

        try:
            monkey.patch_all()
        except Exception as error:
            # It calls functions of other packages, by their entry points.
            log.log_exception(error, "gevent.monkey.patch_all()")
            return f"{origin}: gevent can't patch the standard library: {type(error).__name__}: {error}"
        # Each greenlet gets a line of its own, as threads have.
        log.errors.separate_lines()
    if reason is None and described["websocket"]:
        engineio_modes.install()
    return reason


def missing(origin):
    """Return the reason why gevent can't be used in this environment, or None."""
    oldest = ".".join(map(str, OLDEST))
    advice = f"{sys.executable} -m pip install 'gevent>={oldest}'"
    try:
        import gevent
    except ModuleNotFoundError as error:
        if error.name != "gevent":
            return f"{origin}: gevent in {sys.prefix} can't be imported: {error}: {advice}"
        return f"{origin} needs gevent, and it is not installed in the application's environment {sys.prefix}: {advice}"
    except Exception as error:
        # A gevent that was built for another greenlet raises a ValueError.
        return f"{origin}: gevent in {sys.prefix} can't be imported: {type(error).__name__}: {error}: {advice}"
    found = getattr(gevent, "__version__", "")
    if version(found) < OLDEST:
        return f"{origin} needs gevent {oldest}, and {sys.prefix} has {found or 'a module of that name'}: {advice}"
    return None


def check(applications, settings):
    """Return the reason why these applications can't be served with gevent, or None. The log lists what works in a
    different way."""
    from bolide import log

    described = settings["language"]["python"]["gevent"]
    # If several workers load them, the first one logs it.
    tells = log.worker <= 1 and not log.helper
    if any(interface == "asgi" for _, _, interface in applications):
        if described["patching"]:
            return f"{described['origin']}: {PATCHED_ASGI}"
        if tells:
            log.tell(f"{described['origin']} has no effect: {BY_A_LOOP}")
    elif tells and settings["applications"] and not is_patched():
        log.tell(UNPATCHED)
    return None


def version(text):
    """Return the leading numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", str(text))[0])[:2]))


def is_patched():
    """Return whether sockets of the standard library are gevent's."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("socket")


def fork():
    """Fork with the interpreter's own function: gevent's would watch the child by a loop that does not run here. In the child,
    gevent's loop becomes the child's own.
    """
    monkey = sys.modules.get("gevent.monkey")
    is_replaced = monkey is not None and monkey.is_object_patched("os", "fork")
    pid = (monkey.get_original("os", "fork") if is_replaced else os.fork)()
    if pid == 0 and "gevent" in sys.modules:
        # Without a loop it does nothing.
        sys.modules["gevent"].reinit()
    return pid


def loop_descriptors():
    """Return the descriptors of gevent's loop in this process, which every child replaces by its own."""
    hub = sys.modules.get("gevent.hub")
    # A function for an existing hub only: another one would make one.
    found = hub._get_hub() if hub is not None and hasattr(hub, "_get_hub") else None
    try:
        return set() if found is None else {found.loop.fileno()}
    except (AttributeError, OSError, ValueError):
        # The application has closed it.
        return set()
