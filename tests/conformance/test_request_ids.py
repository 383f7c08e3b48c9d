"""Identifiers of requests and W3C Trace Context, over each protocol: in environ and scope, log, exceptions and answers."""

import json
import re

import pytest
from support import fastcgi, scgi, uwsgi
from support.http2 import Http2

LISTEN = (
    "http-socket = 127.0.0.1:0",
    "uwsgi-socket = 127.0.0.1:0",
    "scgi-socket = 127.0.0.1:0",
    "fastcgi-socket = 127.0.0.1:0",
    "http2 = h2c",
)

#: An identifier that the server has made.
MADE = re.compile(r"[0-9a-f]{32}")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#: No peer is a trusted reverse proxy.
TRUSTS_NONE = "trusted-proxies = 192.0.2.1\n"

ASGI = """\
import asyncio, json
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/boom":
        raise RuntimeError("asgi")
    if scope["path"] == "/wait":
        await asyncio.sleep(300)
    told = {"headers": [[n.decode(), v.decode()] for n, v in scope["headers"]], "extensions": scope["extensions"]}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})
"""

WSGI = """\
def application(environ, start_response):
    if environ["PATH_INFO"] == "/boom":
        raise RuntimeError("wsgi")
    start_response("200 OK", [("X-Request-ID", "its own")] if environ["PATH_INFO"] == "/own" else [])
    return [environ["HTTP_X_REQUEST_ID"].encode()]
"""


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/echo.py\nrequest-id = true\ntrace-context = true\nrequest-id-answer = true\n"
        "log-format = line %(request_id) %(trace_id) %(span_id) %(uri)",
        listen=LISTEN,
    )


def ask_http(server, target, headers):
    with server.connect() as client:
        return client.request("GET", target, headers)


def ask_http2(server, target, headers):
    with Http2(server.connect()) as client:
        return client.request("GET", target, [(name.lower(), value) for name, value in headers])


def through(module, protocol):
    def ask(server, target, headers):
        extra = [("HTTP_" + name.upper().replace("-", "_"), value) for name, value in headers]
        return module.ask(server.address(protocol), "GET", target, extra=extra)

    return ask


WAYS = {
    "http": ask_http,
    "http2": ask_http2,
    "uwsgi": through(uwsgi, "uwsgi"),
    "scgi": through(scgi, "scgi"),
    "fastcgi": through(fastcgi, "fastcgi"),
}


def fields_of(answer):
    return {name.lower(): value for name, value in answer.headers}


@pytest.mark.parametrize("way", WAYS)
def test_a_reverse_proxies_identifier_and_trace_go_to_application_answer_and_log(server, way):
    headers = [("X-Request-ID", f"front-{way}"), ("traceparent", PARENT), ("tracestate", "vendor=1")]
    answer = WAYS[way](server, f"/{way}", headers)
    environ = json.loads(answer.body)["environ"]
    assert environ["HTTP_X_REQUEST_ID"] == environ["bolide.request_id"] == f"front-{way}"
    assert (environ["HTTP_TRACEPARENT"], environ["HTTP_TRACESTATE"]) == (PARENT, "vendor=1")
    fields = fields_of(answer)
    assert (fields["x-request-id"], fields["traceresponse"]) == (f"front-{way}", PARENT)
    _, trace, span, _ = PARENT.split("-")
    server.wait_for_log(f"^line front-{way} {trace} {span} /{way}$")


