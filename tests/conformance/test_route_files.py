"""Routes that answer with files: `static:`, `file:` and related actions use the code of `static-map`, with the same checks."""

import os

import pytest
from support.files import fill, pattern
from support.uwsgi import ask

LARGE = 300_000
FILES = {
    "media/a.txt": b"text of a",
    "media/large.bin": pattern(LARGE),
    "media/sub/index.html": b"<h1>sub</h1>",
    "media/.hidden": b"no",
    "secret.txt": b"no",
    "logo.svg": b"<svg/>",
    "down.html": b"<h1>Back soon</h1>",
    "data.json": b"{}",
}
RULES = r"""
    static-index = index.html
    route = ^/logo$ static:{directory}/files/logo.svg
    route = ^/$ static:{directory}/files/logo.svg
    route = ^/media/(.*)$ static:{directory}/files/media/$1
    route = ^/media2(/.*)$ static:{directory}/files/media/$1
    route-qs = ^file=(.*)$ static:{directory}/files/media/${qs[file]}
    route = ^/down file:filename={directory}/files/down.html,status=503 Service Unavailable
    route = ^/typed sendfile:filename={directory}/files/data.json,mime=1
    route = ^/plain fastfile:filename={directory}/files/data.json,content_type=text/x-own
    route = ^/gone file:filename={directory}/files/missing.html,status=410
    route = ^/first/(.*)$ static-next:{directory}/files/media/$1
    route = ^/next/(.*)$ file-next:filename={directory}/files/media/$1
    route = ^/rewritten$ setpathinfo:/media/a.txt
    route = ^/media/a.txt$ static:{directory}/files/media/a.txt
"""


@pytest.fixture(scope="module", params=["", "static-map = /elsewhere={directory}/files/media"], ids=["alone", "beside a map"])
def server(serve_module, request):
    listen = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")
    server = serve_module(f"wsgi-file = {{apps}}/hello.py\n{request.param}\n{RULES}", listen=listen)
    fill(server.directory / "files", FILES)
    return server


def test_a_file_is_the_answer(server):
    client = server.connect()
    for target, body, kind in (
        ("/logo", FILES["logo.svg"], "image/svg+xml"),
        ("/", FILES["logo.svg"], "image/svg+xml"),
        ("/media/a.txt", FILES["media/a.txt"], "text/plain"),
        ("/media2/a.txt", FILES["media/a.txt"], "text/plain"),
        ("/x?file=a.txt", FILES["media/a.txt"], "text/plain"),
        ("/rewritten", FILES["media/a.txt"], "text/plain"),
        ("/media/large.bin", FILES["media/large.bin"], "application/octet-stream"),
        ("/media/sub/", FILES["media/sub/index.html"], "text/html"),
        ("/media/sub", FILES["media/sub/index.html"], "text/html"),
    ):
        response = client.request("GET", target)
        assert (response.status, response.body, response.get("content-type")) == (200, body, kind), target
        assert client.request("HEAD", target).get("content-length") == str(len(body)), target
    assert client.request("GET", "/other").text == "hello"


def test_conditions_and_ranges_are_heard(server):
    client = server.connect()
    for name in ("a.txt", "large.bin"):
        whole = client.request("GET", f"/media/{name}")
        assert whole.get("accept-ranges") == "bytes"
        same = client.request("GET", f"/media/{name}", [("If-None-Match", whole.get("etag"))])
        assert (same.status, same.body) == (304, b"")
        part = client.request("GET", f"/media/{name}", [("Range", "bytes=2-5")])
        assert (part.status, part.body) == (206, whole.body[2:6])
        assert part.get("content-range") == f"bytes 2-5/{len(whole.body)}"
        parts = client.request("GET", f"/media/{name}", [("Range", "bytes=0-1,4-4")])
        assert (parts.status, parts.get("content-type").partition(";")[0]) == (206, "multipart/byteranges")


@pytest.mark.parametrize(
    "target",
    [
        "/media/%2e%2e/secret.txt",
        "/media/sub/..%2f..%2fsecret.txt",
        "/media/..%5csecret.txt",
        "/x?file=a.txt%00.png",
        "/media/.hidden",
        "/media//a.txt//",
        "/media2/%2e%2e/secret.txt",
        "/x?file=../secret.txt",
        "/x?file=%2e%2e%2fsecret.txt",
        "/x?file=/etc/passwd",
        "/media/link.txt",
        "/media/directory/secret.txt",
        "/media/pipe",
        "/media/nothing",
        "/media/a.txt/",
        "/media/a.txt/b",
    ],
)
def test_nothing_but_the_files_of_its_directory_is_served(server, target):
    media = server.directory / "files" / "media"
    for link, to in ((media / "link.txt", "../secret.txt"), (media / "directory", "..")):
        if not link.is_symlink():
            link.symlink_to(to)
    if not (media / "pipe").exists():
        os.mkfifo(media / "pipe")
    with server.connect() as client:
        client.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        response = client.read_response()
    assert (response.status, response.text) == (404, "There is no such file.\n")


