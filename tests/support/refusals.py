"""Lines of the log about what a client may not send."""


def told_of(server, words, peer="127.0.0.1"):
    """The last line with these words about a peer.

    A mix-up of protocols is one line a minute of each peer, however often tests send it: this may be an older one.
    """
    lines = server.wait_for(
        lambda: [line for line in server.lines if words in line and f"refused a request of {peer} " in line],
        f"that {words!r} is told of {peer}",
    )
    return lines[-1]


def name_of(address):
    """How the log calls a client of this address."""
    return "a local client" if isinstance(address, str) else address[0]
