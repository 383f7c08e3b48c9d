"""A cache backend of Django on a cache that all processes of the instance share (``cache2``).

``CACHES = {"default": {"BACKEND": "bolide.contrib.django.SharedCache", "LOCATION": "pages"}}``, where ``LOCATION`` is the name of
the cache, and empty for the first one. It must not know requests. Runs in every process that has the application; outside of
the server nothing is stored.
"""

import math
import pickle
import sys
import warnings

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

try:
    import uwsgi

    from bolide import _native as native
except ImportError:
    uwsgi = native = None

#: A whole number of at most this many bytes is stored as one, so that processes can count together. No other value has this
#: length.
NUMBER_BYTES = 8
NUMBERS = range(-(2**63), 2**63)
#: Before a value that is pickled.
PICKLED = b"p"
#: The longest time, in seconds: a longer one is the same for a cache in memory.
MAX_SECONDS = 2**31


class SharedCache(BaseCache):
    """The cache of a name."""

    def __init__(self, name, params):
        super().__init__(params)
        self.name = name
        if uwsgi is None:
            warnings.warn("there is no cache outside of the server: nothing is stored", RuntimeWarning, stacklevel=2)
        elif not hasattr(uwsgi, "cache_get"):
            raise ImportError(f"{self.__class__.__name__} needs the module `uwsgi` of Bolide")

    def get(self, key, default=None, version=None):
        stored = self._stored(self.make_and_validate_key(key, version=version))
        return default if stored is None else loaded(stored)

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        # A value that does not find room must not leave the old one behind.
        if uwsgi and not uwsgi.cache_update(key, dumped(value), self._seconds(timeout), self.name):
            uwsgi.cache_del(key, self.name)

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        return bool(uwsgi and uwsgi.cache_set(key, dumped(value), self._seconds(timeout), self.name))

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version=version)
        stored = self._stored(key)
        # If another process replaces the value at this moment, one of the two values stays.
        return stored is not None and bool(uwsgi.cache_update(key, stored, self._seconds(timeout), self.name))

    def delete(self, key, version=None):
        key = self.make_and_validate_key(key, version=version)
        return bool(uwsgi and uwsgi.cache_del(key, self.name))

    def has_key(self, key, version=None):
        key = self.make_and_validate_key(key, version=version)
        return bool(uwsgi and uwsgi.cache_exists(key, self.name))

    def incr(self, key, delta=1, version=None):
        made = self.make_and_validate_key(key, version=version)
        stored = self._stored(made)
        if stored is None:
            raise ValueError(f"Key '{key}' not found")
        if len(stored) != NUMBER_BYTES or delta not in NUMBERS or loaded(stored) + delta not in NUMBERS:
            value = loaded(stored) + delta
            uwsgi.cache_update(made, dumped(value), self._seconds(DEFAULT_TIMEOUT), self.name)
            return value
        return native.uwsgi_cache_count(made, delta, 0, self.name)

    def clear(self):
        if uwsgi:
            uwsgi.cache_clear(self.name)

    def _stored(self, key):
        return uwsgi.cache_get(key, self.name) if uwsgi else None

    def _seconds(self, timeout):
        """Return the seconds for `uwsgi`'s functions: 0 is for ever, and -1 has passed."""
        timeout = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if timeout is None:
            return 0
        return -1 if timeout <= 0 else min(math.ceil(timeout), MAX_SECONDS)


def dumped(value):
    """Return a value as bytes."""
    if type(value) is int and value in NUMBERS:
        return value.to_bytes(NUMBER_BYTES, sys.byteorder, signed=True)
    text = PICKLED + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    # A pickle ends itself: what follows is not read.
    return text + b"." if len(text) == NUMBER_BYTES else text


def loaded(stored):
    """Return the value of bytes."""
    if len(stored) == NUMBER_BYTES:
        return int.from_bytes(stored, sys.byteorder, signed=True)
    return pickle.loads(stored[len(PICKLED) :])
