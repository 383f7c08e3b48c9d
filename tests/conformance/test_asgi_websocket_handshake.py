"""The opening handshake (RFC 6455 section 4.2): refused handshakes and their responses, additions by the application, and its
refusals.
"""

import ast
import base64

import pytest
from support.client import Client
from support.uwsgi import packet, request_variables
from support.websocket import CLOSE, TEXT, Scripted, WebSocket, accept_of, close_payload, failures, frame, handshake, received

RESPONSE = "websocket.http.response"


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "asgi = {apps}/asgi_socket.py\nlifespan = off", listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")
    )


def ask(server, *arguments, **options):
    """Returns the response to a handshake that is refused, and the client."""
    client = server.connect()
    client.send(handshake(*arguments, **options)[0])
    return client.read_response(), client


# Requirements for a client's handshake.


def test_the_example_of_the_specification_is_answered_as_there(server):
    client = server.connect()
    steps = "(%22example%22,[(%22accept%22,),(%22receive_all%22,)])"
    client.send(handshake(f"/?{steps}", key="dGhlIHNhbXBsZSBub25jZQ==")[0])
    assert client.read_head().get("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("version", ["8", "0", "12", "14", "130", "x", "", "13, 8"])
def test_another_version_is_426_and_learns_ours(server, version):
    response, _ = ask(server, headers=[("Sec-WebSocket-Version", version)])
    assert (response.status, response.get("sec-websocket-version")) == (426, "13")
    # RFC 9110 section 15.5.22: the response contains an Upgrade field.
    assert response.get("upgrade").lower() == "websocket"
    # Section 7.8: the Connection field lists it, for intermediaries.
    assert "upgrade" in response.all("connection")


def test_a_missing_version_is_426(server):
    response, _ = ask(server, without=["Sec-WebSocket-Version"])
    assert (response.status, response.get("sec-websocket-version")) == (426, "13")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x",
        base64.b64encode(bytes(15)).decode(),
        base64.b64encode(bytes(17)).decode(),
        base64.b64encode(bytes(18)).decode(),
        "!" * 22 + "==",
        "A" * 24,
        "A" * 21 + "===",
        "A" * 4096,
    ],
)
def test_a_malformed_key_is_400(server, key):
    response, _ = ask(server, key=key)
    assert response.status == 400
    assert "Sec-WebSocket-Key" in response.text


def test_a_missing_key_or_two_keys_are_400(server):
    response, _ = ask(server, without=["Sec-WebSocket-Key"])
    assert response.status == 400
    key = base64.b64encode(bytes(16)).decode()
    response, _ = ask(server, headers=[("Sec-WebSocket-Key", key), ("Sec-WebSocket-Key", key)])
    assert response.status == 400


def test_a_malformed_list_of_extensions_is_400(server):
    response, _ = ask(server, headers=[("Sec-WebSocket-Extensions", "permessage-deflate; ;=")])
    assert response.status == 400


def test_a_handshake_with_a_body_is_400(server):
    # Bytes after the head would be parsed as frames.
    response, _ = ask(server, headers=[("Content-Length", "5")])
    assert response.status == 400
    response, _ = ask(server, headers=[("Transfer-Encoding", "chunked")])
    assert response.status == 400


def test_a_handshake_without_a_host_is_400(server):
    assert ask(server, without=["Host"])[0].status == 400


@pytest.mark.parametrize(
    "headers",
    [
        [("Upgrade", "h2c, websocket"), ("Connection", "keep-alive, Upgrade")],
        [("Upgrade", "h2c"), ("Upgrade", "WebSocket"), ("Connection", "keep-alive"), ("Connection", "upgrade")],
        [("Upgrade", "  WEBSOCKET  ,"), ("Connection", ",UPGRADE,")],
    ],
)
def test_websocket_is_found_among_several_upgrade_tokens(server, headers):
    socket = Scripted(server, ("accept",), ("say", "hello"), headers=headers).open()
    assert socket.read_message() == "hello"
    assert socket.answer_close() == (1000, "")


@pytest.mark.parametrize(
    ("method", "headers", "without"),
    [
        ("POST", [("Content-Length", "0")], []),
        ("HEAD", [], []),
        ("GET", [], ["Upgrade"]),
        ("GET", [], ["Connection"]),
        ("GET", [("Connection", "keep-alive")], []),
        ("GET", [("Upgrade", "h2c")], []),
        ("GET", [("Upgrade", "websockets")], []),
    ],
)
def test_what_does_not_ask_for_websocket_is_an_ordinary_request(server, method, headers, without):
    client = server.connect()
    client.send(handshake("/seen/nobody", headers, without, method=method)[0])
    response = client.read_response(method)
    assert (response.status, response.body) == (200, b"" if method == "HEAD" else b"[]")


