"""FastCGI responder: requests as reverse proxies send them, and malformed ones, over TCP and UNIX sockets."""

import json
import os
import select
import signal
import struct

import pytest
from support import fastcgi, uwsgi
from support.client import Client
from support.fastcgi import (
    ABORT_REQUEST,
    END_REQUEST,
    GET_VALUES,
    GET_VALUES_RESULT,
    PARAMS,
    STDIN,
    STDOUT,
    UNKNOWN_TYPE,
    begin,
    record,
    stream,
)
from support.refusals import name_of, told_of
from support.waiting import wait_until

LISTEN = ("fastcgi-socket = 127.0.0.1:0", "fastcgi-socket = {directory}/app.sock", "uwsgi-socket = 127.0.0.1:0")


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/echo.py\nbuffer-size = 8192\nlimit-post = 5000000\npost-buffering = 100000", listen=LISTEN
    )


@pytest.fixture(params=["tcp", "unix"])
def address(server, request):
    return server.address("fastcgi") if request.param == "tcp" else str(server.directory / "app.sock")


@pytest.fixture(scope="module")
def framing(serve_module):
    return serve_module("wsgi-file = {apps}/framing.py", listen=LISTEN).address("fastcgi")


def end_of(number, status=fastcgi.REQUEST_COMPLETE):
    return (END_REQUEST, number, struct.pack(">IB3x", 0, status))


def test_the_environ_is_that_of_the_uwsgi_protocol(server, address):
    extra = [("HTTP_X_FRONT", "caf\xe9"), ("HTTPS", "on"), ("SCRIPT_NAME", "/app"), ("MY_OWN", "a\nb"), ("EMPTY", "")]
    extra += [("LONG", "v" * 200), ("N" * 200, "name"), ("HTTP_X", "first"), ("HTTP_X", "last")]
    told = json.loads(fastcgi.ask(address, "GET", "/a/b?c=d", extra=extra).body)
    assert told == json.loads(uwsgi.ask(server.address("uwsgi"), "GET", "/a/b?c=d", extra=extra).body)
    expected = dict([*uwsgi.request_variables("GET", "/a/b?c=d"), *extra])
    assert {key: told["environ"].get(key) for key in expected} == expected
    assert told["environ"]["wsgi.url_scheme"] == "https"


def test_the_answer_is_as_reverse_proxies_expect_it(address):
    answer = fastcgi.ask(address)
    assert answer.status_text == "200 OK"
    # Date, Server and connection handling belong to the reverse proxy.
    assert [name for name, _ in answer.headers] == ["Content-Type", "Content-Length"]


# Requests.


@pytest.mark.parametrize("size", [1, 1000, 65535, 65536, 100_000, 100_001, 1_000_000])
def test_a_body_comes_in_records_of_any_size(address, size):
    body = os.urandom(size)
    told = json.loads(fastcgi.ask(address, "POST", "/", body).body)
    assert told["body"].encode("latin-1") == body
    assert told["environ"]["CONTENT_LENGTH"] == str(size)


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_a_body_without_a_length_ends_with_its_stream(address, size):
    body = os.urandom(size)
    variables = [pair for pair in fastcgi.request_variables("POST") if pair[0] != "CONTENT_LENGTH"]
    with Client(address) as client:
        client.send(fastcgi.opened(variables) + stream(STDIN, 1, body))
        told = json.loads(fastcgi.read_answer(client).body)
    assert told["body"].encode("latin-1") == body
    # A complete response contains its length.
    assert told["environ"].get("CONTENT_LENGTH", "") == (str(size) if size else "")


def test_a_request_may_come_byte_by_byte(address):
    with Client(address) as client:
        client.send_byte_by_byte(fastcgi.request("POST", "/slow", b"abc"))
        told = json.loads(fastcgi.read_answer(client).body)
    assert (told["environ"]["PATH_INFO"], told["body"]) == ("/slow", "abc")