@pytest.mark.parametrize("way", WAYS)
def test_a_request_without_them_gets_new_ones(server, way):
    headers = [("X-Request-ID", "not one"), ("traceparent", PARENT.replace("4bf", "4BF")), ("tracestate", "vendor=1")]
    environ = json.loads(WAYS[way](server, "/", headers).body)["environ"]
    assert MADE.fullmatch(environ["bolide.request_id"])
    assert environ["HTTP_X_REQUEST_ID"] == environ["bolide.request_id"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", environ["HTTP_TRACEPARENT"])
    assert "HTTP_TRACESTATE" not in environ


def test_requests_of_a_kept_connection_and_of_all_workers_have_different_identifiers(serve):
    server = serve("wsgi-file = {apps}/echo.py\nrequest-id = true\nmaster = true\nprocesses = 2\nthreads = 2")
    seen = []
    for _ in range(4):
        with server.connect() as client:
            for _ in range(5):
                environ = json.loads(client.request("GET", "/").body)["environ"]
                seen.append(environ["HTTP_X_REQUEST_ID"])
    assert len(set(seen)) == len(seen) == 20
    assert "HTTP_TRACEPARENT" not in environ


def test_a_client_can_not_choose_the_identifier_of_its_request(serve):
    server = serve("wsgi-file = {apps}/echo.py\nrequest-id = true\ntrace-context = true\n" + TRUSTS_NONE)
    answer = ask_http(server, "/", [("X-Request-ID", "chosen"), ("X-Request-ID", "again"), ("traceparent", PARENT)])
    environ = json.loads(answer.body)["environ"]
    assert MADE.fullmatch(environ["HTTP_X_REQUEST_ID"])
    assert PARENT[3:35] not in environ["HTTP_TRACEPARENT"]
    assert "x-request-id" not in fields_of(answer)


def test_without_an_option_the_application_gets_what_the_client_has_sent(serve):
    server = serve("wsgi-file = {apps}/echo.py\n" + TRUSTS_NONE)
    answer = ask_http(server, "/", [("X-Request-ID", "a, b"), ("traceparent", "x")])
    environ = json.loads(answer.body)["environ"]
    assert (environ["HTTP_X_REQUEST_ID"], environ["HTTP_TRACEPARENT"]) == ("a, b", "x")
    assert "bolide.request_id" not in environ
    assert {"x-request-id", "traceresponse"}.isdisjoint(fields_of(answer))


def test_a_scope_has_each_of_them_once(serve, tmp_path):
    (tmp_path / "shop.py").write_text(ASGI)
    server = serve(f"pythonpath = {tmp_path}\nmodule = shop\nlog-json = true\ntrace-context = true\n" + TRUSTS_NONE)
    headers = [("X-Request-ID", "a"), ("x-request-id", "b"), ("traceparent", PARENT), ("tracestate", "vendor=1")]
    with server.connect() as client:
        answers = [client.request("GET", "/", headers) for _ in range(2)]
        boom = client.request("GET", "/boom", headers)
    identifiers = []
    for answer in answers:
        told = json.loads(answer.body)
        names = [name for name, _ in told["headers"]]
        fields = dict(told["headers"])
        assert (names.count("x-request-id"), names.count("traceparent"), names.count("tracestate")) == (1, 1, 0)
        assert told["extensions"]["bolide.request_id"] == {"id": fields["x-request-id"]}
        assert fields_of(answer)["traceresponse"] == fields["traceparent"]
        identifiers.append(fields["x-request-id"])
    assert all(MADE.fullmatch(one) for one in identifiers)
    assert identifiers[0] != identifiers[1]
    assert boom.status == 500
    server.wait_for(lambda: '"uri":"/boom"' in server.log, "the line of the last request")
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["type"] == "request"]
    assert [line["request_id"] for line in requests[:2]] == identifiers
    (exception,) = [line for line in lines if line["type"] == "exception"]
    assert exception["request"] == {"method": "GET", "target": "/boom", "id": requests[2]["request_id"]}
    assert fields_of(boom)["traceresponse"].split("-")[1:3] == [requests[2]["trace_id"], requests[2]["span_id"]]


def test_the_line_of_an_overdue_request_has_its_identifier(serve, tmp_path):
    (tmp_path / "shop.py").write_text(ASGI)
    server = serve(f"pythonpath = {tmp_path}\nmodule = shop\nrequest-id = true\nharakiri = 3")
    assert ask_http(server, "/wait", [("X-Request-ID", "late")]).status == 504
    server.wait_for_log(r"harakiri: GET /wait \(request late\) took \d")


def test_the_line_of_a_worker_that_is_killed_for_an_overdue_request_has_its_identifier(serve, tmp_path):
    (tmp_path / "shop.py").write_text("import time\n\ndef application(environ, start_response):\n    time.sleep(600)\n")
    server = serve(f"pythonpath = {tmp_path}\nmodule = shop\nrequest-id = true\nharakiri = 3")
    with server.connect() as client:
        client.send(b"GET /wait?key=1 HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: late\r\n\r\n")
        server.wait_for_log(r"harakiri: .*GET /wait\?key=\S+ \(request late, for \d")


@pytest.mark.parametrize("configuration", ["threads = 2", "gevent = 4"])
def test_exceptions_have_the_identifier_and_an_answers_own_field_stays(serve, tmp_path, configuration):
    (tmp_path / "shop.py").write_text(WSGI)
    server = serve(f"pythonpath = {tmp_path}\nmodule = shop\nlog-json = true\nrequest-id-answer = true\n{configuration}")
    answer = ask_http(server, "/boom", [("X-Request-ID", "one")])
    assert (answer.status, fields_of(answer)["x-request-id"]) == (500, "one")
    own = ask_http(server, "/own", [("X-Request-ID", "two")])
    assert [value for name, value in own.headers if name.lower() == "x-request-id"] == ["its own"]
    server.wait_for(lambda: '"type":"exception"' in server.log, "the exception")
    (line,) = [line for line in server.log.splitlines() if '"type":"exception"' in line]
    assert json.loads(line)["request"] == {"method": "GET", "target": "/boom", "id": "one"}
