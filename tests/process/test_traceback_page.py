"""The page of an exception in development: it is shown to clients on this machine only."""

import re

import pytest

WSGI = """\
def helper(price):
    raise ValueError("<script>alert(1)</script> " + price)
def application(environ, start_response):
    if environ["PATH_INFO"] == "/stream":
        return stream(start_response)
    if environ["PATH_INFO"] == "/late":
        start_response("200 OK", [])
        return late()
    import json
    json.loads("no json", object_hook=helper) if environ["PATH_INFO"] == "/json" else helper("zero")
def stream(start_response):
    helper("in a stream")
    yield b""
def late():
    yield b"the beginning"
    helper("too late")
"""
ASGI = """\
def helper(price):
    raise ValueError("<script>alert(1)</script> " + price)
async def application(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the beginning", "more_body": True})
    if scope["path"] == "/json":
        import json
        json.loads("no json")
    helper("zero")
"""
BROWSER = [("Accept", "text/html,*/*;q=0.8")]


@pytest.fixture(params=[WSGI, ASGI], ids=["wsgi", "asgi"])
def develop(request, start, tmp_path):
    (tmp_path / "shop.py").write_text(request.param)
    return lambda **more: start("--reload", module="shop", master=False, **more)


def test_a_browser_is_shown_the_traceback_and_nothing_of_it_is_markup(develop):
    instance = develop()
    answer = instance.get("/", BROWSER)
    assert (answer.status, answer.get("content-type")) == (500, "text/html; charset=utf-8")
    assert "<h1>ValueError: &lt;script&gt;alert(1)&lt;/script&gt; zero</h1>" in answer.text
    assert "<script" not in answer.text
    # The failing line is marked, and nothing is loaded from other hosts.
    here = re.search(r"<span class=here><i>2</i>(.*)", answer.text)[1]
    assert re.sub(r"<[^>]*>", "", here).startswith("    raise ValueError(&quot;&lt;script&gt;")
    assert "prefers-color-scheme: dark" in answer.text
    assert "src=" not in answer.text
    assert set(re.findall(r'href="(\w+):', answer.text)) == {"vscode"}
    instance.wait_for_log(r"^bolide: an exception in GET /$")


def test_frames_of_the_application_are_open_and_come_first_those_of_libraries_are_folded(develop):
    page = develop().get("/json", BROWSER).text
    page = re.sub(r"<a .*?</a>", "", page)
    own, library = page.index("<details class=own open><summary>shop.py, line"), page.index("<details class=library><summary>")
    assert own < library
    assert "json/decoder.py" in page[library:]
    assert "json/decoder.py" not in page[:library]
    assert "bolide/" not in page


def test_programs_get_the_traceback_in_pythons_format(develop):
    answer = develop().get("/")
    assert (answer.status, answer.get("content-type")) == (500, "text/plain; charset=utf-8")
    lines = answer.text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "shop.py" in lines[1]
    assert lines[-1] == "ValueError: <script>alert(1)</script> zero"


def test_an_exception_before_the_first_part_of_a_stream_is_shown_and_after_it_the_answer_is_cut(start, tmp_path):
    (tmp_path / "shop.py").write_text(WSGI)
    instance = start("--reload", module="shop", master=False)
    assert "in a stream" in instance.get("/stream", BROWSER).text
    with instance.connect() as client:
        client.send(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.read_until(b"the beginning")
        rest = client.read_to_end()
    assert b"Traceback" not in rest
    instance.wait_for_log(r"^ValueError: .* too late$")


def test_remote_clients_see_no_details(develop, tmp_path):
    instance = develop(socket="0.0.0.0:0")
    for headers in ((), BROWSER):
        answer = instance.get("/", headers)
        assert (answer.status, answer.text) == (500, "Internal Server Error\n")
    instance.wait_for_log(r"^ValueError: ")


def test_dns_rebinding_shows_no_details(develop):
    instance = develop()
    for name, is_shown in (("evil.example", False), ("localhost.evil.example", False), ("localhost", True), ("[::1]:8000", True)):
        with instance.connect() as client:
            client.send(f"GET / HTTP/1.1\r\nHost: {name}\r\nAccept: text/html\r\n\r\n".encode())
            assert ("ValueError" in client.read_response().text) == is_shown, name


def test_remote_clients_see_no_details_of_code_that_does_not_load_either(start, tmp_path):
    (tmp_path / "shop.py").write_text("secret = undefined\n")
    instance = start("--reload", module="shop", master=False, socket="0.0.0.0:0")
    answer = instance.get("/", BROWSER)
    assert (answer.status, answer.text) == (500, "Internal Server Error\n")


def test_without_development_no_client_sees_details(start, tmp_path):
    (tmp_path / "shop.py").write_text(WSGI)
    answer = start(module="shop", master=False).get("/", BROWSER)
    assert answer.status == 500
    assert "ValueError" not in answer.text