def test_a_rule_about_a_directory_is_not_asked_for_a_path_that_leaves_it(server):
    client = server.connect()
    assert client.request("GET", "/media/../secret.txt").text == "hello"
    assert client.request("GET", "/secret/../media/sub/../a.txt").body == FILES["media/a.txt"]


def test_other_methods_are_not_those_of_files(server):
    client = server.connect()
    response = client.request("POST", "/media/a.txt", body=b"x")
    assert (response.status, response.get("allow")) == (405, "GET, HEAD, OPTIONS")
    assert client.request("OPTIONS", "/media/a.txt").status == 204


def test_a_page_has_the_status_and_the_type_that_its_rule_says(server):
    client = server.connect()
    response = client.request("GET", "/down", [("If-None-Match", "*"), ("Range", "bytes=0-1")])
    assert (response.status, response.reason, response.body) == (503, "Service Unavailable", FILES["down.html"])
    assert response.get("content-type") == "text/html"
    assert client.request("POST", "/down", body=b"x" * 10).body == FILES["down.html"]
    assert client.request("GET", "/typed").get("content-type") == "application/json"
    assert client.request("GET", "/plain").get("content-type") == "text/x-own"
    gone = client.request("GET", "/gone")
    assert (gone.status, gone.reason) == (410, "Gone")


def test_the_next_rule_has_its_turn_where_the_file_is_not(server):
    client = server.connect()
    for there in ("/next/a.txt", "/first/a.txt"):
        assert client.request("GET", there).body == FILES["media/a.txt"]
    for missing in ("/next/b.txt", "/next/../secret.txt", "/next/sub", "/first/b.txt", "/first/../secret.txt"):
        with server.connect() as other:
            other.send(f"GET {missing} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert other.read_response().text == "hello", missing


def test_it_holds_for_the_uwsgi_protocol(server):
    answer = ask(server.address("uwsgi"), "GET", "/media/a.txt")
    assert (answer.status, answer.body) == (200, FILES["media/a.txt"])
    assert ask(server.address("uwsgi"), "GET", "/down").status == 503


def test_a_changed_file_is_seen(serve):
    server = serve.prepare("wsgi-file = {apps}/hello.py\nroute = ^/page file:filename={directory}/page.html,status=503\n")
    page = server.directory / "page.html"
    page.write_bytes(b"x" * 100_000)
    client = server.start().connect()
    assert client.request("GET", "/page").body == b"x" * 100_000
    page.write_bytes(b"y" * 50_000)
    assert client.request("GET", "/page").body == b"y" * 50_000


def test_a_rule_must_say_in_which_directory_a_file_lies(serve):
    server = serve.prepare(
        "wsgi-file = {apps}/hello.py\nroute = ^/(.*) static:$1\nroute-run = static:${DOCUMENT_ROOT}/x\n"
        "route = ^/(.*) file:filename=/$1\nroute-run = file:status=503"
    ).launch()
    assert server.wait_for_exit() != 0
    for line, said in (
        (4, "`$1` does not say in which directory the file must be"),
        (5, "check-static-docroot"),
        (6, "`/$1` does not say in which directory the file must be"),
        (7, "does not contain a file"),
    ):
        assert any(f"uwsgi.ini:{line}: error" in text and said in text for text in server.log.splitlines()), server.log


def test_a_directory_that_is_not_there_yet_is_said_and_served_later(serve):
    server = serve("wsgi-file = {apps}/hello.py\nroute = ^/f/(.*)$ static:{directory}/later/$1")
    server.wait_for_text("uwsgi.ini:4: warning: there is no `")
    client = server.connect()
    assert client.request("GET", "/f/a.txt").status == 404
    fill(server.directory / "later", {"a.txt": b"text"})
    assert client.request("GET", "/f/a.txt").body == b"text"


def test_asgi_applications_have_them_too(serve):
    server = serve.prepare("wsgi-file = {apps}/compressible.py\ncallable = asgi\nroute = ^/f/(.*)$ static:{directory}/files/$1")
    fill(server.directory / "files", {"a.txt": b"text"})
    client = server.start().connect()
    assert client.request("GET", "/f/a.txt").body == b"text"
    assert client.request("GET", "/f/b.txt").status == 404
    assert client.request("GET", "/short").body == b"short"
