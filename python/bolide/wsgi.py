"""What goes into each ``environ``, and what the native half calls: none of it runs on the way of a plain request.

A worker's process uses this module, and through it the application.
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

#: Bytes of a part of a file that is not sent by sendfile.
BLOCK_BYTES = 64 * 1024


class EmptyInput:
    """``wsgi.input`` of a request without a body. It has no state, so one serves for all."""

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
        """Closing nothing: the next request has the same object."""

    def __iter__(self):
        return iter(())


EMPTY_INPUT = EmptyInput()

#: ``wsgi.input`` of a body that is in memory: reading, lines and iteration at any size are the library's.
body_in_memory = io.BytesIO


def body_in_file(descriptor):
    """``wsgi.input`` of a body that went to a temporary file; closing it frees the disk."""
    return os.fdopen(descriptor, "rb")


def nothing_there(environ, start_response):
    """The application where none was asked for: what files and routes don't take is not found."""
    start_response("404 Not Found", [("Content-Type", "text/plain")])
    return [b"Not Found"]


class FileWrapper:
    """``wsgi.file_wrapper`` (PEP 3333, "Optional Platform-Specific File Handling").

    Returned as it is by the application, a wrapper around a real file is sent by sendfile; otherwise it is
    an iterable like any other.
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
    """Return ``(descriptor, offset, length)`` if what is wrapped is a regular file, else None.

    The length is what is left from the file's present position.
    """
    filelike = wrapper.filelike
    try:
        descriptor = filelike.fileno()
        offset = filelike.tell()
        status = os.fstat(descriptor)
    except (AttributeError, OSError, ValueError):
        # No descriptor, no position or closed: it is read like any iterable, and says itself what is wrong.
        return None
    if not stat.S_ISREG(status.st_mode) or isinstance(filelike, io.TextIOBase):
        return None
    return descriptor, offset, max(0, status.st_size - offset)


def read_and_go_on(wrapper, rest):
    """Give the parts of a wrapper that was itself a part of an answer and is no real file, and then the rest of the answer."""
    try:
        yield from wrapper
    finally:
        if hasattr(wrapper, "close"):
            wrapper.close()
    yield from rest


class ConnectionSocket:
    """``gunicorn.socket`` and ``werkzeug.socket`` of a request that asks for another protocol: its connection, for libraries
    that speak WebSocket on it.

    It becomes a socket when it is first used for anything. From then on the connection is the application's: the server reads and
    sends nothing on it, and forgets it when the application returns.
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
            # The server's own descriptor does not block, and that is a state of the connection, not of the descriptor.
            made.setblocking(True)
        return made
