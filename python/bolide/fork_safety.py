"""Detects resources that an application opened while it was loaded and that workers can't share after the fork: threads,
connections, event loops.

Must not know settings. Runs in the prototype, before, while and after it loads the application. It patches functions that start
threads, connect and import. The patches are removed when the application is loaded. Workers have them, without imports, only if
one of them may become a prototype (``refork-after``).
"""

import _socket
import collections
import importlib.machinery
import os
import socket
import sys
import sysconfig
import threading

from bolide.gevent import patching as gevent_patching

#: Maximum number of threads, and of connections, that a message lists.
MAX_NAMES = 5
#: Maximum number of places that are remembered: those of the latest connections and threads.
MAX_PLACES = 1000
#: Maximum number of frames that are searched for one of the application's.
MAX_FRAMES = 200

#: More kinds of descriptors that workers can't share, by their names in /proc.
SHARED_BY_MISTAKE = {"anon_inode:[eventpoll]": ("event loop", "epoll"), "anon_inode:inotify": ("file watcher", "inotify")}

#: What the application's developer, or the operator, can do.
ADVICE = (
    "Open them in a function marked with `uwsgidecorators.postfork`, or set `lazy-apps = true`, which loads it in each worker"
)

#: The file name that CPython gives to the functions that load modules.
IMPORTLIB = "<frozen importlib._bootstrap_external>"

