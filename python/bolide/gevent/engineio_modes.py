"""The mode that python-engineio (Flask-SocketIO, python-socketio) chooses by itself in a worker with the option
``gevent-websocket``: ``gevent``, as under gunicorn, instead of ``gevent_uwsgi``.

In ``gevent_uwsgi``, python-engineio tells a text from bytes by the first byte of a message, so binary messages can end the
connection. An application that sets its mode gets that mode. Must not know requests. Runs in every process that loads an
application.
"""

from bolide.loading.after_import import after_import

#: The modules that have had the list of modes, by version, and its class in each.
CLASSES = {"engineio.base_server": "BaseServer", "engineio.server": "Server"}
FIRST, SECOND = "gevent", "gevent_uwsgi"


def install():
    """Change the order of the modes when the application imports python-engineio."""
    after_import(dict.fromkeys(CLASSES, prefer))


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
