"""Files that the application names in its response: the server answers ``X-Sendfile`` and ``X-Accel-Redirect`` itself."""

import gzip
import os
import time
from urllib.parse import urlencode

import pytest
from support import uwsgi
from support.files import assert_same, fill, parts_of, pattern
from support.waiting import wait_until

LARGE = 3 << 20
#: A file is cached after this many seconds without a change; slightly longer than the server requires.
SETTLED_SECONDS = 3.1
KINDS = ["empty", "part", "parts", "length", "written"]
LOADED = {"wsgi": "wsgi-file = {apps}/handing.py", "asgi": "pythonpath = {apps}\nasgi = handing:asgi"}
FIELDS = {
    "path": ("X-Sendfile", "{directory}/private/"),
    "location": ("X-Accel-Redirect", "/inside/"),
}


@pytest.fixture(scope="module", params=LOADED)
def server(request, serve_module):
    lines = [LOADED[request.param], "x-sendfile = private", "x-accel-redirect = /inside=private", "static-gzip-ext = .css"]
    server = serve_module.prepare("\n".join(lines))
    files = {
        "private/report.txt": b"the report",
        "private/large.bin": pattern(LARGE),
        "private/größe 1.txt": b"letters",
        "private/.hidden/note.txt": b"hidden",
        "private/site.css": b"css",
        "private/site.css.gz": b"compressed",
        "outside.txt": b"outside",
    }
    fill(server.directory, files)
    (server.directory / "private" / "out.txt").symlink_to(server.directory / "outside.txt")
    (server.directory / "private" / "shut.txt").mkdir()
    return server.start()


@pytest.fixture(params=FIELDS)
def words(request, server):
    field, start = FIELDS[request.param]
    return field, start.replace("{directory}", str(server.directory))


def ask(server, words, name, headers=(), method="GET", **asked):
    field, start = words
    query = urlencode({"field": field, "name": start + name, **asked}, doseq=True)
    return server.get("/download/?" + query, headers, method=method)


@pytest.mark.parametrize("body", KINDS)
@pytest.mark.parametrize("name", ["report.txt", "large.bin"])
def test_the_file_is_sent_in_place_of_the_body(server, words, name, body):
    response = ask(server, words, name, body=body)
    content = (server.directory / "private" / name).read_bytes()
    assert response.status == 200
    assert_same(response.body, content)
    assert response.all("content-length") == [str(len(content))]
    assert response.get(words[0].lower()) is None, "where the file lies is nobody's business"
    assert len(response.all("date")) == len(response.all("server")) == 1


def test_the_connection_goes_on(server, words):
    client = server.connect()
    field, start = words
    for name in ("large.bin", "report.txt", "missing.txt", "report.txt"):
        for body in KINDS:
            response = client.request("GET", "/?" + urlencode({"field": field, "name": start + name, "body": body}))
            assert response.status == (404 if name == "missing.txt" else 200)


def test_what_the_application_says_of_the_file_stands(server, words):
    headers = ["Content-Type: application/x-own", "Content-Disposition: attachment", "Cache-Control: private", "Set-Cookie: a=b"]
    headers += ["ETag: own", "Last-Modified: yesterday", "Accept-Ranges: none", "Set-Cookie: c=d"]
    response = ask(server, words, "report.txt", header=headers)
    assert response.get("content-type") == "application/x-own"
    assert response.get("content-disposition") == "attachment"
    assert response.get("cache-control") == "private"
    assert response.all("set-cookie") == ["a=b", "c=d"]
    # These come from the file, or conditions and ranges would refer to different content than is sent.
    assert response.all("accept-ranges") == ["bytes"]
    assert len(response.all("etag")) == len(response.all("last-modified")) == 1
    assert response.get("etag") != "own"


def test_what_the_application_does_not_say_is_the_files(server, words):
    assert ask(server, words, "report.txt").get("content-type") == "text/plain"


def test_conditions_and_ranges_are_about_the_file(server, words):
    whole = ask(server, words, "large.bin", header=["Set-Cookie: a=b"])
    again = ask(
        server, words, "large.bin", [("If-None-Match", whole.get("etag"))], header=["Set-Cookie: a=b", "Content-Type: a/b"]
    )
    assert (again.status, again.body, again.get("content-type"), again.get("set-cookie")) == (304, b"", None, "a=b")
    part = ask(server, words, "large.bin", [("Range", "bytes=1000000-1000009")], header=["Content-Type: a/b"])
    assert (part.status, part.body, part.get("content-type")) == (206, pattern(LARGE)[1000000:1000010], "a/b")
    several = ask(server, words, "large.bin", [("Range", "bytes=0-1,5-6")], header=["Content-Type: a/b"])
    assert [piece for _, _, piece in parts_of(several)] == [pattern(LARGE)[0:2], pattern(LARGE)[5:7]]
    beyond = ask(server, words, "large.bin", [("Range", f"bytes={LARGE}-")])
    assert (beyond.status, beyond.get("content-range")) == (416, f"bytes */{LARGE}")
    failed = ask(server, words, "large.bin", [("If-Match", '"other"')])
    assert failed.status == 412


def test_another_status_is_said_with_the_whole_file(server, words):
    response = ask(server, words, "report.txt", [("Range", "bytes=0-1")], status="404 Not Found")
    assert (response.status, response.body) == (404, b"the report")


def test_a_status_without_a_body_has_no_file(server, words):
    response = ask(server, words, "report.txt", status="204 No Content", body="empty")
    assert (response.status, response.body) == (204, b"")


def test_head_has_the_fields_and_no_body(server, words):
    response = ask(server, words, "large.bin", method="HEAD")
    assert (response.status, response.body, response.get("content-length")) == (200, b"", str(LARGE))


