"""Log lines about refused client input."""


def told_of(server, words, peer="127.0.0.1"):
    """Returns the last line with these words about a peer.

    A protocol mix-up is logged once a minute and peer, however often tests send it: this may be an older one.
    """
    lines = server.wait_for(
        lambda: [line for line in server.lines if words in line and f"refused a request from {peer} " in line],
        f"that {words!r} is told of {peer}",
    )
    return lines[-1]


def name_of(address):
    """Returns the name of a client with this address in the log."""
    return "a local client" if isinstance(address, str) else address[0]
