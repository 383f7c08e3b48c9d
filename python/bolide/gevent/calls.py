"""Functions of the module ``uwsgi`` that wait for descriptors, for requests that gevent's greenlets serve.

A request registers descriptors and a time limit, and then waits for the first of them: in the call (``uwsgi.suspend()``), or by
yielding an empty part of its answer. It must not know the engine or the answer. Runs in workers with the option ``gevent``;
gevent is imported by the first wait, because the hub belongs to the worker and not to the prototype.
"""

import _socket
import contextvars
import errno
import os
import time

from bolide import _native
from bolide.log import log_message

#: Maximum number of descriptors that a request waits for at the same time.
MAX_DESCRIPTORS = 1024
#: Maximum number of bytes that `recv` reads, as in uWSGI.
MAX_RECEIVED_BYTES = 4096
#: Bytes that fit into each descriptor that is writable: a blocking one is written in parts of this size.
WRITTEN_BYTES = 4096
#: Time limit of `connect` in seconds without one of its own, as in uWSGI.
CONNECT_SECONDS = 3

#: Directions of a wait, in gevent's numbers.
READ, WRITE = 1, 2

TIMEOUT_KEY = "x-wsgiorg.fdevent.timeout"
READY_KEY = "uwsgi.ready_fd"

#: The waits of a request, in its own context.
WAITS = contextvars.ContextVar("bolide_uwsgi_waits")


class Waits:
    """What a greenlet of a request waits for, and the result of its last wait."""

    __slots__ = ("deadline", "descriptors", "greenlet", "ready")

    def __init__(self, greenlet):
        self.greenlet = greenlet
        #: Directions by descriptor.
        self.descriptors = {}
        #: Monotonic time in seconds, or None.
        self.deadline = None
        self.ready = -1

    def add(self, descriptor, direction, timeout):
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if len(self.descriptors) >= MAX_DESCRIPTORS and number not in self.descriptors:
            raise OSError(f"a request can't wait for more than {MAX_DESCRIPTORS} descriptors")
        try:
            os.fstat(number)
        except (OSError, OverflowError):
            raise OSError(errno.EBADF, f"unable to wait for descriptor {number}: it is not open") from None
        self.descriptors[number] = self.descriptors.get(number, 0) | direction
        self.limit(timeout)

    def limit(self, timeout):
        """Set the time limit. If the same wait has several, the first one counts, as in uWSGI."""
        if timeout > 0:
            self.ready = -1
            if self.deadline is None:
                self.deadline = time.monotonic() + timeout

    def take(self):
        """Forget what is registered. Return the descriptors and the deadline."""
        taken = self.descriptors, self.deadline
        self.descriptors, self.deadline, self.ready = {}, None, -1
        return taken


def own_waits():
    """Return the waits of the current greenlet, which are new if it has none."""
    from gevent import getcurrent

    waits, greenlet = WAITS.get(None), getcurrent()
    # A greenlet that a request spawns may run in a copy of the request's context, and waits for descriptors of its own.
    if waits is None or waits.greenlet is not greenlet:
        waits = Waits(greenlet)
        WAITS.set(waits)
    return waits


# For the answer's loop.


def settle(environ=None):
    """Wait in this greenlet until a registered descriptor is ready or the time is over, and note the result in `environ`.

    Without registrations, other greenlets run.
    """
    waits = own_waits()
    descriptors, deadline = waits.take()
    if descriptors or deadline is not None:
        waits.ready = first_ready(descriptors, deadline)
    else:
        from gevent import sleep

        sleep(0)
    environ = environ if environ is not None else environ_of_request()
    if environ is not None:
        environ[TIMEOUT_KEY] = True if deadline is not None and waits.ready < 0 else None
        environ[READY_KEY] = waits.ready if waits.ready >= 0 else None


def environ_of_request():
    try:
        return _native.uwsgi_environ()
    except SystemError:
        # A greenlet that is not serving a request.
        return None


