"""Spans of requests by OTLP: what they say, and that no request waits for the collector."""

import os
import re
import signal
import ssl
import time

import pytest
from support import uwsgi
from support.http2 import Http2
from support.metrics import fetch, metrics_address, samples
from support.tls import Authority
from support.waiting import wait_until
from support_collector import Collector, told
from support_processes import children_of, command_line_of, is_alive, status_field
from support_upgrade import upgrade
from support_users import NOBODY, python_for_everybody

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

WSGI = """
class Closed(Exception):
    pass

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/boom":
        raise Closed("s3cret")
    environ["wsgi.input"].read()
    start_response("503 Busy" if path == "/busy" else "200 OK", [("Content-Type", "text/plain")])
    return [environ["HTTP_TRACEPARENT"].encode()]
"""

ASGI = """
class Closed(Exception):
    pass

async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/boom":
        raise Closed("s3cret")
    while (await receive()).get("more_body"):
        pass
    told = dict(scope["headers"])[b"traceparent"]
    await send({"type": "http.response.start", "status": 503 if scope["path"] == "/busy" else 200, "headers": []})
    await send({"type": "http.response.body", "body": told})
"""

INTERFACES = {
    "wsgi": (WSGI, ()),
    "threads": (WSGI, ("--threads", "2")),
    "asgi": (ASGI, ("--interface", "asgi3")),
    "gevent": (WSGI, ("--gevent", "10")),
}


@pytest.fixture
def spanned(start, tmp_path):
    """``spanned(collector)`` starts an instance whose spans go there."""

    def spanned(collector, *arguments, text=WSGI, **options):
        (tmp_path / "shop.py").write_text(text)
        url = getattr(collector, "url", collector)
        return start("--otlp", url, "--pythonpath", tmp_path, *arguments, module="shop", **options)

    return spanned


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_request_is_a_span_with_its_place_its_attributes_and_its_phases(interface, spanned):
    text, options = INTERFACES[interface]
    if interface == "gevent":
        pytest.importorskip("gevent")
    group = ("--route-group", "orders /orders/")
    with Collector() as collector:
        instance = spanned(collector, *group, "--otlp-header", "X-Token: s3cret", *options, text=text, alarms=True)
        headers = [
            ("traceparent", f"00-{TRACE}-{PARENT}-01"),
            ("tracestate", "vendor=1"),
            ("User-Agent", "test/1"),
            ("X-Forwarded-For", "192.0.2.7"),
        ]
        with instance.connect() as client:
            answer = client.request("POST", "/orders/7?token=s3cret&s3cret&page=", headers, body=b"body")
            began = client.request("GET", "/busy")
            client.request("GET", "/boom")
        asked, busy, boom = sorted(collector.wait_for(3), key=lambda span: span.start_time_unix_nano)
        assert (asked.trace_id.hex(), asked.parent_span_id.hex(), asked.trace_state) == (TRACE, PARENT, "vendor=1")
        # The application's parent is the span itself.
        assert answer.text == f"00-{TRACE}-{asked.span_id.hex()}-01" == answer.get("traceresponse")
        assert (began.text, busy.parent_span_id) == (f"00-{busy.trace_id.hex()}-{busy.span_id.hex()}-01", b"")
        assert (asked.name, asked.kind) == ("POST orders", 2)
        assert told(asked) == {
            "http.request.method": "POST",
            "url.scheme": "http",
            "url.path": "/orders/7",
            "url.query": "token=…&…&page=",
            "http.route": "orders",
            "http.response.status_code": 200,
            "http.response.body.size": 55,
            "server.address": "localhost",
            "network.protocol.version": "1.1",
            "client.address": "192.0.2.7",
            "user_agent.original": "test/1",
            "failed": False,
        }
        assert (told(busy)["failed"], told(busy)["error.type"], told(busy)["http.response.status_code"]) == (True, "503", 503)
        assert (told(boom)["failed"], told(boom)["http.response.status_code"], boom.name) == (True, 500, "GET")
        assert told(boom)["error.type"] == "shop.Closed"
        events = [event.name for event in asked.events]
        assert sorted(events) == ["application", "body", "head", "returned", "write"]
        assert events[0] == "head"
        assert events.index("application") < events.index("write")
        times = [asked.start_time_unix_nano, *(event.time_unix_nano for event in asked.events), asked.end_time_unix_nano]
        assert times == sorted(times)
        assert (collector.resource["service.name"], collector.paths[0]) == ("shop", "/v1/traces")
        assert collector.headers[0]["X-Token"] == "s3cret"
        assert b"s3cret" not in b"".join(span.SerializeToString() for span in collector.spans)


