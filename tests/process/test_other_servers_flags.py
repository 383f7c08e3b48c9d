"""Flags of other servers' command lines: each flag in a server's help is known, and each accepted one has the
documented effect.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import START_FAILED

DOCS = Path(__file__).parents[2] / "docs"
PAGES = tuple(f"migrate-from-{server}.md" for server in ("gunicorn", "uvicorn", "granian", "hypercorn", "waitress"))

DAPHNE = "from daphne.cli import CommandLineInterface; CommandLineInterface().run(['--help'])"
#: The command that prints the flags of each server.
HELP = {
    "gunicorn": ["-m", "gunicorn", "--help"],
    "uvicorn": ["-m", "uvicorn", "--help"],
    "granian": ["-m", "granian", "--help"],
    "hypercorn": ["-m", "hypercorn", "--help"],
    "waitress-serve": ["-m", "waitress", "--help"],
    "flask run": ["-m", "flask", "run", "--help"],
    "fastapi run": ["-m", "fastapi", "run", "--help"],
    "daphne": ["-c", DAPHNE],
}

#: Flags that print something and exit, name a configuration, or belong to the development mode, which have separate tests.
ELSEWHERE = {"config", "help", "version", "reload", "reload-dir", "reload-paths", "reload-include", "reload-exclude"}

HTTP, UNIX = "http = 127.0.0.1:8000", "http-socket = unix:x.sock"
#: Log files of Python's `logging`.
LOG_FILES = ["logfile-chmod = new:666", "logfile-chown = true"]
#: Where uvicorn and granian write request lines.
STDOUT = "req-logger = fd:1"

#: A flag as it is typed, and the resulting options.
SAMPLES = {
    "access-log": ("", []),
    "access-log-fmt": ("%(addr)s %(status)d", ["log-format = %(addr) %(status)"]),
    "access-logfile": ("a.log", ["req-logger = file:a.log", *LOG_FILES]),
    "access-logformat": ("%(h)s %(s)s", ["log-format = %(addr) %(status)"]),
    "app": ("site", ["callable = site"]),
    "app-dir": ("src", ["pythonpath = src"]),
    "application-close-timeout": ("5", []),
    "asgi-disconnect-grace-period": ("5", []),
    "asgi-lifespan": ("on", ["lifespan = on"]),
    "asgi-loop": ("asyncio", ["loop = asyncio"]),
    "asyncore-loop-timeout": ("5", []),
    "asyncore-use-poll": ("", []),
    "backlog": ("64", ["listen = 64"]),
    "backpressure": ("5", []),
    "bind": ("127.0.0.1:9000,unix:x.sock", ["http = 127.0.0.1:9000", UNIX, "chmod-socket = 777", "vacuum = true"]),
    "blocking-threads": ("3", ["threads = 3"]),
    "blocking-threads-idle-timeout": ("5", []),
    "ca-certs": ("ca.pem", ["tls-client-ca = ca.pem"]),
    "call": ("", ["factory = true"]),
    "capture-output": ("", []),
    "casefold-http-method": ("", []),
    "cert": ("c.pem", ["tls-certificate = c.pem"]),
    "cert-reqs": ("2", ["tls-client-auth = 2"]),
    "certfile": ("c.pem", ["tls-certificate = c.pem"]),
    "channel-request-lookahead": ("5", []),
    "channel-timeout": ("120", ["http-keepalive = 120"]),
    "chdir": ("src", ["chdir = src"]),
    "ciphers": ("HIGH", []),
    "cleanup-interval": ("5", []),
    "connection-limit": ("5", []),
    "control-socket": ("c.sock", ["control-socket = c.sock"]),
    "control-socket-mode": ("5", []),
    "daemon": ("", ["daemonize = /dev/null"]),
    "date-header": ("", []),
    "debug": ("", ["develop = true"]),
    "debugger": ("", []),
    "dirty-app": ("shop:Model --dirty-workers 1", ["mules = 1", "mule-app = shop:Model"]),
    "dirty-graceful-timeout": ("5", ["mule-reload-mercy = 5"]),
    "dirty-threads": ("1", []),
    "dirty-timeout": ("5", ["mule-harakiri = 5"]),
    "dirty-workers": ("2 --dirty-app shop:Model", ["mules = 2", "mule-app = shop:Model"]),
    "disable-redirect-access-to-syslog": ("", []),
    "do-handshake-on-connect": ("", []),
    "dogstatsd-tags": ("a:b", []),
    "enable-backlog-metric": ("", []),
    "enable-stdio-inheritance": ("", []),
    "endpoint": ("tcp:9000:interface=127.0.0.1", ["http = 127.0.0.1:9000"]),
    "env": ("A=1", ["env = A=1"]),
    "env-file": ("variables", ["env-file = variables"]),
    "env-files": ("variables", ["env-file = variables"]),
    "error-log": ("e.log", ["logto = e.log", "log-output = false", "disable-logging = true", LOG_FILES[0]]),
    "error-logfile": ("e.log", ["logto = e.log", "log-output = false", "disable-logging = true", *LOG_FILES]),
    "exclude-patterns": ("*.log", ["reload-exclude = *.log"]),
    "expose-tracebacks": ("", ["catch-exceptions = true"]),
    "extra-files": ("variables", ["touch-reload = variables"]),
    "factory": ("", ["factory = true"]),
    "fd": ("7", ["http-socket = fd://7"]),
    "forwarded-allow-ips": ("10.0.0.1", ["trusted-proxies = 10.0.0.1"]),
    "forwarder-headers": ("5", []),
    "graceful-timeout": ("20", ["worker-reload-mercy = 20"]),
    "group": ("daemon", ["gid = daemon"]),
    "h11-max-incomplete-event-size": ("32768", ["buffer-size = 32768"]),
    "header": ("X-Shop:open", ["add-header = X-Shop: open"]),
    "header-map": ("refuse", ["header-map = refuse"]),
    "host": ("0.0.0.0", ["http = 0.0.0.0:8000"]),
    "http": ("h11", []),
    "http-parser": ("fast", []),
    "http-protocols": ("h1", ["http2 = off"]),
    "http1-buffer-size": ("32768", ["buffer-size = 32768"]),
    "http1-header-read-timeout": ("7500", ["http-timeout = 8"]),
    "http1-keep-alive": ("", []),
    "http1-pipeline-flush": ("", []),
    "http2-adaptive-window": ("", []),
    "http2-cleartext": ("both", ["http2 = h2c"]),
    "http2-initial-connection-window-size": ("5", []),
    "http2-initial-stream-window-size": ("5", []),
    "http2-initial-window-size": ("5", []),
    "http2-keep-alive-interval": ("5", []),
    "http2-keep-alive-timeout": ("5", []),
    "http2-max-concurrent-streams": ("5", []),
    "http2-max-frame-size": ("5", []),
    "http2-max-header-list-size": ("5", []),
    "http2-max-send-buffer-size": ("5", []),
    "ident": ("shop", ["del-header = Server", "add-header = Server: shop"]),
    "inbuf-overflow": ("5", []),
    "initgroups": ("", []),
    "insecure-bind": ("127.0.0.1:9001 --bind 127.0.0.1:9000", ["http = 127.0.0.1:9000"]),
    "interface": ("asgi", ["interface = asgi"]),
    "ipv4": ("", []),
    "ipv6": ("", []),
    "keep-alive": ("9", ["http-keepalive = 9"]),
    "key": ("k.pem", ["tls-key = k.pem"]),
    "keyfile": ("k.pem", ["tls-key = k.pem"]),
    "lifespan": ("off", ["lifespan = off"]),
    "limit-concurrency": ("50", ["limit-concurrency = 50"]),
    "limit-max-requests": ("500", ["max-requests = 500"]),
    "limit-max-requests-jitter": ("5", []),
    "limit-request-field_size": ("4094", []),
    "limit-request-fields": ("5", []),
    "limit-request-line": ("131072", ["buffer-size = 131072"]),
    "listen": ("127.0.0.1:9000", ["http = 127.0.0.1:9000"]),
    "log": ("", []),
    "log-config": ("logging.ini", ["log-config = logging.ini"]),
    "log-config-json": ("logging.json", ["log-config = logging.json"]),
    "log-file": ("e.log", ["logto = e.log", "log-output = false", "disable-logging = true", *LOG_FILES]),
    "log-fmt": ("%(message)s", []),
    "log-level": ("warning", ["disable-logging = true"]),
    "log-socket-errors": ("", []),
    "log-syslog": ("", ["log-syslog = true"]),
    "log-syslog-facility": ("local0", []),
    "log-syslog-prefix": ("shop", []),
    "log-syslog-to": ("udp://127.0.0.1:514", ["logger = rsyslog:127.0.0.1:514"]),
    "logger-class": ("shop.Logger", []),
    "loop": ("asyncio", ["loop = asyncio"]),
    "max-request-body-size": ("1000", ["limit-post = 1000"]),
    "max-request-header-size": ("32768", ["buffer-size = 32768"]),
    "max-requests": ("500", ["max-requests = 500"]),
    "max-requests-jitter": ("5", []),
    "name": ("shop", ["procname-prefix-spaced = shop"]),
    "no-access-log": ("", ["disable-logging = true"]),
    "no-control-socket": ("", ["control-socket = off"]),
    "no-date-header": ("", ["del-header = Date"]),
    "no-debug": ("", []),
    "no-debugger": ("", []),
    "no-expose-tracebacks": ("", []),
    "no-factory": ("", []),
    "no-http1-keep-alive": ("", ["http-keepalive = false"]),
    "no-http1-pipeline-flush": ("", []),
    "no-http2-adaptive-window": ("", []),
    "no-ipv4": ("", []),
    "no-ipv6": ("", []),
    "no-log-socket-errors": ("", []),
    "no-metrics": ("", []),
    "no-proxy-headers": ("", ["no-proxy-headers = true"]),
    "no-reload": ("", []),
    "no-sendfile": ("", ["wsgi-disable-file-wrapper = true"]),
    "no-server-header": ("", ["del-header = Server"]),
    "no-server-name": ("", ["del-header = Server"]),
    "no-ssl-client-verify": ("", ["tls-client-auth = off"]),
    "no-use-colors": ("", []),
    "no-ws": ("", []),
    "outbuf-high-watermark": ("5", []),
    "outbuf-overflow": ("5", []),
    "paste": ("p.ini", ["paste = p.ini"]),
    "paster": ("p.ini", ["paste = p.ini"]),
    "permit-obsolete-folding": ("", []),
    "permit-unconventional-http-method": ("", []),
    "permit-unconventional-http-version": ("", []),
    "pid": ("shop.pid", ["pidfile = shop.pid"]),
    "pid-file": ("shop.pid", ["pidfile = shop.pid"]),
    "ping-interval": ("9", ["websocket-ping-interval = 9"]),
    "ping-timeout": ("9", ["websocket-ping-timeout = 9"]),
    "port": ("9000", ["http = 127.0.0.1:9000"]),
    "preload": ("", ["master = true"]),
    "process-name": ("shop", ["procname-prefix-spaced = shop"]),
    "protocol": ("uwsgi --bind :9000", ["uwsgi-socket = :9000", "protocol = uwsgi"]),
    "proxy-allow-from": ("10.0.0.1", ["trusted-proxies = 10.0.0.1"]),
    "proxy-headers": ("", ["proxy-headers = true"]),
    "proxy-headers-host": ("X-Client", []),
    "proxy-headers-port": ("X-Port", []),
    "proxy-protocol": ("", ["http-enable-proxy-protocol = true", "enable-proxy-protocol = true"]),
    "pythonpath": ("src", ["pythonpath = src"]),
    "quic-bind": ("127.0.0.1:9001 --bind 127.0.0.1:9000", ["http = 127.0.0.1:9000"]),
    "read-timeout": ("7", ["http-timeout = 7"]),
    "recv-bytes": ("5", []),
    "reload-delay": ("1", []),
    "reload-engine": ("poll", []),
    "reload-extra-file": ("variables", ["touch-reload = variables"]),
    "reload-ignore-dirs": ("logs", ["reload-exclude = logs/"]),
    "reload-ignore-paths": ("logs/app", ["reload-exclude = logs/app"]),
    "reload-ignore-worker-failure": ("", []),
    "reload-tick": ("50", []),
    "reset-contextvars": ("", []),
    "respawn-failed-workers": ("", []),
    "respawn-interval": ("5", []),
    "reuse-port": ("", ["reuse-port = true"]),
    "root-path": ("/shop", ["root-path = /shop"]),
    "rss-sample-interval": ("5", []),
    "rss-samples": ("5", []),
    "runtime-blocking-threads": ("5", []),
    "runtime-mode": ("st", []),
    "runtime-threads": ("5", []),
    "send-bytes": ("5", []),
    "server-header": ("", []),
    "server-name": ("shop.example", ["server-names = shop.example"]),
    "spew": ("", []),
    "ssl-ca": ("ca.pem", ["tls-client-ca = ca.pem"]),
    "ssl-ca-certs": ("ca.pem", ["tls-client-ca = ca.pem"]),
    "ssl-cert-reqs": ("1", ["tls-client-auth = 1"]),
    "ssl-certfile": ("c.pem", ["tls-certificate = c.pem"]),
    "ssl-certificate": ("c.pem", ["tls-certificate = c.pem"]),
    "ssl-ciphers": ("HIGH", []),
    "ssl-client-verify": ("", ["tls-client-auth = required"]),
    "ssl-keyfile": ("k.pem", ["tls-key = k.pem"]),
    "ssl-protocol-min": ("tls1.3", ["tls-min-version = 1.3"]),
    "ssl-version": ("5", []),
    "static-path-dir-to-file": ("index.html", ["static-index = index.html"]),
    "static-path-mount": ("public", ["static-map = /static=public"]),
    "static-path-route": ("/a --static-path-mount public", ["static-map = /a=public"]),
    "statsd-host": ("127.0.0.1:8125", ["stats-push = statsd:127.0.0.1:8125"]),
    "statsd-prefix": ("shop --statsd-host 127.0.0.1:8125", ["stats-push = statsd:127.0.0.1:8125,shop"]),
    "strip-header-spaces": ("", []),
    "suppress-ragged-eofs": ("", []),
    "task-impl": ("rust", []),
    "threads": ("4", ["threads = 4"]),
    "timeout": ("40", ["harakiri = 40"]),
    "timeout-graceful-shutdown": ("20", ["worker-reload-mercy = 20"]),
    "timeout-keep-alive": ("9", ["http-keepalive = 9"]),
    "timeout-worker-healthcheck": ("5", []),
    "uds": ("x.sock", [UNIX, "chmod-socket = 666", "vacuum = true"]),
    "uds-permissions": ("660", ["chmod-socket = 660"]),
    "umask": ("027", ["umask = 027"]),
    "unix-socket": ("x.sock", [UNIX]),
    "unix-socket-perms": ("660", ["chmod-socket = 660"]),
    "url-scheme": ("https", []),
    "use-colors": ("", []),
    "user": ("daemon", ["uid = daemon"]),
    "verbose": ("", []),
    "verbosity": ("2", []),
    "verify-mode": ("CERT_REQUIRED", ["tls-client-auth = required"]),
    "websocket-max-message-size": ("1000", ["websocket-max-message-size = 1000"]),
    "websocket-ping-interval": ("9", ["websocket-ping-interval = 9"]),
    "websocket_connect_timeout": ("5", []),
    "websocket_timeout": ("5", []),
    "with-threads": ("", ["threads = auto"]),
    "without-threads": ("", ["threads = 1"]),
    "worker-class": ("uvloop", ["loop = uvloop"]),
    "worker-connections": ("5", []),
    "worker-tmp-dir": ("/tmp", []),
    "workers": ("3", ["processes = 3", "lazy-apps = true"]),
    "workers-kill-timeout": ("20s", ["worker-reload-mercy = 20"]),
    "workers-lifetime": ("1h", ["max-worker-lifetime = 3600"]),
    "workers-max-rss": ("200", ["reload-on-rss = 200"]),
    "working-dir": ("src", ["chdir = src"]),
    "ws": ("wsproto", []),
    "ws-max-queue": ("5", []),
    "ws-max-size": ("1000", ["websocket-max-message-size = 1000"]),
    "ws-per-message-deflate": ("false", ["websocket-compression = false"]),
    "ws-ping-interval": ("9", ["websocket-ping-interval = 9"]),
    "ws-ping-timeout": ("9.5", ["websocket-ping-timeout = 9.5"]),
}


def flags_of_the_guides():
    """Returns the flags of each server in the tables of the guides, with the resulting options."""
    found = {}
    for page in PAGES:
        text = (DOCS / page).read_text()
        for server, table in re.findall(r"<!-- flags of (.+?) -->\n(.*?)<!-- end of flags -->", text, re.DOTALL):
            rows = re.findall(r"^\| (?:`-\w`, )?`--([\w-]+)` \| .*? \| ([^|]+) \| .*\|$", table, re.MULTILINE)
            found[server] = dict(rows)
    return found


def flags_of_help(server):
    """Returns the long flags in a server's help."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    command = [sys.executable, *HELP[server]]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    said = subprocess.run(command, env=environment, timeout=TIMEOUT_SECONDS, **streams).stdout.decode()
    flags = set()
    for line in said.splitlines():
        declared = re.match(r"(?:│ | {2,6})(-.*)", line)
        if declared is None:
            continue
        # Text after two blanks, or in angle brackets, describes the flag.
        text = declared[1].split("<")[0] if line.startswith("│") else declared[1].split("  ")[0]
        for optional, name in re.findall(r"--(\[no-\])?([a-z0-9][\w-]*)", text):
            flags |= {name, f"no-{name}"} if optional else {name}
    return flags


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the servers of these versions need Python 3.11")
@pytest.mark.parametrize("server", HELP)
def test_each_flag_that_a_server_prints_is_in_the_guide_and_none_else(server):
    assert flags_of_help(server) == set(flags_of_the_guides()[server])


