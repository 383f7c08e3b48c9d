"""A reader of the ``stats`` address."""

import contextlib
import json
import socket

from support.client import TIMEOUT_SECONDS


def connect(address):
    """``address`` is a pair of host and port, or the path or @name of a UNIX socket."""
    is_tcp = isinstance(address, tuple)
    connection = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
    connection.settimeout(TIMEOUT_SECONDS)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        connection.connect(address if is_tcp else address.replace("@", "\0", 1))
        stack.pop_all()
    return connection


def read_raw(address, request=b""):
    """Reads until the server closes the connection."""
    with connect(address) as connection:
        if request:
            connection.sendall(request)
        text = b""
        while part := connection.recv(65536):
            text += part
    return text


def read_statistics(address):
    return json.loads(read_raw(address))


def worker_of(address, number=1):
    """Returns the statistics of the worker with this number."""
    (found,) = [worker for worker in read_statistics(address)["workers"] if worker["id"] == number]
    return found
