"""Answers from a cache, without the application: `cache:`, `cachestore:` and `check-cache`, and items of the configuration."""

import gzip

import pytest
from support.files import fill
from support.http2 import Both
from support.uwsgi import ask
from support.waiting import wait_until

#: Answers with the number of its call in all workers, and with parts as the path says.
APPLICATION = """
import os
import uwsgi

def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    number = uwsgi.cache_inc("calls") and uwsgi.cache_num("calls")
    if path == "/item":
        found = uwsgi.cache_get(query)
        start_response("200 OK", [])
        return [b"None" if found is None else found]
    if path == "/put":
        uwsgi.cache_update(query, environ["wsgi.input"].read())
    status = "304 Not Modified" if path == "/unmodified" else "200 OK"
    headers = [("Content-Type", "text/plain"), ("ETag", '"1"')]
    if path == "/short":
        headers.append(("Content-Length", "100"))
    if path == "/exact":
        headers.append(("Content-Length", "6"))
    start_response(status, headers)
    if path == "/fails":
        return failing()
    if path in ("/exact", "/two"):
        return iter([b"one", b"two"])
    if path == "/file":
        return environ["wsgi.file_wrapper"](open(__file__, "rb"))
    if path == "/large":
        return [b"x" * int(query)]
    if path.startswith("/slow/"):
        return (b"y" * 50_000 for _ in range(100))
    return [f"call {number} in {os.getpid()} of {path}".encode()]

def failing():
    yield b"half of it"
    raise RuntimeError("the other half")
"""

CONFIGURATION = r"""
processes = 2
wsgi-file = {directory}/application.py
cache2 = name=default,items=100
cache2 = name=small,items=100,blocksize=1000
cache2 = name=large,items=100,blocks=2000,bitmap=1,blocksize=10000
route = ^/(page|two|exact|fails|short|file|unmodified)$ cache:key=$1
route = ^/(page|two|exact|fails|short|file|unmodified)$ cachestore:key=$1
route = ^/large$ cache:key=${REQUEST_URI},name=small
route = ^/large$ cachestore:key=${REQUEST_URI},name=small
route = ^/slow/ cache:key=${PATH_INFO},name=large
route = ^/slow/ cachestore:key=${PATH_INFO},name=large
route = ^/briefly$ cache:key=briefly
route = ^/briefly$ cachestore:key=briefly,expires=1
route = ^/headed$ cache:key=headed
route = ^/headed$ cachestore:key=headed
route = ^/style\.css$ cache:key=style.css,mime=1
route = ^/style\.css$ cachestore:key=style.css
route = ^/both$ addheader:X-Both: yes
route = ^/both$ cache:key=both
route = ^/both$ cachestore:key=both
route = ^/both$ cachestore:key=again,name=large,gzip=packed
route = ^/again$ cache:key=again,name=large
route = ^/packed$ cache:key=packed,name=large,content_encoding=gzip
response-route = ^/late$ cachestore:key=late-${uwsgi[status]}
response-route = ^/late$ cacheinc:key=lates
"""
PLACES = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")


@pytest.fixture(scope="module")
def server(serve_module):
    server = serve_module.prepare(CONFIGURATION, listen=PLACES)
    (server.directory / "application.py").write_text(APPLICATION)
    return server.start()


def test_a_stored_answer_is_every_workers_answer_on_a_kept_connection(server):
    clients = [server.connect() for _ in range(4)]
    first = clients[0].request("GET", "/page")
    assert first.get("etag") == '"1"'
    for client in clients * 2:
        response = client.request("GET", "/page")
        assert response.body == first.body
        assert (response.get("content-type"), response.get("content-length")) == ("text/html", str(len(first.body)))
        assert (response.get("etag"), response.get("expires")) == (None, None)
    calls = server.get("/item?calls").body
    assert clients[0].request("GET", "/page").body == first.body
    assert int.from_bytes(server.get("/item?calls").body, "little") == int.from_bytes(calls, "little") + 1


def test_head_and_conditions_get_the_whole_answers_head(server):
    whole = server.get("/page")
    whole = server.get("/page")
    client = server.connect()
    head = client.request("HEAD", "/page")
    assert (head.status, head.body, head.get("content-length")) == (200, b"", str(len(whole.body)))
    # An item has no validators, so no condition holds.
    for condition in [("If-None-Match", "*"), ("If-Modified-Since", "Sat, 01 Jan 2050 00:00:00 GMT"), ("Range", "bytes=0-1")]:
        response = client.request("GET", "/page", [condition])
        assert (response.status, response.body) == (200, whole.body)
    posted = client.request("POST", "/page", body=b"a body that nobody reads")
    assert (posted.status, posted.body) == (200, whole.body)
    assert client.request("GET", "/page").body == whole.body


def test_an_answer_in_parts_is_stored_whole(server):
    for path in ("/two", "/exact"):
        assert server.get(path).get("content-type") == "text/plain"
        stored = server.get(path)
        assert (stored.body, stored.get("content-type"), stored.get("content-length")) == (b"onetwo", "text/html", "6")


