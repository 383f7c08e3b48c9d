"""``reload-on-exception`` and the related options: a worker that has seen such an exception asks for its replacement.

It must not know how the worker is replaced. Runs in workers after an exception of the application was logged.
"""

import time

from bolide.log import tell


class ReloadOn:
    """Compares exceptions with the configured ones."""

    def __init__(self, settings, ask, min_lifetime_ms):
        self._any = settings["any"]
        self._types = frozenset(settings["types"])
        self._values = frozenset(settings["values"])
        self._reprs = frozenset(settings["reprs"])
        self._ask = ask
        self._min_lifetime_ms = min_lifetime_ms
        self._stays_until = time.monotonic() + min_lifetime_ms / 1000
        self._has_asked = False

    def __call__(self, error):
        if self._has_asked or isinstance(error, SystemExit) or not (self._any or self.is_named(error)):
            return
        self._has_asked = True
        stays = time.monotonic() < self._stays_until
        when = f", when it has served for {self._min_lifetime_ms / 1000:g} s (min-worker-lifetime)" if stays else ""
        tell(f"is {'to be ' if stays else ''}replaced because of this {type(error).__name__} (reload-on-exception){when}")
        self._ask()

    def is_named(self, error):
        """Return whether the configuration names its type, its text, or both with a colon between them. The type may have its
        module.
        """
        kind = type(error)
        names = {kind.__name__, f"{kind.__module__}.{kind.__qualname__}"}
        if names & self._types:
            return True
        if not (self._values or self._reprs):
            return False
        try:
            value = str(error)
        except Exception:
            # An exception whose `str()` fails has no text to compare.
            return False
        return value in self._values or any(f"{name}: {value}" in self._reprs for name in names)
