"""Finds out whether a worker that has served can be the base of its siblings (``refork-after``), and makes it ready.

What its application can open again is closed. What else it has opened since it was loaded is named, because its forks would share
it without knowing. Must not know the order, or how a process is forked. Runs in prototypes when they have loaded, and in workers
that have drained.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time

from bolide import fork_safety

#: How long threads that have ended may still be listed, in seconds.
ENDING_SECONDS = 1
#: The time between two looks at them, in seconds.
LOOK_SECONDS = 0.002

#: Devices that any number of processes may have open.
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/", "/dev/console")
#: The names of the server's own memory.
OWN_MEMORY = "/memfd:bolide"

#: How to find and close the connections of a library, by its module: they are opened again when they are needed.
CLOSERS = {}


class Lineage:
    """What a prototype has when it has loaded the application. Its workers may have no more of certain kinds when they become a
    prototype.
    """

    def __init__(self):
        self.descriptors = set(fork_safety.descriptors())
        self.mappings = {place for place, _ in shared_mappings()}
        self.locks = {id(lock) for lock, _ in held_locks()}
        self.cpus = os.sched_getaffinity(0)
        self.watch = None

    def begin_worker(self):
        """Note from now on where threads are started and connections are opened."""
        self.watch = fork_safety.LoadWatch(follows_imports=False)
        self.watch.__enter__()

    def release(self, own):
        """Close what can be opened again. Return a line for each other thing that forks can't share.

        ``own`` are the descriptors that the server has opened in this worker. If nothing is left, all objects are frozen.
        """
        # Objects that are frozen can't be found.
        gc.unfreeze()
        failures = list(close_connections())
        # Connections that nothing refers to any more are closed.
        gc.collect()
        found = {
            "thread": self.threads(),
            **self.opened(set(own)),
            "child process": children(),
            "timer": timers(),
            "file lock": file_locks(),
            "shared mapping": [what for place, what in shared_mappings() if place not in self.mappings],
            "held lock": [what for lock, what in held_locks() if id(lock) not in self.locks],
        }
        held = [fork_safety.counted(names, kind) for kind, names in found.items() if names] + failures
        if not held:
            self.watch.__exit__()
            gc.collect()
            gc.freeze()
        return held

    def threads(self):
        end = time.monotonic() + ENDING_SECONDS
        while True:
            found = self.watch.threads()
            if not found or time.monotonic() > end:
                return found
            time.sleep(LOOK_SECONDS)

    def opened(self, own):
        """Return the names of what is open beside files, by kind."""
        found = {}
        for descriptor, identity in fork_safety.descriptors():
            if (descriptor, identity) in self.descriptors or int(descriptor) in own:
                continue
            kind, name = described(int(descriptor), identity)
            if kind is not None:
                key = fork_safety.key_of(descriptor, identity)
                found.setdefault(kind, []).append(self.watch.at(name, key))
        return {kind: sorted(found[kind]) for kind in sorted(found)}

    def become_prototype(self):
        """This process is a fork of the worker, and forks workers of all numbers."""
        os.sched_setaffinity(0, self.cpus)
        self.descriptors = set(fork_safety.descriptors())


def described(descriptor, identity):
    """Return the kind and the name of a descriptor that processes can't share, or None and None."""
    if identity.startswith("socket:"):
        peer = fork_safety.peer_of(descriptor)
        # The sockets of a pair have an empty address.
        if not peer:
            return "socket", f"descriptor {descriptor}"
        return "connection", peer + (" by TLS" if fork_safety.is_tls(descriptor) else "")
    if identity.startswith("pipe:"):
        return "pipe", f"descriptor {descriptor}"
    if identity.startswith("anon_inode:"):
        kind = identity[len("anon_inode:") :].strip("[]")
        return {"eventpoll": "epoll"}.get(kind, kind), f"descriptor {descriptor}"
    if identity.startswith("/dev/") and not identity.startswith((*HARMLESS_DEVICES, "/dev/shm/")):
        return "device", identity
    return None, None


