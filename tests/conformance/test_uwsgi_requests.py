"""Functions of the module `uwsgi` for the current request: compared with uWSGI's documentation, on the real program."""

import re
import signal
import ssl

import pytest
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support.websocket import BINARY, CLOSE, PING, PONG, WebSocket, close_payload, frame

SHOP = """\
import os, time, uwsgi, uwsgidecorators
here = os.path.dirname(__file__)
def note(what):
    with open(os.path.join(here, "notes"), "a") as file:
        file.write(what + "\\n")
def plain(start_response, text):
    body = str(text).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
def application(environ, start_response):
    path = environ["PATH_INFO"]
    return globals()["view_" + path.strip("/")](environ, start_response)
def view_variables(environ, start_response):
    uwsgi.set_logvar("shopper", "Läden")
    uwsgi.set_logvar(b"shopper", b"second")
    uwsgi.set_logvar("empty", "")
    return plain(start_response, [uwsgi.get_logvar("shopper"), uwsgi.get_logvar(b"shopper"), uwsgi.get_logvar("none")])
def view_log(environ, start_response):
    uwsgi.log_this_request()
    return plain(start_response, "logged")
def view_quiet(environ, start_response):
    return plain(start_response, "quiet")
def view_descriptor(environ, start_response):
    number = uwsgi.connection_fd()
    return plain(start_response, os.readlink(f"/proc/self/fd/{number}"))
def view_thread(environ, start_response):
    import threading
    told = []
    def ask():
        try:
            uwsgi.set_logvar("a", "b")
        except SystemError as error:
            told.append(error)
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return plain(start_response, told)
def view_disconnect(environ, start_response):
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    write(b"all of it")
    assert uwsgi.disconnect() is True
    note("disconnected")
    release = os.path.join(here, "release")
    while not os.path.exists(release):
        time.sleep(0.01)
    note("gone on")
    return []
def view_file(environ, start_response):
    write = start_response("200 OK", [])
    write(b"<")
    assert uwsgi.sendfile(os.path.join(here, "data")) is True
    with open(os.path.join(here, "data"), "rb") as file:
        uwsgi.sendfile(file, 4096, 2, 3)
    assert uwsgi.sendfile(os.path.join(here, "nothing")) is None
    return [b">"]
def view_below_zero(environ, start_response):
    start_response("200 OK", [])
    told = []
    for position, size in ((-1, 0), (0, -1)):
        try:
            uwsgi.sendfile(os.path.join(here, "data"), 0, position, size)
        except ValueError as error:
            told.append(str(error).encode())
    return told
def view_headless(environ, start_response):
    try:
        uwsgi.sendfile(os.path.join(here, "data"))
    except RuntimeError as error:
        return plain(start_response, error)
def view_chunks(environ, start_response):
    parts = []
    while True:
        part = uwsgi.chunked_read(5)
        parts.append(len(part))
        if not part:
            return plain(start_response, parts)
def view_no_chunks(environ, start_response):
    try:
        uwsgi.chunked_read_nb()
    except OSError as error:
        return plain(start_response, error)
def view_limited(environ, start_response):
    uwsgi.set_user_harakiri(1)
    note(f"limited {os.getpid()}")
    time.sleep(600)
def view_taken_back(environ, start_response):
    uwsgi.set_user_harakiri(4)
    uwsgi.set_user_harakiri(0)
    time.sleep(5)
    return plain(start_response, os.getpid())
@uwsgidecorators.harakiri(4)
def quick():
    return "quick"
def view_decorated(environ, start_response):
    said = quick()
    time.sleep(5)
    return plain(start_response, said)
def view_forgotten(environ, start_response):
    uwsgi.set_user_harakiri(4)
    return plain(start_response, os.getpid())
def view_slow(environ, start_response):
    time.sleep(5)
    return plain(start_response, os.getpid())
def view_echo(environ, start_response):
    uwsgi.websocket_handshake(environ["HTTP_SEC_WEBSOCKET_KEY"], environ.get("HTTP_ORIGIN", ""), "chat")
    note("open")
    try:
        while True:
            message = uwsgi.websocket_recv()
            if message == b"bye":
                return []
            if message == b"poll":
                before = uwsgi.websocket_recv_nb()
                uwsgi.websocket_send(f"polled {before!r}")
            elif message.startswith(b"\\0"):
                uwsgi.websocket_send_binary(message)
            elif message == b"large":
                uwsgi.websocket_send("x" * 3_000_000)
            elif message == b"huge":
                uwsgi.websocket_send("x" * 20_000_000)
            elif message == b"wrong":
                try:
                    uwsgi.websocket_send(b"\\xff")
                except ValueError as error:
                    uwsgi.websocket_send(str(error))
            else:
                uwsgi.websocket_send(message)
    except OSError as error:
        note(str(error))
        return [b"nobody reads this"]
def view_no_websocket(environ, start_response):
    told = []
    for call in (uwsgi.websocket_handshake, uwsgi.websocket_recv):
        try:
            call()
        except OSError as error:
            told.append(str(error))
    return plain(start_response, told)
"""


