"""The event loop of a worker: ``loop = auto | asyncio | uvloop | rloop``.

Must not know applications or sockets. The prototype looks for the loop with the application; workers make theirs after the fork.
"""

import asyncio
import importlib
import sys

from bolide.load import LoadError

#: Modules that make loops, by the settings' names.
MODULES = {"Uvloop": "uvloop", "Rloop": "rloop"}


def event_loop_factory(kind):
    """Return the function that makes event loops of this kind; LoadError if it is not installed."""
    if kind == "Asyncio":
        return asyncio.new_event_loop
    if kind == "Auto":
        try:
            return importlib.import_module("uvloop").new_event_loop
        except ImportError:
            return asyncio.new_event_loop
    name = MODULES[kind]
    try:
        return importlib.import_module(name).new_event_loop
    except ImportError as error:
        raise LoadError(
            f"loop = {name}: {error}; install it into {sys.executable} (pip install {name}), or leave `loop` out"
        ) from None