def test_a_client_of_http_1_0_can_not_switch(server):
    client = server.connect()
    client.send(handshake("/seen/nobody", version="HTTP/1.0")[0])
    assert client.read_response().status == 200


def test_the_connection_is_good_after_a_handshake_that_the_application_refused(server):
    client = server.connect()
    for _ in range(2):
        Scripted(server, ("receive",), ("send", {"type": "websocket.close"}), client=client)
        response = client.read_response()
        assert (response.status, response.says_close) == (403, False)
    assert client.request(target="/seen/nobody").status == 200


def test_a_handshake_may_follow_requests_on_its_connection(server):
    client = server.connect()
    assert client.request(target="/seen/nobody").status == 200
    socket = Scripted(server, ("accept",), ("echo", 1), client=client).open()
    socket.send_text("hello")
    assert socket.read_message() == "hello"


def test_a_handshake_that_comes_byte_by_byte_is_one(server):
    client = server.connect()
    socket = Scripted(
        server, ("accept",), ("echo", 1), client=client, send=client.send_byte_by_byte, early=frame(TEXT, "at once")
    ).open()
    assert socket.read_message() == "at once"


def test_frames_that_come_with_the_handshake_are_read(server):
    early = b"".join(frame(TEXT, str(number)) for number in range(5)) + frame(CLOSE, close_payload(1000, "all"))
    for steps in ([("accept",)], [("receive",), ("turn",), ("turn",), ("send", {"type": "websocket.accept"})]):
        socket = Scripted(server, *steps, ("receive_all",), early=early).open()
        assert socket.read_close() == (1000, "")
        messages = received(socket.ended()[0])
        assert [message.get("text") for message in messages[:-1]] == ["0", "1", "2", "3", "4"]
        assert messages[-1] == {"type": "websocket.disconnect", "code": 1000, "reason": "all"}


# The application's view of the handshake, and its additions.


def test_the_scope_is_that_of_a_websocket(server):
    names = ["type", "asgi", "http_version", "scheme", "path", "raw_path", "query_string", "root_path", "subprotocols"]
    names += ["client", "server", "headers", "extensions", "method", "state"]
    headers = [("Sec-WebSocket-Protocol", "one, two"), ("Sec-WebSocket-Protocol", "three"), ("X-Twice", "a"), ("X-Twice", "b")]
    socket = Scripted(server, ("accept",), ("tell_scope", *names), path="/w%C3%A9b%2Fx", headers=headers).open()
    scope = ast.literal_eval(socket.read_message())
    assert scope["type"] == "websocket"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert (scope["http_version"], scope["scheme"], scope["root_path"]) == ("1.1", "ws", "")
    assert (scope["path"], scope["raw_path"]) == ("/wéb/x", b"/w%C3%A9b%2Fx")
    assert scope["query_string"].startswith(b"%28%27script-")
    assert scope["subprotocols"] == ["one", "two", "three"]
    assert scope["client"][0] == "127.0.0.1"
    assert scope["client"][1] == socket.client.socket.getsockname()[1]
    assert tuple(scope["server"]) == server.address()
    assert [value for name, value in scope["headers"] if name == b"x-twice"] == [b"a", b"b"]
    assert (b"upgrade", b"websocket") in [tuple(pair) for pair in scope["headers"]]
    assert RESPONSE in scope["extensions"]
    assert scope["method"] is None


def test_the_first_message_is_connect(server):
    socket = Scripted(server, ("accept",)).open()
    assert socket.ended()[0][0] == ("received", {"type": "websocket.connect"})


def test_the_application_chooses_a_subprotocol_and_adds_headers(server):
    headers = [(b"x-extra", b"1"), (b"Set-Cookie", b"a=b"), (b"set-cookie", b"c=d")]
    socket = Scripted(server, ("accept",), headers=[("Sec-WebSocket-Protocol", "chat, superchat")])
    assert socket.open().response.all("sec-websocket-protocol") == []
    step = ("send", {"type": "websocket.accept", "subprotocol": "superchat", "headers": headers})
    socket = Scripted(server, ("receive",), step, headers=[("Sec-WebSocket-Protocol", "chat, superchat")]).open()
    assert socket.response.all("sec-websocket-protocol") == ["superchat"]
    assert socket.response.all("x-extra") == ["1"]
    assert socket.response.all("set-cookie") == ["a=b", "c=d"]


