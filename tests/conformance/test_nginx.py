"""A real nginx in front: the uwsgi protocol over TCP and UNIX sockets, and HTTP."""

import hashlib
import json
import os
import shutil
import socket
import subprocess

import pytest
from support.client import Client
from support.waiting import wait_until

CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    uwsgi_temp_path {folder}/uwsgi;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 20m;
    upstream kept {{ server 127.0.0.1:{http}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        include {parameters};
        location /tcp/ {{ uwsgi_pass 127.0.0.1:{uwsgi}; }}
        location /unix/ {{ uwsgi_pass unix:{socket}; }}
        location /unbuffered/ {{ uwsgi_pass unix:{socket}; uwsgi_request_buffering off; uwsgi_buffering off; }}
        location /http/ {{ proxy_pass http://127.0.0.1:{http}; }}
        location /kept/ {{ proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""

#: As nginx ships it.
PARAMETERS = """
uwsgi_param  QUERY_STRING       $query_string;
uwsgi_param  REQUEST_METHOD     $request_method;
uwsgi_param  CONTENT_TYPE       $content_type;
uwsgi_param  CONTENT_LENGTH     $content_length;
uwsgi_param  REQUEST_URI        $request_uri;
uwsgi_param  PATH_INFO          $document_uri;
uwsgi_param  DOCUMENT_ROOT      $document_root;
uwsgi_param  SERVER_PROTOCOL    $server_protocol;
uwsgi_param  REQUEST_SCHEME     $scheme;
uwsgi_param  HTTPS              $https if_not_empty;
uwsgi_param  REMOTE_ADDR        $remote_addr;
uwsgi_param  REMOTE_PORT        $remote_port;
uwsgi_param  SERVER_PORT        $server_port;
uwsgi_param  SERVER_NAME        $server_name;
"""

#: nginx binds its port itself, so another process may take it in between: then another is tried.
PORT_TRIES = 5

ROUTES = ["tcp", "unix", "unbuffered", "http", "kept"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nginx:
    def __init__(self, folder, server):
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "nginx is not installed: apt-get install nginx"
        self.folder = folder
        (folder / "uwsgi_params").write_text(PARAMETERS)
        for _ in range(PORT_TRIES):
            self.port = free_port()
            (folder / "nginx.conf").write_text(
                CONFIGURATION.format(
                    folder=folder,
                    port=self.port,
                    parameters=folder / "uwsgi_params",
                    uwsgi=server.address("uwsgi")[1],
                    http=server.port,
                    socket=server.folder / "app.sock",
                )
            )
            command = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            if wait_until(self.answers, lambda: f"nginx serves: {self.errors()}") is True:
                return
        raise AssertionError(f"nginx does not start: {self.errors()}")

    def answers(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def errors(self):
        log = self.folder / "error.log"
        return log.read_text() if log.exists() else "no log"

    def connect(self):
        return Client(("127.0.0.1", self.port))

    def finish(self):
        self.process.terminate()
        self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/front.py\nprocesses = 2\npost-buffering = 65536",
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", "socket = {folder}/app.sock"),
    )


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    front = Nginx(tmp_path_factory.mktemp("nginx"), server)
    yield front
    front.finish()


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_get_is_served(nginx, route):
    with nginx.connect() as client:
        for number in range(5):
            response = client.request("GET", f"/{route}/echo?n={number}", headers=[("X-Real", "yes")])
            assert response.status == 200
            seen = json.loads(response.body)["environ"]
            assert seen["PATH_INFO"] == f"/{route}/echo"
            assert seen["QUERY_STRING"] == f"n={number}"
            assert seen["HTTP_X_REAL"] == "yes"
            assert seen["REMOTE_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_post_of_a_megabyte_comes_whole(nginx, route):
    body = os.urandom(1 << 20)
    with nginx.connect() as client:
        response = client.request("POST", f"/{route}/digest", body=body)
        assert (response.status, response.text) == (200, f"{len(body)} {hashlib.sha256(body).hexdigest()}")
        assert client.request("GET", f"/{route}/echo").status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("path", ["echo", "stream"])
def test_behind_nginx_head_has_no_body(nginx, route, path):
    with nginx.connect() as client:
        assert client.request("HEAD", f"/{route}/{path}").status == 200
        assert client.request("GET", f"/{route}/echo").status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("path", ["stream", "file"])
def test_behind_nginx_a_large_download_comes_whole(nginx, route, path):
    with nginx.connect() as client:
        response = client.request("GET", f"/{route}/{path}?20000000")
        assert response.status == 200
        assert len(response.body) == 20_000_000
        assert response.body == (b"0123456789abcdef" * 1_250_000)


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_errors_and_empty_answers_are_passed_on(server, nginx, route):
    with nginx.connect() as client:
        assert client.request("GET", f"/{route}/error").status == 500
        response = client.request("GET", f"/{route}/none")
        assert (response.status, response.body) == (204, b"")
        assert client.request("GET", f"/{route}/echo").status == 200
    server.wait_for_log(rf"an exception in GET /{route}/error")


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_client_that_vanishes_ends_the_answer_and_no_more(server, nginx, route):
    client = nginx.connect()
    client.send(f"GET /{route}/endless HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert client.read_head().status == 200
    client.reset()
    server.wait_for_log(rf"closed /{route}/endless$")
    with nginx.connect() as client:
        assert client.request("GET", f"/{route}/echo").status == 200