def options_of(directory, *arguments, **variables):
    """Returns the options that `bolide config` reports for these arguments, and its whole output."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {name: value for name, value in os.environ.items() if name not in ("PORT", "WEB_CONCURRENCY")}
    environment.update(variables)
    command = [*program(), "config", *arguments]
    said = subprocess.run(command, cwd=directory, env=environment, timeout=TIMEOUT_SECONDS, **streams).stdout.decode()
    return {re.sub(r"\s+# .*", "", line) for line in said.splitlines() if " = " in line and line[0] not in ";#"}, said


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    for name in ("src", "public"):
        (directory / name).mkdir()
    (directory / "variables").write_text("A=1\n")
    return directory


def test_each_flag_that_works_is_tried_here():
    works = {name for flags in flags_of_the_guides().values() for name, typed in flags.items() if typed == "accepted"}
    assert works - ELSEWHERE == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flag_that_works_becomes_the_options_that_the_guide_names(name, shop):
    value, wanted = SAMPLES[name]
    first, *others = value.split(" --")
    line = [f"--{name}", *([first] if first else [])]
    line += [word for other in others for word in f"--{other}".split(" ")]
    found, said = options_of(shop, *line, "app:app")
    # Where a flag tells whose line it is, the default address is that server's.
    usual = {"module = app:app", HTTP, "http = 0.0.0.0:8080", STDOUT}
    assert found - (usual - set(wanted)) == set(wanted), said


def test_an_error_of_a_flag_says_what_to_write(fail):
    for line, wanted in [
        (["-v"], "`--version` of gunicorn"),
        (["--bind", ":0", "--protocol", "fastcgi"], "`--socket ADDRESS --protocol fastcgi`"),
        (["-k", "eventlet"], "write `gevent` instead"),
        (["--worker-class", "eventlet"], "write `gevent` instead"),
        (["--http", "8000"], "`--http :8000`"),
        (["--http-socket", "8000"], "`--http-socket :8000`"),
        (["--workers", "many"], "`many` is not a number"),
    ]:
        status, lines = fail(*line, "app:app")
        assert status == START_FAILED, lines
        assert wanted in lines[-1], lines


def test_gunicorns_and_hypercorns_letters_serve_and_each_is_said_once(start):
    instance = start("-w", "2", "-b", "127.0.0.1:0", "-k", "sync", socket=None)
    assert len(instance.workers()) == 2
    text = instance.log_until_now()
    assert text.count("`-w 2` is read as `--workers` of gunicorn and hypercorn") == 1
    assert text.count("`-b 127.0.0.1:0` is read as `--bind`") == 1


APPLICATION = """
import json, os

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    told = {name: environ.get(name) for name in ("SCRIPT_NAME", "PATH_INFO", "SERVER_PORT")}
    return [json.dumps({**told, "shop": os.environ.get("SHOP")}).encode()]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        body = json.dumps({"root_path": scope["root_path"], "path": scope["path"]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
"""


#: What a worker logs if it loads the application because the command line is that of another server.
LOADED_BY_EACH = (
    r"^bolide: each of the 2 workers loads the application, which takes \d+\.\d MB: `--preload` loads it once and saves "
    r"up to \d+\.\d MB$"
)


@pytest.fixture
def bare(start, tmp_path):
    """Starts Bolide with an application on the command line and only these flags."""
    (tmp_path / "shop.py").write_text(APPLICATION)

    def bare(*flags, application="shop:app", **options):
        return start(*flags, application, socket=None, module=None, master=False, logging=True, **options)

    return bare


def test_host_and_port_are_one_address(bare, free_port):
    port = free_port()
    instance = bare("--host", "127.0.0.1", "--port", port, "--header", "X-Shop:open", "--no-server-header")
    answer = instance.get("/")
    assert (answer.status, answer.get("x-shop"), answer.get("server")) == (200, "open", None)
    assert f"listening on http://127.0.0.1:{port}" in instance.log


def test_bind_speaks_what_gunicorns_protocol_says(bare, free_port):
    port = free_port()
    instance = bare("--bind", f"127.0.0.1:{port}", "--protocol", "uwsgi")
    assert f"listening on uwsgi://127.0.0.1:{port}" in instance.log
    instance.stop()
    # With `--socket` the protocol is uWSGI's.
    port, other = free_port(), free_port()
    instance = bare("--bind", f"127.0.0.1:{port}", "--socket", f"127.0.0.1:{other}", "--protocol", "fastcgi")
    assert f"listening on http://127.0.0.1:{port}" in instance.log
    assert f"listening on fastcgi://127.0.0.1:{other}" in instance.log


def test_interfaces_of_uvicorn_and_granian_are_asgi(shop):
    for word, wanted in [("asgi3", set()), ("asgi2", set()), ("asginl", {"lifespan = off"})]:
        found, said = options_of(shop, "app:app", "--interface", word)
        assert found - {"module = app:app", HTTP} == {"interface = asgi"} | wanted, said


def test_port_and_web_concurrency_are_defaults(bare, free_port, shop):
    port = free_port()
    environment = {"PORT": str(port), "WEB_CONCURRENCY": "2"}
    found, said = options_of(shop, "app:app", **environment)
    assert f"http = 0.0.0.0:{port}" in found, said
    assert "environment variable PORT: note: PORT: listening on 0.0.0.0" in said
    assert "http = :9000" in options_of(shop, "app:app", "--http", ":9000", **environment)[0]
    told = bare("--host", "127.0.0.1", environment=environment)
    assert f"listening on http://127.0.0.1:{port}" in told.log
    assert "environment variable WEB_CONCURRENCY: note: WEB_CONCURRENCY: starting 2 workers" in told.log
    assert len(told.workers()) == 2


@pytest.mark.parametrize(
    ("flags", "is_told"), [(("--workers", "2"), True), (("--workers", "2", "--preload"), False), (("--processes", "2"), False)]
)
def test_workers_that_load_the_application_say_once_what_preloading_saves(flags, is_told, bare, tmp_path):
    instance = bare("--host", "127.0.0.1", *flags)
    if is_told:
        instance.wait_for_log(LOADED_BY_EACH)
        instance.reload(2)
    assert len(re.findall(LOADED_BY_EACH, instance.log_until_now(), re.MULTILINE)) == is_told


def test_variables_of_other_servers_are_reported_if_unused(shop):
    said = options_of(shop, "app:app", GUNICORN_CMD_ARGS="--bind :9000", UVICORN_PORT="9001")[1]
    assert (
        "`GUNICORN_CMD_ARGS` and `UVICORN_PORT` are set but not read (write their contents as flags on the command line" in said
    )
    (shop / "shop.ini").write_text("[uwsgi]\nmodule = app:app\nhttp = :8080\n")
    assert "not read" not in options_of(shop, "shop.ini", UVICORN_PORT="9001")[1]


def test_an_invalid_port_fails_the_start(fail, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    for flags in [(), ("--host", "127.0.0.1")]:
        status, lines = fail(*flags, "shop:app", env={**os.environ, "PORT": "web"})
        assert status == START_FAILED, lines
        assert "`PORT = web` is not a port" in lines[-1]


def test_variables_of_an_env_file_are_the_applications_and_say_the_port(bare, free_port, tmp_path):
    port = free_port()
    (tmp_path / "variables").write_text(f'PORT={port}\nexport SHOP="open ${{DAY:-today}}" # and tomorrow\n')
    instance = bare("--host", "127.0.0.1", "--env-file", "variables")
    assert json.loads(instance.get("/").text)["shop"] == "open today"
    assert f"listening on http://127.0.0.1:{port}" in instance.log
    instance.stop()
    instance = bare("--host", "127.0.0.1", "--env-file", "variables", environment={"SHOP": "closed"})
    assert json.loads(instance.get("/").text)["shop"] == "closed"


def test_a_line_of_an_env_file_that_sets_nothing_is_reported_with_its_place(fail, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "variables").write_text("A=1\nB='open\n")
    status, lines = fail("--env-file", "variables", "shop:app")
    assert status == START_FAILED
    assert any("variables:2: error: the quote is not closed" in line for line in lines), lines


def test_root_path_is_what_a_reverse_proxy_takes_away(bare, free_port):
    wsgi = bare("--root-path", "/shop", "--bind", f"127.0.0.1:{free_port()}")
    told = json.loads(wsgi.get("/cart").text)
    assert (told["SCRIPT_NAME"], told["PATH_INFO"]) == ("/shop", "/cart")
    wsgi.stop()
    asgi = bare("--root-path", "/shop", "--bind", f"127.0.0.1:{free_port()}", application="shop:asgi")
    # As in uvicorn: the path begins with the root path.
    assert json.loads(asgi.get("/cart").text) == {"root_path": "/shop", "path": "/shop/cart"}


def test_logs_go_where_gunicorns_flags_say(bare, free_port, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    files = ("--access-logfile", "access.log", "--access-logformat", "%(m)s %(U)s %(s)s")
    instance = bare("--bind", address, *files)
    assert instance.get("/cart").status == 200
    wait_until(lambda: "GET /cart 200" in (tmp_path / "access.log").read_text(), "the line of the request")


def test_a_daemon_of_gunicorns_flags_serves_in_the_background(fail, free_port, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    port = free_port()
    flags = ("--bind", f"127.0.0.1:{port}", "--daemon", "--pid", "shop.pid", "--error-logfile", "shop.log")
    status, lines = fail(*flags, "shop:app")
    assert status == 0, lines
    pid = int((tmp_path / "shop.pid").read_text())
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS):
            pass
    finally:
        assert fail("--stop", "shop.pid")[0] == 0
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon's end")
    assert (tmp_path / "shop.log").read_text()


MAKES = """\
import os
def application(environ, start_response):
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o666))
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


@pytest.mark.parametrize("way", ["file", "flags"])
def test_the_umask_of_gunicorn_is_that_of_its_sockets_and_not_the_applications(way, start, tmp_path):
    (tmp_path / "makes.py").write_text(MAKES)
    if way == "file":
        (tmp_path / "gunicorn.conf.py").write_text('bind = "unix:app.sock"\numask = 0\nwsgi_app = "makes:application"\n')
        options = ["--config", "gunicorn.conf.py"]
    else:
        options = ["--bind", "unix:app.sock", "--umask", "0", "makes:application"]
    own_mask = ["sh", "-c", 'umask 027; exec "$0" "$@"', *program()]
    start(*options, module=None, socket=None, command=own_mask)
    assert (tmp_path / "app.sock").stat().st_mode & 0o777 == 0o777
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "app.sock"))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.endswith(b"ok"), answer
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o640