@pytest.mark.parametrize("path", ["/fails", "/short", "/file", "/unmodified"])
def test_what_the_application_did_not_complete_is_not_stored(path, server):
    for _ in range(2):
        with server.connect() as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            client.read_to_end()
    assert server.get(f"/item?{path[1:]}").body == b"None"


def test_a_body_for_head_is_not_stored(server):
    client = server.connect()
    assert client.request("HEAD", "/headed").status == 200
    assert client.request("GET", "/headed").get("content-type") == "text/plain"


def test_an_item_is_as_large_as_the_cache_allows_and_no_larger(server):
    for size, is_stored in ((999, True), (1000, True), (1001, False), (100_000, False)):
        for _ in range(2):
            response = server.get(f"/large?{size}")
            assert response.body == b"x" * size
        assert response.get("content-type") == ("text/html" if is_stored else "text/plain"), size


def test_a_large_item_reaches_a_slow_client_whole(server):
    assert server.get("/slow/a").get("content-type") == "text/plain"
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /slow/a HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    for _ in range(2):
        response = client.read_response()
        assert (response.get("content-type"), response.body) == ("text/html", b"y" * 5_000_000)


def test_a_client_that_leaves_has_nothing_stored(server):
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /slow/left HTTP/1.1\r\nHost: x\r\n\r\n")
    client.read_head()
    client.reset()
    server.wait_for_log(r"GET /slow/left => generated \d+ bytes")
    assert server.get("/slow/left").get("content-type") == "text/plain"


def test_an_item_expires(server):
    first = server.get("/briefly")
    again = server.get("/briefly")
    assert again.get("content-type") == "text/plain" or again.get("expires").endswith(" GMT")
    wait_until(lambda: server.get("/briefly").body != first.body, "the item expires")


def test_the_type_of_a_key_is_known(server):
    server.get("/style.css")
    assert server.get("/style.css").get("content-type") == "text/css"


def test_one_answer_becomes_several_items_and_keeps_its_other_rules(server):
    first = server.get("/both")
    assert [server.get("/both").get("x-both"), first.get("x-both")] == ["yes", "yes"]
    packed = server.get("/packed")
    assert (packed.get("content-encoding"), gzip.decompress(packed.body)) == ("gzip", first.body)
    assert server.get("/again").body == server.get("/both").body == first.body
    assert server.get("/item?packed").body == b"None", "an item is in the cache that its rule names"


def test_response_routes_store_and_count(server):
    first = server.get("/late")
    assert server.get("/item?late-200").body == first.body
    assert int.from_bytes(server.get("/item?lates").body, "little") == 1


def test_a_reverse_proxy_gets_cached_answers_by_the_uwsgi_protocol(server):
    first = server.get("/page")
    answer = ask(server.address("uwsgi"), target="/page")
    assert (answer.status, answer.all("content-length"), answer.body) == (200, [str(len(answer.body))], server.get("/page").body)
    assert first.status == 200


