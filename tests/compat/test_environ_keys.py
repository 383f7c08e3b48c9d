"""The tables of keys on the migration pages: what other servers put into `environ` or the scope, and what Bolide does about each.

Every key that the installed server really sets is in its table, and Bolide does what the table says.
"""

import contextlib
import http.client
import json
import re
import subprocess
import sys
from pathlib import Path

import gunicorn
import pytest
import uvicorn
import werkzeug
from support.client import Client
from support.real_uwsgi import real_uwsgi
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import WebSocket

DOCS = Path(__file__).parents[2] / "docs"
#: The page of each server's table.
PAGES = {
    "gunicorn": "migrate-from-gunicorn.md",
    "uWSGI": "migrate-from-uwsgi.md",
    "Werkzeug": "migrate-from-waitress.md",
    "uvicorn": "migrate-from-uvicorn.md",
}
#: Python's servers: the package whose sources name the keys, and the arguments of Python that serve at a port.
SERVERS = {
    "gunicorn": (
        gunicorn,
        lambda port: ["-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--no-control-socket", "told:application"],
    ),
    "Werkzeug": (
        werkzeug,
        lambda port: ["-c", f"import told, werkzeug.serving as it; it.run_simple('127.0.0.1', {port}, told.application)"],
    ),
    "uvicorn": (uvicorn, lambda port: ["-m", "uvicorn", "--port", str(port), "told:asgi"]),
}

#: It answers with its keys, over WSGI and ASGI.
TOLD = """
import json

def application(environ, start_response):
    body = json.dumps(sorted(environ)).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        return await send({"type": "lifespan.startup.complete"})
    keys = sorted([*scope, *scope.get("extensions", {})])
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": json.dumps(keys)})
        return await send({"type": "websocket.close"})
    body = json.dumps(keys).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
"""
UPGRADE = [("Upgrade", "five"), ("Connection", "Upgrade")]


def table_of(server):
    """Returns the table as `{key: verdict}`."""
    page = (DOCS / PAGES[server]).read_text()
    (table,) = re.findall(rf"<!-- keys of {server} -->\n(.*?)<!-- end of keys -->", page, re.DOTALL)
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    assert all(reason.strip() for *_, reason in rows), "a row of the table contains no reason"
    return {key: verdict.strip() for names, verdict, _ in rows for key in re.findall(r"`([^`]+)`", names)}


def keys_at(address):
    """Returns the keys of a request with a body. Header fields are in no table."""
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/a%20b?c", b"body", {"Content-Type": "text/plain"})
        answer = connection.getresponse()
        assert answer.status == 200, answer
        return {key for key in json.loads(answer.read()) if not key.startswith("HTTP_")}


def is_served(port):
    with contextlib.suppress(OSError), Client(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def served_by(server, directory, port):
    command = [sys.executable, *SERVERS[server][1](port)]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: is_served(port) or process.poll() is not None, lambda: f"{server}:\n{(directory / 'log').read_text()}")
        yield ("127.0.0.1", port)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def told(serve):
    def start(interface="", arguments=None):
        configuration = f"{interface}\nthreads = 2" if interface.startswith("wsgi") else interface
        server = serve.prepare(configuration, arguments=arguments)
        (server.directory / "told.py").write_text(TOLD)
        return server.start()

    return start


def check(server, seen, here, here_with_upgrade):
    """Compares a table with the keys that the other server sets, and with Bolide's."""
    table = table_of(server)
    assert seen - set(table) == set(), f"{server} sets keys that {PAGES[server]} does not have"
    does = {
        "the same": lambda key: key in here,
        "with `Upgrade`": lambda key: key in here_with_upgrade and key not in here,
        "absent": lambda key: key not in here | here_with_upgrade,
    }
    assert {key: verdict for key, verdict in table.items() if not does[verdict](key)} == {}


@pytest.mark.parametrize("server", ["gunicorn", "Werkzeug"])
def test_the_table_of_a_server_has_each_key_of_its_environ(server, told, free_port, tmp_path):
    (tmp_path / "told.py").write_text(TOLD)
    with served_by(server, tmp_path, free_port()) as address:
        seen = keys_at(address)
    package = Path(SERVERS[server][0].__file__).parent
    sources = "".join(path.read_text() for path in package.rglob("*.py"))
    assert [key for key in table_of(server) if f'"{key}"' not in sources and f"'{key}'" not in sources] == []
    # In the words of another server than uWSGI.
    ours = told(arguments=["--bind", "127.0.0.1:0", "--threads", "2", "told:application"])
    client = ours.connect()
    upgraded = {key for key in json.loads(client.request(headers=UPGRADE).body) if not key.startswith("HTTP_")}
    check(server, seen, keys_at(ours.address()), upgraded)


def test_the_table_of_uwsgi_has_each_key_of_its_environ(uwsgi, told, free_port, tmp_path):
    directory = tmp_path / "uwsgi"
    directory.mkdir()
    (directory / "told.py").write_text(TOLD)
    with real_uwsgi(uwsgi, directory, free_port(), f"chdir = {directory}\nwsgi-file = told.py") as address:
        seen = keys_at(address)
    ours = keys_at(told("wsgi-file = told.py").address())
    assert set(table_of("uWSGI")) == seen
    check("uWSGI", seen, ours, ours)


def test_the_table_of_uvicorn_has_each_key_of_its_scope(told, free_port, tmp_path):
    (tmp_path / "told.py").write_text(TOLD)
    with served_by("uvicorn", tmp_path, free_port()) as address:
        seen = keys_at(address) | keys_of_websocket(address)
    ours = told("asgi = told:asgi\npythonpath = .").address()
    here = keys_at(ours) | keys_of_websocket(ours)
    check("uvicorn", seen, here, here)


def keys_of_websocket(address):
    with Client(address) as client:
        return set(json.loads(WebSocket(client, "/").open().read_message()))