def shared_mappings():
    """Yield each mapping whose writes other processes see, as a key and a name."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            place, rights, _, _, inode, *name = line.split(maxsplit=5)
            name = name[0].strip() if name else ""
            is_shared = rights[3] == "s" and rights[1] == "w"
            is_device = name.startswith("/dev/") and not name.startswith(("/dev/zero", "/dev/shm/"))
            if (is_shared or is_device) and not name.startswith(OWN_MEMORY):
                anonymous = name.startswith("/dev/zero") or not name
                yield (place, inode), "anonymous" if anonymous else name


def children():
    """Return the names of processes that this one has started and that run: they would not be children of its forks."""
    found = []
    for task in fork_safety.tasks():
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += file.read().split()
    return [f"{fork_safety.kernel_name(pid)} (pid {pid})" for pid in found if is_running(pid)]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def timers():
    """Return the interval timers that run: a fork has none."""
    kinds = {"ITIMER_REAL": signal.ITIMER_REAL, "ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL, "ITIMER_PROF": signal.ITIMER_PROF}
    return [name for name, kind in kinds.items() if signal.getitimer(kind)[0]]


def file_locks():
    """Return the files that this process has locked: forks would share a lock by flock, and lose one by fcntl."""
    own, inodes = str(os.getpid()), set()
    with contextlib.suppress(OSError), open("/proc/locks") as locks:
        # `1: POSIX  ADVISORY  WRITE 1234 00:1a:5678 0 EOF` (proc_locks(5))
        inodes = {fields[5].rpartition(":")[2] for fields in map(str.split, locks) if len(fields) > 5 and fields[4] == own}
    found = set()
    for descriptor, identity in fork_safety.descriptors() if inodes else ():
        with contextlib.suppress(OSError):
            if str(os.fstat(int(descriptor)).st_ino) in inodes:
                found.add(identity)
    return sorted(found)


def held_locks():
    """Yield each lock that is held, with the name of a place that refers to it."""
    kinds = (type(threading.Lock()), type(threading.RLock()))
    modules = {id(vars(module)): name for name, module in list(sys.modules.items()) if isinstance(module, type(sys))}
    # The interpreter's own lock of a thread is held while it lives (before Python 3.13).
    of_threads = {id(getattr(thread, "_tstate_lock", None)) for thread in threading.enumerate()}
    seen = set()
    for holder in gc.get_objects():
        for lock in gc.get_referents(holder):
            # Reentrant locks have no `locked` before Python 3.14.
            if type(lock) not in kinds or id(lock) in seen or not repr(lock).startswith("<locked"):
                continue
            seen.add(id(lock))
            if id(lock) not in of_threads:
                yield lock, place_of(lock, holder, modules)


def place_of(lock, holder, modules):
    if isinstance(holder, dict):
        name = next((name for name, value in holder.items() if value is lock), "?")
        return f"{modules[id(holder)]}.{name}" if id(holder) in modules else str(name)
    return f"in a {type(holder).__module__}.{type(holder).__qualname__}"


def closes(module):
    def add(close):
        CLOSERS[module] = close
        return close

    return add


def close_connections():
    """Close what the known libraries open again. Yield a line for each one that fails."""
    for name, close in CLOSERS.items():
        if name in sys.modules:
            try:
                close(sys.modules[name])
            except Exception as error:
                yield f"{name} can't close its connections: {type(error).__name__}: {error}"


@closes("django.db")
def close_django(db):
    db.connections.close_all()
    if "django.core.cache" in sys.modules:
        # As Django does at the end of each request.
        sys.modules["django.core.cache"].close_caches()


@closes("sqlalchemy.engine")
def close_sqlalchemy(engine):
    for one in instances(engine.Engine):
        one.dispose()


@closes("redis.connection")
def close_redis(connection):
    for one in instances(connection.ConnectionPool):
        one.disconnect()


def instances(kind):
    # `isinstance` would ask objects for their class, which makes lazy ones work.
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]