def test_an_answer_to_post_may_be_a_file_whatever_its_conditions(server, words):
    response = ask(server, words, "report.txt", [("Range", "bytes=0-1"), ("Content-Length", "0")], method="POST")
    assert (response.status, response.body) == (200, b"the report")


def test_compressed_forms_are_sent_to_clients_that_accept_them(server, words):
    response = ask(server, words, "site.css", [("Accept-Encoding", "gzip")], header=["Vary: Cookie"])
    assert (response.body, response.all("content-encoding")) == (b"compressed", ["gzip"])
    assert sorted(response.all("vary")) == ["Accept-Encoding", "Cookie"]


def test_names_with_a_dot_are_the_applications_choice(server, words):
    assert ask(server, words, ".hidden/note.txt").body == b"hidden"


@pytest.mark.parametrize("name", ["missing.txt", "../outside.txt", "out.txt", "shut.txt", "", "a/../report.txt", "report.txt/"])
def test_a_name_without_a_file_in_the_directory_is_404_and_logged(server, words, name):
    before = server.log.count(words[0])
    response = ask(server, words, name, header=["Content-Disposition: attachment"])
    assert (response.status, response.get(words[0].lower()), response.get("content-disposition")) == (404, None, None)
    assert b"outside" not in response.body
    wait_until(lambda: server.log.count(words[0]) > before, "the log says why")


def test_other_directories_are_refused(server):
    for field, name in [("X-Sendfile", "/etc/passwd"), ("X-Sendfile", "report.txt"), ("X-Accel-Redirect", "/insides/report.txt")]:
        response = server.get("/?" + urlencode({"field": field, "name": name}))
        assert (response.status, b"root" in response.body) == (404, False)


def test_letters_beyond_ascii(server):
    response = server.get("/?" + urlencode({"field": "X-Accel-Redirect", "name": "/inside/gr%C3%B6%C3%9Fe%201.txt?query"}))
    assert response.body == b"letters"


def test_a_file_that_was_written_just_now_is_sent_as_it_is_now(server, words):
    path = server.directory / "private" / "fresh.txt"
    for number in range(20):
        # Alternately modified in place and replaced.
        target = path if number % 2 else path.with_suffix(".new")
        target.write_bytes(b"content %02d" % number)
        if target != path:
            os.rename(target, path)
        assert ask(server, words, "fresh.txt").body == b"content %02d" % number


def test_without_the_option_it_is_a_field_like_any_other(serve):
    server = serve("wsgi-file = {apps}/handing.py")
    response = server.get("/?" + urlencode({"field": "X-Sendfile", "name": "/etc/passwd"}))
    assert (response.body, response.get("x-sendfile")) == (b"of the application", "/etc/passwd")


def test_behind_a_reverse_proxy_that_speaks_uwsgi(serve):
    server = serve.prepare("wsgi-file = {apps}/handing.py\nx-sendfile = private", listen=("socket = 127.0.0.1:0",))
    fill(server.directory, {"private/report.txt": b"the report"})
    server.start()
    query = urlencode({"field": "X-Sendfile", "name": f"{server.directory}/private/report.txt"})
    answer = uwsgi.ask(server.address("uwsgi"), target="/?" + query, extra=[("HTTP_RANGE", "bytes=4-9")])
    assert (answer.status, answer.body) == (206, b"report")


@pytest.mark.parametrize("value", ["private", "inside=private", "/inside="])
def test_a_location_without_its_directory_is_an_error_with_its_line(serve, value):
    server = serve.prepare(f"wsgi-file = {{apps}}/handing.py\nx-accel-redirect = {value}").launch()
    assert server.wait_for_exit() != 0
    server.wait_for_text("uwsgi.ini:4: ")
    server.wait_for_text("/path=DIRECTORY")


@pytest.mark.parametrize(
    "loaded", ["wsgi-file = {apps}/handing.py", "pythonpath = {apps}\nasgi = handing:asgi"], ids=["wsgi", "asgi"]
)
def test_a_named_file_is_compressed_as_any_answer_is(serve, loaded):
    server = serve.prepare(f"{loaded}\nx-sendfile = private\ncompress = gzip")
    texts = {"small.txt": b"text " * 1000, "large.txt": b"a longer text " * 300_000}
    fill(server.directory, {f"private/{name}": text for name, text in texts.items()})
    client = server.start().connect()
    for name, text in texts.items():
        for body in KINDS:
            query = urlencode({"field": "X-Sendfile", "name": f"{server.directory}/private/{name}", "body": body})
            response = client.request("GET", "/?" + query, [("Accept-Encoding", "gzip")])
            assert (response.status, response.all("content-encoding")) == (200, ["gzip"])
            assert_same(gzip.decompress(response.body), text)


# http.response.pathsend


@pytest.mark.parametrize("size", [10, 16384, 16385, 1 << 20])
def test_pathsend_sends_what_the_file_is_at_the_moment(serve, size):
    server = serve.prepare(LOADED["asgi"])
    client = server.start().connect()
    path = server.directory / "file.bin"
    for number in range(6):
        content = pattern(size)[number:] + bytes(number)
        if number % 2:
            # Alternately modified in place and replaced.
            path.write_bytes(content)
        else:
            path.with_suffix(".new").write_bytes(content)
            os.rename(path.with_suffix(".new"), path)
        if number == 4:
            # Files that are old enough to be cached are requested again below.
            wait_until(lambda: time.time() - path.stat().st_ctime > SETTLED_SECONDS, "the file has settled")
        for _ in range(3):
            response = client.request("GET", "/?" + urlencode({"path": path}))
            assert (response.status, response.get("content-length")) == (200, str(size))
            assert_same(response.body, content)
    path.unlink()
    assert client.request("GET", "/?" + urlencode({"path": path})).status == 500
