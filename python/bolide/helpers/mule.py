"""A mule: a helper that executes code of its own, or waits for messages.

Must not know how messages travel. Runs in mules.
"""

import os
import threading

from bolide import log
from bolide.helpers.helper import Helper

#: A process with code that catches every exception gets this many more of them at its end; then it ends without its code.
MAX_ENDS = 3


class Mule(Helper):
    """A mule by its task in the settings."""

    def __init__(self, half, name, task):
        super().__init__(half, name, task)
        self.number = task["number"]
        self.ends = 0
        messages = half.uwsgi.messages
        self.farms = [name for name, mules in messages.farms.items() if self.number in mules]
        self.of_farms = [messages.places[f"farm {name}"] for name in self.farms]
        #: The objects whose calls it answers, if there are some.
        self.apps = None
        self.described = half.settings["mules"]["apps"]
        self.places = messages.places
        self.of_mule = [messages.places[f"mule {self.number}"], messages.places["mules"]]

    def work(self):
        code = self.task["code"]
        if code is None:
            self.serve()
        elif "File" in code:
            self.execute(code["File"])
        else:
            self.call(code["Function"])

    def execute(self, path):
        """Execute a file as ``__main__``, as uWSGI does."""
        import runpy

        runpy.run_path(path, run_name="__main__")

    def call(self, name):
        """Call ``module:function``."""
        from bolide.hooks import find

        find({"name": name, "origin": f"mule = {name}"})()

    def serve(self):
        """Hand each message to the application's hook, and answer calls."""
        queues = self.of_mule + self.of_farms
        if self.described:
            from bolide.helpers.mule_apps import Apps

            self.apps = Apps(self.described, self.number, self.places)
            queues = self.apps.load() + queues
        try:
            while True:
                message = self.receive(queues, None, None, signals=True)
                if isinstance(message, tuple):
                    self.apps.answer(*message, self.link)
                elif message is not None:
                    self.take(message)
        finally:
            if self.apps is not None:
                self.apps.close()

    def take(self, message):
        hook = self.half.uwsgi.hook("mule_msg_hook")
        if hook is None:
            log.tell(
                f"received a message of {len(message)} bytes, but nothing handles it: set uwsgi.mule_msg_hook, or use @mulefunc"
            )
            return
        try:
            hook(message)
        except Exception as error:
            log.log_exception(error, "a message")

    def receive(self, queues, most_bytes, seconds, signals=False):
        """Return the next message, or None if there is none within this time. The message before it is done with this call.

        With `signals`, the handlers of uWSGI's signals run in the meantime.
        """
        message = self.link.receive(queues, most_bytes, seconds, signals)
        if message is False:
            self.leave()
        return message

    def leave(self):
        """End the mule from within the application's code, which may catch that."""
        self.ends += 1
        if self.ends > MAX_ENDS:
            self.end_here(0)
        if threading.current_thread() is not threading.main_thread():
            # The main thread may have been spared for the sake of this one.
            os.kill(self.pid, self.native.HELPER_SIGNAL)
        raise SystemExit(0)

    # The functions of the module `uwsgi`.

    def mule_get_msg(self, signals=True, farms=True, buffer_size=None, timeout=-1):
        queues = self.of_mule + (self.of_farms if farms is not None and farms is not False else [])
        handles = signals is not None and signals is not False
        message = self.receive(queues, most_bytes(buffer_size), None if timeout < 0 else timeout, handles)
        # As in uWSGI, which tells an empty message and none apart by nothing.
        return b"" if message is None else message

    def farm_get_msg(self):
        return self.receive(self.of_farms, None, None)

    def in_farm(self, farm=None):
        return True if (self.farms if farm is None else farm in self.farms) else None


def most_bytes(buffer_size):
    """Return how much of a message is taken. Without a number the whole message, where uWSGI cuts it at 64 KiB."""
    if buffer_size is None:
        return None
    if buffer_size < 0:
        raise ValueError(f"mule_get_msg: buffer_size {buffer_size} must not be negative")
    return buffer_size