LIBRARIES = tuple(
    os.path.join(os.path.realpath(path), "")
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


class LoadWatch:
    """A context manager around the loading of the application. Afterwards it knows what the application has opened.

    Without ``follows_imports`` it knows only what has been opened by Python.
    """

    def __init__(self, follows_imports=True):
        self._follows_imports = follows_imports
        self._before = set(descriptors())
        self._tasks = set(tasks())
        #: Where a descriptor was opened or a thread was started, if that was recorded.
        self._places = collections.OrderedDict()
        self._replaced = []
        self._is_over = False

    def __enter__(self):
        loader = importlib.machinery.SourceFileLoader
        start, connect, execute = threading.Thread.start, socket.socket.connect, loader.exec_module

        def start_thread(thread):
            self._note(thread)
            start(thread)

        def connect_socket(connection, address):
            descriptor = str(connection.fileno())
            self._note(key_of(descriptor, _identity(descriptor)))
            return connect(connection, address)

        def exec_module(loader, module):
            try:
                execute(loader, module)
            finally:
                self._note_opened_by(loader.path)

        # Tracebacks and the `stacklevel` of warnings skip frames of importlib, and so must they skip this function.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=IMPORTLIB)
        for key in self._present():
            self._places[key] = None
        self._replaced = [
            (threading.Thread, "start", start_thread, start),
            # The class inherits this method.
            (socket.socket, "connect", connect_socket, None),
        ]
        if self._follows_imports:
            self._replaced.append((loader, "exec_module", exec_module, execute))
        for owner, name, ours, _ in self._replaced:
            setattr(owner, name, ours)
        return self

    def __exit__(self, *_):
        # Another library may have wrapped our functions. Then they stay in place and do nothing more.
        self._is_over = True
        for owner, name, ours, original in self._replaced:
            if owner.__dict__.get(name) is not ours:
                continue
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def _note(self, key):
        if not self._is_over and key is not None and key not in self._places:
            self._places[key] = place()
            if len(self._places) > MAX_PLACES:
                # One step, because other threads connect too.
                self._places.popitem(last=False)

    def _note_opened_by(self, path):
        """No patch sees what a library in C opens: it is attributed to the innermost loading module of the application."""
        if not self._is_over and is_applications(path):
            for key in self._present():
                self._places.setdefault(key, shown(path))

    @staticmethod
    def _present():
        yield from (key_of(descriptor, identity) for descriptor, identity in descriptors())
        yield from map(int, tasks())

    def findings(self):
        """Return a description of what is open now and was not open before, or None."""
        threads = self.threads()
        connections, others = self._opened()
        did, hurts = [], []
        if threads:
            did.append(f"started {counted(threads, 'thread')}")
            hurts.append("do not have the threads")
        if connections or others:
            opened = [counted(found, what) for what, found in {"connection": connections, **others}.items() if found]
            did.append(f"opened {' and '.join(opened)}")
            hurts.append(f"would share {'the connections' if not others else 'what is open'}")
        if not did:
            return None
        return f"while it was loaded, the application {' and '.join(did)}; workers, which are forked later, {' and '.join(hurts)}"

    def threads(self):
        """Threads that were started in the meantime: Python's by their names, others by the name that their library gave them.

        Threads of numeric libraries have the name of the process. Their library starts them again after a fork, so they are left
        out.
        """
        started = [task for task in tasks() if task not in self._tasks]
        if not started:
            return []
        known = {thread.native_id: thread for thread in threading.enumerate()}
        own = kernel_name(f"self/task/{os.getpid()}")
        found = []
        for task in map(int, started):
            thread = known.get(task)
            name = thread.name if thread else kernel_name(f"self/task/{task}")
            if name and name != own:
                found.append(self.at(name, thread, task))
        return sorted(found)

    def _opened(self):
        """Connections by their peers, without socket pairs within the process, and other descriptors by their kinds."""
        connections, others = [], {}
        replaced = gevent_patching.loop_descriptors()
        for descriptor, identity in descriptors():
            if (descriptor, identity) in self._before:
                continue
            key = key_of(descriptor, identity)
            if identity in SHARED_BY_MISTAKE and int(descriptor) not in replaced:
                what, name = SHARED_BY_MISTAKE[identity]
                others.setdefault(what, []).append(self.at(name, key))
                continue
            peer = peer_of(int(descriptor)) if identity.startswith("socket:") else None
            if peer:
                connections.append(self.at(peer + (" by TLS" if is_tls(int(descriptor)) else ""), key))
        return sorted(connections), others

    def at(self, name, *keys):
        where = next((self._places[key] for key in keys if self._places.get(key)), None)
        return f"{name} at {where}" if where else name


def place():
    """Return the application's innermost place on the stack, or else a library's outermost one: ``shop/db.py:12``."""
    frame, outermost = sys._getframe(2), None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        path = frame.f_code.co_filename
        if not path.startswith((OWN, "<")):
            if is_applications(path):
                return f"{shown(path)}:{frame.f_lineno}"
            outermost = f"{shown(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return outermost


def is_applications(path):
    """Return whether a file belongs to the application and to no library."""
    libraries = (*LIBRARIES, OWN)
    return not (path.startswith(libraries) or os.path.realpath(path).startswith(libraries))


def shown(path):
    """Return a path relative to the application's directory if it is in that."""
    path, here = os.path.abspath(path), os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def counted(found, what):
    shown = ", ".join(found[:MAX_NAMES]) + (", …" if len(found) > MAX_NAMES else "")
    plural = "" if len(found) == 1 else "es" if what.endswith("s") else "s"
    return f"{len(found)} {what}{plural} ({shown})"


def is_tls(descriptor):
    """Return whether the connection of this descriptor belongs to a TLS session of Python's."""
    if "ssl" not in sys.modules:
        return False
    import gc
    import ssl

    return any(type(one) is ssl.SSLSocket and one.fileno() == descriptor for one in gc.get_objects())


def peer_of(descriptor):
    """Return the peer's address of a connected socket, or None if it listens or was never connected."""
    try:
        # The class in C: that of the module may be gevent's, which makes an event loop.
        copy = _socket.socket(fileno=os.dup(descriptor))
        try:
            peer = copy.getpeername()
        finally:
            copy.close()
    except OSError:
        return None
    if isinstance(peer, bytes):
        peer = peer.decode(errors="replace").replace("\0", "@", 1)
    return peer if isinstance(peer, str) else f"{peer[0]}:{peer[1]}"


def key_of(descriptor, identity):
    """Return a key of an open descriptor. A socket has an identity, whatever its number; other descriptors have none of their
    own.
    """
    return identity if identity is None or identity.startswith("socket:") else (descriptor, identity)


def tasks():
    """Return the numbers of the threads of this process."""
    return _list("task")


def _list(what):
    try:
        return os.listdir(f"/proc/self/{what}")
    except OSError:
        # Without /proc there is nothing to find.
        return []


def descriptors():
    """Yield the number and the kernel's identity of each open descriptor: a number alone may be reused."""
    for descriptor in _list("fd"):
        identity = _identity(descriptor)
        if identity is not None:
            yield descriptor, identity


def _identity(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        # The descriptor of the listing itself.
        return None


def kernel_name(path):
    """Return the name of a thread or a process, by its directory in /proc, or None if it has ended."""
    try:
        with open(f"/proc/{path}/comm") as file:
            return file.read().strip()
    except OSError:
        return None