def first_ready(descriptors, deadline):
    """Return the first descriptor that is ready, or -1 after the deadline."""
    from gevent import get_hub
    from gevent.hub import Waiter

    hub = get_hub()
    waiter = Waiter(hub)
    watchers = []
    try:
        for number, directions in descriptors.items():
            watchers.append(hub.loop.io(number, directions))
            watchers[-1].start(waiter.switch, number)
        if deadline is not None:
            watchers.append(hub.loop.timer(max(0, deadline - time.monotonic())))
            watchers[-1].start(waiter.switch, -1)
        return waiter.get()
    finally:
        for watcher in watchers:
            watcher.stop()
            watcher.close()


# The module's functions.


def wait_fd_read(fd, timeout=0):
    own_waits().add(fd, READ, timeout)
    return b""


def wait_fd_write(fd, timeout=0):
    own_waits().add(fd, WRITE, timeout)
    return b""


def async_sleep(seconds):
    own_waits().limit(seconds)
    return b""


def suspend():
    settle()
    return True


green_schedule = suspend


def ready_fd():
    return own_waits().ready


def async_connect(address):
    return begin_connection(address)[0]


def connect(address, timeout=0):
    number, is_connected_already = begin_connection(address)
    if number < 0:
        return -1
    deadline = time.monotonic() + (timeout if timeout >= 1 else CONNECT_SECONDS)
    try:
        came = is_connected_already or first_ready({number: WRITE}, deadline) >= 0
    except BaseException:
        # The greenlet was killed, or its time is over.
        os.close(number)
        raise
    if not came or not is_connected(number):
        os.close(number)
        return -1
    os.set_blocking(number, True)
    return number


def begin_connection(address):
    """Return the number of a new descriptor, or -1, and whether it is connected already."""
    # `socket.socket` may be gevent's, which waits for the connection.
    try:
        family, place = parsed(address)
        made = _socket.socket(family, _socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            failure = made.connect_ex(place)
            if failure in (0, errno.EINPROGRESS):
                return made.detach(), failure == 0
        finally:
            made.close()
    except OSError as error:
        # A name that is unknown, or a path that is too long. In uWSGI, each failure has the result -1.
        log_message(f"uwsgi: no connection to {address}: {error}")
    return -1, False


def parsed(address):
    """Return the family and the address for `connect` of ``host:port``, ``/path``, ``@name`` or ``\\0name``."""
    host, colon, port = address.partition(":")
    if not colon:
        if address.startswith("@"):
            return _socket.AF_UNIX, f"\0{address[1:]}"
        return _socket.AF_UNIX, f"\0{address[2:]}" if address.startswith("\\0") else address
    from gevent import socket

    found = socket.getaddrinfo(host or "127.0.0.1", int(port), socket.AF_INET, socket.SOCK_STREAM)
    return found[0][0], found[0][4]


def is_connected(fd):
    try:
        found = _socket.socket(fileno=fd)
    except (OSError, ValueError):
        return False
    try:
        return found.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR) == 0
    finally:
        found.detach()


def recv(fd, size=MAX_RECEIVED_BYTES):
    """As in uWSGI: None at the end, after an error, and if a descriptor that does not block has nothing."""
    try:
        if os.get_blocking(fd):
            first_ready({fd: READ}, None)
        return os.read(fd, min(size, MAX_RECEIVED_BYTES)) or None
    except OSError:
        return None


def send(descriptor, data=None):
    """Write bytes to a descriptor."""
    if data is None:
        raise TypeError("uwsgi.send: bytes can't be written into the client's connection beside its response; yield them")
    try:
        write(descriptor, memoryview(data).cast("B"))
    except OSError as error:
        log_message(f"uwsgi.send: {error}")
        return None
    return True


def write(number, data):
    if not os.get_blocking(number):
        os.write(number, data)
        return
    while data:
        first_ready({number: WRITE}, None)
        data = data[os.write(number, data[:WRITTEN_BYTES]) :]


def close(fd):
    try:
        os.close(fd)
    except OSError as error:
        # uWSGI says nothing about a descriptor that is not open.
        if error.errno != errno.EBADF:
            raise


#: Keys of each request's environ. The same functions serve all requests.
ENVIRON = {
    "x-wsgiorg.fdevent.readable": wait_fd_read,
    "x-wsgiorg.fdevent.writable": wait_fd_write,
    TIMEOUT_KEY: None,
}
