"""Ports without a listener, reserved for one test; and whether IPv6 is available."""

import socket


def reserve():
    """Returns a socket that reserves a port. Until it is closed, a program that uses SO_REUSEADDR, as servers do, can bind the
    port.

    The kernel assigns such a port neither to another server nor to a client, and refuses connections to it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def ipv6_is_there():
    """Returns whether this machine has ::1: containers often do not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
