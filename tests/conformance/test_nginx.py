"""A real nginx in front: the uwsgi protocol over TCP and UNIX sockets, and HTTP."""

import hashlib
import json
import os

import pytest
from support.nginx import Nginx

#: What is in nginx's ``http`` block.
FRONT = """
    client_max_body_size 20m;
    upstream kept {{ server 127.0.0.1:{http}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{{port}};
        include {parameters};
        location /tcp/ {{ uwsgi_pass 127.0.0.1:{uwsgi}; }}
        location /unix/ {{ uwsgi_pass unix:{socket}; }}
        location /unbuffered/ {{ uwsgi_pass unix:{socket}; uwsgi_request_buffering off; uwsgi_buffering off; }}
        location /http/ {{ proxy_pass http://127.0.0.1:{http}; }}
        location /kept/ {{ proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ""; }}
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

ROUTES = ["tcp", "unix", "unbuffered", "http", "kept"]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/front.py\nprocesses = 2\npost-buffering = 65536",
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", "socket = {folder}/app.sock"),
    )


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "uwsgi_params").write_text(PARAMETERS)
    http = FRONT.format(
        parameters=folder / "uwsgi_params",
        uwsgi=server.address("uwsgi")[1],
        http=server.port,
        socket=server.folder / "app.sock",
    )
    front = Nginx(folder, http)
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
