"""``uwsgi.lock`` and ``uwsgi.unlock`` for requests in greenlets: a request that waits lets others of its worker run, of which
one holds a lock at a time.

The locks are the native module's, which tells threads apart and no greenlets. Runs in processes with the option ``gevent``; where
gevent's hub does not run, such as while the application is loaded, a lock is taken as without it.
"""

import sys

from bolide import _native

#: The first and the longest pause of a greenlet between two looks at a lock, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.01

#: The greenlet that holds a lock, by the lock's number.
HOLDERS = {}


def lock(number=0):
    """Wait until no other request and no other process holds this lock, and take it."""
    current = own_greenlet()
    pause = FIRST_PAUSE
    # A greenlet that would wait for itself gets an exception below.
    while current is not None and HOLDERS.get(number) is not current and _native.uwsgi_is_locked(number):
        if getattr(HOLDERS.get(number), "dead", False):
            # As the lock of a thread that has ended.
            del HOLDERS[number]
            _native.uwsgi_unlock(number)
            continue
        sys.modules["gevent"].sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    # Another process may have been faster: then the worker waits for it.
    _native.uwsgi_lock(number)
    if current is not None:
        HOLDERS[number] = current


def unlock(number=0):
    """Release this lock. One that another greenlet holds stays as it is."""
    if HOLDERS.get(number) in (None, own_greenlet()):
        HOLDERS.pop(number, None)
        _native.uwsgi_unlock(number)


def own_greenlet():
    """Return the calling greenlet; None if nothing would run while it waits."""
    gevent = sys.modules.get("gevent")
    if gevent is None:
        return None
    hub = sys.modules["gevent.hub"]._get_hub()
    current = gevent.getcurrent()
    return None if hub is None or current is hub else current
