"""Observes the workers of an instance during a test."""

import threading


class Observer:
    """Polls the pids of the workers continuously."""

    def __init__(self, instance):
        self.most = 0
        self.seen = set()
        self._instance = instance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        # On a busy machine the thread may begin to look when a worker has been replaced already.
        self._look_once()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        # On a busy machine the last observation may be old.
        self._look_once()

    def _look(self):
        while not self._over.wait(0.002):
            self._look_once()

    def _look_once(self):
        workers = self._instance.workers()
        self.most = max(self.most, len(workers))
        self.seen.update(workers)