def test_http2_streams_get_cached_answers(serve_module, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    (directory / "application.py").write_text(APPLICATION)
    (directory / "tls").mkdir()
    both = Both(serve_module, directory / "tls", CONFIGURATION.replace("{directory}", str(directory)))
    for way in ("plain", "tls"):
        connection = both.connect(way)
        first = connection.request(target="/page")
        for method, body in (("GET", first.body), ("HEAD", b"")):
            response = connection.request(method, "/page")
            assert (response.status, response.get("content-type")) == (200, "text/html")
            assert (response.get("content-length"), bytes(response.body)) == (str(len(first.body)), body)
        connection.request(target="/slow/h2")
        assert connection.request(target="/slow/h2").body == b"y" * 5_000_000


ASGI = """
calls = 0

async def application(scope, receive, send):
    global calls
    if scope["type"] != "http":
        return
    calls += 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for part in (b"call ", b"%d" % calls):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if scope["path"] == "/fails":
        raise RuntimeError("in the middle")
    await send({"type": "http.response.body"})
"""


def test_answers_of_an_asgi_application_are_stored(serve):
    server = serve.prepare(
        "module = application\npythonpath = {directory}\ncache2 = name=pages,items=10\n"
        "route-run = cache:key=${PATH_INFO}\nroute-run = cachestore:key=${PATH_INFO}"
    )
    (server.directory / "application.py").write_text(ASGI)
    server.start()
    assert [(server.get("/a").body, server.get("/a").get("content-type")) for _ in range(2)] == [(b"call 1", "text/html")] * 2
    for _ in range(2):
        with server.connect() as client:
            client.send(b"GET /fails HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            client.read_to_end()
    assert server.get("/b").body == b"call 4"


ITEMS = """
wsgi-file = {directory}/application.py
cache2 = name=pages,items=100,blocksize=5000
cache2 = name=others,items=100
check-cache = others
add-cache-item = pages greeting=hello = world
add-cache-item = calls=
add-cache-item = shared=in both
load-file-in-cache = others {directory}/page.html
load-file-in-cache-gzip = others {directory}/packed.html
load-file-in-cache = pages {directory}/too-large.html
load-file-in-cache = pages {directory}/missing.html
route = ^/greeting$ cache:key=greeting
route = ^/shared$ cache:key=shared,name=others
route = ^/page$ cache:key={directory}/page.html,name=others
route = ^/packed$ cache:key={directory}/packed.html,name=others,content_encoding=gzip
route = ^/reply$ cacheset:key=/whole,name=others,value=HTTP/1.1 404 Not Here
"""


def test_items_of_the_configuration_are_there_before_the_first_request_and_files_are_new_after_a_reload(serve):
    server = serve.prepare(ITEMS.replace("add-cache-item = calls=\n", ""))
    fill(server.directory, {"page.html": b"<p>first", "packed.html": b"<p>" * 1000, "too-large.html": b"x" * 5001})
    (server.directory / "application.py").write_text(APPLICATION)
    server.start()
    assert [server.get(path).body for path in ("/greeting", "/shared", "/page")] == [b"hello = world", b"in both", b"<p>first"]
    packed = server.get("/packed")
    assert (packed.get("content-encoding"), gzip.decompress(packed.body)) == ("gzip", b"<p>" * 1000)
    server.wait_for_log(r"load-file-in-cache \(.*:\d+\): can't load `.*/too-large\.html` into the cache `pages`: .* larger than")
    server.wait_for_log(r"can't load `.*/missing\.html` into the cache `pages`: .* can't be read: No such file")
    server.get("/put?greeting", method="POST", body=b"changed by the application")
    (server.directory / "page.html").write_bytes(b"<p>second")
    server.send_signal(1)
    wait_until(lambda: server.get("/page").body == b"<p>second", "the file is loaded again")
    assert server.get("/greeting").body == b"changed by the application"


def test_check_cache_answers_with_whole_responses(serve):
    server = serve.prepare(ITEMS.replace("add-cache-item = calls=\n", "").replace("check-cache = others", "check-cache"))
    fill(server.directory, {"page.html": b"x", "packed.html": b"x", "too-large.html": b"x", "missing.html": b"x"})
    (server.directory / "application.py").write_text(APPLICATION)
    server.start()
    whole = b"HTTP/1.0 404 Not Here\r\nX-Own: 1\r\nConnection: close\r\nContent-Length: 7\r\n\r\nthe body"
    server.get("/put?/whole?a", method="POST", body=whole)
    server.get("/put?/page", method="POST", body=b"<p>just a page")
    client = server.connect()
    for _ in range(2):
        response = client.request("GET", "/whole?a")
        assert (response.status, response.reason, response.get("x-own"), response.body) == (404, "Not Here", "1", b"the body")
        response = client.request("GET", "/page")
        assert (response.status, response.get("content-type"), response.body) == (200, "text/html", b"<p>just a page")
    assert client.request("POST", "/whole?a", body=b"").status == 200


#: What a visitor has uploaded, which the application answers as a text.
PASTE = rb"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: session=evil\r\n\r\n<script>alert(1)</script>"

PASTES = """
wsgi-file = {{directory}}/application.py
cache2 = name=pages,items=100,blocksize=5000{more}
check-cache = pages
route-if = equal:${{REQUEST_METHOD}};GET cachestore:key=${{REQUEST_URI}},name=pages,expires=300
route = ^/set$ cacheset:key=/was-set,name=pages,value=HTTP/1.1 404 Not Here
"""

PASTING = f"""
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Content-Type-Options", "nosniff")])
    return [b"{PASTE.decode()}"]
"""


def test_a_body_that_was_stored_is_never_the_head_of_a_response(serve, tmp_path):
    """Not at the next visit, and not when a file keeps it beyond a restart."""
    for _ in range(2):
        server = serve.prepare(PASTES.format(more=f",store={tmp_path}/pages.cache"))
        (server.directory / "application.py").write_text(PASTING)
        server.start()
        for path in ("/paste", "/paste", "/set", "/was-set"):
            answer = server.get(path)
            assert (answer.status, answer.get("content-type"), answer.get("set-cookie")) == (200, "text/plain", None)
            assert answer.body.startswith(b"HTTP/1.1 200 OK")
        server.stop()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("route-run = cache:key=x", r"this needs a cache: add `cache2` \(write `cache2 = name=NAME,items=1000`\)"),
        (
            "cache2 = name=a,items=1\nroute-run = cachestore:key=x,name=b",
            r"no cache with the name `b` \(the caches are a\)",
        ),
        ("cache2 = name=a,items=1\nroute-if = incache:key=x,name=b last:", r"there is no cache with the name `b`"),
        ("cache2 = name=a,items=1\ncheck-cache = b", r"there is no cache with the name `b`"),
        ("cache2 = name=a,items=1\nadd-cache-item = b x=y", r"there is no cache with the name `b`"),
        ("cache2 = name=a,items=1\nadd-cache-item = x", r"`add-cache-item = x` has no key with a value"),
        ("load-file-in-cache = x", r"this needs a cache: add `cache2`"),
    ],
)
def test_a_cache_that_is_missing_is_an_error_of_the_configuration(lines, message, serve):
    server = serve.prepare(f"wsgi-file = {{apps}}/hello.py\n{lines}")
    server.launch()
    server.wait_for_log(message)
    assert server.wait_for_exit() != 0