KILLED = """
import os, signal, time

def application(environ, start_response):
    with open("parent", "w") as file:
        file.write(environ["HTTP_TRACEPARENT"])
    path = environ["PATH_INFO"]
    if path == "/exit":
        os._exit(3)
    if path == "/fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(100)
"""
#: The application awaits, so that its worker has two requests in flight.
KILLED_ASYNC = """
import asyncio, os, signal
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/kills":
        os.kill(os.getpid(), signal.SIGKILL)
    open("waiting", "w").close()
    await asyncio.sleep(100)
"""


@pytest.mark.parametrize(("path", "kind"), [("/stuck", "harakiri"), ("/exit", "exit"), ("/fault", "SIGSEGV")])
def test_a_request_whose_worker_dies_is_a_failed_span_that_says_why(path, kind, spanned, tmp_path):
    with Collector() as collector:
        instance = spanned(collector, "--harakiri", "5", "--chdir", tmp_path, text=KILLED, alarms=True)
        before = time.time_ns()
        with instance.connect() as client:
            client.send(f"GET {path}?token=s3cret HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n".encode())
            (span,) = collector.wait_for(1)
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        # The application's spans are its children.
        assert (tmp_path / "parent").read_text() == f"00-{TRACE}-{span.span_id.hex()}-01"
        assert told(span) == {
            "http.request.method": "GET",
            "url.path": path,
            "url.query": "token=…",
            "error.type": kind,
            "failed": True,
        }
        assert before - 10_000_000 <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()
        if kind == "harakiri":
            assert span.end_time_unix_nano - span.start_time_unix_nano >= 4_900_000_000


