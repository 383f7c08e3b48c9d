"""The request line: uWSGI's own format byte for byte, whole lines even from several workers, and none if disabled."""

import re
import threading

import pytest
from support import uwsgi

#: uWSGI 2.0's line without `log-format` (uwsgi_logit_simple in core/logging.c).
LINE = re.compile(
    r"\[pid: (?P<pid>\d+)\|app: (?P<app>-?\d+)\|req: (?P<own>\d+)/(?P<all>\d+)\] (?P<address>\S*) \((?P<user>[^)]*)\) "
    r"\{(?P<variables>\d+) vars in (?P<variable_bytes>\d+) bytes\} "
    r"\[(?P<time>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] "
    r"(?P<method>\S+) (?P<uri>\S*) => generated (?P<bytes>\d+) bytes in (?P<time_taken>\d+) msecs"
    r"(?P<sendfile> via sendfile\(\))? "
    r"\((?P<protocol>\S+) (?P<status>\d+)\) (?P<headers>\d+) headers in (?P<header_bytes>\d+) bytes "
    r"\((?P<switches>\d+) switches on core (?P<core>\d+)\)"
)
MEMORY = re.compile(
    r"\{address space usage: (?P<space>\d+) bytes/(?P<space_mb>\d+)MB\} "
    r"\{rss usage: (?P<rss>\d+) bytes/(?P<rss_mb>\d+)MB\} "
)


def request_lines(server):
    # The last line of a file may still be in the course of being written.
    whole = server.everything().rpartition("\n")[0]
    return [line for line in whole.splitlines() if line.startswith(("[pid:", "{address"))]


def wait_for_lines(server, count):
    def enough():
        lines = request_lines(server)
        return lines if len(lines) >= count else None

    return server.wait_for(enough, f"{count} request lines are in the log")


def test_the_request_line_is_uwsgis_byte_for_byte(serve):
    server = serve("wsgi-file = {apps}/framing.py")
    client = server.connect()
    asked = [
        ("GET", "/list?a=b%20c", 200, 18, 1),
        ("POST", "/list_with_length", 200, 18, 2),
        ("HEAD", "/generator", 200, 18, 1),
        ("GET", "/no_content", 204, 0, 0),
        ("DELETE", "/nowhere", 500, 21, 0),
    ]
    for method, target, *_ in asked:
        client.request(method, target)
    lines = wait_for_lines(server, len(asked))
    pid = str(server.worker())
    for number, (line, (method, target, status, size, headers)) in enumerate(zip(lines, asked), 1):
        match = LINE.fullmatch(line)
        assert match, line
        found = match.groupdict()
        assert (found["pid"], found["app"], found["own"], found["all"]) == (pid, "0", str(number), str(number))
        assert (found["address"], found["user"], found["protocol"]) == ("127.0.0.1", "", "HTTP/1.1")
        assert (found["method"], found["uri"], found["status"]) == (method, target, str(status))
        assert (int(found["headers"]), found["switches"], found["core"]) == (headers, "1", "0")
        if method != "HEAD":
            assert int(found["bytes"]) == size
        assert int(found["variables"]) > 5


