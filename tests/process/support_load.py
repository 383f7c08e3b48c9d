"""Clients that keep a server under load and count lost requests, on keep-alive connections and on new ones.

A request is lost if it was sent and its whole response did not come. A connection that the server closes after announcing it
(`Connection: close`) loses nothing; one that it closes without notice during a request does.
"""

import collections
import threading
import time

from support.client import Client, Closed
from support.waiting import TIMEOUT_SECONDS


class Load:
    """Threads that request a path repeatedly, some on keep-alive connections, some on a new one each time."""

    def __init__(self, address, kept_alive=3, fresh=2, target="/"):
        self.address = address
        self.target = target
        #: Number of times that each body came.
        self.bodies = collections.Counter()
        #: Lost requests: (seconds since startup, reason).
        self.losses = []
        self.answers = 0
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._ask_on_one, daemon=True) for _ in range(kept_alive)]
        self._threads += [threading.Thread(target=self._ask_afresh, daemon=True) for _ in range(fresh)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.wait(lambda: self.answers >= len(self._threads), "the first answers")
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def wait(self, condition, what):
        """Waits until a condition on this load holds."""
        with self._changed:
            came = self._changed.wait_for(condition, TIMEOUT_SECONDS)
            assert came, f"waited in vain for {what}: {self.answers} answers, {self.bodies}, lost: {self.losses[:5]}"

    def wait_for_more(self, count=50):
        """Waits until this many more responses have come."""
        wanted = self.answers + count
        self.wait(lambda: self.answers >= wanted, f"{count} more answers")

    def _ask_on_one(self):
        client = None
        while not self._over.is_set():
            closes = True
            try:
                client = client or Client(self.address)
                closes = self._note(client.request("GET", self.target))
            except (OSError, Closed) as error:
                self._lose(f"kept alive: {error!r}")
            if closes and client is not None:
                client.close()
                client = None
        if client is not None:
            client.close()

    def _ask_afresh(self):
        while not self._over.is_set():
            try:
                with Client(self.address) as client:
                    self._note(client.request("GET", self.target, [("Connection", "close")]))
            except (OSError, Closed) as error:
                self._lose(f"fresh: {error!r}")

    def _note(self, answer):
        with self._changed:
            self.answers += 1
            self.bodies[answer.text] += 1
            if answer.status != 200:
                self.losses.append((time.monotonic() - self._began, repr(answer)))
            self._changed.notify_all()
        return answer.says_close

    def _lose(self, reason):
        with self._changed:
            self.losses.append((round(time.monotonic() - self._began, 3), reason))
            self._changed.notify_all()