@pytest.mark.parametrize("piece", [1, 2, 7, 300])
def test_parameters_and_body_may_be_cut_into_records_anywhere(address, piece):
    body = os.urandom(700)
    parameters = fastcgi.pairs(fastcgi.request_variables("POST", "/cut", body))
    with Client(address) as client:
        client.send(
            begin() + stream(PARAMS, 1, parameters, piece, padding=piece % 5) + stream(STDIN, 1, body, piece, padding=255)
        )
        told = json.loads(fastcgi.read_answer(client).body)
    assert (told["environ"]["PATH_INFO"], told["body"].encode("latin-1")) == ("/cut", body)


def test_a_connection_is_kept_as_long_as_the_client_wants_and_no_longer(server, address):
    with Client(address) as client:
        for number in (1, 1, 2, 65535):
            client.send(fastcgi.request("POST", f"/kept/{number}", b"x" * number, number=number, keep=True))
            told = json.loads(fastcgi.read_answer(client, number).body)
            assert (told["environ"]["PATH_INFO"], len(told["body"])) == (f"/kept/{number}", number)
        client.send(fastcgi.request(number=3))
        assert fastcgi.read_answer(client, 3).status == 200
        assert client.is_closed()


def test_requests_that_are_sent_one_behind_the_other_are_answered_in_turn(address):
    with Client(address) as client:
        client.send(b"".join(fastcgi.request("POST", f"/{number}", b"body", number=number, keep=True) for number in range(1, 40)))
        for number in range(1, 40):
            assert json.loads(fastcgi.read_answer(client, number).body)["environ"]["PATH_INFO"] == f"/{number}"


# Answers.


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("target", "method", "status", "body"),
    [
        ("list", "GET", 200, b"first second third"),
        ("generator", "GET", 200, b"first second third"),
        ("generator_with_length", "GET", 200, b"first second third"),
        ("generator", "HEAD", 200, b""),
        ("list_with_length", "HEAD", 200, b""),
        ("nothing", "GET", 200, b""),
        ("empty_generator", "GET", 200, b""),
        ("no_content_with_body", "GET", 204, b""),
        ("not_modified_with_body", "GET", 304, b""),
    ],
)
def test_an_answer_ends_with_its_stream_whatever_is_known_of_its_length(framing, target, method, status, body, keep):
    with Client(framing) as client:
        for _ in range(2 if keep else 1):
            client.send(fastcgi.request(method, f"/{target}", keep=keep))
            answer = fastcgi.read_answer(client)
            assert (answer.status, answer.body) == (status, body)
            assert answer.all("Transfer-Encoding") + answer.all("Connection") == []
        assert keep or client.is_closed()