@pytest.fixture
def shop(serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "data").write_bytes(b"0123456789")

    def start(*options, source="", **more):
        (tmp_path / "shop.py").write_text(SHOP + source)
        return serve("\n".join([f"chdir = {tmp_path}", "module = shop", *options]), **more)

    start.notes = lambda: (tmp_path / "notes").read_text().splitlines() if (tmp_path / "notes").exists() else []
    start.release = lambda: (tmp_path / "release").write_text("")
    return start


def test_log_variables_are_of_one_request_and_in_its_line(shop):
    instance = shop("log-format = %(method) %(uri) [%(shopper)]")
    assert instance.get("/variables").text == "[b'second', b'second', None]"
    instance.get("/quiet")
    instance.wait_for_log(r"GET /quiet \[-?\]")
    assert re.search(r"GET /variables \[-?second\]", instance.log)


def test_a_request_is_logged_in_spite_of_disable_logging(shop):
    instance = shop("disable-logging = true")
    for path in ("/quiet", "/log", "/quiet"):
        instance.get(path)
    instance.wait_for_log(r"GET /log => generated 6 bytes")
    assert "GET /quiet" not in instance.log


def test_the_descriptor_is_the_connections(shop):
    assert shop().get("/descriptor").text.startswith("socket:[")


def test_a_thread_of_the_applications_own_has_no_request(shop):
    assert "is not serving a WSGI request" in shop("enable-threads = true").get("/thread").text


@pytest.mark.parametrize("threads", [1, 4])
def test_after_disconnect_the_client_has_its_answer_and_the_application_goes_on(threads, shop):
    instance = shop(f"threads = {threads}")
    with instance.connect() as client:
        client.send(b"GET /disconnect HTTP/1.1\r\nHost: shop\r\n\r\n")
        response = client.read_response()
        assert (response.status, response.text) == (200, "all of it")
        assert client.is_closed()
    instance.wait_for(lambda: shop.notes() == ["disconnected"], "the view to go on")
    shop.release()
    instance.wait_for(lambda: shop.notes() == ["disconnected", "gone on"], "the rest of the view")
    assert instance.get("/quiet").text == "quiet"


def test_a_file_is_sent_in_the_middle_of_an_answer(shop):
    instance = shop()
    with instance.connect() as client:
        for _ in range(2):
            client.send(b"GET /file HTTP/1.1\r\nHost: shop\r\n\r\n")
            assert client.read_response().text == "<0123456789234>"
    instance.wait_for_text("No such file")
    assert "start_response must precede" in instance.get("/headless").text
    assert instance.get("/below_zero").text.count("must not be negative") == 2


def test_a_large_file_to_a_slow_client_blocks_no_other_client(shop, tmp_path):
    size = 8 * 1024 * 1024
    instance = shop("threads = 2")
    (tmp_path / "data").write_bytes(bytes(size))
    with instance.connect(receive_bytes=4096) as client:
        client.send(b"GET /file HTTP/1.0\r\n\r\n")
        client.receive()
        assert instance.get("/quiet").text == "quiet"
        assert len(client.read_to_end()) > size


