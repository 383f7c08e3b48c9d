"""Ports at which nobody listens, and which nobody else is given; and whether there is IPv6."""

import socket


def reserve():
    """A socket whose port is free for a program that binds it with SO_REUSEADDR, as servers do, until this one is closed.

    The kernel gives such a port neither to a server that asks for any nor to a client, and who connects to it is refused.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def ipv6_is_there():
    """Whether this machine has ::1: containers often have not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