@pytest.mark.parametrize("route", ["stream", "file"])
def test_a_large_answer_comes_whole_and_the_connection_goes_on(serve, route):
    server = serve("wsgi-file = {apps}/front.py", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        for _ in range(2):
            client.send(fastcgi.request(target=f"/{route}?5000000", keep=True))
            assert fastcgi.read_answer(client).body == b"0123456789abcdef" * (5_000_000 // 16)


def test_a_slow_client_gets_all_of_a_stream(serve):
    server = serve("wsgi-file = {apps}/front.py", listen=LISTEN)
    with Client(server.address("fastcgi"), receive_bytes=4096) as slow, Client(server.address("fastcgi")) as other:
        slow.send(fastcgi.request(target="/stream?3000000"))
        # While the slow client reads nothing, the others are served.
        other.send(fastcgi.request(target="/echo"))
        assert fastcgi.read_answer(other).status == 200
        assert fastcgi.read_answer(slow).body == b"0123456789abcdef" * (3_000_000 // 16)


def test_a_failure_is_500_before_the_head_and_a_cut_stream_behind_it(serve):
    server = serve("wsgi-file = {apps}/failures.py", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        client.send(fastcgi.request(target="/exception", keep=True))
        assert fastcgi.read_answer(client).status == 500
        client.send(fastcgi.request(target="/exception_mid_stream", keep=True))
        # Neither the stream nor the request ends, so that a reverse proxy cannot mistake it for complete.
        assert fastcgi.read_cut_stream(client).endswith(b"\r\n\r\nbegun")


def test_the_head_may_be_one_of_http(serve):
    server = serve("wsgi-file = {apps}/framing.py", listen=("fastcgi-nph-socket = 127.0.0.1:0",))
    with Client(server.address("fastcgi-nph")) as client:
        client.send(fastcgi.request(target="/list"))
        head, _, body = fastcgi.read_stream(client).partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"first second third")


def test_files_are_served_without_the_application(serve):
    server = serve("wsgi-file = {apps}/echo.py\nstatic-map = /static={directory}/files\nstatic-gzip-all = false", listen=LISTEN)
    (server.directory / "files").mkdir()
    content = os.urandom(300_000)
    (server.directory / "files" / "page.bin").write_bytes(content)
    with Client(server.address("fastcgi")) as client:
        for _ in range(2):
            client.send(fastcgi.request(target="/static/page.bin", keep=True))
            answer = fastcgi.read_answer(client)
            assert (answer.status, answer.all("Content-Length"), answer.body) == (200, ["300000"], content)
        (etag,) = answer.all("ETag")
        client.send(fastcgi.request(target="/static/page.bin", extra=[("HTTP_IF_NONE_MATCH", etag)], keep=True))
        answer = fastcgi.read_answer(client)
        assert (answer.status, answer.body) == (304, b"")
        client.send(fastcgi.request(target="/static/page.bin", extra=[("HTTP_RANGE", "bytes=5-9")]))
        answer = fastcgi.read_answer(client)
        assert (answer.status, answer.body) == (206, content[5:10])


# Other records.


def test_an_abort_before_the_application_has_the_request_ends_it(server, address):
    with Client(address) as client:
        for number, begun in enumerate(
            [
                begin(1, keep=True),
                fastcgi.opened(fastcgi.request_variables("POST", "/aborted", b"12345"), keep=True),
                fastcgi.opened(fastcgi.request_variables("POST", "/aborted", b"12345"), keep=True) + record(STDIN, 1, b"123"),
            ]
        ):
            client.send(begun + record(ABORT_REQUEST, 1))
            (*_, last) = read_request_records(client)
            assert last == end_of(1), number
            # Later records of it have no effect.
            client.send(record(STDIN, 1, b"45") + record(STDIN, 1))
            client.send(fastcgi.request(target=f"/next/{number}", keep=True))
            assert json.loads(fastcgi.read_answer(client).body)["environ"]["PATH_INFO"] == f"/next/{number}"
    server.wait_for_log("GET /next/2")
    assert "POST /aborted" not in server.log


def read_request_records(client):
    """Reads the records of a response, up to and including the one that ends its request."""
    found = [fastcgi.read_record(client)]
    while found[-1][0] != END_REQUEST:
        found.append(fastcgi.read_record(client))
    return found


def test_an_abort_without_keeping_ends_the_connection(address):
    with Client(address) as client:
        client.send(begin() + record(ABORT_REQUEST, 1))
        assert fastcgi.read_record(client) == end_of(1)
        assert client.is_closed()


def test_questions_are_answered_at_any_time(address):
    asked = fastcgi.pairs([("FCGI_MAX_CONNS", ""), ("FCGI_MAX_REQS", ""), ("FCGI_MPXS_CONNS", ""), ("FCGI_ELSE", "")])
    with Client(address) as client:
        of_two = fastcgi.opened([("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "2")], keep=True)
        for before, after in [(b"", b""), (of_two, stream(STDIN, 1, b"ab"))]:
            client.send(before + record(GET_VALUES, 0, asked))
            kind, number, content = fastcgi.read_record(client)
            assert (kind, number) == (GET_VALUES_RESULT, 0)
            values, place = {}, 0
            while place < len(content):
                name, value = content[place], content[place + 1]
                start = place + 2
                values[content[start : start + name]] = content[start + name : start + name + value]
                place = start + name + value
            assert values.pop(b"FCGI_MPXS_CONNS") == b"0"
            assert set(values) == {b"FCGI_MAX_CONNS", b"FCGI_MAX_REQS"}
            assert all(int(value) > 0 for value in values.values())
            client.send(after)
        assert json.loads(fastcgi.read_answer(client).body)["body"] == "ab"


def test_unknown_records_of_the_connection_are_named_and_of_a_request_ignored(address):
    with Client(address) as client:
        client.send(record(77, 0, b"what?") + begin(keep=True) + record(77, 1, b"ignored") + record(8, 1, b"a file's data"))
        assert fastcgi.read_record(client) == (UNKNOWN_TYPE, 0, bytes([77, 0, 0, 0, 0, 0, 0, 0]))
        client.send(stream(PARAMS, 1, fastcgi.pairs(fastcgi.request_variables())) + record(STDIN, 1))
        assert fastcgi.read_answer(client).status == 200


def test_a_second_request_beside_one_that_comes_is_refused_and_its_records_passed_over(address):
    with Client(address) as client:
        client.send(fastcgi.opened(fastcgi.request_variables("POST", "/one", b"12345"), keep=True) + record(STDIN, 1, b"123"))
        client.send(fastcgi.request("POST", "/two", b"other", number=2, keep=True))
        assert fastcgi.read_record(client) == end_of(2, fastcgi.CANT_MPX_CONN)
        client.send(record(STDIN, 1, b"45") + record(STDIN, 1))
        told = json.loads(fastcgi.read_answer(client).body)
        assert (told["environ"]["PATH_INFO"], told["body"]) == ("/one", "12345")
        client.send(fastcgi.request(target="/three", number=2, keep=True))
        assert json.loads(fastcgi.read_answer(client, 2).body)["environ"]["PATH_INFO"] == "/three"


def test_only_responders_are_served(address):
    with Client(address) as client:
        client.send(begin(5, keep=True, role=fastcgi.AUTHORIZER) + stream(PARAMS, 5, b"") + fastcgi.request(keep=True))
        assert fastcgi.read_record(client) == end_of(5, fastcgi.UNKNOWN_ROLE)
        assert fastcgi.read_answer(client).status == 200
        client.send(begin(5, role=fastcgi.AUTHORIZER))
        assert fastcgi.read_record(client) == end_of(5, fastcgi.UNKNOWN_ROLE)
        assert client.is_closed()


# Refused input.

LENGTHS_TWICE = fastcgi.opened([("CONTENT_LENGTH", "1"), ("CONTENT_LENGTH", "2")])
OF_FIVE = fastcgi.opened([("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "5")])

#: The bytes, the status of the response if the request is identified, and words of the log line.
REFUSED = {
    "another version": (b"\x02\x01\0\x01\0\x08\0\0", None, "does not have version 1"),
    "no record behind a record": (begin() + b"12345678", 400, "does not have version 1"),
    "a short beginning": (record(1, 1, b"\0\x01\0"), None, "is not eight bytes long"),
    "a beginning twice": (begin() + begin(), 400, "in progress"),
    "a body before its time": (begin() + record(STDIN, 1, b"x"), 400, "is out of order"),
    "parameters after their time": (OF_FIVE + record(PARAMS, 1, b"x"), 400, "is out of order"),
    "half a length": (begin() + stream(PARAMS, 1, b"\x81"), 400, "ends beyond"),
    "a value beyond the parameters": (begin() + stream(PARAMS, 1, b"\x01\x05ab"), 400, "ends beyond"),
    "no name": (fastcgi.opened([("", "x")]), 400, "no name"),
    "larger than buffer-size": (begin() + record(PARAMS, 1, b"x" * 8193), 431, "buffer-size"),
    "too many parameters": (fastcgi.opened([("A", "")] * 1025), 431, "more parameters"),
    "no parameters": (fastcgi.opened([]) + stream(STDIN, 1, b""), 400, "no REQUEST_METHOD"),
    "no method": (fastcgi.opened([("REQUEST_URI", "/")]) + stream(STDIN, 1, b""), 400, "no REQUEST_METHOD"),
    "an empty method": (fastcgi.opened([("REQUEST_METHOD", "")]) + stream(STDIN, 1, b""), 400, "no REQUEST_METHOD"),
    "two lengths": (LENGTHS_TWICE, 400, "more than one CONTENT_LENGTH"),
    "no number": (fastcgi.opened([("CONTENT_LENGTH", "1x")]), 400, "is not a single number"),
    "negative": (fastcgi.opened([("CONTENT_LENGTH", "-1")]), 400, "is not a single number"),
    "a body too long": (OF_FIVE + record(STDIN, 1, b"123456"), 400, "longer than its CONTENT_LENGTH"),
    "a body too short": (OF_FIVE + stream(STDIN, 1, b"1234"), 400, "shorter than its CONTENT_LENGTH"),
    "body too large": (fastcgi.opened([("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "5000001")]), 413, "limit-post"),
    "too many questions": (record(GET_VALUES, 0, b"x" * 600), None, "GET_VALUES is larger"),
}


@pytest.mark.parametrize("way", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_or_oversized_request_is_refused_and_no_other_connection(server, address, name, way):
    data, status, words = REFUSED[name]
    before = len(server.lines)
    with Client(address) as client, Client(address) as other:
        other.send(fastcgi.opened(fastcgi.request_variables("POST", "/other", b"ab"), keep=True))
        (client.send if way == "whole" else client.send_byte_by_byte)(data)
        if status is not None:
            assert fastcgi.read_answer(client).status == status
        assert client.is_closed()
        other.send(stream(STDIN, 1, b"ab"))
        assert fastcgi.read_answer(other).status == 200
    found = server.wait_for(lambda: [line for line in server.lines[before:] if "refused" in line], "the refusal")
    assert len(found) == 1
    assert words in found[0]


def test_a_body_that_grows_beyond_the_limit_without_a_length_is_refused(server, address):
    before = len(server.lines)
    with Client(address) as client:
        client.send(fastcgi.opened([("REQUEST_METHOD", "POST")]) + stream(STDIN, 1, bytes(5_000_001)))
        assert fastcgi.read_answer(client).status == 413
    server.wait_for(lambda: [line for line in server.lines[before:] if "limit-post" in line], "the refusal")


@pytest.mark.parametrize("cut", [1, 8, 9, 15, 200])
def test_a_truncated_request_reaches_no_application(server, address, cut):
    target = f"/cut/{cut}"
    with Client(address) as client:
        client.send(fastcgi.request("POST", target, b"12345")[:-cut])
        client.end_sending()
        assert client.is_closed()
    assert fastcgi.ask(address, target=f"/whole/{cut}").status == 200
    server.wait_for_log(f"GET /whole/{cut}")
    assert target not in server.log


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "A FastCGI socket received HTTP: write `http-socket`"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32), "The client speaks TLS"),
        (uwsgi.packet(uwsgi.request_variables()), "does not have version 1"),
    ],
)
def test_another_protocol_is_told_from_this_one(server, address, data, words):
    with Client(address) as client:
        client.send(data)
        assert client.is_closed()
    assert told_of(server, words, name_of(address))


def test_the_log_names_the_client_and_not_the_reverse_proxy(server, address):
    fastcgi.ask(address, target="/logged", extra=[("REMOTE_USER", "ann")])
    server.wait_for_log(r"\] 192\.0\.2\.7 \(ann\) \{13 vars in \d+ bytes\} \[.*\] GET /logged => ")


def test_kept_connections_go_on_at_a_reload_and_a_stop_closes_them(serve):
    server = serve("wsgi-file = {apps}/echo.py\nsocket-timeout = 60", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        for generation in range(2, 5):
            client.send(fastcgi.request(keep=True))
            assert fastcgi.read_answer(client).status == 200
            server.send_signal(signal.SIGHUP)
            server.wait_for_log(rf"^bolide: ready: .* of generation {generation} in")
        client.send(fastcgi.request(keep=True))
        assert fastcgi.read_answer(client).status == 200
        server.send_signal(signal.SIGTERM)
        assert client.is_closed()


def test_a_request_that_drips_has_its_time_as_a_whole(serve):
    server = serve("wsgi-file = {apps}/echo.py\nsocket-timeout = 1", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        client.send(begin(keep=True))

        def is_closed_after_another_byte():
            client.send(record(PARAMS, 1, b"x"))
            readable, _, _ = select.select([client.socket], [], [], 0)
            return bool(readable)

        wait_until(is_closed_after_another_byte, "the connection is closed, whatever still comes")
        assert client.is_closed()
    assert fastcgi.ask(server.address("fastcgi")).status == 200


def test_an_idle_connection_is_kept_as_long_as_one_of_http(serve):
    server = serve("wsgi-file = {apps}/echo.py\nhttp-keepalive = 2", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        for _ in range(2):
            client.send(fastcgi.request(keep=True))
            assert fastcgi.read_answer(client).status == 200
        assert client.is_closed()
    server = serve("wsgi-file = {apps}/echo.py\nhttp-keepalive = 0", listen=LISTEN)
    with Client(server.address("fastcgi")) as client:
        client.send(fastcgi.request(keep=True))
        assert fastcgi.read_answer(client).status == 200
        assert client.is_closed()


# Asynchronous applications.


@pytest.fixture(scope="module")
def asynchronous(serve_module):
    return serve_module("asgi = {apps}/asgi_http.py", listen=LISTEN)


def test_an_asynchronous_application_has_the_body_as_it_comes(asynchronous):
    with Client(asynchronous.address("fastcgi")) as client:
        for _ in range(2):
            client.send(fastcgi.opened(fastcgi.request_variables("POST", "/echo", b"helloworld"), keep=True))
            client.send(record(STDIN, 1, b"hello"))
            head = fastcgi.read_record(client)[2]
            assert head.startswith(b"Status: 200 OK\r\n")
            assert (head + b"".join(read_content(client, len(b"hello") - len(head.partition(b"\r\n\r\n")[2])))).endswith(b"hello")
            client.send(record(STDIN, 1, b"world") + record(STDIN, 1))
            assert fastcgi.read_stream(client) == b"world"


def read_content(client, count):
    """Reads the next ``count`` bytes of a response's stream, as a list of record contents."""
    while count > 0:
        kind, _, content = fastcgi.read_record(client)
        assert kind == STDOUT
        count -= len(content)
        yield content


@pytest.mark.parametrize("way", ["abort", "close"])
def test_a_reverse_proxy_that_gives_up_is_an_http_disconnect(asynchronous, way):
    name = f"left-by-{way}"
    with Client(asynchronous.address("fastcgi")) as client:
        client.send(fastcgi.request(target=f"/wait_for_end?{name}", keep=True))
        asynchronous.wait_for_log(f"^waits {name}$")
        if way == "abort":
            client.send(record(ABORT_REQUEST, 1))
        else:
            client.close()
        asynchronous.wait_for_log(f"^ended {name}$")


def test_an_abort_may_come_with_the_request(asynchronous):
    with Client(asynchronous.address("fastcgi")) as client:
        client.send(fastcgi.request(target="/wait_for_end?along", keep=True) + record(ABORT_REQUEST, 1))
        asynchronous.wait_for_log("^ended along$")


def test_while_the_application_takes_its_time_questions_are_answered_and_second_requests_refused(asynchronous):
    with Client(asynchronous.address("fastcgi")) as client:
        client.send(fastcgi.request(target="/slow?beside", keep=True))
        asynchronous.wait_for_log("^slow beside has begun$")
        client.send(record(GET_VALUES, 0, fastcgi.pairs([("FCGI_MPXS_CONNS", "")])))
        assert fastcgi.read_record(client) == (GET_VALUES_RESULT, 0, b"\x0f\x01FCGI_MPXS_CONNS0")
        client.send(fastcgi.request("POST", "/fine", b"body", number=2, keep=True))
        assert fastcgi.read_record(client) == end_of(2, fastcgi.CANT_MPX_CONN)
        assert fastcgi.ask(asynchronous.address("fastcgi"), target="/open?beside").body == b"open"
        assert fastcgi.read_answer(client).body == b"slow beside"
        client.send(fastcgi.request(target="/fine", number=2, keep=True))
        assert fastcgi.read_answer(client, 2).body == b"fine"


def test_asynchronous_answers_are_framed_as_others(asynchronous):
    with Client(asynchronous.address("fastcgi")) as client:
        for path, status, body in [
            ("fine", 200, b"fine"),
            ("parts", 200, b"one two three"),
            ("parts_declared", 200, b"one two three"),
            ("status?204", 204, b""),
            ("stream?8", 200, bytes(range(256)) * 4096 * 8),
        ]:
            client.send(fastcgi.request(target=f"/{path}", keep=True))
            answer = fastcgi.read_answer(client)
            assert (answer.status, answer.body) == (status, body)
