"""Threads that repeat an action while a test does something else."""

import threading

from support.waiting import TIMEOUT_SECONDS


class Repeating:
    """Threads that call ``once`` until the block ends. A thread whose call raises an exception adds it to ``failures``
    and ends.
    """

    def __init__(self, threads):
        self.failures = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def once(self):
        raise NotImplementedError

    def _run(self):
        while not self._over.is_set():
            try:
                self.once()
            except Exception as error:
                self.failures.append(error)
                return
