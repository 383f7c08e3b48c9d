"""Response fields that belong to the server (PEP 3333) and that WSGI applications set nonetheless."""

import gzip

import pytest
from support import fastcgi, scgi, uwsgi
from support.client import Closed
from support.http2 import Both, Reset

APPLICATION = "wsgi-file = {apps}/server_fields.py"
MODELS = {"threads": "threads = 2", "gevent": "gevent = 10\ngevent-monkey-patch = true"}
TEXT = b"one two three"
LARGE = bytes(range(256)) * 16384
#: The bodies that the application frames itself, and whose framing is sent as it is.
BODIES = {"plain": [TEXT], "parts": [b"4\r\none \r\n", b"9;name=value\r\ntwo three\r\n", b"0\r\nX-Trailer: 1\r\n\r\n"]}
#: Protocols of reverse proxies, which have no connection of their own to describe.
GATEWAYS = {"uwsgi": uwsgi, "scgi": scgi, "fastcgi": fastcgi}
LISTEN = ("http-socket = 127.0.0.1:0", "puwsgi-socket = 127.0.0.1:0", *(f"{name}-socket = 127.0.0.1:0" for name in GATEWAYS))
FIELDS = [
    ("Connection", "keep-alive"),
    ("connection", "X-Other"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Connection", "close"),
    ("TE", "trailers"),
    ("Trailer", "X-Sum"),
    ("Upgrade", "h2c"),
    ("Transfer-Encoding", "identity"),
]


@pytest.fixture(scope="module", params=MODELS)
def server(serve_module, request):
    return serve_module(f"{APPLICATION}\n{MODELS[request.param]}", listen=LISTEN)


@pytest.fixture(scope="module", params=MODELS)
def both(serve_module, tmp_path_factory, request):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), f"{APPLICATION}\n{MODELS[request.param]}")


@pytest.mark.parametrize(("name", "value"), FIELDS)
def test_a_field_that_belongs_to_the_server_is_dropped(server, name, value):
    with server.connect() as client:
        for _ in range(2):
            response = client.request(target=f"/field?{name}={value}")
            assert (response.status, response.body, response.get(name)) == (200, TEXT, None)


@pytest.mark.parametrize("gateway", GATEWAYS)
@pytest.mark.parametrize(("name", "value"), [*FIELDS, ("Connection", "close")])
def test_reverse_proxies_get_no_such_field_either(server, gateway, name, value):
    answer = GATEWAYS[gateway].ask(server.address(gateway), target=f"/field?{name}={value}")
    assert (answer.status, answer.body, answer.all(name)) == (200, TEXT, [])


def test_the_kept_connection_of_a_reverse_proxy_outlives_such_a_field(server):
    with server.connect(server.address("fastcgi")) as kept, server.connect(server.address("puwsgi")) as persistent:
        for name, value in [*FIELDS, ("Connection", "close"), ("Connection", "close")]:
            target = f"/field?{name}={value}"
            kept.send(fastcgi.request(target=target, keep=True))
            answer = fastcgi.read_answer(kept)
            assert (answer.status, answer.body, answer.all(name)) == (200, TEXT, [])
            persistent.send(uwsgi.packet(uwsgi.request_variables(target=f"{target}&Content-Length={len(TEXT)}")))
            answer = persistent.read_response()
            assert (answer.status, answer.body, answer.get(name)) == (200, TEXT, None)


def test_a_status_that_switches_protocols_is_no_final_one(serve):
    # Only the server can hand a connection over, so a client that believed it would wait forever.
    server = serve(APPLICATION, listen=LISTEN)
    target = "/status/101?Upgrade=websocket&Connection=Upgrade"
    for gateway, protocol in GATEWAYS.items():
        assert protocol.ask(server.address(gateway), target=target).status == 500
    with server.connect() as client:
        response = client.request(target=target)
        assert (response.status, response.get("upgrade")) == (500, None)
    server.wait_for_log("the status is not a final one", count=len(GATEWAYS) + 1)


@pytest.mark.parametrize("value", ["close", "Close", "keep-alive, close"])
def test_connection_close_is_obeyed(server, value):
    with server.connect() as client:
        response = client.request(target=f"/field?Connection={value.replace(' ', '%20')}")
        assert (response.status, response.body, response.says_close) == (200, TEXT, True)
        assert client.is_closed()


