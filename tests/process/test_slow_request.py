"""`slow-request = MS`: each slow request is reported once, with the lines, peers and waits that took its time."""

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_log_json import check_schema

#: Milliseconds from which requests are slow, and seconds that the slow ones of these tests take.
MARK = 60
LONG = 0.35
#: Seconds for which a peer or a client pauses: a busy worker begins to wait for it late.
PAUSE = 2.5
#: Number of quick requests, one of which is not reported even on a busy machine.
TRIES = 5

VIEWS = """\
import ctypes, socket, threading, time
def sleeps(query):
    time.sleep(0.35)  # sleeps
def burns(query):
    end = time.monotonic() + 0.35
    while time.monotonic() < end:
        sum(range(100))  # burns
def asks(query):
    family, address = (socket.AF_UNIX, query) if query.startswith("/") else (socket.AF_INET, ("127.0.0.1", int(query)))
    with socket.socket(family) as connection:
        connection.settimeout(60 if query.startswith("/") else None)
        connection.connect(address)
        connection.recv(10)  # asks
def keeps_the_gil():
    ctypes.PyDLL(None).usleep(350000)  # keeps
def is_held(query):
    thread = threading.Thread(target=keeps_the_gil)
    thread.start()
    while thread.is_alive():  # needs the GIL all the time
        pass
def keeps(query):
    keeps_the_gil()
def naps(query):
    time.sleep(0.02)
VIEWS = {name: view for name, view in list(globals().items()) if callable(view)}
"""

WSGI = """\
from views import VIEWS
def application(environ, start_response):
    name = environ["PATH_INFO"].strip("/")
    if name in VIEWS:
        VIEWS[name](environ["QUERY_STRING"])
    body = b"x" * (30_000_000 if name == "large" else 10)
    write = start_response("200 OK", [("Content-Length", str(len(body)))])
    if environ["QUERY_STRING"] == "write":
        write(body)
        return []
    return [body]
"""

ASGI = """\
import asyncio, time
async def sleeps():
    await asyncio.sleep(0.35)  # sleeps
async def blocks():
    time.sleep(0.35)  # blocks
async def asks(port):
    reader, _ = await asyncio.open_connection("127.0.0.1", port)
    await reader.read(10)  # asks
async def body(receive):
    while (await receive()).get("more_body"):
        pass
async def application(scope, receive, send):
    name = scope.get("path", "").strip("/")
    if name == "sleeps":
        await sleeps()
    if name == "blocks":
        await blocks()
    if name == "asks":
        await asks(int(scope["query_string"]))
    await body(receive)
    kind = b"text/event-stream" if name == "events" else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if name == "events":
        await asyncio.sleep(0.2)
    for _ in range(30 if name == "large" else 1):
        await send({"type": "http.response.body", "body": b"x" * (1_000_000 if name == "large" else 10), "more_body": True})
    await send({"type": "http.response.body"})
"""


def line_of(text, comment):
    return 1 + next(number for number, line in enumerate(text.splitlines()) if line.endswith(f"# {comment}"))


@pytest.fixture
def serve(start, tmp_path):
    def serve(*arguments, text=WSGI, mark=MARK, **settings):
        (tmp_path / "views.py").write_text(VIEWS)
        (tmp_path / "shop.py").write_text(text)
        options = ["--pythonpath", tmp_path, "--processes", "1", "--slow-request", str(mark)]
        return start(*options, *arguments, module="shop:application", **settings)

    return serve


def reports(instance):
    """The reports of the log, each with its lines."""
    found, lines = [], instance.log.splitlines()
    for number, line in enumerate(lines):
        if ": slow request: " in line:
            samples = []
            for further in lines[number + 1 :]:
                if not further.startswith("  "):
                    break
                samples.append(further)
            found.append("\n".join([line, *samples]))
    return found


def reports_of(instance, request):
    return [report for report in reports(instance) if f": slow request: {request}" in report]


def report_of(instance, request):
    instance.wait_for(lambda: reports_of(instance, f"{request} "), f"a report of {request}")
    (report,) = reports_of(instance, f"{request} ")
    return report


