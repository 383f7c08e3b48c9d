"""The server as a function call: ``bolide.run("main:app", port=8000)``.

The server is a child process, whose command line is made here of keywords: those that uvicorn's users know, and every option of a
configuration. It must not know what the options mean; the process of the caller runs it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Union

import bolide
from bolide import _native
from bolide.named import folders_in_front, name_of

#: The value of an option: several are given in a list, and those of the form KEY=VALUE in a dictionary.
OptionValue = Union[None, bool, int, float, str, "os.PathLike[str]", Sequence[Any], Mapping[str, Any]]

#: Signals that are handed on to the server. Ctrl-C reaches it by itself, and twice in a moment is one wish.
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

#: uvicorn's keywords whose option has another name.
RENAMED = {
    "workers": "processes",
    "reload_dirs": "reload-dir",
    "reload_includes": "reload-include",
    "reload_excludes": "reload-exclude",
    "app_dir": "pythonpath",
    "backlog": "listen",
    "limit_max_requests": "max-requests",
    "timeout_keep_alive": "http-keepalive",
    "timeout_graceful_shutdown": "reload-mercy",
    "ws_max_size": "websocket-max-message-size",
    "ws_ping_interval": "websocket-ping-interval",
    "ws_ping_timeout": "websocket-ping-timeout",
    "ws_per_message_deflate": "websocket-compression",
    "h11_max_incomplete_event_size": "buffer-size",
}

#: uvicorn's keywords that mean nothing here, and what to do.
ELSEWHERE = {
    "ws": "leave it out: there is one implementation",
    "ws_max_queue": "leave it out: what waits is bounded in bytes",
    "log_config": "leave it out: the log is the server's; `logging` of your application is your own, in your module",
    "use_colors": "leave it out: the variable NO_COLOR says it",
    "server_header": "leave it out: there is no such header here",
    "date_header": "leave it out: HTTP asks for the date",
    "headers": 'write add_header=["NAME: VALUE"]',
    "ssl_keyfile_password": "write a key without a passphrase into a file that only you can read",
    "ssl_version": "write tls_min_version",
    "ssl_cert_reqs": 'write tls_client_auth="required"',
    "ssl_ciphers": 'write https="ADDRESS,CERTIFICATE,KEY,CIPHERS"',
}

#: What uvicorn takes for `http`, which is an address here.
HTTP_IMPLEMENTATIONS = ("auto", "h11", "httptools")

#: Levels at which uvicorn writes no line for a request.
QUIET_LEVELS = ("critical", "error", "warning")
LEVELS = (*QUIET_LEVELS, "info", "debug", "trace")

#: uvicorn's words for an interface.
INTERFACES = {"asgi2": "asgi", "asgi3": "asgi"}


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
    """Serve an application until the server is stopped, by Ctrl-C or a signal, and return.

    `app` is what the command line takes, such as ``"main:app"`` or ``"app.py"``, or the application itself. The server is another
    process, which loads it by its name: an object must be the value of a name of a module, and the call must stand where that
    module does not come by when it is imported (``if __name__ == "__main__":``).

    Further keywords are options of a configuration with underscores for dashes: ``run("main:app", threads=8, harakiri=30)``.

    SystemExit: the server could not be started, or failed; it has the exit status, and the log the reason. TypeError: there is no
    such keyword. ValueError: a value is none of its keyword, or the object can't be loaded by a name.
    """
    given = {name: value for name, value in locals().items() if name not in ("app", "options")}
    refuse_to_nest()
    caller = sys._getframe(1).f_globals
    environment = environment_of(options)
    arguments = arguments_of(name_of(app, caller), {**given, **options})
    status = serve_until_end(arguments, environment, kept=[] if fd is None else [fd])
    if status != 0:
        raise SystemExit(status)


def refuse_to_nest() -> None:
    """A prototype that loads the module of the call comes by it again where nothing stands before it."""
    if bolide.is_application_process:
        raise RuntimeError(
            "bolide.run() was called while the server loads the application from the same file: put the call behind "
            '`if __name__ == "__main__":`'
        )


# The command line.


def arguments_of(application: str, keywords: Mapping[str, OptionValue]) -> list[str]:
    """Return the words of the command line for an application and the keywords of a call."""
    rest = {name: value for name, value in keywords.items() if value is not None}
    words = [application]
    # Of several folders the last one comes first.
    words += [f"--pythonpath={folder}" for folder in reversed(folders_in_front())]
    words += addresses(rest)
    words += log_words(rest)
    if "interface" in rest:
        rest["interface"] = INTERFACES.get(str(rest["interface"]), rest["interface"])
    reload = rest.pop("reload", False)
    if not rest.get("factory", True):
        del rest["factory"]
    for name, value in rest.items():
        words += words_of(name, value)
    # What follows the word on a command line might be taken for its value.
    return [*words, "--reload"] if reload else words


def addresses(rest: dict[str, Any]) -> list[str]:
    """Take the keywords that say where to listen."""
    host, port, uds, fd = (rest.pop(name, None) for name in ("host", "port", "uds", "fd"))
    certificate, key, authorities = (rest.pop(name, None) for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs"))
    if key is not None and certificate is None:
        raise ValueError("ssl_keyfile is the key of a certificate: give ssl_certfile too")
    if authorities is not None:
        rest.setdefault("tls_client_ca", authorities)
    if rest.get("http") in HTTP_IMPLEMENTATIONS:
        raise ValueError(f"http={rest['http']!r} means nothing here, where there is one implementation: leave it out")
    if (uds is not None and fd is not None) or ((uds is not None or fd is not None) and (host is not None or port is not None)):
        raise ValueError("of host and port, uds, and fd there can be one")
    where = None
    if uds is not None:
        where = os.fspath(uds)
    elif fd is not None:
        where = f"fd://{fd}"
    elif host is not None or port is not None or certificate is not None:
        host = "127.0.0.1" if host is None else str(host)
        port = 8000 if port is None else port
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise ValueError(f"port={port!r} is no port: a port is a number up to 65535")
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if where is None:
        return []
    if certificate is not None:
        return [f"--https={where},{os.fspath(certificate)},{os.fspath(certificate if key is None else key)}"]
    return [f"--http-socket={where}" if uds is not None or fd is not None else f"--http={where}"]


def log_words(rest: dict[str, Any]) -> list[str]:
    """Take the keywords about the log: what is logged has one level, but lines of requests can be left out."""
    level = rest.pop("log_level", None)
    is_quiet = not rest.pop("access_log", True)
    if isinstance(level, str):
        if level.lower() not in LEVELS:
            raise ValueError(f"log_level={level!r} is none of {', '.join(LEVELS)}")
        is_quiet = is_quiet or level.lower() in QUIET_LEVELS
    elif level is not None:
        # The numbers are those of `logging`, whose INFO is 20.
        is_quiet = is_quiet or int(level) > 20
    return ["--disable-logging"] if is_quiet else []


def words_of(name: str, value: OptionValue) -> list[str]:
    """Return the words for one keyword. TypeError: there is none of this name, or its value has a type that no option has."""
    if name in ELSEWHERE:
        raise TypeError(f"{name}: {ELSEWHERE[name]}")
    option = RENAMED.get(name) or name.replace("_", "-")
    if name not in FOREIGN_WORDS:
        problem = _native.keyword_problem(option)
        if problem is not None:
            raise TypeError(f"there is no keyword {name!r}: {problem}")
    return [f"--{option}={text}" for text in texts_of(name, value)]


#: Words that the command line takes and that are no options of a configuration.
FOREIGN_WORDS = ("env_file", "reload_dirs", "reload_includes", "reload_excludes")


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
        return [text for one in value for text in texts_of(name, one)]
    raise TypeError(f"{name}={value!r}: an option is a text, a number, True or False, a path, a list of these or a dictionary")


# The process.


def environment_of(options: dict[str, Any]) -> dict[str, str]:
    """Take `env` where it is a dictionary, and return the environment of a server: its values are no place for placeholders."""
    more = options.pop("env") if isinstance(options.get("env"), Mapping) else {}
    return {**os.environ, **{str(name): str(value) for name, value in more.items()}}


def command(arguments: Iterable[str]) -> list[str]:
    """Return the command of a server that ends with this process."""
    if not sys.executable:
        raise RuntimeError("this program does not know its Python interpreter (sys.executable), which a server is started with")
    return [sys.executable, "-m", "bolide.attached", str(os.getpid()), *arguments]


def serve_until_end(arguments: Iterable[str], environment: Mapping[str, str], kept: Iterable[int] = ()) -> int:
    """Start a server and wait for its end; return its exit status. Signals that come to this process meanwhile are handed on."""
    server = None
    handed_on = []

    def hand_on(number: int, frame: Any) -> None:
        handed_on.append(number)
        if server is not None:
            server.send_signal(number)

    earlier = {}
    if threading.current_thread() is threading.main_thread():
        earlier = {number: signal.signal(number, hand_on) for number in HANDED_ON}
        # Ctrl-Z reaches the server by itself, which says what that does; here it would stop who waits for it.
        earlier[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda number, frame: None)
    try:
        server = subprocess.Popen(command(arguments), env=environment, pass_fds=tuple(kept))
        for number in tuple(handed_on):
            server.send_signal(number)
        status = server.wait()
    finally:
        if server is not None and server.poll() is None:
            # Somebody has interrupted the wait by an exception; the server has its time to end.
            server.terminate()
            server.wait()
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if -status in handed_on:
        # It was stopped before it had begun to be a server.
        return 0
    # As a shell tells of a process that a signal has ended.
    return status if status >= 0 else 128 - status
