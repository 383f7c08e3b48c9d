"""``sticky`` where a connection can't move: requests within TLS and over HTTP/2 are relayed to the worker that has their session.

The session of a request is in its parameter `sid`. A test first finds which worker owns which session, and then asks for sessions
of all workers on one connection, so that most of its requests are relayed.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import signal

import pytest
from support.client import Closed
from support.http2 import Http2, Reset, secured
from support.http2_websocket import Tunnel, connect
from support.metrics import metrics_address, samples, value_of
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support.websocket import WebSocket, handshake
from support_instance import APPLICATIONS

APPS = APPLICATIONS.parents[1] / "apps"

#: How a client speaks.
WAYS = ["tls", "h2", "h2c"]

#: Bytes of the application's `/large`.
LARGE = 3_000_000

INTERFACES = {
    "wsgi": ("--module", "relayed"),
    "threads": ("--module", "relayed", "--threads", "3"),
    "gevent": ("--module", "relayed", "--gevent", "20"),
    "asgi": ("--asgi", "relayed:asgi"),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def serve(start, authority):
    """``serve("asgi", processes=2)`` serves the application with TLS and HTTP/2, and knows one session of each worker."""

    def serve(interface="wsgi", *options, processes=3, **more):
        shown = authority.server()
        chosen = ("--pythonpath", str(APPS), "--processes", str(processes), "--metrics", "127.0.0.1:0", "--sticky", "query:sid")
        https = ("--https", f"127.0.0.1:0,{shown.chain},{shown.key}", "--http2", "h2c")
        return Relaying(start(*chosen, *https, *INTERFACES[interface], *options, module=None, **more), authority)

    return serve


class Relaying:
    """An instance with a session at each of its workers."""

    def __init__(self, instance, authority):
        self.instance = instance
        self.authority = authority
        self.sessions = {}
        self.numbers = itertools.count()
        self.find_sessions()

    def find_sessions(self):
        """Workers share connections that are kept open, so a session begins on one at each of them."""
        self.sessions.clear()
        workers = set(self.instance.workers())

        def are_found():
            with contextlib.ExitStack() as clients:
                for number in itertools.islice(self.numbers, 200):
                    client = clients.enter_context(self.instance.connect())
                    self.sessions.setdefault(pid_of(client.request("GET", f"/?sid={number}")), number)
                    if set(self.sessions) == workers:
                        return True
            return False

        # A worker that was just forked does not take a connection yet.
        wait_until(are_found, lambda: f"a session at each of {workers}: {self.sessions}")

    def connect(self, way):
        if way == "tls":
            return TlsClient(self.instance.address("https"), context_of(self.authority))
        if way == "h2":
            client = self.instance.connect(self.instance.address("https"))
            return Http2(secured(client, context_of(self.authority, alpn=("h2",))))
        return Http2(self.instance.connect())

    def targets(self, path, query=""):
        """Returns the pid of each worker, with a target of its session."""
        return [(pid, f"{path}?sid={session}{query}") for pid, session in self.sessions.items()]

    def counted(self, result):
        return value_of(metrics_address(self.instance), "bolide_sticky_requests_total", result=result) or 0


def pid_of(response):
    return int(response.get("x-pid"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("interface", INTERFACES)
def test_requests_reach_the_worker_of_their_session(serve, interface, way):
    served = serve(interface)
    with served.connect(way) as client:
        for _ in range(3):
            for pid, target in served.targets("/"):
                response = client.request("GET", target)
                assert (response.status, response.text, pid_of(response)) == (200, "fine", pid)
    assert served.counted("not_moved") == 0
    assert served.counted("relayed") == 6


def test_a_request_that_is_relayed_is_to_its_application_as_any_other(serve):
    """Each connection asks at all workers: at its own one directly, and over a relay at the others."""
    served = serve()
    for way, scheme, version in (("tls", "https", "HTTP/1.1"), ("h2", "https", "HTTP/2.0"), ("h2c", "http", "HTTP/2.0")):
        with served.connect(way) as client:
            facts = [client.request("GET", target).text for _, target in served.targets("/facts")]
        assert len(set(facts)) == 1, facts
        fact = json.loads(facts[0])
        assert (fact["wsgi.url_scheme"], fact["SERVER_PROTOCOL"], fact["REMOTE_ADDR"]) == (scheme, version, "127.0.0.1")
        assert ("SSL_PROTOCOL" in fact) == (scheme == "https")
    instance = serve("asgi")
    for way, scheme, version in (("tls", "https", "1.1"), ("h2", "https", "2"), ("h2c", "http", "2")):
        with instance.connect(way) as client:
            facts = {client.request("GET", target).text for _, target in instance.targets("/facts")}
        assert [json.loads(fact) for fact in facts] == [{"scheme": scheme, "version": version, "client": "127.0.0.1"}]


@pytest.mark.parametrize("way", WAYS)
def test_answers_of_all_forms_arrive_as_they_were_made(serve, way):
    served = serve()
    with served.connect(way) as client:
        for pid, target in served.targets("/"):
            head = client.request("HEAD", target)
            assert (head.status, head.body, pid_of(head), head.get("content-length")) == (200, b"", pid, "4")
        for pid, target in served.targets("/nothing"):
            nothing = client.request("GET", target)
            assert (nothing.status, nothing.body, pid_of(nothing)) == (204, b"", pid)
        for _, target in served.targets("/unchanged"):
            unchanged = client.request("GET", target)
            assert (unchanged.status, unchanged.get("etag"), unchanged.body) == (304, '"a"', b"")
        for pid, target in served.targets("/large"):
            large = client.request("GET", target)
            assert (len(large.body), pid_of(large), large.all("content-length")) == (LARGE, pid, [str(LARGE)])
        for _, target in served.targets("/fails"):
            failed = client.request("GET", target)
            assert (failed.status, failed.text) == (500, "Internal Server Error")
            assert (len(failed.all("server")), len(failed.all("date"))) == (1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_of_many_small_parts_arrives_whole(serve, way):
    served = serve()
    for pid, target in served.targets("/small"):
        # A client that returns the window of each small frame may do so only so often on a connection.
        with served.connect(way) as client:
            small = client.request("GET", target)
            assert (small.text, pid_of(small)) == ("".join(f"{number:09}\n" for number in range(3_000)), pid)


def test_bytes_that_an_application_sends_instead_of_an_answer_are_not_passed_on(serve):
    served = serve()
    for pid, target in served.targets("/junk"):
        with contextlib.ExitStack() as clients:
            own = pid
            while own == pid:
                client = clients.enter_context(served.connect("tls"))
                own = pid_of(client.request("GET", "/"))
            # Applications may take the socket of such a request.
            assert client.request("GET", target, [("Connection", "Upgrade"), ("Upgrade", "junk")]).status == 502
    assert served.instance.whole_log().count("relayed to did not send an answer; answered 502") == 3


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_its_application_breaks_off_does_not_look_complete(serve, way):
    served = serve()
    for _, target in served.targets("/cut"):
        with served.connect(way) as client, pytest.raises((Closed, Reset)):
            client.request("GET", target)
    assert "relayed to" not in served.instance.whole_log(), "the worker that served it has logged that"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("interface", ["wsgi", "gevent", "asgi"])
def test_a_body_of_any_size_arrives_whole(serve, interface, way):
    served = serve(interface)
    with served.connect(way) as client:
        for size in (0, 1, 60_000, 1 << 20):
            for pid, target in served.targets("/echo"):
                body = os.urandom(size)
                answer = client.request("POST", target, body=body)
                expected = body if size or interface != "asgi" else b"fine"
                assert (answer.status, pid_of(answer), answer.body == expected) == (200, pid, True)


def test_a_body_without_a_length_waits_for_its_continue_and_arrives_whole(serve):
    served = serve()
    for pid, target in served.targets("/echo"):
        with served.connect("tls") as client:
            fields = "Host: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
            client.send(f"POST {target} HTTP/1.1\r\n{fields}\r\n".encode())
            assert client.read_head().status == 100
            client.send_byte_by_byte(b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = client.read_response()
            assert (answer.text, pid_of(answer)) == ("hello!", pid)
            assert client.read_response().text == "fine", "the request behind it is the next"
        with served.connect("h2") as client:
            answer = client.begin("POST", target, ends=False)
            for part in (b"hel", b"lo", b"!"):
                client.send_body(answer, part, ends=False)
            client.send_body(answer, b"")
            client.finish(answer)
            assert (answer.text, pid_of(answer)) == ("hello!", pid)


def test_a_body_over_the_limit_is_refused_by_the_worker_that_serves_it(serve):
    served = serve("wsgi", "--limit-post", "1000")
    for way in WAYS:
        for _, target in served.targets("/echo"):
            with served.connect(way) as client:
                assert client.request("POST", target, body=b"x" * 1001).status == 413


@pytest.mark.parametrize("way", WAYS)
def test_parts_of_an_answer_arrive_when_they_are_made(serve, way, tmp_path):
    served = serve("threads")
    for number, (pid, target) in enumerate(served.targets("/parts")):
        gate = tmp_path / str(number)
        with served.connect(way) as client:
            if way == "tls":
                client.send(f"GET {target}&gate={gate} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                assert pid_of(client.read_head()) == pid
                assert client.read_until(b"first\r\n").endswith(b"first\r\n")
                gate.touch()
                assert client.read_until(b"0\r\n\r\n").endswith(b"second\r\n0\r\n\r\n")
            else:
                answer = client.begin("GET", f"{target}&gate={gate}")
                client.read_until(lambda answer=answer: answer.received == len("first"), "the first part")
                gate.touch()
                client.finish(answer)
                assert (answer.text, pid_of(answer)) == ("firstsecond", pid)


@pytest.mark.parametrize("way", ["h2", "h2c"])
def test_streams_of_one_connection_are_served_by_all_workers_at_once(serve, way):
    served = serve("asgi")
    targets = served.targets("/") * 30
    with served.connect(way) as client:
        answers = [client.begin("GET", target) for _, target in targets]
        client.finish(*answers)
    assert [pid_of(answer) for answer in answers] == [pid for pid, _ in targets]


def test_a_client_that_reads_slowly_gets_all_and_delays_nobody(serve):
    served = serve("asgi")
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(served.connect("tls")) for _ in range(3)]
        for client, (_, target) in zip(slow, served.targets("/echo"), strict=True):
            client.send(f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n".encode() + b"x" * LARGE)
        with served.connect("h2") as other:
            for pid, target in served.targets("/"):
                assert pid_of(other.request("GET", target)) == pid
        assert [len(client.read_response().body) for client in slow] == [LARGE] * 3


@pytest.mark.parametrize("way", WAYS)
def test_interim_answers_and_trailer_fields_come_along(serve, way):
    served = serve("asgi", "--asgi-extensions", "informational")
    with served.connect(way) as client:
        for pid, target in served.targets("/hints"):
            if way == "tls":
                client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                hint = client.read_head()
                assert (hint.status, hint.get("link")) == (103, "</a>; rel=preload")
                assert pid_of(client.read_response()) == pid
            else:
                answer = client.request("GET", target)
                assert (answer.interim, pid_of(answer)) == ([(103, [("link", "</a>; rel=preload")])], pid)
        for pid, target in served.targets("/trailers"):
            if way == "tls":
                client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n".encode())
                assert pid_of(client.read_head()) == pid
                assert client.read_until(b"\r\n\r\n").lower().endswith(b"fine\r\n0\r\nchecksum: a1\r\n\r\n")
            else:
                answer = client.request("GET", target, [("te", "trailers")])
                assert (answer.text, answer.trailers, pid_of(answer)) == ("fine", [("checksum", "a1")], pid)


class StreamSocket(WebSocket):
    """A WebSocket on a stream of HTTP/2."""

    def __init__(self, connection, target):
        self.answer = connection.begin_with(connect(target, "https"), ends=False, method="CONNECT")
        self.client, self.compression, self.skips_pongs = Tunnel(connection, self.answer), False, False

    def open(self):
        answer = self.answer
        self.client.connection.read_until(lambda: answer.status is not None or answer.is_over, "the handshake is answered")
        assert self.answer.status == 200, self.answer
        return self


def open_socket(client, way, target):
    return (WebSocket if way == "tls" else StreamSocket)(client, target).open()


@pytest.mark.parametrize("way", WAYS)
def test_websockets_are_with_the_worker_of_their_session(serve, way, tmp_path):
    served = serve("asgi")
    for number, (pid, target) in enumerate(served.targets("/socket")):
        with served.connect(way) as client:
            socket = open_socket(client, way, target)
            assert socket.read_message() == str(pid)
            for text in ("hello", "x" * 100_000):
                socket.send_text(text)
                assert socket.read_message() == text
            socket.send_text("end")
            assert socket.answer_close() == (4000, "")
        left = tmp_path / str(number)
        with served.connect(way) as client:
            socket = open_socket(client, way, f"{target}&seen={left}")
            socket.read_message()
        wait_until(lambda left=left: left.exists() and left.read_text(), "it learns that its client has left")
        assert left.read_text() == "disconnected 1006\n"


@pytest.mark.parametrize("way", WAYS)
def test_an_application_learns_that_its_client_has_left(serve, way, tmp_path):
    served = serve("asgi")
    for number, (_, target) in enumerate(served.targets("/wait")):
        file = tmp_path / str(number)
        with served.connect(way) as client:
            if way == "tls":
                client.send(f"GET {target}&seen={file} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                client.read_until(b"first")
            else:
                answer = client.begin("GET", f"{target}&seen={file}")
                client.read_until(lambda answer=answer: answer.received == len("first"), "the first part")
                client.reset(answer)
                wait_until(lambda file=file: file.read_text() == "begun\ndisconnected\n", "a reset is enough")
        wait_until(lambda file=file: file.read_text() == "begun\ndisconnected\n", "it learns that its client has left")


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_a_client_that_leaves_within_its_body_is_not_answered(serve, interface):
    served = serve(interface)
    for _, target in served.targets("/echo"):
        with served.connect("tls") as client:
            client.send(f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf".encode())
        with served.connect("h2") as client:
            answer = client.begin("POST", target, ends=False)
            client.send_body(answer, b"half", ends=False)
            client.reset(answer)
            client.ping()
    address = metrics_address(served.instance)

    def open_connections():
        return sum(count for (name, *_), count in samples(address).items() if name == "bolide_connections_by_state")

    wait_until(lambda: open_connections() == 0, "both workers of each request have closed it")
    assert "relayed to" not in served.instance.whole_log()


def test_a_websocket_of_an_unknown_version_is_told_the_known_one(serve):
    served = serve("asgi")
    for _, target in served.targets("/socket"):
        with served.connect("tls") as client:
            request, _ = handshake(target)
            client.send(request.replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"))
            answer = client.read_response()
            assert (answer.status, answer.get("sec-websocket-version"), answer.get("upgrade")) == (426, "13", "websocket")
            assert "upgrade" in answer.all("connection")


def test_a_relayed_request_is_logged_and_counted_once_by_the_worker_that_serves_it(serve):
    served = serve(logging=True)
    targets = served.targets("/logged")
    for way in WAYS:
        with served.connect(way) as client:
            for _, target in targets:
                assert client.request("GET", target).status == 200
    assert served.counted("relayed") == 6
    lines = [line for line in served.instance.whole_log().splitlines() if "/logged?" in line]
    assert sorted(int(line.split("|")[0].removeprefix("[pid: ")) for line in lines) == sorted([pid for pid, _ in targets] * 3)
    assert sum("HTTP/2.0" in line for line in lines) == 2 * len(targets)


def test_a_request_whose_worker_dies_gets_502_and_a_line_in_the_log(serve, tmp_path):
    served = serve("asgi", processes=2, alarms=True)
    for way in ("tls", "h2"):
        served.find_sessions()
        seen = tmp_path / way
        with contextlib.ExitStack() as clients:
            client = clients.enter_context(served.connect(way))
            front = pid_of(client.request("GET", "/"))
            ((pid, target),) = [(pid, target) for pid, target in served.targets("/late") if pid != front]
            pool = clients.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            answered = pool.submit(client.request, "GET", f"{target}&seen={seen}")
            wait_until(seen.exists, "the request has come to its worker")
            os.kill(pid, signal.SIGKILL)
            assert answered.result().status == 502
            served.instance.wait_for_replacement(pid, count=2)
    told = "the worker that a request was relayed to ended before it had answered; answered 502"
    assert served.instance.log.count(told) == 2


def test_a_request_that_takes_too_long_gets_the_504_of_its_worker(serve):
    served = serve("asgi", "--harakiri", "4")
    with served.connect("h2") as client:
        answers = [client.begin("GET", target) for _, target in served.targets("/late")]
        client.finish(*answers)
    assert [answer.status for answer in answers] == [504] * 3


@pytest.mark.parametrize("way", ["tls", "h2"])
def test_requests_during_reloads_are_all_answered(serve, way):
    served = serve("threads")

    def ask(number):
        statuses = []
        while len(statuses) < 4:
            with served.connect(way) as client:
                response = client.request("GET", f"/?sid={number + len(statuses)}")
                statuses.append(response.status)
                # A worker that drains says that an answer was the last on its connection.
                if way == "h2" or not response.says_close:
                    statuses.append(client.request("GET", f"/?sid={number + len(statuses)}").status)
        return statuses

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for generation in (2, 3):
            asked = [pool.submit(ask, number) for number in range(60)]
            served.instance.reload(generation)
            assert {status for one in asked for status in one.result()} == {200}


@pytest.mark.parametrize("way", ["tls", "h2"])
def test_a_websocket_is_closed_with_its_code_when_the_worker_that_relays_it_leaves(serve, way):
    # More than the requests before it that may all come to one worker while the other one has no CPU.
    served = serve("asgi", "--max-requests", "1000", "--min-worker-lifetime", "0", processes=2)
    with contextlib.ExitStack() as clients:
        owner, target = served.targets("/socket")[0]
        front = owner
        while front == owner:
            client = clients.enter_context(served.connect(way))
            front = pid_of(client.request("GET", "/"))
        socket = open_socket(client, way, target)
        assert socket.read_message() == str(owner)
        own = f"/?sid={served.sessions[front]}"
        with served.instance.connect() as worn:
            for _ in range(1000):
                worn.request("GET", own)
        socket.skips_pongs = True
        assert socket.read_close()[0] == 1012


def test_workers_with_one_thread_relay_to_each_other_and_none_waits_for_another(serve):
    served = serve()
    targets = [target for _, target in served.targets("/")]

    def ask(number):
        with served.connect(WAYS[number % 3]) as client:
            return {client.request("GET", targets[(number + place) % 3]).status for place in range(12)}

    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        assert list(pool.map(ask, range(36))) == [{200}] * 36


def test_a_request_of_http_1_0_is_served_where_it_comes_to(serve):
    served = serve()
    for _, target in served.targets("/"):
        with served.connect("tls") as client:
            client.send(f"GET {target} HTTP/1.0\r\n\r\n".encode())
            assert client.read_response().status == 200
    assert served.counted("relayed") == 0


def test_a_client_that_stops_in_its_body_gets_the_408_of_the_worker_that_waits_for_it(serve):
    served = serve("wsgi", "--http-timeout", "4")
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(served.connect("tls")) for _ in range(3)]
        for client, (_, target) in zip(slow, served.targets("/echo"), strict=True):
            client.send(f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf".encode())
        assert [client.read_response().status for client in slow] == [408] * 3


def test_a_client_that_reads_nothing_is_given_up(serve):
    served = serve("wsgi", "--http-timeout", "4")
    with contextlib.ExitStack() as clients:
        for _, target in served.targets("/large", "&times=20"):
            client = clients.enter_context(served.connect("tls"))
            client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        errors = functools.partial(value_of, metrics_address(served.instance), "bolide_client_errors_total", direction="write")
        wait_until(lambda: errors() == 3, "each worker has given its client up")


def test_requests_beyond_the_most_relays_are_served_where_they_come_to(serve):
    served = serve("asgi", processes=2)
    ((_, here), (_, there)) = served.targets("/wait")
    with contextlib.ExitStack() as clients:
        answers = []
        while len(answers) < 2_200:
            # Each client allows this many streams.
            client = clients.enter_context(served.connect("h2c"))
            several = [client.begin("GET", target) for target in (here, there) for _ in range(50)]
            client.read_until(lambda several=several: all(answer.parts for answer in several), "each has begun")
            answers += several
        assert {answer.status for answer in answers} == {200}
        assert served.counted("relayed") + served.counted("not_moved") + served.counted("here") == len(answers)
        assert served.counted("relayed") >= 1024