def test_each_application_has_one_line_about_such_fields(serve):
    mounts = "mount = /a={apps}/server_fields.py\nmount = /b={apps}/server_fields.py\nmanage-script-name = true"
    server = serve(mounts)
    for target in ["/a/field?Connection=close", "/a/field?Keep-Alive=1", "/b/field?Upgrade=x", "/b/field?Upgrade=x"]:
        assert server.get(target).status == 200
    for mount, name in [("/a", "Connection"), ("/b", "Upgrade")]:
        server.wait_for_text(f"the application at {mount} sets the field `{name}`, which belongs to the server")
    assert server.whole_log().count("belongs to the server") == 2


def test_wsgi_strict_keeps_the_error(serve):
    server = serve(f"{APPLICATION}\nwsgi-strict = true")
    assert server.get("/field?Connection=close").status == 500
    server.wait_for_text("it is hop-by-hop, and only the server may set it (PEP 3333)")


@pytest.mark.parametrize("way", ["", "iterator", "write", "length"])
@pytest.mark.parametrize("kind", ["whole", "parts", "bytes", "large"])
def test_chunks_of_an_application_are_framed_anew_under_options_of_uwsgi(server, kind, way):
    with server.connect() as client:
        for _ in range(2):
            response = client.request(target=f"/{kind}/{way}")
            assert (response.status, response.body) == (200, LARGE if kind == "large" else TEXT)
            assert response.all("transfer-encoding") == ["chunked"]
            assert response.get("content-length") is None
        assert client.request("HEAD", f"/{kind}/{way}").status == 200
        assert client.request(target="/field?x-a=b").body == TEXT


@pytest.mark.parametrize("kind", ["whole", "parts", "bytes", "large"])
def test_clients_of_other_protocols_get_the_data_of_the_chunks(server, kind):
    wanted = LARGE if kind == "large" else TEXT
    with server.connect() as client:
        client.send(f"GET /{kind}/ HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        response = client.read_response()
        assert (response.body, response.get("transfer-encoding")) == (wanted, None)
    for gateway, protocol in GATEWAYS.items():
        answer = protocol.ask(server.address(gateway), target=f"/{kind}/")
        assert (answer.body, answer.all("transfer-encoding")) == (wanted, [])


@pytest.mark.parametrize("kind", ["whole", "parts", "bytes", "large"])
def test_a_client_of_http_2_gets_the_data_of_the_chunks(both, kind):
    answer = both.connect("plain").request(target=f"/{kind}/")
    assert (answer.status, answer.body) == (200, LARGE if kind == "large" else TEXT)


@pytest.mark.parametrize("kind", ["plain", "unended", "nothing"])
def test_a_body_without_chunks_or_without_the_last_one_ends_the_connection(server, kind):
    with server.connect() as client, pytest.raises(Closed):
        client.request(target=f"/{kind}/")
    server.wait_for_log(rf"the application's answer to GET /{kind}/.* does not consist of chunks")


@pytest.mark.parametrize("kind", ["plain", "unended", "nothing"])
def test_a_stream_of_http_2_with_such_a_body_is_reset(both, kind):
    with pytest.raises(Reset):
        both.connect("plain").request(target=f"/{kind}/")


def test_data_behind_the_last_chunk_is_cut(server):
    with server.connect() as client:
        assert client.request(target="/more/").body == TEXT
    server.wait_for_text("has data after its last chunk")


def test_chunks_are_compressed_as_data(serve):
    server = serve(f"{APPLICATION}\ncompress = gzip\ncompress-min-size = 1")
    response = server.get("/parts/", headers=[("Accept-Encoding", "gzip")])
    assert (response.status, response.get("content-encoding")) == (200, "gzip")
    assert gzip.decompress(response.body) == TEXT


LINES = {
    "gunicorn": ("--bind", "127.0.0.1:0"),
    "uvicorn": ("--host", "127.0.0.1", "--port", "0"),
    "granian": ("--interface", "wsgi", "--host", "127.0.0.1", "--port", "0"),
}


@pytest.mark.parametrize("words", LINES)
def test_the_body_is_framed_as_it_is_in_words_of_other_servers(serve, words):
    server = serve(arguments=[*LINES[words], "--pythonpath", "{apps}", "server_fields:application"])
    with server.connect() as client:
        for kind in ["plain", "parts", "plain/iterator"]:
            response = client.request(target=f"/{kind}")
            assert response.body == b"".join(BODIES[kind.split("/")[0]])
            assert response.status == 200
    server.wait_for_text("sets the field `Transfer-Encoding`, which belongs to the server")
