"""Debuggers, which are pdb and those built on it, and those of editors, debugpy (VS Code and others) and pydevd below it.

A debugger of an editor launches one Python process and follows the ones that it starts. The application runs elsewhere, in a
worker that a program in Rust forks. So the launched process waits for the server, and each worker joins the session of the
launched process. Any debugger that stops a worker is reported to the master (:class:`Halts`). It must not know requests. The
launched process runs :func:`launch`, workers run the rest.
"""

import contextlib
import errno
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time

#: The variable that tells workers how to join the session.
VARIABLE = "_BOLIDE_DEBUGGER"
#: The interval at which the launched process looks whether an editor has connected, in seconds.
EDITOR_CHECK_SECONDS = 0.2
#: Longest time that the application waits for the port of its debugger, which belongs to the previous worker's adapter until the
#: editor has noticed that worker's end, in seconds.
PORT_WAIT_SECONDS = 10
PORT_CHECK_SECONDS = 0.1


@contextlib.contextmanager
def follow(environment):
    """Surround the start of a server: its workers join the session of the debugger that runs this process, if one does."""
    pydevd = sys.modules.get("pydevd")
    session = session_of(pydevd)
    if session is None:
        yield environment
        return
    with pydevd.skip_subprocess_arg_patch():
        yield {**environment, VARIABLE: json.dumps(session)}


def session_of(pydevd):
    """Return what a worker needs to join the session, or None if there is none, or if it does not follow processes."""
    setup = getattr(getattr(pydevd, "SetupHolder", None), "setup", None) or {}
    if not setup.get("port") or not hasattr(pydevd, "skip_subprocess_arg_patch"):
        return None
    if not setup.get("multiprocess"):
        print('bolide: no breakpoint will be hit: "subProcess" is false, and the application runs in a worker', file=sys.stderr)
        return None
    debugpy = sys.modules.get("debugpy")
    return {
        "host": setup.get("client") or "127.0.0.1",
        "port": setup["port"],
        "access_token": setup.get("access-token"),
        "client_access_token": setup.get("client-access-token"),
        "ppid": os.getpid(),
        "debugpy": None if debugpy is None else directory_of(debugpy.__file__, 2),
        "pydevd": directory_of(pydevd.__file__, 1),
        "gate": None if pydevd._is_attached() else gate(pydevd),
    }


def directory_of(file, levels):
    path = os.path.realpath(file)
    for _ in range(levels):
        path = os.path.dirname(path)
    return path


def gate(pydevd):
    """Return the path of a pipe that is closed as soon as an editor has connected: until then nothing can be debugged, and the
    application serves.
    """
    reader, writer = os.pipe()

    def watch():
        while not pydevd._is_attached():
            threading.Event().wait(EDITOR_CHECK_SECONDS)
        os.close(writer)

    thread = threading.Thread(target=watch, name="bolide-debugger", daemon=True)
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()
    return f"/proc/{os.getpid()}/fd/{reader}"


# Workers.


def join():
    """Join the debugger's session, if one launched the server. It returns when the editor has set its breakpoints."""
    described = os.environ.pop(VARIABLE, None)
    if described is None:
        return
    session = json.loads(described)
    if session["gate"] is None:
        connect(session)
    else:
        threading.Thread(target=connect_later, args=(session,), name="bolide-debugger", daemon=True).start()


def connect_later(session):
    # The launched process may have ended.
    with contextlib.suppress(OSError), open(session["gate"], "rb") as pipe:
        pipe.read()
        connect(session)


def connect(session):
    # The interpreter's own frozen modules have no breakpoints, and the warning about them is of no use here.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    try:
        pydevd = imported(session)
        if halts is not None:
            halts.follow_editor()
        own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        pydevd.settrace(
            host=session["host"],
            port=session["port"],
            suspend=False,
            patch_multiprocessing=True,
            access_token=session["access_token"],
            client_access_token=session["client_access_token"],
            notify_stdin=False,
            ppid=session["ppid"],
            dont_trace_start_patterns=tuple(directory for directory in (session["debugpy"], own) if directory),
        )
    except (Exception, SystemExit) as error:
        # pydevd exits if it can't connect.
        from bolide import log

        log.tell(f"WARNING: the debugger can't be joined, so no breakpoint will be hit: {error!r}")


