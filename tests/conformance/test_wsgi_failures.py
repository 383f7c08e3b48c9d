"""Applications that raise, break the rules or end their process only lose their own request, and the log says why."""

import importlib.util
import re

import pytest
from support.client import Closed
from support.server import APPS
from support.waiting import wait_until


def load_bad_heads():
    spec = importlib.util.spec_from_file_location("failures_of_the_tests", APPS / "failures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BAD_HEADS


BAD_HEADS = load_bad_heads()


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/failures.py")


@pytest.fixture(scope="module")
def strict(serve_module):
    """Fields that belong to the server are errors here."""
    return serve_module("wsgi-file = {apps}/failures.py\nwsgi-strict = true")


def assert_fine(client):
    response = client.request(target="/fine")
    assert (response.status, response.body) == (200, b"fine")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("exception", "RuntimeError: as the test asked, with a d\u00e9tail \u20ac"),
        ("exception_after_start", "RuntimeError: after start_response"),
        ("exception_before_first_part", "RuntimeError: before the first part"),
        ("group", "ValueError: the second one"),
        ("unprintable", ".*Unprintable: <(?:unprintable|exception)"),
        ("keyboard_interrupt", "KeyboardInterrupt"),
        ("memory_error", "MemoryError"),
        ("memory_error_raised", "MemoryError"),
        ("recursion_error", "RecursionError: maximum recursion depth exceeded"),
        ("generator_exit", "GeneratorExit"),
        ("stop_iteration", "StopIteration"),
        ("none", "TypeError: .*NoneType"),
        ("str", "TypeError: the application's answer must be of bytes, not str"),
        ("list_of_str", "TypeError: the application's answer must be of bytes, not str"),
        ("generator_of_str", "TypeError: the application's answer must be of bytes, not str"),
        ("number", "TypeError: .*int"),
        ("write_str", "TypeError: write takes bytes"),
        ("never_started", "GET /never_started: the application did not call start_response; answered with 500"),
        ("never_started_with_body", ".*produced a part of the body before it called start_response"),
        ("started_twice", ".*start_response was called a second time without exc_info"),
    ],
)
def test_an_exception_is_logged_and_500_and_the_connection_stays_good(server, path, words):
    client = server.connect()
    assert_fine(client)
    pid = client.request(target="/pid").body
    response = client.request(target=f"/{path}")
    assert response.status == 500
    assert response.body == b"Internal Server Error"
    assert response.get("x-begun") is None
    assert_fine(client)
    assert client.request(target="/pid").body == pid
    server.wait_for_log(f"^(?:bolide: )?worker 1: (?:{words})")
    server.wait_for_log(f"GET /{path} => generated 21 bytes in \\d+ msecs \\(HTTP/1.1 500\\)")


def test_a_traceback_is_logged_with_its_request_in_one_piece(server):
    server.get("/group?which=this")
    found = server.wait_for_log(
        r"^bolide: worker 1: an exception in GET /group\?which=this\n(?:worker 1: .*\n)+?worker 1: ValueError: the second one$"
    )
    assert "KeyError: 'the first one'" in found[0]
    assert re.search(r'File ".*failures.py", line \d+, in at_group', found[0])


def bad_head_name(number):
    """A test's id must be the same in each process that collects it, so it does not contain addresses."""
    return re.sub(" object at 0x[0-9a-f]+", "", ascii(BAD_HEADS[number]))


@pytest.mark.parametrize("number", range(len(BAD_HEADS)), ids=bad_head_name)
def test_a_head_that_breaks_the_rules_is_a_500_and_a_clear_log_line(strict, number):
    server = strict
    client = server.connect()
    before = len(server.log)
    response = client.request(target=f"/bad_head?{number}")
    assert response.status == 500
    assert response.body == b"Internal Server Error"
    assert response.get("x-injected") is None
    assert_fine(client)
    found = server.wait_for(
        lambda: re.search(r"^worker 1: (Type|Value)Error: (?P<words>.*)$", server.log[before:], re.MULTILINE),
        "the error",
    )
    assert re.search("start_response|status|header", found["words"])


@pytest.mark.parametrize("number", range(len(BAD_HEADS)), ids=bad_head_name)
def test_an_application_may_catch_its_bad_head_and_answer_again(strict, number):
    client = strict.connect()
    response = client.request(target=f"/bad_head_caught?{number}")
    assert (response.status, response.reason, response.body) == (500, "Caught", b"caught")
    assert_fine(client)


@pytest.mark.parametrize("path", ["exception_mid_stream", "exception_mid_stream_with_length", "exception_after_write"])
def test_an_exception_mid_stream_closes_the_connection_without_a_last_chunk(server, path):
    with server.connect() as client:
        client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        response = client.read_head()
        assert response.status == 200
        rest = client.read_to_end()
        assert rest == (b"5\r\nbegun\r\n" if response.get("transfer-encoding") else b"begun")
    server.wait_for_log(f"^bolide: worker 1: an exception in GET /{path}$")
    if "stream" in path:
        server.wait_for_log(f"^closed {path[len('exception_') :]}$")


def test_the_path_of_an_exception_is_told_as_the_client_wrote_it(serve):
    server = serve("wsgi-file = {apps}/failures.py\nlenient-targets = true")
    client = server.connect()
    client.send("GET /exception?\u00e9\u20ac HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert client.read_response().status == 500
    server.wait_for_log("^bolide: worker 1: an exception in GET /exception\\?\u00e9\u20ac$")


def test_close_is_called_after_an_exception(server):
    server.get("/exception_before_first_part")
    server.wait_for_log("^closed before_first_part$")


def test_start_response_kept_beyond_its_request_reaches_no_other_client(server):
    client = server.connect()
    assert client.request(target="/keep").body == b"kept"
    told = client.request(target="/use_kept").text
    assert told == "start_response was called after its request had ended; write was called after its request had ended"
    assert_fine(client)


@pytest.mark.parametrize("path", ["system_exit", "system_exit_mid_stream"])
def test_system_exit_loses_only_its_own_request(serve, path):
    server = serve("wsgi-file = {apps}/failures.py")
    server.expects_alarms = True
    pid = server.get("/pid").body
    with server.connect() as client:
        client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        if path == "system_exit":
            response = client.read_response()
            assert (response.status, response.says_close) == (500, True)
            assert client.is_closed()
        else:
            assert client.read_head().status == 200
            assert client.read_to_end() == b"5\r\nbegun\r\n"
    server.wait_for_log("^worker 1: SystemExit: ")
    # The worker exits, as the application requested, and another replaces it: no request is refused in the meantime.
    assert wait_until(lambda: new_pid(server, pid), "another worker serves")


@pytest.mark.parametrize(("path", "cause"), [("os_exit", "exited with status 3"), ("crash", "was killed by SIGSEGV")])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_process_that_ends_in_a_request_loses_only_that_request(serve, path, cause, threads):
    server = serve(f"wsgi-file = {{apps}}/failures.py\nthreads = {threads}")
    server.expects_alarms = True
    pid = server.get("/pid").body
    with server.connect() as client:
        client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        with pytest.raises(Closed):
            client.read_response()
    assert new_pid(server, pid)
    server.wait_for_log(f"worker 1 .*{re.escape(cause)}.* while it served GET /{path} ")


def new_pid(server, old):
    """Returns the pid of the answering worker, if it differs from the previous one."""
    response = server.get("/pid")
    assert response.status == 200
    return response.body if response.body != old else None
