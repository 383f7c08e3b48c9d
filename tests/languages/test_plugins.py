"""A language whose adapter is a library: the interface of `bolide_app.h`, from outside.

`testing.c` is the adapter. It checks what Bolide promises to an adapter, and /state shows whether a promise was broken.
"""

import signal
import subprocess
import threading
from pathlib import Path

import pytest
from support.adapters import compiled
from support.client import Closed
from support.http2 import Both
from support.metrics import metrics_address, value_of
from support.server import program
from support.uwsgi import ask
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import reload_by_command
from support_load import Load

SOURCE = Path(__file__).with_name("testing.c")

#: More than any buffer between an application and a client that does not read.
LARGE_PARTS, LARGE_BYTES = 40, 1_000_000


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Returns the directory of a plugin `testing` that was compiled with these flags."""
    made = {}

    def library(*flags):
        if flags not in made:
            made[flags] = tmp_path_factory.mktemp("library")
            compiled(SOURCE, made[flags], "testing", *flags)
        return made[flags]

    return library


@pytest.fixture
def start(serve, libraries):
    """`start("processes = 2")` serves the adapter of the tests."""

    def start(configuration="", flags=(), **options):
        return serve(configured(libraries(*flags), configuration), **options)

    return start


def configured(directory, configuration="", application="hello"):
    return f"plugin = testing\nplugin-dir = {directory}\ntesting = {application}\n{configuration}"


def part(number, size):
    return bytes([ord("a") + number % 26]) * size


def stream(parts, size):
    return b"".join(part(number, size) for number in range(parts))


def state(server):
    """Returns how many suspended answers the adapter still has, and how many promises were broken."""
    return tuple(map(int, server.get("/state").text.split()))


def has_promises(server):
    wait_until(lambda: state(server) == (0, 0), lambda: f"kept and faults: {state(server)}")


# Requests and answers.


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "MINE"])
def test_an_adapter_gets_the_request_and_its_body(start, method):
    server = start()
    body = None if method == "GET" else b"the body"
    answer = server.get("/echo/a%20b?c=d", method=method, body=body)
    assert (answer.status, answer.text) == (200, f"{method} /echo/a%20b?c=d\n{(body or b'').decode()}")
    has_promises(server)


@pytest.mark.parametrize("size", [200_000, 20_000_000])
def test_a_large_body_comes_whole_from_memory_or_from_a_file(start, size):
    server = start("post-buffering = 65536")
    body = bytes(range(256)) * (size // 256)
    assert server.get("/echo", method="POST", body=body).body == b"POST /echo\n" + body


def test_a_chunked_body_has_a_length(start):
    client = start().connect()
    client.send(b"POST /variables HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    lines = client.read_response().text.splitlines()
    assert "CONTENT_LENGTH=3" in lines
    assert not [line for line in lines if line.startswith("HTTP_TRANSFER_ENCODING")]


def test_the_variables_are_those_of_cgi(start):
    server = start()
    fields = [("Accept", "a"), ("accept", "b"), ("Proxy", "http://evil"), ("X-Mine", "1")]
    lines = server.get("/variables?x=1", headers=fields).text.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "a name occurs twice"
    wanted = {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/variables?x=1",
        "PATH_INFO": "/variables",
        "QUERY_STRING": "x=1",
        "SCRIPT_NAME": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "REQUEST_SCHEME": "http",
        # By the name that the client knows, and not the machine's (RFC 3875 section 4.1.14).
        "SERVER_NAME": "localhost",
        "HTTP_ACCEPT": "a, b",
        "HTTP_X_MINE": "1",
    }
    assert wanted.items() <= found.items()
    # CVE-2016-5385: libraries take it for the machine's setting.
    assert "HTTP_PROXY" not in found
    assert found["SERVER_SOFTWARE"].startswith("bolide/")


def test_the_server_is_named_by_the_host_of_the_request_line_or_of_a_trusted_proxy(start):
    server = start("trusted-headers = x-forwarded-host")

    def name_of(target, headers=()):
        lines = server.get(target, headers=headers).text.splitlines()
        return next(line for line in lines if line.startswith("SERVER_NAME="))

    assert name_of("http://outer.example:81/variables") == "SERVER_NAME=outer.example"
    assert name_of("/variables", [("X-Forwarded-Host", "proxied.example")]) == "SERVER_NAME=proxied.example"
    assert name_of("/variables") == "SERVER_NAME=localhost"


def test_the_fields_are_those_that_the_client_has_sent(start):
    lines = start().get("/fields", headers=[("X-Twice", "1"), ("x-twice", "2")]).text.splitlines()
    assert lines == ["Host=localhost", "X-Twice=1", "x-twice=2", "Connection=close"]


def test_a_repeated_header_block_gives_the_same_variables(start):
    client = start().connect()
    first, second = (client.request(target="/variables", headers=[("X-Mine", "1")]).text for _ in range(2))
    assert first == second
    assert "HTTP_X_MINE=1" in first


def test_an_answer_to_head_has_a_length_and_no_body(start):
    answer = start().get("/echo", method="HEAD")
    assert (answer.get("content-length"), answer.body) == ("11", b"")


@pytest.mark.parametrize("page", ["stream", "write"])
def test_a_stream_arrives_whole(start, page):
    server = start()
    assert server.get(f"/{page}/50/1000").body == stream(50, 1000)
    assert server.get(f"/{page}/{LARGE_PARTS}/{LARGE_BYTES}").body == stream(LARGE_PARTS, LARGE_BYTES)
    has_promises(server)


@pytest.mark.parametrize(("page", "threads"), [("stream", 1), ("write", 2)])
def test_a_client_that_reads_slowly_holds_up_no_other(start, page, threads):
    server = start(f"threads = {threads}")
    slow = server.connect(receive_bytes=4096)
    slow.send(f"GET /{page}/{LARGE_PARTS}/{LARGE_BYTES} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    slow.read_until(b"aaaa")
    for _ in range(20):
        assert server.get("/echo").status == 200
    assert slow.socket.recv(1000) == b"a" * 1000
    slow.reset()
    has_promises(server)


def test_the_answer_of_a_client_that_left_is_given_back(start):
    server = start()
    for _ in range(5):
        client = server.connect(receive_bytes=4096)
        client.send(f"GET /stream/{LARGE_PARTS}/{LARGE_BYTES} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        client.read_until(b"aaaa")
        client.reset()
    has_promises(server)


def test_a_file_is_sent(start):
    server = start()
    content = bytes(range(256)) * 20_000
    (server.directory / "content").write_bytes(content)
    answer = server.get("/file/content")
    assert (answer.get("content-length"), answer.body) == (str(len(content)), content)
    assert server.get("/file/nothing").status == 404


def test_a_failure_is_500_and_one_in_the_middle_is_seen(start):
    server = start()
    assert server.get("/fail?because=1").status == 500
    server.wait_for_text("GET /fail?because=1: an exception of the tests\n  at line 3")
    with pytest.raises(Closed):
        server.get("/fail/3/100000")
    assert server.get("/echo").status == 200
    has_promises(server)


@pytest.mark.parametrize("page", ["short", "long"])
def test_a_wrong_length_is_never_passed_on(start, page):
    server = start()
    try:
        answer = server.get(f"/{page}")
        assert len(answer.body) == int(answer.get("content-length"))
    except Closed:
        pass
    server.wait_for_text("Content-Length")


def test_a_response_before_the_answer_and_fields_after_it_arrive(start):
    server = start()
    client = server.connect()
    client.send(b"GET /hints HTTP/1.1\r\nHost: here\r\n\r\n")
    assert (client.read_head().status, client.read_head().status) == (103, 200)
    client = server.connect()
    client.send(b"GET /trailers HTTP/1.1\r\nHost: here\r\nTE: trailers\r\n\r\n")
    assert client.read_until(b"0\r\nChecksum: 42\r\n\r\n")


def test_an_adapter_takes_the_connection_over(start):
    client = start().connect()
    client.send(b"GET /raw HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    assert client.read_to_end().endswith(b"\r\n\r\nhello\n")


def test_code_after_the_end_of_an_answer_keeps_its_client_from_nothing(start):
    server = start()
    assert server.get("/later").text == "first\n"
    assert "later\n" not in server.log
    (server.directory / "later").touch()
    server.wait_for_log("^later$")


def test_a_variable_of_the_log_line_is_the_adapters(start):
    server = start("log-format = basket is %(var.basket)")
    server.get("/noted")
    server.wait_for_text("basket is seven")


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_http2_serves_streams_of_a_connection_side_by_side(serve, libraries, tmp_path, way):
    both = Both(serve, tmp_path, configured(libraries()))
    with both.connect(way) as client:
        answers = [client.begin("GET", f"/stream/20/{10_000 + number}") for number in range(5)]
        client.finish(*answers)
        assert [answer.body for answer in answers] == [stream(20, 10_000 + number) for number in range(5)]
        answer = client.request("POST", "/echo", body=b"x" * 300_000)
        assert answer.body == b"POST /echo\n" + b"x" * 300_000
    has_promises(both.server)


# Threads and the lock of the language.


def test_threads_serve_while_one_waits_without_the_lock(start):
    server = start("threads = 2")
    waits = server.connect()
    waits.send(b"GET /slow/gate HTTP/1.1\r\nHost: here\r\n\r\n")
    for _ in range(10):
        assert server.get("/echo").status == 200
    (server.directory / "gate").touch()
    assert waits.read_response().text == "GET /slow/gate\n"
    has_promises(server)


def test_threads_under_load_break_no_promise(start):
    server = start("processes = 2\nthreads = 4")
    with Load(server.address(), kept_alive=6, fresh=2, target="/stream/5/20000") as load:
        load.wait_for_more(40)
    assert load.losses == []
    for _ in range(10):
        has_promises(server)


def test_a_language_that_runs_in_one_thread_refuses_more(start, libraries, serve):
    flags = ("-DFLAGS=BOLIDE_ONE_THREAD",)
    server = serve.prepare(configured(libraries(*flags), "threads = 4"))
    server.launch()
    assert server.wait_for_exit() != 0
    assert "Testing 1.0 runs in one thread of a process: remove `threads`" in server.log.splitlines()[-1]
    assert start(flags=flags).get("/echo").status == 200


@pytest.mark.parametrize(
    ("configuration", "flags"),
    [("", ("-DFLAGS=BOLIDE_LOADS_AFTER_FORK",)), ("lazy-apps = true", ())],
    ids=["language", "lazy-apps"],
)
def test_each_worker_loads_an_application_that_is_not_forked_and_learns_its_number(start, configuration, flags):
    server = start(f"processes = 2\n{configuration}", flags=flags)
    assert server.get("/echo").status == 200
    for number in (1, 2):
        server.wait_for_log(f"^worker {number} of the tests$")
    assert server.log.count("loads 0: hello") == 2


def test_a_language_may_fork_by_itself(start):
    server = start("processes = 2\nmaster = true", flags=("-DOWN_FORK",))
    assert server.get("/echo").status == 200
    server.wait_for_log("^worker 2 of the tests$")
    assert server.log.count("forks by itself") == 2


def test_a_language_may_serve_without_its_lock(start):
    server = start(flags=("-DWITHOUT_LOCK",))
    assert server.get("/echo").text == "GET /echo\n"
    server.wait_for_text("serves without the lock")


def test_an_adapter_needs_two_functions_only(start):
    server = start(flags=("-DMINIMAL",))
    assert server.get("/variables").status == 200


# An adapter with an event loop.

LOOP = ("-DLOOP",)


@pytest.mark.parametrize("size", [0, 3, 200_000, 20_000_000])
def test_a_loop_gets_a_body_as_it_arrives(start, size):
    server = start(flags=LOOP)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    client = server.connect()
    client.send(f"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: {size}\r\n\r\n".encode())
    # The echo waits for its reader, so the body is sent beside it.
    sending = threading.Thread(target=client.send, args=(body,))
    sending.start()
    assert client.read_response().body == body
    sending.join()
    client = server.connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 8\r\n\r\nhalf")
    client.read_until(b"half")
    client.send(b"rest")
    assert client.read_until(b"rest")
    has_promises(server)


def test_a_loop_tells_a_client_to_send_its_body_when_it_is_wanted(start):
    client = start(flags=LOOP).connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    head = client.read_until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 100 ")
    client.send(b"body")
    assert client.read_response().body == b"body"


def test_a_loop_serves_others_while_an_exchange_is_kept(start):
    server = start(flags=LOOP)
    waiting = [server.connect() for _ in range(20)]
    for client in waiting:
        client.send(b"GET /slow/gate HTTP/1.1\r\nHost: here\r\n\r\n")
    assert server.get("/stream/3/1000").status == 200
    leaving = waiting.pop()
    leaving.reset()
    (server.directory / "gate").touch()
    assert [client.read_response().status for client in waiting] == [200] * 19
    has_promises(server)


def test_a_loop_waits_for_a_slow_client_and_gives_back_what_one_has_left(start):
    server = start(flags=LOOP)
    assert len(server.get(f"/stream/{LARGE_PARTS}/{LARGE_BYTES}").body) == LARGE_PARTS * LARGE_BYTES
    slow = server.connect(receive_bytes=4096)
    slow.send(f"GET /stream/{LARGE_PARTS}/{LARGE_BYTES} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    slow.read_head()
    assert server.get("/variables").status == 200
    slow.reset()
    has_promises(server)


def test_a_loop_has_one_thread(serve, libraries):
    last = failed_start(serve, configured(libraries(*LOOP), "threads = 2"))
    assert "Testing 1.0 has an event loop, which is one thread: remove `threads`" in last


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_loop_serves_streams_of_http2(serve, libraries, tmp_path, way):
    both = Both(serve, tmp_path, configured(libraries(*LOOP)))
    with both.connect(way) as client:
        answer = client.request("POST", "/echo", body=b"x" * 300_000)
        assert answer.body == b"x" * 300_000
    has_promises(both.server)


# The life of the processes.


def test_the_steps_of_an_adapter_come_in_their_order(start):
    server = start("testing-color = red\nprocesses = 1\nmaster = true")
    assert server.get("/application").text == "0 of 1, red\n"
    steps = [
        "software bolide/",
        'loads 0: hello at ""',
        "freezes",
        "before the fork",
        "after the fork",
        "worker 1 of the tests",
    ]
    server.wait_for_text(steps[-1])
    places = [server.log.index(step) for step in steps]
    assert places[:4] == sorted(places[:4])
    assert places[3] < places[5]
    server.stop()
    assert "a thread leaves" in server.log


def test_mounts_choose_between_applications(start):
    server = start("mount = /two=second\nmanage-script-name = true")
    assert server.get("/application").text == "0 of 2, none\n"
    assert server.get("/two/application").text == "1 of 2, none\n"
    found = server.get("/two/variables").text
    assert "SCRIPT_NAME=/two\n" in found
    assert "PATH_INFO=/variables\n" in found


@pytest.mark.parametrize(
    ("configuration", "flags"),
    [("", ()), ("lazy-apps = true", ()), ("threads = 3", ()), ("", LOOP)],
    ids=["one-thread", "lazy", "threads", "loop"],
)
def test_a_reload_under_load_loses_no_request(start, configuration, flags):
    server = start(f"processes = 2\nmaster = true\n{configuration}", flags=flags)
    with Load(server.address(), kept_alive=4, fresh=3, target="/stream/3/5000") as load:
        for _ in range(3):
            reload_by_command(server)
            load.wait_for_more()
    assert load.losses == []


def test_a_reload_that_fails_keeps_what_serves(start, libraries):
    server = start("processes = 2\nmaster = true")
    before = set(server.workers())
    server.configure(configured(libraries(), "processes = 2\nmaster = true", application="broken"))
    server.send_signal(signal.SIGHUP)
    server.wait_for_text("line 3: this application | is broken")
    assert server.get("/echo").status == 200
    assert set(server.workers()) == before


WITHOUT_LOCK = ("-DWITHOUT_LOCK",)


@pytest.mark.parametrize("flags", [(), WITHOUT_LOCK], ids=["plain", "without-lock"])
def test_what_the_application_makes_at_its_first_request_is_made_before_the_fork(start, flags):
    server = start("warmup = /counted\nwarmup = /stream/40/100000\nprocesses = 2\nmaster = true", flags=flags)
    assert server.get("/counted").text == "2\n"
    # Each thread 0 goes on with what it was before the fork.
    assert server.get("/echo").status == 200
    assert "a thread leaves" not in server.log


@pytest.mark.parametrize(("page", "said"), [("/fail", "the application failed"), ("/healthy", "the application answered 503")])
def test_a_warmup_that_fails_is_logged_and_does_not_prevent_serving(start, page, said):
    server = start(f"warmup = {page}\ntesting-color = sick\nmaster = true")
    server.wait_for_text(f"warmup = {page}: {said}")
    assert server.get("/echo").status == 200


def test_a_warmup_before_a_loop_is_told_to_be_left_out(start):
    server = start("warmup = /echo\nmaster = true", flags=LOOP)
    server.wait_for_text("warmup: Testing 1.0 has an event loop in each worker, so it is not asked before")
    assert server.get("/echo").status == 200


@pytest.mark.parametrize("flags", [(), WITHOUT_LOCK], ids=["plain", "without-lock"])
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("/healthy", "answered 503"),
        ("/fail", "failed"),
        ("/slow/never", "did not answer within 1 s (reload-probe-timeout)"),
    ],
)
def test_a_generation_that_does_not_pass_its_probe_never_serves(start, libraries, page, said, flags):
    probed = f"reload-probe = {page}\nreload-probe-timeout = 1\nprocesses = 2\nmaster = true"
    server = start(probed, flags=flags)
    before = set(server.workers())
    server.configure(configured(libraries(*flags), f"{probed}\ntesting-color = sick"))
    server.send_signal(signal.SIGHUP)
    server.wait_for_text(f"reload-probe: GET {page} {said}")
    assert server.get("/application").text.endswith("none\n")
    wait_until(lambda: set(server.workers()) == before, "the workers on trial have exited")


def test_a_probe_before_a_loop_is_told_to_be_left_out(start):
    server = start("reload-probe = /healthy\nmaster = true", flags=LOOP)
    server.send_signal(signal.SIGHUP)
    server.wait_for_text("reload-probe: Testing 1.0 has an event loop, so it is not asked")
    server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    assert server.get("/echo").status == 200


@pytest.mark.parametrize("flags", [(), WITHOUT_LOCK], ids=["plain", "without-lock"])
def test_a_generation_that_passes_its_probe_serves(start, libraries, flags):
    probed = "reload-probe = /healthy\nprocesses = 2\nmaster = true"
    server = start(probed, flags=flags)
    server.configure(configured(libraries(*flags), f"{probed}\ntesting-color = green"))
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: server.get("/application").text.endswith("green\n"), "the new generation serves")


def test_a_canary_that_fails_more_often_is_rolled_back(start, libraries):
    canary = "processes = 2\nmaster = true\nreload-canary = 3600"
    server = start(canary)
    before = sorted(server.workers())
    with Load(server.address(), kept_alive=0, fresh=4, target="/echo") as load:
        server.configure(configured(libraries(), f"{canary}\ntesting-faulty = true"))
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("^bolide: canary: .* generation 2 is rolled back")
        wait_until(lambda: sorted(server.workers()) == before, "the old workers are alone")
        load.wait_for_more()
        failed = len(load.losses)
        load.wait_for_more()
        assert len(load.losses) == failed


def test_a_worker_is_recycled_after_its_requests(start):
    server = start("max-requests = 10\nmaster = true")
    worker = server.worker()
    answers = [server.get("/echo").status for _ in range(30)]
    assert answers == [200] * 30
    wait_until(lambda: worker not in server.workers(), "the worker was replaced")


def test_a_worker_that_retires_answers_and_is_replaced(start):
    server = start("master = true")
    worker = server.worker()
    assert server.get("/retire").text == "GET /retire\n"
    wait_until(lambda: worker not in server.workers(), "the worker was replaced")
    assert server.get("/echo").status == 200


def test_a_change_of_a_file_that_the_adapter_names_reloads_the_application(start, tmp_path):
    file = tmp_path / "part.txt"
    file.write_text("1")
    server = start(f"testing-watch = {file}\ndevelop = true")
    assert server.get("/echo").status == 200
    file.write_text("2")
    server.wait_for_text("generation 2")
    assert server.get("/echo").status == 200


def test_a_stuck_request_is_killed_and_the_adapter_shows_where_it_is(start):
    server = start("harakiri = 3\nprocesses = 2\nmaster = true")
    server.expects_alarms = True
    client = server.connect()
    client.send(b"GET /wrong/never HTTP/1.1\r\nHost: here\r\n\r\n")
    with pytest.raises(Closed):
        client.read_response()
    server.wait_for_text("the stack of the tests")
    server.wait_for_log(r"harakiri: killing worker \d \(pid \d+\) while it serves GET /wrong/never")
    assert server.get("/echo").status == 200


def test_signals_of_uwsgi_reach_the_adapter(start):
    server = start("timer = 7 1\nmaster = true")
    server.wait_for_text("signal 7 of the tests")


def test_static_files_and_routes_work_beside_it(start, tmp_path):
    (tmp_path / "page.html").write_text("a file\n")
    server = start(f"static-map = /files={tmp_path}\nroute = ^/gone return:410")
    assert server.get("/files/page.html").text == "a file\n"
    assert server.get("/files/page.html", headers=[("Range", "bytes=2-5")]).text == "file"
    assert server.get("/gone").status == 410
    assert server.get("/echo").status == 200


def test_status_and_statistics_know_it(start):
    server = start("processes = 2\nmaster = true\nstats = 127.0.0.1:0")
    server.get("/echo")
    shown = subprocess.run([*program(), "status", str(server.ini)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert shown.returncode == 0, shown.stderr
    assert "worker 2" in shown.stdout or "workers" in shown.stdout


def test_metrics_count_its_requests_and_failures(start):
    server = start("metrics = 127.0.0.1:0\nmaster = true")
    assert [server.get(page).status for page in ("/echo", "/echo", "/fail")] == [200, 200, 500]
    address = metrics_address(server)
    wanted = [
        (("bolide_requests_total", {"status": "2xx"}), 2),
        (("bolide_requests_total", {"status": "5xx"}), 1),
        (("bolide_exceptions_total", {}), 1),
    ]
    # A worker counts a request after its client has the answer.
    counted = lambda: [value_of(address, name, **labels) for (name, labels), _ in wanted]  # noqa: E731
    wait_until(lambda: counted() == [count for _, count in wanted], lambda: f"the requests are counted: {counted()}")


# Starts that fail.


def failed_start(serve, configuration):
    """Returns the last line of a startup that fails, with the file as it was given."""
    server = serve.prepare(configuration)
    server.expects_alarms = True
    server.launch()
    assert server.wait_for_exit() != 0
    return server.log.splitlines()[-1].replace(f"{server.directory}/", "")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-DWRONG_VERSION",), "has a table of version 2 with"),
        (("-DWRONG_SIZE",), "with 12 bytes, and this Bolide needs version 1"),
        (("-DWRONG_CALL",), "lacks the function `call`"),
        (("-DWRONG_NULL",), "does not start: no license"),
        (("-DSYMBOL=bolide_adapter_v2",), "is an adapter for version 2 of the interface, and this Bolide has version 1"),
        (("-DSYMBOL=something",), "is not an adapter of Bolide: it does not export `bolide_adapter_v1`"),
    ],
)
def test_a_library_that_does_not_fit_is_refused_with_the_reason(serve, libraries, flags, said):
    last = failed_start(serve, configured(libraries(*flags)))
    assert said in last
    assert "plugin = testing" in last
    assert "uwsgi.ini:3" in last


@pytest.mark.parametrize(
    ("application", "said"),
    [
        ("broken", "broken (uwsgi.ini:5) can't be loaded: line 3: this application | is broken"),
        ("silent", "silent (uwsgi.ini:5) can't be loaded: the adapter does not say why"),
        ("crashing", "SIGSEGV"),
    ],
)
def test_an_application_that_can_not_be_loaded_ends_the_start_with_the_reason(serve, libraries, application, said):
    assert said in failed_start(serve, configured(libraries(), application=application))


def test_an_adapter_that_does_not_start_says_why(serve, libraries):
    last = failed_start(serve, configured(libraries(), "testing-start = fails"))
    assert "Testing 1.0 can't start: the option `testing-start` wants it" in last


def test_a_library_that_is_nowhere_is_an_error_with_the_places(serve, tmp_path):
    last = failed_start(serve, f"plugin = missing\nplugin-dir = {tmp_path}\nmissing = app")
    assert "plugin = missing at uwsgi.ini:3: there is no bolide_missing.so in" in last
    assert str(tmp_path) in last
    assert "bolide plugin build" in last


def test_a_file_that_is_no_library_is_an_error(serve, tmp_path):
    (tmp_path / "bolide_text.so").write_text("not a library")
    assert "can't be loaded:" in failed_start(serve, f"plugin = text\nplugin-dir = {tmp_path}\ntext = app")


def test_two_languages_in_an_instance_are_refused(serve, libraries):
    last = failed_start(serve, configured(libraries(), "wsgi-file = {apps}/hello.py"))
    assert "an instance has applications of one language" in last


def test_a_plugin_can_be_named_by_its_path(serve, libraries):
    server = serve(f"plugin = {libraries()}/bolide_testing.so\ntesting = hello")
    assert server.get("/echo").status == 200


# Adapters that do it wrong.


@pytest.mark.parametrize(
    ("mistake", "status", "said"),
    [
        ("outcome", 500, "returned the outcome 77, which does not exist: a bug of the plugin"),
        ("suspended", 500, "suspended its answer without `resume`, or without anything to continue: a bug of the plugin"),
        ("nothing", 500, "the application did not answer (Testing 1.0); answered with 500"),
        ("early-body", 500, "called `push` with"),
        ("abandoned", 500, ""),
        ("twice", 200, ""),
        ("elsewhere", 200, "called `status` with an answer that this thread does not have"),
        ("null", 200, "called `variables` with a request that this thread does not have"),
    ],
)
def test_a_mistake_of_an_adapter_is_an_answer_and_a_line_in_the_log(start, mistake, status, said):
    server = start()
    answer = server.get(f"/wrong/{mistake}")
    assert answer.status == status
    assert b"stolen" not in answer.body.replace(b"not stolen", b"")
    server.wait_for_text(said)
    assert server.get("/echo").text == "GET /echo\n"
    wait_until(lambda: state(server)[0] == 0, "everything is given back")


def test_a_pointer_that_was_kept_is_of_no_use(start):
    server = start()
    assert server.get("/wrong/keep").text == "kept\n"
    # /state uses the pointers of that call: they are those of this thread, so they mean the present request.
    assert server.get("/state").status == 200
    assert server.get("/echo").status == 200


def test_a_head_that_is_wrong_is_refused_with_the_reason(start):
    lines = start().get("/wrong/head").text.splitlines()
    refused = [bool(line) for line in lines]
    assert refused == [True, True, True, False, True, True, False]


@pytest.mark.parametrize("end", ["crash", "abort"])
def test_a_crash_costs_its_request_alone_and_the_next_worker_serves(start, end):
    server = start("processes = 2\nmaster = true")
    server.expects_alarms = True
    before = set(server.workers())
    with Load(server.address(), kept_alive=2, fresh=2, target="/echo") as load:
        load.wait_for_more()
        client = server.connect()
        client.send(f"GET /wrong/{end} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        with pytest.raises(Closed):
            client.read_response()
        wait_until(lambda: len(set(server.workers()) & before) == 1 and len(server.workers()) == 2, "it was replaced")
        load.wait_for_more()
    # A kept connection of the crashed worker loses at most the request that it had just sent.
    assert len(load.losses) <= 2
    server.wait_for_log(r"worker \d \(pid \d+\).*(SIGSEGV|SIGABRT)")


def test_a_jump_over_a_call_of_the_host_costs_that_answer_alone(start):
    server = start()
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /wrong/longjmp HTTP/1.1\r\nHost: here\r\n\r\n")
    server.wait_for_text("jumped over a call of the host")
    server.wait_for_text("called `push` with an answer that this thread does not have")
    client.reset()
    assert server.get("/echo").text == "GET /echo\n"


def test_an_exit_by_the_application_is_told_and_the_worker_replaced(start):
    server = start("master = true")
    server.expects_alarms = True
    worker = server.worker()
    client = server.connect()
    client.send(b"GET /wrong/exit HTTP/1.1\r\nHost: here\r\n\r\n")
    with pytest.raises(Closed):
        client.read_response()
    wait_until(lambda: server.workers() and worker not in server.workers(), "it was replaced")
    assert server.get("/echo").status == 200


def test_a_worker_that_can_not_go_on_ends_after_its_answer(start):
    server = start("master = true")
    server.expects_alarms = True
    worker = server.worker()
    assert server.get("/leave").status == 500
    wait_until(lambda: server.workers() and worker not in server.workers(), "it was replaced")
    assert server.get("/echo").status == 200


# Behind a reverse proxy.


def test_the_uwsgi_protocol_gives_the_variables_as_they_come(start):
    server = start(listen=("socket = 127.0.0.1:0",))
    answer = ask(server.address("uwsgi"), target="/variables", extra=[("MINE", "1"), ("HTTP_PROXY", "evil")])
    assert b"\nMINE=1\n" in answer.body


def test_the_options_of_python_are_told_to_have_no_effect(serve, libraries):
    server = serve(configured(libraries(), "virtualenv = /srv/venv\ncallable = app"))
    for option in ("virtualenv", "callable"):
        assert f"`{option}` has no effect: it is for Python, and the applications are in another language" in server.log
