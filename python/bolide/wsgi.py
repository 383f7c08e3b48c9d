"""Objects that go into each ``environ``, and functions that the native module calls. None of it is on the path of a plain
request.

A worker's process runs it, and through it the application.
"""

import io
import os
import stat

from bolide.log import errors, log_exception, log_message

__all__ = [
    "EMPTY_INPUT",
    "ConnectionSocket",
    "FileWrapper",
    "body_in_file",
    "body_in_memory",
    "errors",
    "log_exception",
    "log_message",
    "read_and_go_on",
    "sendable",
]

#: Maximum size of a part of a file that is not sent by sendfile, in bytes.
BLOCK_BYTES = 64 * 1024


class EmptyInput:
    """``wsgi.input`` of a request without a body. It has no state, so all requests share one object."""

    __slots__ = ()

    def read(self, size=-1, /):
        return b""

    def readline(self, size=-1, /):
        return b""

    def readlines(self, hint=-1, /):
        return []

    def readinto(self, buffer, /):
        return 0

    def readable(self):
        return True

    def seekable(self):
        return False

    def close(self):
        """Does nothing: the next request gets the same object."""

    def __iter__(self):
        return iter(())


EMPTY_INPUT = EmptyInput()

#: ``wsgi.input`` of a body in memory: the standard library does reading, lines and iteration.
body_in_memory = io.BytesIO


def body_in_file(descriptor):
    """``wsgi.input`` of a body in a temporary file; closing it frees the disk."""
    return os.fdopen(descriptor, "rb")


def nothing_there(environ, start_response):
    """The application of an instance without one: requests that no file and no route answers get 404."""
    start_response("404 Not Found", [("Content-Type", "text/plain")])
    return [b"Not Found"]


class FileWrapper:
    """``wsgi.file_wrapper`` (PEP 3333, "Optional Platform-Specific File Handling").

    If the application returns a wrapper of a regular file unchanged, sendfile sends it; otherwise it is an iterable like any
    other.
    """

    def __init__(self, filelike, block_size=BLOCK_BYTES):
        self.filelike = filelike
        self.block_size = block_size
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self):
        return self

    def __next__(self):
        data = self.filelike.read(self.block_size)
        if data:
            return data
        raise StopIteration


def sendable(wrapper):
    """Return ``(descriptor, offset, length)`` if it wraps a regular file, else None.

    The length counts from the file's current position.
    """
    filelike = wrapper.filelike
    try:
        descriptor = filelike.fileno()
        offset = filelike.tell()
        status = os.fstat(descriptor)
    except (AttributeError, OSError, ValueError):
        # No descriptor, no position, or closed: it is read like any iterable, and raises its own error.
        return None
    if not stat.S_ISREG(status.st_mode) or isinstance(filelike, io.TextIOBase):
        return None
    return descriptor, offset, max(0, status.st_size - offset)


def read_and_go_on(wrapper, rest):
    """Yield the parts of a wrapper that is itself a part of an answer and no regular file, then the rest of the answer."""
    try:
        yield from wrapper
    finally:
        if hasattr(wrapper, "close"):
            wrapper.close()
    yield from rest


class ConnectionSocket:
    """``gunicorn.socket`` and ``werkzeug.socket``: the connection of an Upgrade request, for libraries that speak WebSocket on
    it.

    It becomes a socket at its first use. From then on the application owns the connection: the server neither reads nor writes
    it, and forgets it when the application returns.
    """

    def __init__(self, take):
        self._take = take

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._open(), name)

    def _open(self):
        made = self.__dict__.get("_socket")
        if made is None:
            import socket

            made = self._socket = socket.socket(fileno=self._take())
            # The server's descriptor is non-blocking, and this flag is shared by all descriptors of the connection.
            made.setblocking(True)
        return made