def test_a_body_in_chunks_is_read_to_its_end(shop):
    instance = shop()
    with instance.connect() as client:
        client.send(
            b"POST /chunks HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n"
        )
        assert client.read_response().text == "[11, 0]"
    assert "is not chunked" in instance.get("/no_chunks").text


def test_a_request_may_limit_its_own_time(shop):
    instance = shop("master = true")
    instance.expects_alarms = True
    with instance.connect() as client:
        client.send(b"GET /limited HTTP/1.1\r\nHost: shop\r\n\r\n")
        instance.wait_for_log(r"harakiri: worker 1 .* the limit is 1(\.0)? s")
        instance.wait_for_log(r"killing worker 1 \(pid \d+\) while it serves GET /limited")
        assert client.is_closed()


@pytest.mark.parametrize("path", ["/taken_back", "/decorated"])
def test_a_limit_that_is_taken_back_is_none(path, shop):
    assert shop("master = true").get(path).status == 200


def test_a_limit_ends_with_its_request(shop):
    instance = shop("master = true")
    assert instance.get("/forgotten").text == instance.get("/slow").text


def test_after_req_hook_is_called_when_the_client_has_its_answer(shop):
    source = """
def after():
    note(f"after {uwsgi.request_id()}")
    release = os.path.join(here, "release")
    while not os.path.exists(release):
        time.sleep(0.01)
uwsgi.after_req_hook = after
"""
    instance = shop(source=source)
    assert instance.get("/quiet").text == "quiet"
    instance.wait_for(lambda: shop.notes() == ["after 1"], "the hook")
    shop.release()
    assert instance.get("/quiet").text == "quiet"
    instance.wait_for(lambda: shop.notes() == ["after 1", "after 2"], "the hook's second call")