def test_an_application_that_sets_date_and_server_sets_them_instead_of_us(server):
    usual = Scripted(server, ("accept",)).open()
    assert len(usual.response.all("date")) == len(usual.response.all("server")) == 1
    headers = [(b"Date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"Server", b"mine")]
    socket = Scripted(server, ("receive",), ("send", {"type": "websocket.accept", "headers": headers})).open()
    assert socket.response.all("date") == ["Thu, 01 Jan 1970 00:00:00 GMT"]
    assert socket.response.all("server") == ["mine"]


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ({"headers": [(b"sec-websocket-protocol", b"x")]}, "ValueError", "sec-websocket-protocol"),
        ({"headers": [(b"Sec-WebSocket-Accept", b"x")]}, "ValueError", "Sec-WebSocket-Accept"),
        ({"headers": [(b"sec-websocket-extensions", b"x")]}, "ValueError", "sec-websocket-extensions"),
        ({"headers": [(b"connection", b"close")]}, "ValueError", ""),
        ({"headers": [(b"upgrade", b"h2c")]}, "ValueError", ""),
        ({"headers": [(b"transfer-encoding", b"chunked")]}, "ValueError", ""),
        ({"headers": [(b"content-length", b"5")]}, "ValueError", ""),
        ({"headers": [(b"x", b"a\r\nb: c")]}, "ValueError", "control character"),
        ({"headers": [(b"x y", b"a")]}, "ValueError", "token"),
        ({"headers": [("x", "y")]}, "TypeError", "bytes"),
        ({"headers": [b"x"]}, "TypeError", ""),
        ({"headers": 5}, "TypeError", ""),
        ({"subprotocol": b"chat"}, "TypeError", "subprotocol"),
        ({"subprotocol": "chat\r\nX: y"}, "ValueError", ""),
        ({"subprotocol": "chat, superchat"}, "ValueError", ""),
        ({"subprotocol": ""}, "ValueError", ""),
        ({"subprotocol": "ch\u00e4t"}, "ValueError", ""),
    ],
)
def test_what_an_accept_can_not_have_is_an_exception_and_a_good_accept_may_follow(server, message, kind, words):
    steps = [
        ("receive",),
        ("send", {"type": "websocket.accept", **message}),
        ("send", {"type": "websocket.accept"}),
        ("say", "x"),
    ]
    socket = Scripted(server, *steps, headers=[("Sec-WebSocket-Protocol", "chat, superchat")]).open()
    assert socket.read_message() == "x"
    ((kinds, text),) = failures(socket.ended()[0])
    assert kinds[0] == kind
    assert words in text
    assert "x" not in [name for name, _ in socket.response.headers]
    assert socket.response.all("sec-websocket-protocol") == []


# Refusals.


@pytest.mark.parametrize("steps", [[("turn",)], []])
@pytest.mark.parametrize("close", [{}, {"code": 3000, "reason": "not you"}])
def test_a_close_before_the_accept_is_403(server, steps, close):
    socket = Scripted(server, ("receive",), *steps, ("send", {"type": "websocket.close", **close}), ("receive",))
    response = socket.client.read_response()
    assert response.status == 403
    assert "sec-websocket-accept" not in dict(response.headers)
    events, error = socket.ended()
    assert error is None
    assert events[-1][1]["type"] == "websocket.disconnect"


@pytest.mark.parametrize("steps", [[("turn",)], []])
def test_a_rejection_has_the_response_that_the_application_gives(server, steps):
    socket = Scripted(
        server,
        ("receive",),
        *steps,
        ("send", {"type": f"{RESPONSE}.start", "status": 401, "headers": [(b"www-authenticate", b"Basic"), (b"x-a", b"1")]}),
        ("send", {"type": f"{RESPONSE}.body", "body": b"who ", "more_body": True}),
        *steps,
        ("send", {"type": f"{RESPONSE}.body", "body": b"are you?"}),
        ("receive",),
    )
    response = socket.client.read_response()
    assert (response.status, response.body) == (401, b"who are you?")
    assert (response.get("www-authenticate"), response.get("x-a")) == ("Basic", "1")
    assert failures(socket.ended()[0]) == []
    assert received(socket.seen())[-1]["type"] == "websocket.disconnect"
    assert socket.client.request(target="/seen/nobody").status == 200