class Silent:
    """A server that accepts one connection, and says something after a while."""

    def __init__(self, address):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(address)
            self.socket.listen()
        else:
            self.socket = socket.create_server(address)
        self.thread = threading.Thread(target=self.answer)

    def __enter__(self):
        self.thread.start()
        return self.socket.getsockname()

    def answer(self):
        with self.socket, self.socket.accept()[0] as connection:
            time.sleep(PAUSE)
            connection.sendall(b"here")

    def __exit__(self, *raised):
        self.thread.join()


def slow_upload(port):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab")
        time.sleep(PAUSE)
        client.sendall(b"cd")
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def slow_reader(port, target):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        time.sleep(PAUSE)
        while client.recv(1 << 20):
            pass


def milliseconds(report, what):
    found = re.search(rf"{what} ([\d.]+) (ms|s)", report)
    return float(found[1]) * (1000 if found[2] == "s" else 1) if found else 0


def test_a_report_names_the_line_the_peer_and_who_holds_the_gil(serve, tmp_path):
    instance = serve("--threads", "2")
    views = re.escape(str(tmp_path / "views.py"))
    instance.get("/fast?a=b")
    instance.get("/sleeps?token=secret&a=b")
    report = report_of(instance, "GET /sleeps?token=…&a=…")
    assert "secret" not in "".join(reports(instance))
    assert re.search(rf" samples \(about .*\): waits \(\w+\) at {views}:{line_of(VIEWS, 'sleeps')} sleeps", report), report
    assert re.search(rf", status 200: the application [\d.]+ m?s \(slow-request = {MARK}\)", report), report

    instance.get("/burns")
    assert re.search(rf"(runs|GIL).* at {views}:\d+ burns", report_of(instance, "GET /burns"))

    instance.get("/is_held")
    report = report_of(instance, "GET /is_held")
    holder = rf"{views}:{line_of(VIEWS, 'keeps')} keeps_the_gil holds in \w+"
    assert re.search(rf"waits for the GIL, which {holder}, at {views}:\d+ is_held", report), report

    instance.get("/keeps")
    told = rf"waits in \w+ without releasing the GIL at {views}:{line_of(VIEWS, 'keeps')} keeps_the_gil"
    assert re.search(told, report_of(instance, "GET /keeps"))


def test_waits_for_sockets_have_the_address_of_the_peer(serve, tmp_path):
    instance = serve()
    views = re.escape(str(tmp_path / "views.py"))
    with Silent(("127.0.0.1", 0)) as (_, port):
        instance.get(f"/asks?{port}")
    line = line_of(VIEWS, "asks")
    assert re.search(rf"waits for 127.0.0.1:{port} \(recv\w*\) at {views}:{line} asks", report_of(instance, "GET /asks?…"))
    path = str(tmp_path / "database.sock")
    with Silent(path):
        instance.get(f"/asks?{path}")
    instance.wait_for(lambda: len(reports(instance)) == 2, "another report")
    assert re.search(rf"waits for {re.escape(path)} \(poll\) at {views}:{line} asks", reports(instance)[1]), instance.log


def test_a_slow_upload_and_a_slow_reader_are_the_clients(serve):
    instance = serve()
    slow_upload(instance.port)
    report = report_of(instance, "POST /upload")
    assert milliseconds(report, "waiting for the client's body") > LONG * 700, report
    for target in ("/large", "/large?write"):
        slow_reader(instance.port, target)
        report = report_of(instance, "GET " + target.replace("write", "…"))
        assert milliseconds(report, "sending to the client") > LONG * 700, report


