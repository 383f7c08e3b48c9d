"""A storage of the package ``limits``, with which Flask-Limiter and slowapi count over all processes of the instance.

After ``import bolide.contrib.limits`` the address ``bolide://NAME`` is a storage on the cache of that name (``cache2``), or on
the first cache without a name. Its strategies are ``fixed-window`` and ``sliding-window-counter``. It must not know requests.
Runs in every process that has the application; outside of the server nothing is counted.
"""

import time
import warnings
from typing import ClassVar

try:
    from limits.storage import SlidingWindowCounterSupport, Storage
    from limits.storage.base import TimestampedSlidingWindow
except ImportError as error:
    raise ImportError(f"bolide.contrib.limits needs the package limits 4.1 or later (pip install limits): {error}") from error

try:
    import uwsgi

    from bolide import _native as native
except ImportError:
    uwsgi = native = None

SCHEME = "bolide://"


class SharedCacheStorage(Storage, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """The storage on the cache of a name."""

    STORAGE_SCHEME: ClassVar = ["bolide"]

    def __init__(self, uri=SCHEME, wrap_exceptions=False, prefix="limits:", **_options):
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.name = (uri or SCHEME)[len(SCHEME) :].strip("/")
        self.prefix = prefix
        if uwsgi is None:
            warnings.warn("there is no cache outside of the server: no limit is counted", RuntimeWarning, stacklevel=2)
        elif not self.check():
            advice = f"write `cache2 = name={self.name or 'limits'},items=10000,purge_lru=1` into the configuration"
            raise ValueError(f"there is no cache {self.name!r}: {advice}" if self.name else f"there is no cache: {advice}")

    @property
    def base_exceptions(self):
        return ()

    def incr(self, key, expiry, amount=1, elastic_expiry=False):
        # limits 4, the last one for Python 3.9, names `elastic_expiry` in every call, and 5 never.
        if elastic_expiry:
            raise NotImplementedError("bolide:// does not support `fixed-window-elastic-expiry`: use `sliding-window-counter`")
        counted = self._count(key, amount, expiry)
        # A cache that is full (without `purge_lru`) does not count new clients, so that others do not lock them out.
        return amount if counted is None else counted

    def get(self, key):
        return (uwsgi.cache_num(self.prefix + key, self.name) or 0) if uwsgi else 0

    def get_expiry(self, key):
        return self._expires_s(key) or time.time()

    def check(self):
        if uwsgi is None:
            return False
        try:
            uwsgi.cache_keys(self.name)
        except ValueError:
            return False
        return True

    def reset(self):
        if uwsgi is None:
            return 0
        mine = [key for key in uwsgi.cache_keys(self.name) if key.startswith(self.prefix.encode())]
        for key in mine:
            uwsgi.cache_del(key, self.name)
        return len(mine)

    def clear(self, key):
        if uwsgi:
            uwsgi.cache_del(self.prefix + key, self.name)

    def acquire_sliding_window_entry(self, key, limit, expiry, amount=1):
        if amount > limit:
            return False
        before, now = self.sliding_window_keys(key, expiry, at=time.time())
        # It counts first and looks then: of two processes that meet at the limit at most one passes.
        counted = self._count(now, amount, 2 * expiry)
        if counted is None:
            return True
        if self._weight_of_previous(before, expiry) + counted <= limit:
            return True
        self._count(now, -amount, 2 * expiry)
        return False

    def get_sliding_window(self, key, expiry):
        at = time.time()
        before, now = self.sliding_window_keys(key, expiry, at=at)
        left_s = expiry - at % expiry
        previous, current = self.get(before), self.get(now)
        return previous, left_s if previous else 0.0, current, left_s + expiry if current else 0.0

    def clear_sliding_window(self, key, expiry):
        for window in self.sliding_window_keys(key, expiry, at=time.time()):
            self.clear(window)

    def _weight_of_previous(self, key, expiry):
        """What requests of the previous window still count for: as much as the present one lacks of a whole window."""
        return int(self.get(key) * (1 - time.time() % expiry / expiry))

    def _count(self, key, amount, expiry):
        """Adds to a number, which expires this many seconds after its first request. None: it is not counted."""
        if uwsgi is None:
            return None
        return native.uwsgi_cache_count(self.prefix + key, int(amount), int(expiry), self.name)

    def _expires_s(self, key):
        expires_ms = native.uwsgi_cache_expires(self.prefix + key, self.name) if uwsgi else None
        return expires_ms / 1000 if expires_ms else None