def test_each_request_in_flight_of_an_asynchronous_worker_that_dies_is_a_span(spanned, tmp_path):
    with Collector() as collector:
        options = ("--interface", "asgi3", "--processes", "1", "--chdir", tmp_path)
        instance = spanned(collector, *options, text=KILLED_ASYNC, alarms=True)
        with instance.connect() as waits, instance.connect() as kills:
            waits.send(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until((tmp_path / "waiting").exists, "the request in flight")
            kills.send(b"GET /kills HTTP/1.1\r\nHost: x\r\n\r\n")
            spans = collector.wait_for(2)
        assert {(told(span)["url.path"], told(span)["error.type"]) for span in spans} == {
            ("/waits", "SIGKILL"),
            ("/kills", "SIGKILL"),
        }
        assert len({span.trace_id for span in spans}) == 2


def test_a_share_of_new_traces_is_sampled_and_the_flag_of_a_parent_decides_otherwise(spanned):
    with Collector() as collector:
        instance = spanned(collector, "--otlp-sample", "0", "--otlp-service", "store")
        assert instance.get().text.endswith("-00")
        for flag in ("00", "01"):
            answer = instance.get(headers=[("traceparent", f"00-{TRACE}-{PARENT}-{flag}")])
            assert re.fullmatch(rf"00-{TRACE}-(?!{PARENT}).{{16}}-{flag}", answer.text)
        # At the end the collector has little time.
        collector.wait_for(1)
        assert instance.stop() == 0
        (span,) = collector.spans
        assert (span.trace_id.hex(), collector.resource["service.name"]) == (TRACE, "store")


def test_time_at_the_reverse_proxy_is_the_first_event(spanned):
    with Collector() as collector:
        instance = spanned(collector)
        instance.get(headers=[("X-Request-Start", f"t={time.time() - 1:.3f}")])
        collector.wait_for(1)
        assert instance.stop() == 0
        (span,) = collector.spans
        queue, head = span.events[:2]
        assert (queue.name, head.name, queue.time_unix_nano) == ("queue", "head", span.start_time_unix_nano)
        assert head.time_unix_nano - queue.time_unix_nano >= 999_000_000


def exporter_of(instance):
    """Returns the pid of the process that sends spans."""
    found = wait_until(
        lambda: [pid for pid in children_of(instance.pid) if command_line_of(pid).startswith("bolide: exporter")], "an exporter"
    )
    return found[0]


def counted(address):
    """Returns what has become of spans: exported, failed, dropped."""
    told = samples(address)
    return tuple(int(told["bolide_spans_total", ("result", result)]) for result in ("exported", "failed", "dropped"))


def test_what_becomes_of_spans_is_counted_and_shown(spanned, call):
    # A token that is wrong at first, then a collector that is busy, which asks for another attempt.
    with Collector(answers=[401, 503, 200]) as collector:
        instance = spanned(collector, "--metrics", "127.0.0.1:0", alarms=True)
        metrics = metrics_address(instance)
        assert counted(metrics) == (0, 0, 0)
        instance.get("/?n=1")
        wait_until(lambda: counted(metrics) == (0, 1, 0), "the failed span in the metrics")
        instance.wait_for_log(r"^bolide: otlp \(.*\): the collector does not accept spans: status 401; 1 span has failed$")
        instance.get("/?n=2")
        wait_until(lambda: counted(metrics) == (1, 1, 0), "the span in the metrics")
        assert len(collector.requests) == 3
        assert collector.requests[1] == collector.requests[2]
        said = call("status", instance.pid)[1]
        assert re.search(rf"^exporter \(pid {exporter_of(instance)}\): serving", said, re.M), said
        assert re.search(r"^spans: 1 exported, 1 failed, 0 dropped$", said, re.M), said
        assert re.search(r"^exporter \(pid \d+\): serving", call("top", "--once", instance.pid)[1], re.M)
        # One line a minute.
        assert instance.log.count("does not accept spans") == 1


def test_a_collector_that_hangs_delays_no_request_and_its_spans_are_told_at_the_end(spanned):
    with Collector(answers=[None] * 9) as collector:
        instance = spanned(collector, alarms=True)
        instance.get()
        wait_until(lambda: collector.requests, "the first batch")
        assert all(instance.get().status == 200 for _ in range(20))
        assert instance.stop() == 0
        instance.wait_for_log(r"^bolide: otlp \(.*\): 21 spans are lost, because the collector did not accept them in time$")


def test_spans_beyond_what_can_wait_are_dropped_and_counted_and_requests_go_on(spanned):
    with Collector() as collector:
        instance = spanned(collector, "--metrics", "127.0.0.1:0", alarms=True)
        metrics, exporter, asked = metrics_address(instance), exporter_of(instance), 3000
        os.kill(exporter, signal.SIGSTOP)
        try:
            with instance.connect() as client:
                client.send(f"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {'x' * 500}\r\n\r\n".encode() * asked)
                assert all(client.read_response().status == 200 for _ in range(asked))
        finally:
            os.kill(exporter, signal.SIGCONT)
        # The next span that is taken tells of those before it that were not.
        wait_until(lambda: counted(metrics)[0] > 0, "spans in the metrics")
        instance.get()
        wait_until(lambda: sum(counted(metrics)) == asked + 1, "all spans in the metrics")
        exported, failed, dropped = counted(metrics)
        assert (exported, failed) == (len(collector.spans), 0)
        assert dropped > 0
        came_faster = "because they came faster than the collector accepts them;"
        instance.wait_for_log(rf"^bolide: otlp \(.*\): \d+ spans were dropped, {came_faster}")


def test_no_collector_is_told_once_and_requests_are_served(spanned, free_port):
    instance = spanned(f"http://127.0.0.1:{free_port()}", alarms=True)
    instance.get()
    instance.wait_for_log(r"^bolide: otlp \(.*\): the collector does not accept spans: Connection refused .*; trying again$")
    assert instance.get().status == 200
    assert instance.stop() == 0


def test_a_reload_loses_no_span_and_a_stop_sends_what_is_there(spanned):
    with Collector() as collector:
        instance = spanned(collector, "--processes", "2")
        exporter = exporter_of(instance)
        for generation in (2, 3):
            instance.get()
            instance.reload(generation)
        instance.get()
        assert exporter_of(instance) == exporter
        assert instance.stop() == 0
        assert len(collector.spans) == 3


def test_a_killed_exporter_is_replaced_and_no_request_notices(spanned):
    with Collector() as collector:
        instance = spanned(collector, alarms=True)
        exporter = exporter_of(instance)
        instance.get()
        collector.wait_for(1)
        os.kill(exporter, signal.SIGKILL)
        # Its socket keeps the span until another exporter is there.
        instance.get()
        instance.wait_for_log(rf"^bolide: the exporter of spans \(pid {exporter}\) was killed by SIGKILL.*: starting another")
        collector.wait_for(2)
        assert exporter_of(instance) != exporter


def test_a_reload_with_another_collector_sends_what_is_there_to_the_old_one(spanned, tmp_path):
    configuration = tmp_path / "spans.ini"
    with Collector() as first, Collector() as second:
        configuration.write_text(f"[uwsgi]\notlp = {first.url}\n")
        instance = spanned("", "--ini", configuration)
        instance.get()
        configuration.write_text(f"[uwsgi]\notlp = {second.url}/own/path\n")
        instance.reload(2)
        instance.get()
        assert instance.stop() == 0
        assert (len(first.spans), len(second.spans), second.paths) == (1, 1, ["/own/path"])


def test_a_collector_with_https_must_have_a_certificate_that_is_trusted(spanned, tmp_path):
    authority = Authority(tmp_path / "authority")
    server = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.chain, server.key)
    with Collector(context=context) as collector:
        instance = spanned(collector, environment={"SSL_CERT_FILE": str(authority.certificate)})
        instance.get()
        collector.wait_for(1)
        assert instance.stop() == 0
        assert len(collector.spans) == 1
        other = Authority(tmp_path / "other", name="Other Root")
        instance = spanned(collector, environment={"SSL_CERT_FILE": str(other.certificate)}, alarms=True)
        instance.get()
        reason = "invalid peer certificate: UnknownIssuer"
        instance.wait_for_log(rf"^bolide: otlp \(.*\): the collector does not accept spans: {reason}")
        assert len(collector.spans) == 1


