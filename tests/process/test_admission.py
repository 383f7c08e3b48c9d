"""``admission = auto``: a request that has waited too long gets 503, also while all threads are busy, and is never begun.

Calls are held at a gate until the test opens it, so a response that is here before shows that it did not wait for the call. A
request waits longer than its patience because the test waits for its response, and not because of the machine.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.client import Closed
from support.http2 import Http2, secured
from support.metrics import metrics_address, value_of
from support.server import program
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support_instance import COMMAND_SECONDS
from support_upgrade import pidfile, upgrade
from support_upgrade import stop as stop_upgraded

#: Far above what a server takes to begin a request, also on a busy machine, and short for a test.
WAIT_SECONDS = 0.25
AUTO = f"admission = auto\nadmission-patience = {WAIT_SECONDS}\nmaster = true\n"
#: Longer than any test: nothing is late.
PATIENT = "admission = auto\nadmission-patience = 600\nmaster = true\n"


@pytest.fixture
def admitting(hold):
    """``admitting("threads = 2")`` serves ``tests/apps/held.py`` with admission and a short patience."""
    return lambda configuration="", **options: hold(AUTO + configuration, **options)


def request(target, fields=""):
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode()


def is_held(held, *names):
    return set(names) <= set(held.in_progress())


def occupy(held, count):
    """Keeps this many threads in calls. Returns the requests by name."""
    return {name: held.hold(name) for name in (f"call{number}" for number in range(count))}


def release(held, calls):
    for name, sent in calls.items():
        held.let_through(name)
        assert sent.finish() == name


def refused(answer):
    """Whether the response is an early refusal."""
    return (answer.status, answer.get("retry-after"), answer.get("cache-control")) == (503, "1", "no-store")


def waiting_at_bulkhead(held):
    command = [*program(), "status", "--json", str(held.server.process.pid)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=True)
    return json.loads(done.stdout)["bulkheads"][0]["waiting"]


def wait_out():
    """Lets what was sent before wait longer than its patience, which the kernel counts in ticks."""
    until = time.monotonic() + 2 * WAIT_SECONDS
    wait_until(lambda: time.monotonic() > until, "the end of the patience")


def is_stopped(pid):
    """Whether the kernel has stopped all threads of the process."""
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


@pytest.mark.parametrize(
    ("options", "busy"),
    [("", 1), ("threads = 3", 3), ("processes = 2", 2), ("processes = 2\nthreads = 2", 4)],
    ids=["one thread", "threads", "workers", "both"],
)
def test_what_waits_too_long_is_refused_while_all_threads_are_busy(admitting, options, busy):
    held = admitting(options)
    calls = occupy(held, busy)
    waiting = [held.server.connect() for _ in range(5)]
    for number, client in enumerate(waiting):
        client.send(request(f"/quick?late{number}"))
    assert all(refused(client.read_response()) for client in waiting)
    assert is_held(held, *calls), "the answers came during the calls"
    release(held, calls)
    assert sorted(held.begun()) == sorted(calls), "what was refused has not begun"


def test_a_kept_connection_goes_on_after_a_refusal(admitting):
    held = admitting()
    kept = held.connect()
    calls = occupy(held, 1)
    for number in range(3):
        answer = kept.request(target=f"/quick?late{number}")
        assert refused(answer)
        assert not answer.says_close
    assert is_held(held, *calls)
    release(held, calls)
    assert kept.request(target="/quick?served").text == "served"
    assert held.begun() == ["kept", "call0", "served"]


def test_a_client_that_wants_the_end_of_the_connection_gets_it(admitting):
    held = admitting()
    calls = occupy(held, 1)
    for sent in (request("/quick", "Connection: close\r\n"), b"GET /quick HTTP/1.0\r\n\r\n"):
        with held.server.connect() as client:
            client.send(sent)
            assert refused(client.read_response())
            assert client.is_closed()
    with held.server.connect() as client:
        client.send(b"HEAD /quick HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert refused(client.read_response("HEAD"))
    assert is_held(held, *calls)
    release(held, calls)


@pytest.mark.parametrize("size", [5, 100_000], ids=["small", "large"])
def test_a_request_with_a_body_is_refused_while_all_threads_are_busy(admitting, size):
    held = admitting()
    calls = occupy(held, 1)
    with held.server.connect() as client:
        client.send(f"POST /quick?late HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode() + b"a" * size)
        answer = client.read_response()
        assert refused(answer)
        assert answer.says_close == (size > 5), "the connection goes on if its body is here"
        assert is_held(held, *calls)
        release(held, calls)
        if size > 5:
            assert client.is_closed()
        else:
            assert client.request(target="/quick?served").text == "served"
    assert "late" not in held.begun()


def test_requests_that_were_sent_together_are_refused_one_after_the_other(admitting):
    held = admitting()
    calls = occupy(held, 1)
    with held.server.connect() as client:
        client.send(request("/quick?one") + request("/quick?two") + request("/quick?three"))
        assert all(refused(client.read_response()) for _ in range(3))
    assert is_held(held, *calls)
    release(held, calls)
    assert held.begun() == ["call0"]


def test_a_request_that_is_not_complete_waits_for_a_thread(admitting):
    held = admitting()
    calls = occupy(held, 1)
    half, late = held.server.connect(), held.server.connect()
    half.send(request("/quick?half")[:20])
    late.send(request("/quick?late"))
    assert refused(late.read_response())
    release(held, calls)
    half.send(request("/quick?half")[20:])
    assert half.read_response().text == "half"


def test_an_idle_server_never_refuses(admitting):
    held = admitting("threads = 2")
    kept = held.connect()
    for number in range(3):
        wait_out()
        assert kept.request(target=f"/quick?kept{number}").text == f"kept{number}"
        assert held.send(f"new{number}").finish() == f"new{number}"


def test_a_free_thread_serves_what_has_waited_elsewhere(admitting):
    held = admitting("threads = 2")
    calls = occupy(held, 1)
    for number in range(3):
        wait_out()
        assert held.send(f"served{number}").finish() == f"served{number}"
    assert is_held(held, *calls)
    release(held, calls)


def test_a_free_worker_serves_what_the_busy_one_can_not(admitting):
    held = admitting("processes = 2")
    calls = occupy(held, 1)
    for number in range(5):
        wait_out()
        assert held.send(f"served{number}").finish() == f"served{number}"
    release(held, calls)


def test_nothing_is_refused_within_its_patience(hold):
    held = hold(PATIENT)
    calls = occupy(held, 1)
    waiting = [held.send(f"waiting{number}") for number in range(20)]
    wait_out()
    release(held, calls)
    assert [one.finish() for one in waiting] == [f"waiting{number}" for number in range(20)]


def test_without_the_option_everything_waits(hold):
    held = hold("master = true\n")
    calls = occupy(held, 1)
    waiting = [held.send(f"waiting{number}") for number in range(5)]
    wait_out()
    assert held.begun() == ["call0"]
    release(held, calls)
    assert [one.finish() for one in waiting] == [f"waiting{number}" for number in range(5)]


def test_health_checks_are_answered_and_never_refused(admitting):
    held = admitting("health-path = /healthz")
    kept = held.connect()
    calls = occupy(held, 1)
    late = held.server.connect()
    late.send(request("/quick?late"))
    assert refused(late.read_response())
    for client in (kept, late, held.server.connect()):
        answer = client.request(target="/healthz")
        assert (answer.status, answer.text) == (200, "ok")
    assert is_held(held, *calls)
    release(held, calls)


@pytest.mark.parametrize("protocol", ["uwsgi", "scgi", "fastcgi"])
def test_what_has_waited_too_long_is_not_begun_by_any_protocol(admitting, protocol):
    held = admitting(protocol=protocol)
    calls = occupy(held, 1)
    late = [held.send(f"late{number}") for number in range(3)]
    wait_out()
    release(held, calls)
    assert [sent.answer().status for sent in late] == [503] * 3
    # The worker was free since.
    assert held.send("served").finish() == "served"
    assert held.begun() == ["call0", "served"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    shown = authority.server()
    #: The line of a socket that speaks TLS.
    authority.line = f"https = 127.0.0.1:0,{shown.chain},{shown.key}\n"
    return authority


def test_what_has_waited_too_long_within_tls_is_not_begun(admitting, authority):
    held = admitting(authority.line)
    context = context_of(authority)
    with TlsClient(held.server.address("https"), context) as kept, TlsClient(held.server.address("https"), context) as upload:
        assert kept.request(target="/quick?kept").text == "kept"
        upload.send(b"POST /quick?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na")
        assert kept.request(target="/quick?kept").text == "kept"
        calls = occupy(held, 1)
        kept.send(request("/quick?late") + request("/quick?behind"))
        upload.send(b"bc")
        wait_out()
        assert is_held(held, *calls)
        release(held, calls)
        assert all(refused(client.read_response()) for client in (kept, kept, upload))
        assert kept.request(target="/quick?served").text == "served"
        assert upload.request(target="/quick?next").text == "next"
    assert held.begun() == ["kept", "kept", "call0", "served", "next"]


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_streams_of_http_2_that_have_waited_too_long_are_not_begun(admitting, authority, tls):
    held = admitting(f"{authority.line}http2 = h2c")
    client = held.server.connect(held.server.address("https" if tls else "http"))
    with Http2(secured(client, context_of(authority, alpn=["h2"])) if tls else client, gives_back=False) as client:
        # The kernel knows only when the last frame came, so the client must not send another one.
        assert client.request(target="/quick?known").text == "known"
        first = client.begin(target=f"/held/{held.gate('first')}?first")
        held.wait_for("begin", "first")
        late = [client.begin(target=f"/quick?late{number}") for number in range(3)]
        upload = client.begin(method="POST", target="/quick?upload", ends=False)
        wait_out()
        held.let_through("first")
        client.finish(first, *late, upload)
        assert first.text == "first"
        assert [answer.status for answer in [*late, upload]] == [503] * 4
        assert client.request(target="/quick?served").text == "served"
    assert held.begun() == ["known", "first", "served"]


def test_what_has_waited_too_long_behind_a_proxy_header_is_not_begun(admitting):
    header = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 80\r\n"
    held = admitting("enable-proxy-protocol = true")
    kept, halfway = held.server.connect(), held.server.connect()
    kept.send(header)
    assert kept.request(target="/quick?kept").text == "kept"
    halfway.send(header)
    assert kept.request(target="/quick?kept").text == "kept"
    first = held.server.connect()
    first.send(header + request(f"/held/{held.gate('call')}?call"))
    held.wait_for("begin", "call")
    new = held.server.connect()
    new.send(header + request("/quick?new"))
    for client in (kept, halfway):
        client.send(request("/quick?late"))
    wait_out()
    held.let_through("call")
    assert first.read_response().text == "call"
    for client in (kept, halfway, new):
        assert refused(client.read_response())
        assert client.request(target="/quick?served").text == "served"
    assert held.begun() == ["kept", "kept", "call", *["served"] * 3]


def test_a_body_that_has_waited_too_long_for_a_thread_is_refused(admitting):
    held = admitting()
    upload = held.server.connect()
    upload.send(b"POST /quick?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na")
    assert held.send("served").finish() == "served"
    calls = occupy(held, 1)
    upload.send(b"bc")
    wait_out()
    release(held, calls)
    answer = upload.read_response()
    assert refused(answer)
    assert upload.request(target="/quick?next").text == "next"
    assert held.begun() == ["served", "call0", "next"]


def test_the_wait_for_a_permit_of_a_bulkhead_is_not_overload(admitting):
    held = admitting("threads = 2\nbulkhead = name=limited,route=^/held/limited,max=1\n")
    first = held.hold("limited")
    upload = held.server.connect()
    upload.send(b"POST /held/limited?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na")
    wait_until(lambda: waiting_at_bulkhead(held) == 1, "the upload waits")
    calls = occupy(held, 1)
    upload.send(b"bc")
    wait_out()
    held.let_through("limited")
    assert first.finish() == "limited"
    held.wait_for("begin", "upload")
    held.let_through("limited")
    assert upload.read_response().text == "upload"
    release(held, calls)


def test_no_more_wait_than_can_begin_within_the_patience(hold):
    """The capacity is known from the calls before, so the others do not have to wait until they are late."""
    # None is late before all are sent, also on a busy machine: the log contains the cause of the first refusal only.
    held = hold("admission = auto\nadmission-patience = 8\nmaster = true\nlisten = 400\n")
    kept = held.connect()
    # At most 40 of them begin in eight seconds, however slow the machine is.
    for number in range(20):
        assert kept.request(target=f"/slow/200?{number}").status == 200
    calls = occupy(held, 1)
    waiting = [held.send(f"waiting{number}") for number in range(80)]
    # The oldest are refused first.
    assert [sent.answer().status for sent in waiting[:35]] == [503] * 35
    assert is_held(held, *calls)
    held.server.wait_for_log(r"admission: a request was refused with 503, because \d+ wait and \d+ can begin within")
    release(held, calls)


def test_a_pause_is_not_counted_as_a_wait(admitting, call):
    held = admitting()
    kept = held.connect()
    assert call("pause", held.server.process.pid)[0] == 0
    waiting = held.send("waiting")
    kept.send(request("/quick?behind"))
    wait_out()
    assert call("resume", held.server.process.pid)[0] == 0
    assert waiting.finish() == "waiting"
    assert kept.read_response().text == "behind"


def test_a_new_worker_serves_while_the_old_one_is_busy(admitting):
    held = admitting()
    calls = occupy(held, 1)
    late = held.server.connect()
    late.send(request("/quick?late"))
    assert refused(late.read_response())
    held.server.send_signal(signal.SIGHUP)
    wait_until(lambda: held.send("new").answer().status == 200, "the new worker")
    assert is_held(held, *calls)
    assert [held.send(f"new{number}").finish() for number in range(3)] == ["new0", "new1", "new2"]
    release(held, calls)


def test_during_an_upgrade_the_new_worker_serves_while_the_old_one_is_busy(admitting, tmp_path):
    held = admitting(f"pidfile = {pidfile(tmp_path)}\nvacuum = true\n")
    try:
        kept, busy = held.connect(), held.connect()
        busy.send(request(f"/held/{held.gate('call')}?call"))
        held.wait_for("begin", "call")
        late = held.server.connect()
        late.send(request("/quick?late"))
        assert refused(late.read_response())
        upgrade(tmp_path)
        assert [held.send(f"new{number}").finish() for number in range(3)] == ["new0", "new1", "new2"]
        assert kept.request(target="/quick?moved").text == "moved", "its connection moves to the new worker"
        assert is_held(held, "call"), "the answers came during the call"
        held.let_through("call")
        assert busy.read_response().text == "call"
        assert held.begun() == ["kept", "kept", "call", "new0", "new1", "new2", "moved"]
    finally:
        held.open_gates()
        stop_upgraded(tmp_path)


def test_a_request_is_not_late_if_a_thread_was_free_when_it_came(admitting):
    """SIGSTOP stands for a busy machine that does not run the worker for longer than the patience."""
    held = admitting("threads = 2")
    kept = held.connect()
    calls = occupy(held, 1)
    wait_out()
    worker = held.server.worker()
    os.kill(worker, signal.SIGSTOP)
    wait_until(lambda: is_stopped(worker), "all threads are stopped")
    kept.send(request("/quick?served"))
    wait_out()
    os.kill(worker, signal.SIGCONT)
    assert kept.read_response().text == "served"
    release(held, calls)


def test_threads_are_added_before_anything_is_refused(admitting):
    """``threads = auto`` has up to 64 threads, so a 65th request waits."""
    held = admitting("threads = auto")
    kept = held.connect()
    calls = occupy(held, 64)
    assert len({seen["thread"] for seen in held.events() if seen["name"] in calls}) == 64
    assert refused(kept.request(target="/quick?late"))
    assert is_held(held, *calls), "the answer came during the calls"
    release(held, calls)
    assert kept.request(target="/quick?served").text == "served"
    assert "late" not in held.begun()


def test_refusals_do_not_delay_the_end_of_a_stuck_worker_and_the_next_one_serves(admitting):
    # Time enough for a refusal before the end, also on a busy machine.
    held = admitting("harakiri = 5")
    held.server.expects_alarms = True
    kept = held.connect()
    stuck = held.hold("stuck")
    refusals = 0
    # The last one of them waits for the next worker.
    while (answer := kept.request(target="/quick?late")).status == 503:
        assert refused(answer)
        refusals += 1
    assert refusals > 0
    assert answer.text == "late"
    with pytest.raises(Closed):
        stuck.answer()
    held.server.wait_for_log(r"^bolide: harakiri: killing worker 1 \(pid \d+\) while it serves GET /held/stuck")
    assert held.send("served").finish() == "served"
    assert held.begun() == ["kept", "stuck", "late", "served"]


def test_refusals_are_counted_and_logged_once_a_minute_and_not_as_requests(hold, call):
    held = hold(AUTO + "metrics = 127.0.0.1:0\nlog-slow = 0\n")
    address = metrics_address(held.server)
    kept = held.connect()
    calls = occupy(held, 1)
    for number in range(5):
        assert refused(kept.request(target=f"/quick?late{number}"))
    assert value_of(address, "bolide_admission_rejected_total") == 5
    assert value_of(address, "bolide_requests_total", status="5xx") == 0
    held.server.wait_for_log(r"admission: a request was refused with 503 after [\d.]+ m?s without a free thread")
    assert held.server.log_until_now().count("admission: a request was refused") == 1
    assert "/quick?late" not in held.server.log_until_now()
    status, said = call("status", held.server.process.pid)
    assert status == 0
    assert "admission: 5 refused" in said
    release(held, calls)


@pytest.mark.parametrize("patched", [True, False], ids=["patched", "blocking"])
def test_greenlets_do_not_begin_what_has_waited_too_long(admitting, patched):
    held = admitting("gevent = 1\n" + ("gevent-monkey-patch = true\n" if patched else ""))
    kept = [held.connect() for _ in range(3)]
    calls = occupy(held, 1)
    for number, client in enumerate(kept):
        client.send(request(f"/quick?late{number}"))
    new = held.send("new")
    wait_out()
    release(held, calls)
    for client in kept:
        assert refused(client.read_response())
    assert refused(new.answer())
    assert held.send("served").finish() == "served"
    assert held.begun() == ["kept"] * 3 + ["call0", "served"]


def test_asgi_applications_get_every_request_and_check_says_so(hold, call, tmp_path):
    held = hold(AUTO, application="asgi")
    calls = occupy(held, 1)
    waiting = held.send("waiting")
    wait_out()
    release(held, calls)
    assert waiting.finish() == "waiting"
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nasgi = app:app\nadmission = auto\n")
    status, said = call("check", "uwsgi.ini")
    assert status == 0
    assert "`admission = auto` has no effect for ASGI applications" in said
    assert "limit-concurrency" in said


def test_check_finds_a_patience_without_admission_and_sockets_that_are_refused_late(call, tmp_path):
    (tmp_path / "app.py").write_text("def application(environ, start_response): ...\n")
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nwsgi-file = app.py\nadmission-patience = 1\n")
    status, said = call("check", "uwsgi.ini")
    assert status == 0
    assert "`admission-patience` has no effect without `admission = auto`" in said
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nuwsgi-socket = 127.0.0.1:0\nwsgi-file = app.py\nadmission = auto\n")
    status, said = call("check", "uwsgi.ini")
    assert status == 0
    assert "are not refused early" in said
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp-socket = app.sock\nwsgi-file = app.py\nadmission = auto\n")
    status, said = call("check", "uwsgi.ini")
    assert status == 0
    assert "only if the reverse proxy sends X-Request-Start" in said


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("admission", "on", "`admission = on` is unknown"),
        ("admission", "automatic", "is unknown"),
        ("admission-patience", "0", "is out of range"),
        ("admission-patience", "0.049", "is out of range"),
        ("admission-patience", "601", "is out of range"),
        ("admission-patience", "-1", "is out of range"),
    ],
)
def test_other_values_are_refused(refuse, option, value, words):
    refuse(option, value, words)