def test_a_large_rejection_is_sent_whole_to_a_slow_client(server):
    body = b"no" * 500_000
    steps = [("receive",), ("send", {"type": f"{RESPONSE}.start", "status": 404, "headers": []}), ("refuse_with", len(body))]
    socket = Scripted(server, *steps, client=server.connect(receive_bytes=4096))
    response = socket.client.read_response()
    assert (response.status, len(response.body)) == (404, len(body))


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"type": "websocket.send", "text": "x"}], "neither accepted nor refused"),
        ([{"type": f"{RESPONSE}.body", "body": b"x"}], "start"),
        ([{"type": f"{RESPONSE}.start", "status": 404}, {"type": "websocket.accept"}], "refused"),
        ([{"type": f"{RESPONSE}.start", "status": 404}, {"type": f"{RESPONSE}.start", "status": 404}], "start"),
        ([{"type": "websocket.close"}, {"type": "websocket.accept"}], "nothing may follow"),
        ([{"type": "websocket.close"}, {"type": "websocket.close"}], "nothing may follow"),
        ([{"type": "http.response.start", "status": 200}], "not a message of a WebSocket"),
        ([{"type": "websocket.unknown"}], "not a message of a WebSocket"),
    ],
)
def test_a_message_that_may_not_come_before_the_accept_is_an_exception(server, steps, words):
    socket = Scripted(server, ("receive",), *(("send", step) for step in steps))
    response = socket.client.read_response()
    assert response.status == (403 if steps[0]["type"] == "websocket.close" else 500)
    ((kinds, text),) = failures(socket.ended()[0])
    assert kinds == ["RuntimeError"]
    assert words in text


@pytest.mark.parametrize("steps", [[("turn",)], []])
def test_an_application_that_fails_before_the_accept_is_500(server, steps):
    count = server.log.count("RuntimeError: before the accept")
    socket = Scripted(server, ("receive",), *steps, ("fail", "before the accept"))
    assert socket.client.read_response().status == 500
    server.wait_for_log("RuntimeError: before the accept", count + 1)


@pytest.mark.parametrize("steps", [[("turn",)], []])
def test_an_application_that_returns_without_accepting_is_500_and_the_log_says_so(server, steps):
    pattern = "returned without accepting or closing the WebSocket"
    count = server.log.count(pattern)
    socket = Scripted(server, ("receive",), *steps)
    assert socket.client.read_response().status == 500
    server.wait_for_log(pattern, count + 1)


def test_a_client_that_leaves_before_the_accept_is_a_disconnect(server):
    socket = Scripted(server, ("receive",), ("wait", "never-accepted"), ("receive",))
    socket.wait_for(lambda events: ("waits", "never-accepted") in events, "it waits")
    socket.client.close()
    socket.go("never-accepted")
    events, error = socket.ended()
    assert error is None
    assert received(events) == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}]


# The uwsgi protocol.


def test_a_handshake_over_the_uwsgi_protocol(server):
    extra = [
        ("HTTP_UPGRADE", "websocket"),
        ("HTTP_CONNECTION", "upgrade"),
        ("HTTP_SEC_WEBSOCKET_KEY", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("HTTP_SEC_WEBSOCKET_VERSION", "13"),
        ("HTTP_SEC_WEBSOCKET_PROTOCOL", "chat"),
    ]
    steps = "/?" + repr(("uwsgi", [("accept",), ("tell_scope", "scheme", "client", "subprotocols"), ("echo", 1)]))
    with Client(server.address("uwsgi")) as client:
        client.send(packet(request_variables("GET", steps, b"", [*extra, ("HTTPS", "on")])) + frame(TEXT, "early"))
        response = client.read_head()
        assert response.get("sec-websocket-accept") == accept_of("dGhlIHNhbXBsZSBub25jZQ==")
        assert response.status == 101
        socket = WebSocket(client, send=lambda data: None)
        assert ast.literal_eval(socket.read_message()) == {
            "scheme": "wss",
            "client": ("192.0.2.7", 4711),
            "subprotocols": ["chat"],
        }
        assert socket.read_message() == "early"
        assert socket.answer_close() == (1000, "")
    with Client(server.address("uwsgi")) as client:
        client.send(packet(request_variables("GET", steps, b"", [*extra[:3], ("HTTP_SEC_WEBSOCKET_VERSION", "8")])))
        response = client.read_head()
        assert (response.status, response.get("sec-websocket-version")) == (426, "13")