def test_after_req_hook_can_change_the_line_of_its_request_and_adds_nothing_to_the_answer(shop):
    source = """
def after():
    uwsgi.set_logvar("late", b"after " + (uwsgi.get_logvar("shopper") or b"nobody"))
    uwsgi.log_this_request()
    try:
        uwsgi.sendfile(os.path.join(here, "data"))
    except SystemError as error:
        note(str(error))
uwsgi.after_req_hook = after
"""
    instance = shop("disable-logging = true\nlog-format = %(uri) is %(late)", source=source)
    with instance.connect() as client:
        for path, said in (("/variables", "second"), ("/file", "nobody"), ("/variables", "second"), ("/quiet", "nobody")):
            client.send(f"GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
            assert client.read_response().status == 200
            assert instance.wait_for_log(rf"^{path} is after (\w+)$")[1] == said
        client.send(b"POST /chunks HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        assert client.read_response().text == "[3, 0]"
        instance.wait_for_log("^/chunks is after nobody$")
    instance.wait_for(lambda: shop.notes() == ["this thread is not serving a WSGI request"] * 5, "what sendfile says")


def test_a_failing_hook_is_logged_and_affects_no_other_request(shop):
    instance = shop(source="uwsgi.after_req_hook = lambda: 1 / 0\n")
    for _ in range(2):
        assert instance.get("/quiet").text == "quiet"
    instance.wait_for_log("ZeroDivisionError", 2)


def talk(client, shop):
    """A conversation with the echo."""
    websocket = WebSocket(client, "/echo", [("Sec-WebSocket-Protocol", "chat")]).open()
    assert websocket.response.get("sec-websocket-protocol") == "chat"
    websocket.send_text("hello")
    assert websocket.read_message() == "hello"
    websocket.send(BINARY, b"\0\1\2")
    assert websocket.read_message() == b"\0\1\2"
    websocket.send_text("poll")
    assert websocket.read_message() == "polled b''"
    websocket.send_text("wrong")
    assert "UTF-8" in websocket.read_message()
    websocket.send_text("large")
    assert len(websocket.read_message()) == 3_000_000
    return websocket


def test_a_websocket_of_wsgi_is_served_by_a_thread_that_waits(shop):
    instance = shop("threads = 2")
    websocket = talk(instance.connect(), shop)
    assert instance.get("/quiet").text == "quiet"
    websocket.send(CLOSE, close_payload(1000))
    websocket.read_close()
    instance.wait_for(lambda: any("unable to receive" in note for note in shop.notes()), "the application to be told")
    instance.wait_for_log(r"GET /echo => .*HTTP/1.1 101")
    assert instance.get("/quiet").text == "quiet"


@pytest.mark.parametrize("lines", ["threads = 2", "gevent = 20\ngevent-monkey-patch = true"])
def test_a_ping_that_arrives_while_output_waits_is_answered_when_the_client_reads(lines, shop):
    # The message is longer than what the kernel buffers, so the client is behind when its pings come.
    client = shop(lines).connect(receive_bytes=65536)
    websocket = WebSocket(client, "/echo", [("Sec-WebSocket-Protocol", "chat")]).open()
    websocket.send_text("huge")
    client.receive()
    client.send(b"".join(frame(PING, b"%d" % number) for number in range(100)))
    pongs, size = [], 0
    while b"99" not in pongs:
        found = websocket.read()
        if found.opcode == PONG:
            pongs.append(found.payload)
        else:
            size += len(found.payload)
    assert pongs == sorted(pongs, key=int)
    assert size == 20_000_000


def test_a_view_that_returns_closes_its_websocket(shop):
    instance = shop()
    websocket = talk(instance.connect(), shop)
    websocket.send_text("bye")
    assert websocket.read_close()[0] == 1000
    assert instance.get("/quiet").text == "quiet"


def test_websockets_of_wsgi_speak_tls(shop, tmp_path):
    authority = Authority(tmp_path / "authority")
    server = authority.server("localhost")
    instance = shop(listen=(f"https-socket = 127.0.0.1:0,{server.chain},{server.key}",))
    client = TlsClient(instance.address("https"), context_of(authority))
    assert isinstance(client.socket, ssl.SSLSocket)
    websocket = talk(client, shop)
    websocket.send_text("bye")
    assert websocket.read_close()[0] == 1000
    client.close()


def test_at_a_stop_a_websocket_is_told_and_the_view_returns(shop):
    instance = shop("threads = 2")
    websocket = talk(instance.connect(), shop)
    instance.send_signal(15)
    assert websocket.read_close()[0] == 1001
    assert instance.wait_for_exit() == 0
    assert any("unable to receive" in note for note in shop.notes())


@pytest.mark.parametrize("lines", ["threads = 1", "threads = 2", "gevent = 20\ngevent-monkey-patch = true"])
def test_at_a_reload_a_websocket_is_told_and_its_client_is_welcome_again(lines, shop):
    instance = shop(lines)
    websocket = talk(instance.connect(), shop)
    instance.send_signal(signal.SIGHUP)
    code, reason = websocket.read_close()
    assert (code, reason) == (1012, "the server is restarting")
    websocket.send(CLOSE, close_payload(code))
    assert websocket.client.is_closed()
    wait_until(lambda: any("unable to receive" in note for note in shop.notes()), "the view has returned")
    # A connection that arrives while the worker still leaves its sockets is accepted by it, and gets one more message.
    closed_with = [1012]

    def is_welcome():
        with instance.connect() as client:
            again = WebSocket(client, "/echo", [("Sec-WebSocket-Protocol", "chat")]).open()
            again.send_text("bye")
            closed_with.append(again.read_close()[0])
        return closed_with[-1] == 1000

    wait_until(is_welcome, lambda: f"a conversation; closed with {closed_with}")


def test_without_a_handshake_there_is_no_websocket(shop):
    told = shop().get("/no_websocket").text
    assert "did not ask for a WebSocket" in told
    assert "call websocket_handshake first" in told
