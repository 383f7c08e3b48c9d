"""Whole command lines of other servers: what several flags mean together, their configurations, and default addresses."""

import os
import re
import socket
import ssl
import subprocess

import pytest
from support.server import program
from support.tls import Authority
from support.waiting import TIMEOUT_SECONDS
from support_instance import START_FAILED, Instance

APPLICATION = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["wsgi.url_scheme"].encode()]
"""
FASTAPI = "from fastapi import FastAPI\n\napp = FastAPI()\n"
FLASK = "from flask import Flask\n\napp = Flask(__name__)\n"


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


@pytest.fixture
def options(shop):
    """Returns the options that `bolide config` prints for these arguments, and its whole output."""

    def options(*arguments, **variables):
        unset = ("PORT", "WEB_CONCURRENCY", "FLASK_APP")
        environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [*program(), "config", *arguments]
        said = subprocess.run(command, cwd=shop, env=environment, timeout=TIMEOUT_SECONDS, **streams).stdout.decode()
        lines = [re.sub(r"\s+# .*", "", line) for line in said.splitlines()]
        return {line for line in lines if " = " in line and line[0] not in ";#"}, said

    return options


@pytest.fixture
def line(shop):
    """Starts Bolide with exactly these arguments."""
    started = []

    def line(*arguments):
        started.append(Instance(shop, arguments=[str(argument) for argument in arguments]))
        return started[-1].start()

    yield line
    for instance in started:
        instance.finish()


@pytest.fixture
def certificate(tmp_path):
    return Authority(tmp_path / "authority").server()


def ask(address, context=None):
    """Returns the body of the response at a host and port, or at the path of a UNIX socket."""
    if isinstance(address, tuple):
        plain = socket.create_connection(address, TIMEOUT_SECONDS)
    else:
        plain = socket.socket(socket.AF_UNIX)
        plain.connect(str(address))
    with context.wrap_socket(plain) if context else plain as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(4096), b"")).partition(b"\r\n\r\n")[2].decode()


@pytest.mark.parametrize(
    "name", ["gunicorn.config", "gunicorn.py.ini", "config/server", "python:config.settings", "file:server_settings"]
)
def test_gunicorn_executes_a_configuration_of_any_name(name, options, shop):
    (shop / "config").mkdir()
    file = {"python:config.settings": "config/settings.py", "file:server_settings": "server_settings"}.get(name, name)
    (shop / file).write_text('bind = "127.0.0.1:9001"\nworkers = 1 + 2\n')
    for flag in ("-c", "--config"):
        found, said = options(flag, name, "shop:app")
        assert {"http = 127.0.0.1:9001", "processes = 3"} <= found, said
        assert said.count("is executed as Python, as gunicorn does") == (
            name in ("gunicorn.config", "config/server", "file:server_settings")
        )


def test_a_missing_module_of_a_configuration_is_an_error_with_its_file(fail, shop):
    status, lines = fail("-c", "python:config.gone", "shop:app")
    assert status == START_FAILED
    assert "there is no `config/gone.py` in this directory" in lines[-1], lines


def test_hypercorns_toml_serves_and_the_command_line_takes_precedence(options, shop):
    settings = [
        'bind = "127.0.0.1:9001"',
        "workers = 3",
        'accesslog = "-"',
        "keep_alive_timeout = 9",
        "h2_max_concurrent_streams = 9",
    ]
    (shop / "hypercorn.toml").write_text("\n".join(settings) + "\n")
    for flag in ("-c", "--config"):
        found, said = options(flag, "hypercorn.toml", "shop:app")
        assert {"http = 127.0.0.1:9001", "processes = 3", "http-keepalive = 9"} <= found, said
        assert "`hypercorn.toml` is read as a configuration of hypercorn" in said
        assert "hypercorn.toml:5: note: `h2_max_concurrent_streams`: nothing to do" in said
    found, said = options("-c", "hypercorn.toml", "-b", "127.0.0.1:9002", "shop:app")
    assert {option for option in found if option.startswith("http =")} == {"http = 127.0.0.1:9002"}, said


def test_a_setting_of_hypercorns_toml_without_an_equivalent_fails_the_start(fail, shop):
    (shop / "hypercorn.toml").write_text('bind = "127.0.0.1:0"\nworker_class = "trio"\n')
    status, lines = fail("-c", "hypercorn.toml", "shop:app")
    assert status == START_FAILED
    assert any(line.startswith("bolide: hypercorn.toml:2: error: `worker_class`") for line in lines), lines


def test_a_paste_file_without_an_address_has_the_default_one(options):
    for flags, wanted in [((), "127.0.0.1:8000"), (("--bind", "127.0.0.1:9001"), "127.0.0.1:9001")]:
        assert f" http://{wanted} " in options("--paste", "shop.ini", *flags)[1]


def test_addresses_without_tls_are_beside_those_with_the_certificate(line, free_port, shop, certificate):
    secure, plain = free_port(), free_port()
    flags = ["--certfile", certificate.chain, "--keyfile", certificate.key, "--bind", f"127.0.0.1:{secure}"]
    line(*flags, "--insecure-bind", f"127.0.0.1:{plain}", "shop:app")
    assert ask(("127.0.0.1", plain)) == "http"
    assert ask(("127.0.0.1", secure), ssl._create_unverified_context()) == "https"


def test_flasks_certificate_for_development_is_made(line, free_port):
    port = free_port()
    line("--app", "shop", "run", "--cert", "adhoc", "--port", port)
    assert ask(("127.0.0.1", port), ssl._create_unverified_context()) == "https"


def test_uvicorns_socket_is_opened_alone(line, shop):
    instance = line("--uds", "shop.sock", "--host", "127.0.0.1", "--port", "9", "shop:app")
    assert ask(shop / "shop.sock") == "http"
    assert instance.log_until_now().count("only the socket of `--uds` is opened") == 1


def test_the_last_timeout_counts(options):
    assert "harakiri = 60" in options("-t", "30", "--timeout", "60", "shop:app")[0]
    assert "harakiri = 30" in options("--timeout", "60", "-t", "30", "shop:app")[0]


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["-b", "0.0.0.0", "-p", "80"], {"http = 0.0.0.0:80"}),
        (["-p", "3", "--bind", ":9001"], {"processes = 3", "http = :9001"}),
        (["-u", "www-data", "-g", "daemon"], {"uid = www-data", "gid = daemon"}),
        (["-v", "2", "-R"], set()),
        (["--worker-tmp", "/dev/shm", "--max-requests-j", "5"], set()),
        (["--pythonpath", "one,two"], {"pythonpath = one", "pythonpath = two"}),
        (["--listen", "*:9001", "--trusted-proxy", "10.0.0.1"], {"http = 0.0.0.0:9001", "trusted-proxies = 10.0.0.1"}),
        (["--log-syslog-to", "udp://127.0.0.1:514"], {"logger = rsyslog:127.0.0.1:514"}),
        (["--access-log=access.log"], {"req-logger = file:access.log", "logfile-chmod = new:666", "logfile-chown = true"}),
        (["-e", "tcp6:9001:interface=\\:\\:1"], {"http = [::1]:9001"}),
        (["-e", "fd:fileno=7"], {"http-socket = fd://7"}),
        (
            ["--trusted-proxy", "*", "--trusted-proxy-headers", "x-forwarded-for x-forwarded-port"],
            {"trusted-proxies = *", "http = 0.0.0.0:8080", "trusted-headers = x-forwarded-for, x-forwarded-port"},
        ),
        (["--ciphers", "HIGH:!aNULL"], set()),
        (["--access-log-fmt", "%(addr)s %(dt_ms).3f"], {"log-format = %(addr) %(msecs)"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_words_of_other_servers_become_options(flags, wanted, options):
    found, said = options(*flags, "shop:app")
    usual = set() if any(option.startswith(("http =", "http-socket =")) for option in wanted) else {"http = 127.0.0.1:8000"}
    # Where uvicorn and granian write request lines, and the other half of waitress' `*`.
    known = {"req-logger = fd:1", "http = [::]:9001"}
    assert found - known == {"module = shop:app"} | usual | wanted, said


def test_the_default_address_is_that_of_the_server_whose_line_it_is(options, shop):
    (shop / "main.py").write_text(FASTAPI)
    for arguments, variables, wanted in [
        (["--call", "shop:app"], {}, "0.0.0.0:8080"),
        (["--port", "9001", "--expose-tracebacks", "shop:app"], {}, "0.0.0.0:9001"),
        (["--app", "shop", "run"], {}, "127.0.0.1:5000"),
        (["run"], {"FLASK_APP": "shop", "FLASK_RUN_HOST": "0.0.0.0"}, "0.0.0.0:5000"),
        (["run", "--port", "9001"], {"FLASK_APP": "shop", "FLASK_RUN_PORT": "9"}, "127.0.0.1:9001"),
        (["run", "main.py"], {}, "0.0.0.0:8000"),
        (["run", "--port", "9001"], {}, "0.0.0.0:9001"),
        (["run", "shop:app"], {}, "127.0.0.1:8000"),
        (["run", "main.py"], {"PORT": "9002"}, "0.0.0.0:9002"),
        (["--port", "9001", "shop:app"], {}, "127.0.0.1:9001"),
    ]:
        found, said = options(*arguments, **variables)
        assert f"http = {wanted}" in found, (arguments, said)
    assert "note: listening on 0.0.0.0:8000, as fastapi run does" in options("run", "main.py")[1]


def test_an_address_within_a_container_is_said_to_be_unreachable(shop):
    # The first process of a PID namespace is that of a container.
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *program(), "config"]
    environment = {name: value for name, value in os.environ.items() if name != "PORT"} | {"container": "oci"}
    ways = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    told = {}
    for host in ("127.0.0.1", "0.0.0.0"):
        line = [*command, "--host", host, "--port", "9001", "shop:app"]
        told[host] = subprocess.run(line, cwd=shop, env=environment, timeout=TIMEOUT_SECONDS, **ways).stdout.decode()
    assert "127.0.0.1:9001 can be reached from inside this container only (write `--host 0.0.0.0" in told["127.0.0.1"], told
    assert "http = 0.0.0.0:9001" in told["0.0.0.0"], told
    assert "container" not in told["0.0.0.0"], told


def test_a_start_does_not_need_what_only_watches_it(line, free_port):
    port = free_port()
    instance = line("--bind", f"127.0.0.1:{port}", "--statsd-host", "collector.invalid:8125", "shop:app")
    assert ask(("127.0.0.1", port)) == "http"
    assert "warning: stats-push: `collector.invalid` is not an address" in instance.log_until_now()


def test_syslog_may_be_absent(options):
    # A socket of syslog is outside of the test's reach: with one, `log-syslog` is a logger as before.
    said = options("--log-syslog", "shop:app")[1]
    assert ("lines go to the log, since there is no socket of syslog here (/dev/log)" in said) == (
        not os.path.exists("/dev/log")
    ), said


def test_optional_certificates_of_clients_need_no_authority(options, certificate):
    flags = ["--certfile", str(certificate.chain), "--keyfile", str(certificate.key)]
    said = options(*flags, "--cert-reqs", "1", "shop:app")[1]
    assert "warning: clients are not asked for certificates" in said
    assert "error" not in said, said
    assert "error: it is not configured whose certificates" in options(*flags, "--cert-reqs", "2", "shop:app")[1]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("trio", "an application that needs trio can't be served"),
        ("aiohttp.GunicornWebWorker", "only aiohttp's own server serves its applications"),
        ("eventlet", "write `gevent` instead"),
    ],
)
def test_a_class_of_workers_that_has_no_equivalent_is_a_clear_error(name, advice, fail, shop):
    status, lines = fail("-k", name, "shop:app")
    assert status == START_FAILED
    assert len(lines) == 1
    assert advice in lines[0], lines
