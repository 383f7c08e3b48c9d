"""What an application has opened while it was loaded and forked workers can't share: threads, and connections.

Must not know settings. Runs in the prototype, before and after it loads the application.
"""

import os

#: Names of threads and addresses that are told, at the most.
NAMES_MOST = 5


class Before:
    """What there was before the application was loaded."""

    def __init__(self):
        self._sockets = set(_sockets())
        self._threads = set(_list("task"))

    def warning(self):
        """Return what to say of threads and connections that are there now, or None."""
        threads = thread_names(self._threads)
        connections = peers(self._sockets)
        did, hurts = [], []
        if threads:
            did.append(f"started {counted(threads, 'thread')}")
            hurts.append("do not have the threads")
        if connections:
            did.append(f"opened {counted(connections, 'connection')}")
            hurts.append("would share the connections")
        if not did:
            return None
        return (
            f"WARNING: while it was loaded, the application {' and '.join(did)}; "
            f"workers are forked later: they {' and '.join(hurts)}. Set `lazy-apps = true`, which loads it in each worker"
        )


def counted(names, what):
    shown = ", ".join(names[:NAMES_MOST]) + (", …" if len(names) > NAMES_MOST else "")
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({shown})"


def thread_names(before):
    """Names of the threads that have come since: Python's by theirs, others where their library gave them one.

    Threads of numeric libraries have the name of the process; they are started anew after a fork, and nothing is lost.
    """
    tasks = [int(task) for task in _list("task") if task not in before]
    if not tasks:
        return []
    import threading

    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    own = _kernel_name(os.getpid())
    found = [named.get(task) or _kernel_name(task) for task in tasks]
    return sorted(name for name in found if name and name != own)


def peers(before):
    """Addresses of the connections that have come since. Pairs of sockets within the process are none."""
    found = []
    for descriptor, identity in _sockets():
        if (descriptor, identity) in before:
            continue
        import socket

        try:
            with socket.socket(fileno=os.dup(int(descriptor))) as copy:
                peer = copy.getpeername()
        except OSError:
            # It listens, or was never connected.
            continue
        if isinstance(peer, bytes):
            peer = peer.decode(errors="replace").replace("\0", "@", 1)
        if peer:
            found.append(peer if isinstance(peer, str) else f"{peer[0]}:{peer[1]}")
    return sorted(found)


def _list(what):
    try:
        return os.listdir(f"/proc/self/{what}")
    except OSError:
        # Without /proc nothing is found, and nothing said.
        return []


def _sockets():
    """Yield the number and the kernel's identity of each open socket: a number alone may be another one's soon."""
    for descriptor in _list("fd"):
        try:
            identity = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            # That of the listing itself.
            continue
        if identity.startswith("socket:"):
            yield descriptor, identity


def _kernel_name(task):
    try:
        with open(f"/proc/self/task/{task}/comm") as file:
            return file.read().strip()
    except OSError:
        return None
