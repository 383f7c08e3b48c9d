"""UNIX sockets and log files are as the server makes and leaves them whose command line it is."""

import json
import os
import socket
import stat
import subprocess

import pytest
from support.server import program
from support.waiting import wait_until
from support_users import NOBODY, python_for_everybody

APPLICATION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
"""


class Line:
    """A server that runs a command line as it is, with its two streams apart."""

    def __init__(self, directory, port, *arguments):
        self.directory = directory
        (directory / "shop.py").write_text(APPLICATION)
        self.port = port
        words = [word.replace("PORT", str(self.port)) for word in arguments]
        self.out, self.errors = directory / "out.txt", directory / "errors.txt"
        self.process = subprocess.Popen(
            [*program(), *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=self.out.open("wb"),
            stderr=self.errors.open("wb"), start_new_session=True, umask=0o022,
        )  # fmt: skip

    def wait_until_ready(self):
        wait_until(lambda: self.is_ready() or self.process.poll() is not None, lambda: f"ready:\n{self.everything()}")
        assert self.process.poll() is None, self.everything()
        return self

    def everything(self):
        return "".join(path.read_text() for path in self.directory.glob("*.txt")) + "".join(
            path.read_text() for path in self.directory.glob("*.log")
        )

    def is_ready(self):
        return "bolide: ready" in self.everything()

    def get(self):
        with socket.create_connection(("127.0.0.1", self.port), 30) as client:
            client.sendall(b"GET /asked HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while client.recv(65536):
                pass

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0, self.everything()


@pytest.fixture
def line(tmp_path, free_port):
    lines = []

    def line(*arguments):
        lines.append(Line(tmp_path, free_port(), *arguments))
        return lines[-1].wait_until_ready()

    yield line
    for one in lines:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(30)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize(
    ("words", "mode", "is_removed"),
    [
        (["-b", "unix:app.sock", "shop:application"], 0o777, True),
        (["--bind", "unix:app.sock", "-m", "007", "shop:application"], 0o770, True),
        (["--bind=unix:app.sock", "--worker-tmp-dir", "/dev/shm", "shop:application"], 0o777, True),
        (["-b", "unix:app.sock", "--chmod-socket=660", "shop:application"], 0o660, True),
        (["--uds", "app.sock", "shop:app"], 0o666, True),
        (["--unix-socket", "app.sock", "--access-log", "-", "shop:app"], 0o666, True),
        (["--http-socket", "app.sock", "--module", "shop"], 0o755, False),
    ],
    ids=["gunicorn", "umask", "gunicorn alone", "chmod", "uvicorn", "daphne", "uwsgi"],
)
def test_a_unix_socket_has_the_mode_and_the_life_of_its_server(words, mode, is_removed, line, tmp_path):
    server = line(*words)
    assert oct(mode_of(tmp_path / "app.sock")) == oct(mode), server.everything()
    server.stop()
    assert (tmp_path / "app.sock").exists() != is_removed


def test_the_mode_of_a_socket_that_exists_stays_with_uvicorns_flag(line, tmp_path):
    with socket.socket(socket.AF_UNIX) as before:
        before.bind(str(tmp_path / "app.sock"))
    os.chmod(tmp_path / "app.sock", 0o760)
    line("--uds", "app.sock", "shop:app")
    assert oct(mode_of(tmp_path / "app.sock")) == oct(0o760)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["-b", "127.0.0.1:PORT", "--access-logfile", "-", "--error-logfile", "errors.log", "shop:application"], "out.txt"),
        (["-b", "127.0.0.1:PORT", "--access-logfile", "/dev/stdout", "--error-logfile", "-", "shop:application"], "out.txt"),
        (["-b", "127.0.0.1:PORT", "--access-logfile", "-", "shop:application"], "out.txt"),
        (["-b", "127.0.0.1:PORT", "--access-logfile", "access.log", "shop:application"], "access.log"),
        (["-b", "127.0.0.1:PORT", "--error-logfile", "errors.log", "shop:application"], None),
        (["-b", "127.0.0.1:PORT", "shop:application"], "errors.txt"),
        (["--host", "127.0.0.1", "--port", "PORT", "shop:app"], "out.txt"),
        (["--http-socket", "127.0.0.1:PORT", "--module", "shop"], "errors.txt"),
    ],
    ids=["beside a file", "dev stdout", "alone", "file", "only errors", "gunicorn", "uvicorn", "uwsgi"],
)
def test_request_lines_go_where_the_server_of_the_line_writes_them(words, place, line, tmp_path):
    server = line(*words)
    server.get()
    if place is not None:
        wait_until(lambda: "GET /asked" in (tmp_path / place).read_text(), server.everything)
    server.stop()
    places = {path.name for path in tmp_path.iterdir() if path.suffix in (".txt", ".log") and "GET /asked" in path.read_text()}
    assert places == ({place} if place else set())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_without_a_group_the_owner_of_a_socket_leaves_it_that_of_root(start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here that every user may run")
    os.chown(open_directory, NOBODY.pw_uid, NOBODY.pw_gid)
    (open_directory / "shop.py").write_text(APPLICATION)
    path = open_directory / "app.sock"
    start(
        "--uid", "nobody", "--chown-socket", "nobody", "--http-socket", str(path), "--chdir", open_directory, module="shop",
        command=[python, "-m", "bolide"],
    )  # fmt: skip
    assert (os.stat(path).st_uid, os.stat(path).st_gid) == (NOBODY.pw_uid, os.getgid())


def test_log_files_of_gunicorn_are_readable_as_the_umask_says_and_keep_their_mode(line, tmp_path):
    (tmp_path / "access.log").touch(mode=0o600)
    os.chmod(tmp_path / "access.log", 0o600)
    line("-b", "127.0.0.1:PORT", "--access-logfile", "access.log", "--error-logfile", "errors.log", "shop:application")
    assert oct(mode_of(tmp_path / "errors.log")) == oct(0o644)
    assert oct(mode_of(tmp_path / "access.log")) == oct(0o600)


def test_gunicorns_format_has_the_seconds_and_fields_of_the_response(line, free_port, tmp_path):
    form = json.dumps({"seconds": "%(L)s", "type": "%({Content-Type}o)s", "absent": "%({x-absent}o)s", "status": "%(s)s"})
    port = free_port()
    (tmp_path / "settings.ini").write_text(f'bind = "127.0.0.1:{port}"\naccesslog = "-"\naccess_log_format = {form!r}\n')
    server = line("-c", "settings.ini", "shop:application")
    server.port = port
    server.get()
    wait_until(lambda: "{" in server.out.read_text(), server.everything)
    told = json.loads(server.out.read_text())
    assert 0 <= float(told["seconds"]) < 60
    assert (told["type"], told["absent"], told["status"]) == ("text/plain", "-", "200")
