"""The event loop of a worker: ``loop = auto | asyncio | uvloop | rloop``.

Must not know applications or sockets. The prototype imports the loop's module together with the application; workers create their
loops after the fork.
"""

import asyncio
import importlib
import sys

from bolide.loading.load import LoadError

#: Modules that provide event loops, by the setting's value.
MODULES = {"Uvloop": "uvloop", "Rloop": "rloop"}


def event_loop_factory(kind):
    """Return the factory of event loops of this kind. LoadError if it is not installed."""
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
