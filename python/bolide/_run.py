"""The server as a function call: ``bolide.run("main:app", port=8000)``.

The server is a child process. This module makes its command line from keywords: options of a configuration, and settings of other
servers, which are passed on as their flags. It must not know what they mean. The caller's process runs it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Union

from bolide import _native
from bolide.application_process import refuse_to_nest
from bolide.development import debuggers
from bolide.loading.application_name import directories_in_front, name_of

#: The value of an option: several values are a list, those of the form KEY=VALUE a dictionary.
OptionValue = Union[None, bool, int, float, str, "os.PathLike[str]", Sequence[Any], Mapping[str, Any]]

#: Signals that are forwarded to the server. It gets Ctrl-C from the terminal too, and counts two in a moment as one.
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(
    app: str | os.PathLike[str] | Callable[..., Any],
    *,
    host: str | None = None,
    port: int | None = None,
    uds: None | str | os.PathLike[str] = None,
    fd: int | None = None,
    workers: None | int | str = None,
    reload: bool = False,
    reload_dirs: None | str | Sequence[str] = None,
    reload_includes: None | str | Sequence[str] = None,
    reload_excludes: None | str | Sequence[str] = None,
    app_dir: None | str | os.PathLike[str] = None,
    env_file: None | str | os.PathLike[str] = None,
    factory: bool = False,
    interface: str | None = None,
    lifespan: str | None = None,
    loop: str | None = None,
    log_level: None | int | str = None,
    access_log: bool = True,
    root_path: str | None = None,
    proxy_headers: bool | None = None,
    forwarded_allow_ips: None | str | Sequence[str] = None,
    limit_concurrency: int | None = None,
    limit_max_requests: int | None = None,
    backlog: int | None = None,
    timeout_keep_alive: int | None = None,
    timeout_graceful_shutdown: int | None = None,
    ssl_certfile: None | str | os.PathLike[str] = None,
    ssl_keyfile: None | str | os.PathLike[str] = None,
    ssl_ca_certs: None | str | os.PathLike[str] = None,
    **options: OptionValue,
) -> None:
    """Serve an application until the server is stopped by Ctrl-C or a signal, then return.

    `app` is the application as the command line takes it, such as ``"main:app"`` or ``"app.py"``, or the application object
    itself. The server is another process, which loads the application by name. For this reason an object must be the value of a
    module-level name, and the call must not run when that module is imported. Put it behind ``if __name__ == "__main__":``.

    Additional keywords are configuration options with underscores for dashes: ``run("main:app", threads=8, harakiri=30)``.

    Raises SystemExit with the exit status if the server did not start or failed, and the log contains the reason. Raises
    TypeError if a keyword does not exist. Raises ValueError if a value is invalid for its keyword, or if the object can't be
    loaded by a name.
    """
    defaults = run.__kwdefaults__
    given = {name: value for name, value in locals().items() if name in defaults and value is not defaults[name]}
    refuse_to_nest("bolide.run()")
    caller = sys._getframe(1).f_globals
    environment = environment_of(options)
    arguments = arguments_of(name_of(app, caller), {**given, **options})
    status = serve_until_end(arguments, environment, kept=[] if fd is None else [fd])
    if status != 0:
        raise SystemExit(status)


# The command line.


def arguments_of(application: str, keywords: Mapping[str, OptionValue]) -> list[str]:
    """Return the command-line arguments for an application and the keywords of a call."""
    given = {name: value for name, value in keywords.items() if value is not None}
    if isinstance(given.get("log_config"), Mapping):
        raise TypeError("log_config must be the name of a file: leave it out, and configure `logging` in the application")
    check_together(given)
    # The last `--pythonpath` ends up first in `sys.path`.
    words = [f"--pythonpath={directory}" for directory in reversed(directories_in_front())]
    for name, value in given.items():
        words += _native.keyword_words(name, value if isinstance(value, bool) else None, list(texts_of(name, value)))
    # `--reload` takes an optional value, so it must not be followed by another argument.
    words.sort(key=lambda word: word == "--reload")
    return [application, *words]


def check_together(given: Mapping[str, OptionValue]) -> None:
    """Refuse keywords that contradict each other. ValueError."""
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise ValueError("ssl_keyfile needs ssl_certfile too")
    if sum(bool(names & given.keys()) for names in ({"host", "port"}, {"uds"}, {"fd"})) > 1:
        raise ValueError("host and port, uds, and fd can't be combined")


def texts_of(name: str, value: OptionValue) -> Iterable[str]:
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, (str, int, float)):
        return [str(value)]
    if isinstance(value, os.PathLike):
        return [os.fspath(value)]
    if isinstance(value, Mapping):
        return [f"{key}={one}" for key, one in value.items()]
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        # A pair is a response header, as in uvicorn.
        pairs = (":".join(one) if isinstance(one, tuple) and all(isinstance(part, str) for part in one) else one for one in value)
        return [text for one in pairs for text in texts_of(name, one)]
    raise TypeError(
        f"{name}={value!r}: an option must be a text, a number, True or False, a path, a list of these or a dictionary"
    )


# The process.


def environment_of(options: dict[str, Any]) -> dict[str, str]:
    """Remove `env` from the options if it is a dictionary, and return the server's environment: placeholders must not apply to
    its values.
    """
    more = options.pop("env") if isinstance(options.get("env"), Mapping) else {}
    return {**os.environ, **{str(name): str(value) for name, value in more.items()}}


def command(arguments: Iterable[str]) -> list[str]:
    """Return the command line of a server that exits with this process."""
    if not sys.executable:
        raise RuntimeError("this program does not know its Python interpreter (sys.executable), which it needs to start a server")
    return [sys.executable, "-m", "bolide.child_master", str(os.getpid()), *arguments]


def serve_until_end(arguments: Iterable[str], environment: Mapping[str, str], kept: Iterable[int] = ()) -> int:
    """Start a server, wait for its end and return its exit status. Signals that this process receives are forwarded."""
    server = None
    handed_on = []

    def hand_on(number: int, frame: Any) -> None:
        handed_on.append(number)
        if server is not None:
            server.send_signal(number)

    earlier = {}
    if threading.current_thread() is threading.main_thread():
        earlier = {number: signal.signal(number, hand_on) for number in HANDED_ON}
        # The server gets Ctrl-Z from the terminal too, and logs what it does. Here it would stop the waiting process.
        earlier[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda number, frame: None)
    try:
        with debuggers.follow(environment) as environment:
            server = subprocess.Popen(command(arguments), env=environment, pass_fds=tuple(kept))
        for number in tuple(handed_on):
            server.send_signal(number)
        status = server.wait()
    finally:
        if server is not None and server.poll() is None:
            # An exception has interrupted the wait; the server gets its time to stop.
            server.terminate()
            server.wait()
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if -status in handed_on:
        # The signal ended the process before the server was running.
        return 0
    # The exit status of a shell for a process that a signal has killed.
    return status if status >= 0 else 128 - status


def launch(arguments):
    """Run the server of a command line as a child of this process, which a debugger runs. Return its exit status."""
    environment = dict(os.environ)
    # Each worker loads the application itself, so that breakpoints outside of functions are hit.
    environment.setdefault("UWSGI_LAZY_APPS", "true")
    return serve_until_end(arguments, environment)