def test_asynchronous_requests_are_reported_with_what_they_await(serve, tmp_path):
    instance = serve("--loop", "asyncio", text=ASGI)
    shop = re.escape(str(tmp_path / "shop.py"))
    for target in ("/fast", "/events") * TRIES:
        assert instance.get(target).text == "x" * 10
    instance.get("/sleeps?q=1")
    report = report_of(instance, "GET /sleeps?q=…")
    place = rf"at {shop}:{line_of(ASGI, 'sleeps')} sleeps, in .*asyncio/tasks.py:\d+ sleep"
    assert re.search(rf"awaits Future {place}", report), report
    instance.get("/blocks")
    report = report_of(instance, "GET /blocks")
    assert re.search(rf"waits \(\w+\) at {shop}:{line_of(ASGI, 'blocks')} blocks", report), report
    with Silent(("127.0.0.1", 0)) as (_, port):
        instance.get(f"/asks?{port}")
    place = rf"at {shop}:{line_of(ASGI, 'asks')} asks, in .*asyncio/streams.py:"
    assert re.search(rf"waits for 127.0.0.1:{port} \(await\) {place}", report_of(instance, "GET /asks?…")), instance.log
    slow_upload(instance.port)
    report = report_of(instance, "POST /upload")
    assert milliseconds(report, "waiting for the client's body") > LONG * 700, report
    slow_reader(instance.port, "/large")
    report = report_of(instance, "GET /large")
    assert milliseconds(report, "sending to the client") > LONG * 700, report
    for target in ("/fast", "/events"):
        assert len(reports_of(instance, f"GET {target}")) < TRIES, instance.log


def test_requests_in_greenlets_are_reported_with_what_they_wait_for(serve, tmp_path):
    pytest.importorskip("gevent")
    instance = serve("--gevent", "10", "--gevent-monkey-patch")
    views = re.escape(str(tmp_path / "views.py"))
    instance.get("/fast")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(instance.get, ["/sleeps?first", "/sleeps?second"]))
    # On a busy machine the quick request may be reported too.
    instance.wait_for(lambda: len(reports_of(instance, "GET /sleeps?")) == 2, "two reports")
    for report in reports_of(instance, "GET /sleeps?"):
        assert re.search(rf"awaits a time \(sleep\) at {views}:{line_of(VIEWS, 'sleeps')} sleeps", report), report
    with Silent(("127.0.0.1", 0)) as (_, port):
        instance.get(f"/asks?{port}")
    place = rf"at {views}:{line_of(VIEWS, 'asks')} asks, in .*/gevent/"
    assert re.search(rf"waits for 127.0.0.1:{port} \(recv\) {place}", report_of(instance, "GET /asks?…")), instance.log
    slow_reader(instance.port, "/large")
    report = report_of(instance, "GET /large")
    assert milliseconds(report, "sending to the client") > LONG * 700, report


def test_the_json_log_has_one_object_and_its_request_is_a_warning(serve, tmp_path):
    instance = serve("--log-json", logging=True, ready=False)
    instance.wait_for(lambda: '"message":"ready: ' in instance.log, "it is ready")
    port = int(re.search(r'"message":"listening on http://127\.0\.0\.1:(\d+)', instance.log)[1])
    with socket.create_connection(("127.0.0.1", port)) as client, Silent(("127.0.0.1", 0)) as (_, silent):
        client.sendall(f"GET /asks?{silent} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.recv(100)
    instance.wait_for(lambda: '"type":"slow"' in instance.log and '"type":"request"' in instance.log, "the report")
    found = [json.loads(line) for line in instance.log.splitlines()]
    check_schema(found)
    (told,) = [one for one in found if one["type"] == "slow"]
    (request,) = [one for one in found if one["type"] == "request"]
    assert (told["level"], request["level"], told["worker"], told["status"]) == ("warning", "warning", 1, 200)
    assert told["request"] == {"method": "GET", "target": "/asks?…", "id": request["request_id"]}
    assert told["mark_ms"] == MARK
    assert told["microseconds"] >= MARK * 1000
    assert told["samples"] == sum(place["samples"] for place in told["where"])
    place = told["where"][0]
    assert (place["what"], place["peer"]) == ("peer", f"127.0.0.1:{silent}")
    assert place["at"] == {"file": str(tmp_path / "views.py"), "function": "asks", "line": line_of(VIEWS, "asks")}
    assert place["about_us"] <= told["application_us"]


def test_a_worker_writes_a_limited_number_of_reports(serve):
    instance = serve("--threads", "8", mark=5)

    def ask_often(_):
        with instance.connect() as client:
            for _ in range(5):
                assert client.request("GET", "/naps", []).status == 200

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask_often, range(8)))
    instance.wait_for(lambda: len(reports(instance)) == 30, "30 reports")
    instance.finish()
    assert len(reports(instance)) == 30
