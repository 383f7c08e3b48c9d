"""The mode that python-engineio (Flask-SocketIO, python-socketio) chooses by itself in a worker with the option
``gevent-websocket``: ``gevent``, as under gunicorn, instead of ``gevent_uwsgi``.

In ``gevent_uwsgi``, python-engineio tells a text from bytes by the first byte of a message, so binary messages can end the
connection. An application that names its mode gets that mode. Must not know requests. Runs in every process that loads an
application.
"""

import importlib.machinery
import sys

#: The modules that have had the list of modes, by version, and its class in each.
CLASSES = {"engineio.base_server": "BaseServer", "engineio.server": "Server"}
FIRST, SECOND = "gevent", "gevent_uwsgi"


def install():
    """Change the order of the modes when the application imports python-engineio. Others do not pay for the import."""
    for name in CLASSES:
        if name in sys.modules:
            prefer(sys.modules[name])
    sys.meta_path.insert(0, Finder())


class Finder:
    """Finds the modules of python-engineio, each once, and changes their lists after the import."""

    def __init__(self):
        self.left = set(CLASSES)

    def find_spec(self, name, path=None, target=None):
        if name not in self.left:
            return None
        self.left.discard(name)
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None:
            execute = found.loader.exec_module

            def exec_module(module):
                execute(module)
                prefer(module)

            found.loader.exec_module = exec_module
        return found


def prefer(module):
    """Make the class of a module offer ``gevent`` before ``gevent_uwsgi``."""
    holder = getattr(module, CLASSES[module.__name__], None)
    before = vars(holder).get("async_modes") if holder is not None else None
    if before is None:
        return

    def async_modes(self):
        modes = list(before(self))
        if FIRST in modes and SECOND in modes and modes.index(SECOND) < modes.index(FIRST):
            modes.remove(FIRST)
            modes.insert(modes.index(SECOND), FIRST)
        return modes

    holder.async_modes = async_modes
