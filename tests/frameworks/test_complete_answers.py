"""Pages of frameworks leave in one piece with their length; streamed responses are passed on as they come."""

import pytest
from support import uwsgi

TEXT = b"one two three"
PAGES = {
    "flask": "module = flask_site:app",
    "django": "module = django_site",
    "bottle": "module = bottle_site:app",
    "falcon": "module = falcon_site",
    "pyramid": "module = pyramid_site",
}


@pytest.fixture(scope="module")
def django(serve_module):
    listen = ["http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"]
    return serve_module("pythonpath = {apps}\nmodule = django_bare", listen=listen)


@pytest.mark.parametrize("framework", PAGES)
def test_a_page_of_a_framework_leaves_in_one_piece(serve, framework):
    server = serve(f"pythonpath = {{apps}}\n{PAGES[framework]}")
    client = server.connect()
    for _ in range(3):
        before = client.segments_received()
        response = client.request(target="/hello/ann")
        assert (response.body, response.get("content-length")) == (b"hello ann ", "10")
        assert client.segments_received() == before + 1


@pytest.mark.parametrize("path", ["plain", "written", "template"])
def test_a_django_response_without_a_length_leaves_in_one_piece(django, path):
    client = django.connect()
    for _ in range(3):
        before = client.segments_received()
        response = client.request(target=f"/{path}")
        assert (response.status, response.body, response.get("content-length")) == (200, TEXT, str(len(TEXT)))
        assert client.segments_received() == before + 1
    head = client.request("HEAD", f"/{path}")
    assert (head.get("content-length"), head.get("transfer-encoding")) == (str(len(TEXT)), None)
    assert client.request(target="/plain").body == TEXT


FINISHED = """
import afterwards, django_bare
from django.core.signals import request_finished
from django.core.wsgi import get_wsgi_application

request_finished.connect(lambda **_: afterwards.wait(name), weak=False)
inner = get_wsgi_application()

def application(environ, start_response):
    global name
    name = environ["QUERY_STRING"]
    return inner(environ, start_response)
"""


@pytest.mark.parametrize("path", ["plain", "template", "stream", "file"])
def test_a_django_response_leaves_before_request_finished_handlers_run(serve, path):
    server = serve.prepare("env = AFTERWARDS_DIRECTORY={directory}\npythonpath = {apps}\nwsgi-file = {directory}/finished.py")
    (server.directory / "finished.py").write_text(FINISHED)
    server.start()
    for number in range(3):
        assert server.get(f"/{path}?answer-{number}").body == TEXT
        (server.directory / f"answer-{number}").touch()
        server.wait_for_text(f"answer-{number}: the client had its answer")


@pytest.mark.parametrize("path", ["stream", "stream_of_list", "overridden"])
def test_what_django_streams_stays_a_stream(django, path):
    client = django.connect()
    before = client.segments_received()
    assert client.request(target=f"/{path}").chunks == [b"one ", b"two ", b"three"]
    assert client.segments_received() >= before + 3


def test_a_django_file_is_sent(django):
    client = django.connect()
    assert client.request(target="/file").body == TEXT
    assert client.request(target="/plain").body == TEXT


@pytest.mark.parametrize(
    ("path", "status", "length"), [("empty", 200, "0"), ("no_content", 204, None), ("not_modified", 304, None)]
)
def test_a_django_response_without_a_body_has_none(django, path, status, length):
    client = django.connect()
    response = client.request(target=f"/{path}")
    assert (response.status, response.body, response.get("content-length")) == (status, b"", length)
    assert response.get("transfer-encoding") is None
    assert client.request(target="/plain").body == TEXT


def test_a_django_response_with_a_wrong_length_is_logged(django):
    with django.connect() as client:
        assert client.request(target="/too_many").body == TEXT[:5]
        assert client.request(target="/plain").body == TEXT
    django.wait_for_log("GET /too_many is longer than its Content-Length; the rest was cut")
    with django.connect() as client:
        client.send(b"GET /too_few HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_head().get("content-length") == "50"
        assert client.read_to_end() == TEXT
    django.wait_for_log("GET /too_few is shorter than its Content-Length; closing the connection")


def test_a_django_response_is_closed(django):
    before = django.log.count("closed a response")
    client = django.connect()
    for method in ("GET", "HEAD"):
        assert client.request(method, "/plain").status == 200
    django.wait_for_log("^.*closed a response$", count=before + 2)


def test_an_http_1_0_client_keeps_its_connection_after_a_django_page(django):
    client = django.connect()
    for _ in range(2):
        client.send(b"GET /plain HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        response = client.read_response()
        assert (response.body, response.get("connection")) == (TEXT, "keep-alive")


def test_a_django_page_by_the_uwsgi_protocol_has_a_length(django):
    answer = uwsgi.ask(django.address("uwsgi"), "GET", "/plain")
    assert (answer.body, answer.all("content-length")) == (TEXT, [str(len(TEXT))])
