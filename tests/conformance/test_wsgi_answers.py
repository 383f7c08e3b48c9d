"""Responses of WSGI applications (PEP 3333): iterables, write(), exc_info, files, lengths."""

import pytest

TEXT = b"one two three"
LARGE = b"0123456789abcdef" * 1_250_000


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/answers.py\nthreads = 2")


@pytest.fixture(scope="module")
def validated(serve_module):
    return serve_module("wsgi-file = {apps}/validated.py\npost-buffering = 100")


@pytest.mark.parametrize(
    "path",
    [
        "list",
        "tuple",
        "headers_as_tuple",
        "keywords",
        "generator",
        "start_in_generator",
        "iterable_class",
        "old_sequence",
        "subclasses",
        "list_iterator",
        "tuple_iterator",
        "complete",
        "complete_after_write",
        "write",
        "write_only",
        "told",
    ],
)
def test_every_kind_of_iterable_is_an_answer(server, path):
    client = server.connect()
    for _ in range(2):
        response = client.request(target=f"/{path}")
        assert (response.status, response.body) == (200, TEXT)


@pytest.mark.parametrize("path", ["list", "generator", "write", "told", "file", "file_in_memory", "stream_large"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_wsgirefs_validator_finds_no_fault(validated, path, method):
    client = validated.connect()
    response = client.request(method, f"/{path}")
    assert response.status == 200, validated.log
    if method == "GET":
        assert response.body in (TEXT, LARGE)
    assert client.request(target="/list").status == 200


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_wsgirefs_validator_finds_no_fault_with_input_and_errors(validated, size):
    body = (b"line of a body\n" * size)[:size]
    response = validated.connect().request("POST", "/reads", [("Content-Type", "text/plain")], body)
    assert response.status == 200, validated.log
    assert response.body.replace(b"|", b"") == body


@pytest.mark.parametrize("path", ["/", "/list?a=b", "/list/%C3%A9"])
def test_wsgirefs_validator_finds_no_fault_with_environ(validated, path):
    client = validated.connect()
    if path == "/":
        # A path that the application does not know: its own KeyError causes the 500.
        assert client.request(target=path).status == 500
        validated.wait_for_log("KeyError: 'at_'")
    else:
        assert client.request(target=path).body == TEXT


@pytest.mark.parametrize("path", ["bytes", "bytes_of_a_subclass"])
def test_bytes_are_an_answer_of_one_part(server, path):
    # As uWSGI serves them. By PEP 3333 they are an iterable, but of integers.
    response = server.get(f"/{path}")
    assert (response.status, response.body, response.get("content-length")) == (200, TEXT, str(len(TEXT)))


def test_wsgi_strict_refuses_bytes_as_integers(serve):
    server = serve("wsgi-file = {apps}/answers.py\nwsgi-strict = true")
    assert server.get("/bytes").status == 500
    server.wait_for_log(r"worker 1: TypeError: the application's answer must be of bytes, not int \(PEP 3333\)")
    assert server.get("/list").body == TEXT


@pytest.mark.parametrize("kind", ["file", "memory", "both", "list"])
def test_a_file_wrapper_that_an_answer_gives_as_a_part_is_sent(server, kind):
    before = server.log.count("closed told_file")
    client = server.connect()
    files = 2 if kind == "both" else 1
    assert client.request(target=f"/file_in_parts?{kind}").body == b"before " + LARGE * files + b" after"
    server.wait_for_log("^closed told_file", count=before + 1)
    # The file ends with its length, and the connection stays open.
    assert client.request(target="/list").body == TEXT


def test_a_slow_client_of_a_partial_file_blocks_no_other_client(server):
    slow = server.connect(receive_bytes=4096)
    slow.send(b"GET /file_in_parts?file HTTP/1.1\r\nHost: a\r\n\r\n")
    assert slow.read_head().status == 200
    for _ in range(3):
        assert server.get("/list").body == TEXT
    assert b"".join(slow.read_chunks()) == b"before " + LARGE + b" after"


def test_each_part_leaves_at_once(server):
    # PEP 3333, "Buffering and Streaming": no part is held back until the next one.
    with server.connect() as client:
        client.send(b"GET /trickle HTTP/1.1\r\nHost: a\r\n\r\n")
        client.read_until(b"5\r\nfirst\r\n")
        assert server.get("/release").body == b"released"
        assert client.read_until(b"0\r\n\r\n") == b"6\r\nsecond\r\n0\r\n\r\n"


def test_a_list_tells_its_length(server):
    assert server.get("/list").get("content-length") == str(len(TEXT))
    assert server.get("/tuple").get("content-length") == str(len(TEXT))


@pytest.mark.parametrize("path", ["list", "tuple", "list_iterator", "tuple_iterator", "complete", "iterable_class", "subclasses"])
def test_an_answer_that_is_complete_tells_its_length_and_leaves_in_one_piece(server, path):
    client = server.connect()
    for _ in range(2):
        before = client.segments_received()
        response = client.request(target=f"/{path}")
        assert (response.body, response.get("content-length")) == (TEXT, str(len(TEXT)))
        assert client.segments_received() == before + 1
    head = client.request("HEAD", f"/{path}")
    assert (head.get("content-length"), head.get("transfer-encoding")) == (str(len(TEXT)), None)
    assert client.request(target="/list").body == TEXT


@pytest.mark.parametrize("path", ["generator", "told", "old_sequence"])
def test_an_answer_that_its_application_makes_bit_by_bit_is_not_held_back(server, path):
    client = server.connect()
    before = client.segments_received()
    assert client.request(target=f"/{path}").chunks == [b"one ", b"two ", b"three"]
    assert client.segments_received() >= before + 3


def test_a_complete_answer_of_very_many_parts_comes_whole(server):
    client = server.connect()
    assert client.request(target="/very_many_parts").body == b"part " * 50_000
    assert client.request(target="/list").body == TEXT


def test_a_complete_answer_with_a_part_that_is_no_bytes_is_a_500(server):
    client = server.connect()
    assert client.request(target="/complete_of_text").status == 500
    server.wait_for_log("^closed complete_of_text$")
    server.wait_for_log("the application's answer must be of bytes, not str")
    assert client.request(target="/list").body == TEXT


def test_a_complete_answer_may_have_a_file_among_its_parts(server):
    client = server.connect()
    assert client.request(target="/complete_with_file").body == b"before " + LARGE + b" after"
    server.wait_for_log("^closed complete_with_file$")
    assert client.request(target="/list").body == TEXT


def test_close_is_called_on_a_complete_answer(server):
    before = server.log.count("closed complete\n")
    client = server.connect()
    for method in ("GET", "HEAD"):
        client.request(method, "/complete")
    server.wait_for_log("^closed complete$", count=before + 2)


@pytest.mark.parametrize("path", ["stream_large", "one_large_part", "file", "file_with_length", "file_in_memory"])
def test_a_large_answer_comes_whole(server, path):
    client = server.connect()
    response = client.request(target=f"/{path}")
    assert response.status == 200
    assert response.body == LARGE
    assert client.request(target="/list").body == TEXT


def test_much_by_write_comes_whole(server):
    client = server.connect()
    assert client.request(target="/write_large").body == LARGE + LARGE[:10] + b"end"
    assert client.request(target="/list").body == TEXT


def test_close_is_called_when_the_answer_has_left(server):
    before = server.log.count("closed told")
    client = server.connect()
    for target in ("/told", "/told_head"):
        client.request(target=target)
    client.request("HEAD", "/told")
    server.wait_for_log("^closed told", count=before + 3)


def test_close_is_called_on_subclasses_of_list(server):
    before = server.log.count("closed my_list")
    server.get("/subclasses")
    server.wait_for_log("^closed my_list", count=before + 1)


def test_a_close_that_fails_is_logged_and_the_answer_stays_good(server):
    client = server.connect()
    assert client.request(target="/close_fails").body == TEXT
    assert client.request(target="/list").body == TEXT
    server.wait_for_log("RuntimeError: the close of close_fails failed")


@pytest.mark.parametrize("way", ["close", "reset"])
def test_close_is_called_when_the_client_leaves_mid_stream(server, way):
    client = server.connect()
    client.send(f"GET /endless?{way} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert client.read_head().status == 200
    client.read_exactly(1_000_000)
    getattr(client, way)()
    server.wait_for_log(f"^closed endless {way}$")
    server.wait_for_log(f"GET /endless\\?{way} => generated")


def test_exc_info_replaces_a_head_that_has_not_left(server):
    client = server.connect()
    response = client.request(target="/changed_mind")
    assert (response.status, response.reason, response.body) == (503, "Sorry", b"sorry")
    assert response.get("x-first") is None
    assert response.get("x-second") == "yes"
    assert response.get("content-length") == "5"
    assert client.request(target="/list").body == TEXT


def test_exc_info_is_raised_again_when_the_head_has_left(server):
    with server.connect() as client:
        client.send(b"GET /changed_mind_too_late HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_head().status == 200
        # The connection ends without the last chunk: the client can tell that the response is incomplete.
        assert client.read_to_end() == b"5\r\nbegun\r\n"
    server.wait_for_log("ValueError: found out too late")
    assert "never reached" not in server.log


def test_a_real_file_goes_by_sendfile(server):
    assert server.get("/file?by-sendfile").body == LARGE
    server.wait_for_log(r"GET /file\?by-sendfile => generated 20000000 bytes in \d+ msecs via sendfile\(\) \(HTTP/1.1 200\)")
    assert server.get("/file_in_memory?read").body == LARGE
    server.wait_for_log(r"GET /file_in_memory\?read => generated 20000000 bytes in \d+ msecs \(HTTP/1.1 200\)")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("file_from_the_middle", 200, LARGE[90:100]),
        ("file_part", 206, LARGE[10:16]),
        ("file_empty", 200, b""),
        ("file_told", 200, LARGE),
        ("file_pipe", 200, b"through a pipe"),
        ("file_after_write", 200, b"before " + LARGE[:16]),
        ("file_iterated", 200, b"ONE TWO THREE"),
    ],
)
def test_file_wrapper_sends_the_wrapped_file(server, path, status, body):
    client = server.connect()
    response = client.request(target=f"/{path}")
    assert (response.status, response.body) == (status, body)
    assert client.request(target="/list").body == TEXT
    head = client.request("HEAD", f"/{path}")
    assert head.status == status
    assert client.request(target="/list").body == TEXT
    if path == "file_told":
        server.wait_for_log("^closed told_file$", count=2)


def test_a_file_that_is_shorter_than_its_length_closes_the_connection(server):
    with server.connect() as client:
        client.send(b"GET /file_shorter_than_said HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_head().get("content-length") == "200"
        assert client.read_to_end() == LARGE[:100]
    server.wait_for_log("GET /file_shorter_than_said is shorter than its Content-Length; closing the connection")


@pytest.mark.parametrize("path", ["too_many", "too_many_generated"])
def test_more_than_the_content_length_is_cut_and_logged(server, path):
    client = server.connect()
    response = client.request(target=f"/{path}")
    assert response.body == TEXT[:5]
    assert client.request(target="/list").body == TEXT
    server.wait_for_log(f"GET /{path} is longer than its Content-Length; the rest was cut")


def test_less_than_the_content_length_closes_the_connection_and_is_logged(server):
    with server.connect() as client:
        client.send(b"GET /too_few HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_head().get("content-length") == "50"
        assert client.read_to_end() == TEXT
    server.wait_for_log("GET /too_few is shorter than its Content-Length; closing the connection")
    # HEAD has no body that could be too short.
    client = server.connect()
    assert client.request("HEAD", "/too_few").get("content-length") == "50"
    assert client.request(target="/list").body == TEXT


def test_strings_are_latin_1(server):
    response = server.get("/latin_1/%C3%A9", headers=[("X-Name", "caf\xe9")])
    assert response.reason == "Tr\xe8s bien"
    assert response.get("x-name") == "caf\xe9"
    assert response.body == b"caf\xe9 /latin_1/\xc3\xa9"


def test_headers_that_are_set_many_times_are_all_sent_in_order(server):
    assert server.get("/many_headers").all("set-cookie") == [f"n={number}" for number in range(50)]


def test_wsgi_errors_goes_to_the_log_with_the_workers_number(server):
    server.get("/errors")
    # The other thread may write the line of an earlier request in between.
    lines = ("one line", "two halves", "three", "four", "printed \u20ac")
    server.wait_for_log("^" + r"\n(?:\[pid: .*\n)*".join(f"worker 1: {line}" for line in lines) + "$")
