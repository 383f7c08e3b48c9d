"""Routes that use a cache: for the same configuration and requests, real uWSGI and Bolide give the same answers."""

import gzip

from support import uwsgi as protocol
from support.client import Client
from support.server import Server

APPLICATION = """\
import uwsgi

calls = 0

def application(environ, start_response):
    global calls
    calls += 1
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    headers = [("Content-Type", "text/plain")]
    if path.startswith("/cookie"):
        headers.append(("Set-Cookie", "id=1"))
    start_response(query.replace("+", " ") if path.startswith("/status") else "200 OK", headers)
    if path.startswith("/item"):
        return [repr(uwsgi.cache_get(query)).encode()]
    if path.startswith("/parts"):
        return iter([b"one ", b"two ", str(calls).encode()])
    if path.startswith("/large"):
        return [b"x" * 5000]
    return [f"call {calls}: {path} {environ.get('FOUND')}".encode()]
"""
CONFIGURATION = r"""
wsgi-file = {directory}/application.py
cache2 = name=pages,items=100,blocksize=4096
cache2 = name=others,items=100,blocksize=4096
add-cache-item = pages ready=from the configuration
add-cache-item = everywhere=both
load-file-in-cache = others {directory}/application.py
route = ^/plain/ cache:key=${REQUEST_URI}
route = ^/plain/ cachestore:key=${REQUEST_URI},expires=1000
route = ^/named/(\w+) cache:key=named-$1,name=others,content_type=text/x-own
route = ^/named/(\w+) cachestore:key=named-$1,name=others
route = ^/packed/ cache:key=packed-${PATH_INFO},content_encoding=gzip
route = ^/packed/ cachestore:key=${PATH_INFO},gzip=packed-${PATH_INFO}
route = ^/status cache:key=${PATH_INFO}
route = ^/status cachestore:key=${PATH_INFO},status=404
route = ^/(cookie|parts|large) cache:key=$1
route = ^/(cookie|parts|large) cachestore:key=$1
route = ^/value cachestore:key=value,value=text of ${REQUEST_METHOD}
route = ^/ready cache:key=ready
route = ^/everywhere cache:key=everywhere,name=others
route = ^/file cache:key={directory}/application.py,name=others
route = ^/comma cachestore:key=a\,b
route = ^/comma cachevar:key=a\,b,var=FOUND
route = ^/found cachevar:key=ready,var=FOUND
route = ^/missing cachevar:key=missing,var=FOUND
route = ^/set cacheset:key=set,value=${REQUEST_URI}
route = ^/number cacheinc:key=number,value=7
route = ^/number cachemul:key=number
route = ^/number cachedec:key=number
route = ^/number cachediv:key=number,value=3
route-if = incache:key=number,name=pages addheader:X-Number: yes
route-if = incache:key=number,name=others addheader:X-Other: yes
response-route-status = 202 cachestore:key=late-${PATH_INFO},status=202
"""
LISTEN = ("socket = {directory}/uwsgi.sock", "http-socket = {directory}/http.sock")
#: Each is sent twice in a row, except those with `!`.
REQUESTS = [
    "GET /plain/a?1",
    "HEAD /plain/a?1",
    "POST /plain/a?1",
    "GET /plain/a?2",
    "GET /named/a",
    "GET /named/b",
    "GET /item?named-a",
    "GET /packed/a",
    "GET /status?404+Own",
    "GET /status2?500+Own",
    "GET /status3?201+Created",
    "GET /status4?202+Accepted",
    "GET /item?late-/status4",
    "GET /cookie",
    "GET /parts",
    "GET /large",
    "GET /item?large",
    "GET /value",
    "POST /value",
    "GET /item?value",
    "GET /ready",
    "GET /everywhere",
    "GET /file",
    "GET /comma",
    "GET /found",
    "GET /missing",
    "GET !/set?1",
    "GET /item?set",
    "GET /number",
    "GET /item?number",
]


def told_of(answer):
    body = gzip.decompress(answer.body) if answer.all("content-encoding") == ["gzip"] else answer.body
    kept = [(name, answer.all(name)) for name in ("content-type", "content-encoding", "set-cookie", "x-number", "x-other")]
    return (answer.status, kept, len(answer.all("expires")), body)


def answers(server):
    told = {}
    for request in REQUESTS:
        method, target = request.replace("!", "").split(" ", 1)
        for turn in range(1 if "!" in request else 2):
            with Client(str(server.directory / "http.sock")) as client:
                body = "Content-Length: 0\r\n" if method == "POST" else ""
                client.send(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{body}Connection: close\r\n\r\n".encode())
                answer = protocol.Answer(client.read_to_end())
                if method == "HEAD":
                    # uWSGI sends the body after HEAD too.
                    answer.body = b""
                told["http", request, turn] = told_of(answer)
    for target in ("/plain/a?1", "/named/a"):
        told["uwsgi", target] = told_of(protocol.ask(str(server.directory / "uwsgi.sock"), target=target))
    return told


def started(server, is_ready):
    (server.directory / "application.py").write_text(APPLICATION)
    server.launch()
    server.wait_for(lambda: is_ready() or server.process.poll() is not None, "it is ready")
    assert is_ready(), f"it ended instead of serving:\n{server.log}"
    return server


def test_routes_with_a_cache_answer_as_in_uwsgi(serve, uwsgi, tmp_path):
    real = Server(tmp_path / "real", CONFIGURATION + "\nmaster = true", listen=LISTEN, command=[uwsgi])
    try:
        expected = answers(started(real, lambda: "spawned uWSGI worker 1 " in real.log))
    finally:
        real.finish()
    server = serve.prepare(CONFIGURATION, listen=LISTEN)
    told = answers(started(server, lambda: "bolide: ready" in server.log))
    assert expected["http", "GET /plain/a?1", 1][2] == 1, "the cache of real uWSGI answers"
    # The paths of the two directories differ, and nothing else does.
    differing = {
        request: (wanted, told[request])
        for request, wanted in expected.items()
        if repr(told[request]).replace(str(server.directory), "") != repr(wanted).replace(str(real.directory), "")
    }
    assert not differing, "\n".join(f"{one}: uWSGI {wanted}, Bolide {made}" for one, (wanted, made) in differing.items())
