"""The loops that read an inbox while their tasks or greenlets listen: asyncio's and gevent's.

Must not know subscriptions. Runs in processes that listen.
"""

import sys


def original(name):
    """Return a function of ``_thread`` that gevent has not replaced."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original("_thread", name)
    return getattr(__import__("_thread"), name)


class GeventLoop:
    """gevent's hub of a thread, with the methods of asyncio's loop that a reader needs."""

    def __init__(self, hub):
        self.hub = hub
        self.watcher = None
        self.thread = original("get_ident")()

    @classmethod
    def of_thread(cls):
        """Return the one of the calling thread; None where no hub runs."""
        module = sys.modules.get("gevent.hub")
        hub = module._get_hub() if module is not None else None
        if hub is None or sys.modules["gevent"].getcurrent() is hub:
            return None
        if not hasattr(hub, "bolide_loop"):
            hub.bolide_loop = cls(hub)
        return hub.bolide_loop

    def add_reader(self, descriptor, callback):
        self.watcher = self.hub.loop.io(descriptor, 1)
        self.watcher.start(callback)

    def remove_reader(self, descriptor):
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def call(self, function):
        """Call a function that does not switch, in the hub's thread."""
        if original("get_ident")() == self.thread:
            function()
        else:
            self.hub.loop.run_callback_threadsafe(function)

    def call_soon_threadsafe(self, function):
        self.hub.loop.run_callback_threadsafe(function)


def running_loop():
    """Return the event loop that runs in this thread; None if there is none."""
    events = sys.modules.get("asyncio.events")
    return None if events is None else events._get_running_loop()


def wake_future(loop, future, thread, get_ident):
    if get_ident() == thread:
        resolve(future)
        return
    try:
        loop.call_soon_threadsafe(resolve, future)
    except RuntimeError:
        # The loop is closed, and its task with it.
        return


def resolve(future):
    if not future.done():
        future.set_result(None)