def test_listings_do_not_show_the_values_of_headers(call, tmp_path):
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nmodule = shop\notlp-header = Authorization: Bearer s3cret\n")
    shown = ("--show-config", "--no-server", "--ini", "uwsgi.ini")
    for command in (("config", "uwsgi.ini"), ("config", "--json", "uwsgi.ini"), shown):
        said = call(*command)[1]
        assert "Authorization: ***" in said
        assert "s3cret" not in said


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("otlp", "127.0.0.1:4318", "it has no scheme"),
        ("otlp", "http://me:s3cret@collector", "it has a user or a password"),
        ("otlp-sample", "2", "`otlp-sample = 2` is not a share"),
        ("otlp-header", "s3cret", "`otlp-header` has no colon"),
    ],
)
def test_values_that_make_no_sense_are_refused_without_their_secrets(option, value, words, refuse):
    refuse(option, value, words)


def test_without_the_option_there_is_no_process_for_spans(start):
    instance = start("--metrics", "127.0.0.1:0")
    assert instance.get().status == 200
    assert not [pid for pid in children_of(instance.pid) if "exporter" in command_line_of(pid)]
    assert "bolide_spans_total" not in fetch(metrics_address(instance), "/metrics").body


def test_requests_of_all_protocols_have_spans(spanned, tmp_path):
    with Collector() as collector:
        instance = spanned(collector, "--http2", "h2c", "--uwsgi-socket", tmp_path / "uwsgi.sock")
        with Http2(instance.connect()) as client:
            client.request("GET", "/h2?a=b", [("user-agent", "test/2")])
        uwsgi.ask(str(tmp_path / "uwsgi.sock"), target="/front", extra=[("HTTPS", "on"), ("HTTP_HOST", "shop.example:8443")])
        collector.wait_for(2)
        assert instance.stop() == 0
        spans = {told(span)["url.path"]: told(span) for span in collector.spans}
        assert spans["/h2"]["network.protocol.version"] == "2"
        assert (spans["/h2"]["url.query"], spans["/h2"]["user_agent.original"]) == ("a=…", "test/2")
        names = ("url.scheme", "server.address", "server.port", "client.address")
        assert tuple(spans["/front"][name] for name in names) == ("https", "shop.example", 8443, "192.0.2.7")


def test_an_upgrade_loses_no_span(upgradable, tmp_path):
    (tmp_path / "shop.py").write_text(WSGI)
    with Collector() as collector:
        instance = upgradable("--otlp", collector.url)
        before = exporter_of(instance)
        instance.get("/before")
        upgrade(tmp_path)
        wait_until(lambda: not is_alive(before), "the end of the old exporter")
        instance.get("/after")
        assert sorted(told(span)["url.path"] for span in collector.wait_for(2)) == ["/after", "/before"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_the_exporter_of_a_root_master_is_the_applications_user(start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("the Python of these tests is not for everybody")
    (open_directory / "shop.py").write_text(WSGI)
    with Collector() as collector:
        options = ("--chdir", open_directory, "--pythonpath", open_directory, "--uid", "nobody", "--otlp", collector.url)
        instance = start(*options, module="shop", command=[python, "-m", "bolide"])
        exporter = exporter_of(instance)
        # It has its name before it becomes that user.
        wait_until(lambda: status_field(exporter, "Uid").split() == [str(NOBODY.pw_uid)] * 4, "the application's user")
        instance.get()
        collector.wait_for(1)


def test_the_exporter_does_not_outlive_a_killed_master_and_sends_what_it_has(spanned):
    with Collector() as collector:
        instance = spanned(collector, alarms=True)
        instance.get()
        os.kill(instance.pid, signal.SIGKILL)
        instance.wait_until_gone()
        assert len(collector.spans) == 1
