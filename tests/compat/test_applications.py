"""Routing to applications: for the same configuration and requests, real uWSGI and Bolide give the same answers."""

import pytest
from support import uwsgi as protocol
from support.client import Client
from support.server import Server

#: Answers with its name and with its part of the environ.
TELLS = """\
def application(environ, start_response):
    start_response('200 OK', [])
    return [repr(({name!r}, environ.get('SCRIPT_NAME', ''), environ['PATH_INFO'])).encode()]
app = application
"""
#: A mount may be any of these.
APPLICATIONS = {f"{name}.py": TELLS.format(name=name) for name in ("main", "one", "two", "deep")}
LISTEN = ("socket = {directory}/uwsgi.sock", "http-socket = {directory}/http.sock")
MANAGED = "manage-script-name = true"

#: Name of the setup, its lines, and the files besides the four applications.
SETUPS = {
    "mounts only": "mount = /one=one.py\nmount = /two=two:app",
    "mounts only, managed": "mount = /one=one.py\nmount = /two=two:app\nmanage-script-name = true",
    "a main application": "module = main\nmount = /one=one.py\nmount = /one/deep=deep.py",
    "a main application, managed": "wsgi-file = main.py\nmount = /one=one.py\nmount = /one/deep=deep.py\n" + MANAGED,
    "slashes at the end": "mount = /one/=one.py\nmount = /two/=two.py\nmanage-script-name = true",
    "the root is mounted": "mount = /=main.py\nmount = /one=one.py\nmanage-script-name = true",
    "the root is mounted beside a file": "wsgi-file = two.py\nmount = /=main.py",
    "the root is mounted beside a module": "module = two\nmount = /=main.py\nmanage-script-name = true",
    "one prefix twice": "mount = /one=one.py\nmount = /one=two.py\nmanage-script-name = true",
    "no default": "mount = /one=one.py\nmanage-script-name = true\nno-default-app = true",
    "script names are ignored": "module = main\nmount = /one=one.py\nignore-script-name = true",
    "script names are ignored, and managed": "mount = /two=two.py\nmount = /one=one.py\nignore-script-name = true\n" + MANAGED,
    "module and file": "module = one\nwsgi-file = two.py",
    "no such module, and a file": "module = nowhere\nwsgi-file = two.py",
    "no such callable, and a file": "module = one:nothing\nwsgi-file = two.py",
    "a module that fails, and a file": "module = broken\nwsgi-file = two.py",
    "a module that fails, and mounts": "module = broken\nwsgi-file = main.py\nmount = /one=one.py\nmanage-script-name = true",
}
PATHS = ["/", "/x", "/one", "/one/", "/one/x", "/onerous", "/two/x", "/one/deep/y"]
SCRIPT_NAMES = ["", "/", "/one", "/two", "/one/deep", "/one/", "/other"]


def answers(server):
    """Returns the values that each request got, by protocol, SCRIPT_NAME and path."""
    told = {}
    for path in PATHS:
        with Client(str(server.directory / "http.sock")) as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            told["http", "", path] = told_of(protocol.Answer(client.read_to_end()))
        for script_name in SCRIPT_NAMES:
            extra = [("SCRIPT_NAME", script_name)]
            address = str(server.directory / "uwsgi.sock")
            told["uwsgi", script_name, path] = told_of(protocol.ask(address, target=path, extra=extra))
    return told


def told_of(answer):
    return answer.body.decode() if answer.status == 200 else answer.status


def started(server, files, is_ready):
    for name, text in files.items():
        (server.directory / name).write_text(text)
    server.launch()
    server.wait_for(lambda: is_ready() or server.process.poll() is not None, "it is ready")
    assert is_ready(), f"it ended instead of serving:\n{server.log}"
    return server


@pytest.mark.parametrize("name", SETUPS)
def test_every_request_gets_the_application_that_uwsgi_gives_it(name, serve, uwsgi, tmp_path):
    files = {**APPLICATIONS, "broken.py": "raise RuntimeError('no settings')\n"}
    real = Server(tmp_path / "real", SETUPS[name] + "\nmaster = true", listen=LISTEN, command=[uwsgi])
    try:
        started(real, files, lambda: "spawned uWSGI worker 1 " in real.log)
        expected = answers(real)
    finally:
        real.finish()
    server = serve.prepare(SETUPS[name], listen=LISTEN)
    told = answers(started(server, files, lambda: "bolide: ready" in server.log))
    differing = {request: (wanted, told[request]) for request, wanted in expected.items() if told[request] != wanted}
    # If the path is shorter than a mount with a trailing slash, uWSGI reads beyond the end of the path.
    differing = {request: both for request, both in differing.items() if "\\x00" not in str(both[0])}
    assert not differing, "\n".join(f"{request}: uWSGI {wanted}, Bolide {made}" for request, (wanted, made) in differing.items())