def test_the_request_line_tells_the_bytes_of_the_head_and_of_the_body(serve):
    server = serve("wsgi-file = {apps}/framing.py")
    with server.connect() as client:
        client.send(b"GET /list HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        head, _, body = client.read_to_end().partition(b"\r\n\r\n")
    found = LINE.fullmatch(wait_for_lines(server, 1)[0])
    assert (int(found["header_bytes"]), int(found["bytes"])) == (len(head) + 4, len(body))


def test_what_a_client_sends_can_not_break_the_request_line(serve):
    server = serve("wsgi-file = {apps}/hello.py", listen=("socket = 127.0.0.1:0",))
    extra = [("REQUEST_URI", "/a\nforged\x1b[0m"), ("REMOTE_USER", "b\rc"), ("REQUEST_METHOD", "GET\tX")]
    assert uwsgi.ask(server.address("uwsgi"), extra=extra).status == 200
    line = server.wait_for_log(r"^\[pid: .*$")[0]
    assert "/a?forged?[0m" in line
    assert "(b?c)" in line
    assert "GET?X" in line


def test_a_very_long_target_is_cut_in_the_request_line(serve):
    server = serve("wsgi-file = {apps}/hello.py")
    assert server.get("/" + "a" * 10_000).status == 200
    line = wait_for_lines(server, 1)[0]
    assert LINE.fullmatch(line)
    assert len(line) < 4096


def test_memory_report_begins_the_line_with_the_workers_memory(serve):
    server = serve("wsgi-file = {apps}/hello.py\nmemory-report = true")
    server.get("/")
    line = wait_for_lines(server, 1)[0]
    memory = MEMORY.match(line)
    assert memory, line
    assert LINE.fullmatch(line[memory.end() :])
    assert int(memory["rss"]) > 1_000_000
    assert int(memory["rss_mb"]) == int(memory["rss"]) // 1024 // 1024
    assert int(memory["space_mb"]) == int(memory["space"]) // 1024 // 1024


def test_disable_logging_is_silent_but_for_faults(serve):
    server = serve("wsgi-file = {apps}/failures.py\ndisable-logging = true")
    for target in ("/fine", "/pid", "/exception"):
        server.get(target)
    server.wait_for_log("RuntimeError: as the test asked")
    client = server.connect()
    client.send(b"nonsense\r\n\r\n")
    assert client.read_response().status == 400
    server.wait_for_log("refused a request from 127.0.0.1 with 400")
    assert not request_lines(server)


def test_a_refused_request_is_named_by_its_path_without_the_query(serve):
    server = serve("wsgi-file = {apps}/failures.py")
    client = server.connect()
    client.send("GET /café?key=secret HTTP/1.1\r\nHost: h\r\n\r\n".encode("latin-1"))
    assert client.read_response().status == 400
    server.wait_for_log(r"refused a request from 127\.0\.0\.1 with 400: .*non-ASCII byte.* \(GET /caf\\xe9\)$")
    assert "secret" not in server.log


@pytest.mark.parametrize("log", ["pipe", "file"])
@pytest.mark.parametrize("threads", [1, 4])
def test_lines_are_whole_when_several_workers_share_the_log(serve, log, threads):
    logto = "logto = {directory}/log" if log == "file" else ""
    server = serve(f"wsgi-file = {{apps}}/talkative.py\nprocesses = 4\nthreads = {threads}\n{logto}")
    visitors, requests = 16, 60

    def visit(visitor):
        client = server.connect()
        stream = "".join(f"GET /{'x' * 100}?{visitor}-{number} HTTP/1.1\r\nHost: a\r\n\r\n" for number in range(requests))
        client.send(stream.encode())
        for number in range(requests):
            assert client.read_response().text == f"told {visitor}-{number}"

    workers = [threading.Thread(target=visit, args=(visitor,)) for visitor in range(visitors)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = wait_for_lines(server, visitors * requests)
    assert len(lines) == visitors * requests
    seen = {LINE.fullmatch(line)["uri"].partition("?")[2] for line in lines}
    expected = {f"{visitor}-{number}" for visitor in range(visitors) for number in range(requests)}
    assert seen == expected
    everything = server.everything()
    for form in (
        r"^worker \d: begun (\S+) and ended \1$",
        r"^worker \d: another line (\S+)$",
        r"^from sys.stderr (\S+)$",
    ):
        assert set(re.findall(form, everything, re.MULTILINE)) == expected


def test_requests_are_counted_for_the_worker_and_for_all(serve):
    server = serve("wsgi-file = {apps}/hello.py\nprocesses = 2")
    for _ in range(30):
        server.get()
    found = [LINE.fullmatch(line) for line in wait_for_lines(server, 30)]
    by_worker = {}
    for match in found:
        by_worker.setdefault(match["pid"], []).append(int(match["own"]))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_worker.values())
    # The counters of other workers are as of the last iteration of their loops.
    assert all(int(match["own"]) <= int(match["all"]) <= 30 for match in found)
    assert max(int(match["all"]) for match in found) > 25