def imported(session):
    """Import pydevd as the launched process has done. The directories stay out of the application's path."""
    before = list(sys.path)
    try:
        if session["debugpy"]:
            sys.path.insert(0, session["debugpy"])
            # It brings its own pydevd, and sets the protocol that its adapter speaks.
            importlib.import_module("debugpy.server")
        else:
            sys.path.insert(0, session["pydevd"])
        return importlib.import_module("pydevd")
    finally:
        sys.path[:] = before


class PortWait(importlib.abc.MetaPathFinder):
    """An import hook: ``debugpy.listen`` waits for its port."""

    NAME = "debugpy.server.api"

    def find_spec(self, name, path=None, target=None):
        if name != self.NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.listen = patient(module.listen)

            spec.loader.exec_module = exec_module
        return spec


def patient(listen):
    @functools.wraps(listen)
    def patient_listen(*arguments, **more):
        until = time.monotonic() + PORT_WAIT_SECONDS
        while True:
            try:
                return listen(*arguments, **more)
            except RuntimeError as error:
                if os.strerror(errno.EADDRINUSE) not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(PORT_CHECK_SECONDS)

    return patient_listen


class Halts:
    """The threads that debuggers have stopped in this worker. The master and the watcher of the event loop are told.

    With `keeps_breakpoints`, a debugger that continues still counts as stopped while it has breakpoints: the caller calls
    :meth:`let_go` at the end of the request.
    """

    def __init__(self, native, keeps_breakpoints):
        self.native = native
        self.keeps_breakpoints = keeps_breakpoints
        self.threads = set()
        self.follows_editor = False

    def halt(self):
        if not self.threads:
            self.native.note_debugger(True)
        self.threads.add(threading.get_ident())

    def let_go(self):
        here = threading.get_ident()
        if here in self.threads:
            self.threads.discard(here)
            if not self.threads:
                self.native.note_debugger(False)

    def follow_pdb(self):
        import bdb

        names = ("set_trace", "break_here", "set_continue", "set_quit")
        original = {name: getattr(bdb.Bdb, name) for name in names}

        def set_trace(itself, frame=None, *rest, **more):
            self.halt()
            return original["set_trace"](itself, frame or sys._getframe().f_back, *rest, **more)

        def break_here(itself, frame):
            found = original["break_here"](itself, frame)
            if found:
                self.halt()
            return found

        def set_continue(itself):
            original["set_continue"](itself)
            if not (self.keeps_breakpoints and itself.breaks):
                self.let_go()

        def set_quit(itself):
            original["set_quit"](itself)
            self.let_go()

        for function in (set_trace, break_here, set_continue, set_quit):
            setattr(bdb.Bdb, function.__name__, function)

    def follow_editor(self):
        """Follow pydevd, if it is imported."""
        pydevd = sys.modules.get("pydevd")
        original = getattr(getattr(pydevd, "PyDB", None), "do_wait_suspend", None)
        if original is None or self.follows_editor:
            return
        self.follows_editor = True

        @functools.wraps(original)
        def do_wait_suspend(*arguments, **more):
            self.halt()
            try:
                return original(*arguments, **more)
            finally:
                self.let_go()

        pydevd.PyDB.do_wait_suspend = do_wait_suspend


#: The :class:`Halts` of this worker, if it has any.
halts = None


def follow_halts(native, keeps_breakpoints):
    """Report from here on what debuggers stop in this worker."""
    global halts
    halts = Halts(native, keeps_breakpoints)
    halts.follow_pdb()
    halts.follow_editor()
    return halts


def listens_for_editor():
    """Return whether the application has opened a port for an editor (``debugpy.listen``)."""
    return getattr(getattr(sys.modules.get("debugpy.server.api"), "listen", None), "called", False)


def stop_without_terminal(frame, header):
    """``breakpoint()`` in a process that has no terminal: pdb only shows the place and ends the request (``bdb.BdbQuit``)."""
    import pdb

    from bolide import log

    log.tell("breakpoint() needs the terminal: start Bolide in one, with `--reload` or with one worker")
    debugger = pdb.Pdb()
    if header is not None:
        debugger.message(header)
    debugger.set_trace(frame)
