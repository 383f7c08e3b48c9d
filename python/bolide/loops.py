"""The event loop of a worker: ``loop = auto | asyncio | uvloop | rloop``.

Must not know applications or sockets. Runs in workers, after the fork.
"""

import asyncio
import importlib

#: Modules that make loops, by the settings' names.
MODULES = {"Uvloop": "uvloop", "Rloop": "rloop"}


def new_event_loop(kind, tell):
    """Return a new event loop of this kind; ``tell`` takes a line for the log."""
    if kind == "Asyncio":
        return asyncio.new_event_loop()
    if kind == "Auto":
        try:
            return importlib.import_module("uvloop").new_event_loop()
        except ImportError:
            return asyncio.new_event_loop()
    name = MODULES[kind]
    try:
        return importlib.import_module(name).new_event_loop()
    except ImportError as error:
        tell(f"loop = {name}: {error}; asyncio's own loop is used. Is {name} installed: pip install {name}?")
        return asyncio.new_event_loop()
