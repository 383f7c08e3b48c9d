"""``/metrics`` and the paths of health, at the addresses of ``metrics`` and of ``stats`` with ``stats-http``."""

import concurrent.futures
import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from support.metrics import fetch, metrics_address, samples, value_of
from support.statistics import connect
from support.waiting import wait_until


@pytest.fixture
def serve(start):
    """Starts an instance with metrics. Returns it, and their address."""

    def serve(*arguments, **options):
        instance = start("--metrics", "127.0.0.1:0", *arguments, **options)
        return instance, metrics_address(instance)

    return serve


def test_requests_are_counted_by_class_and_their_durations_in_a_histogram(serve):
    instance, address = serve("--static-map", "/gone=/nowhere", alarms=True)
    for target in ("/pid", "/pid", "/no-such-function"):
        instance.get(target)
    wait_until(lambda: value_of(address, "bolide_requests_total", status="5xx") == 1, "three requests")
    told = samples(address)
    assert told["bolide_requests_total", ("status", "2xx")] == 2
    assert told["bolide_request_duration_seconds_count",] == 3
    assert told["bolide_request_duration_seconds_bucket", ("le", "+Inf")] == 3
    assert 0 < told["bolide_request_duration_seconds_sum",] < 60
    bounds = [value for name, value in told.items() if name[0] == "bolide_request_duration_seconds_bucket"]
    assert bounds == sorted(bounds)


def test_a_worker_that_is_replaced_leaves_its_numbers_to_the_instance(serve):
    instance, address = serve()
    for _ in range(3):
        instance.get("/pid")
    wait_until(lambda: value_of(address, "bolide_request_duration_seconds_count") == 3, "three requests")
    instance.reload(2)
    instance.get("/pid")
    wait_until(lambda: value_of(address, "bolide_request_duration_seconds_count") == 4, "the requests of both")
    assert value_of(address, "uwsgi_worker_requests_total", worker_id="1") == 4


def test_the_forms_of_the_text_are_clean_for_promtool(serve):
    instance, address = serve("--cache2", "name=pages,items=10", "--threads", "2", "--route-group", "pids /pid")
    instance.get("/pid")
    for accept, content_type in (
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ):
        answer = fetch(address, "/metrics", accept=accept)
        assert (answer.status, answer.fields["content-type"]) == (200, content_type)
        assert answer.body.endswith("# EOF\n") == ("openmetrics" in accept)
    told = fetch(address, "/metrics").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=told, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_stats_over_http_answer_metrics_and_every_other_path_with_the_page_of_uwsgi(start):
    instance = start("--stats", "127.0.0.1:0", "--stats-http")
    found = instance.wait_for_log(r"^bolide: statistics at (\S+):(\d+), over HTTP$")
    address = (found[1], int(found[2]))
    assert "bolide_requests_total" in fetch(address, "/metrics").body
    assert fetch(address, "/-/ready").status == 200
    for path in ("/", "/anything", "/metrics/x"):
        answer = fetch(address, path)
        assert (answer.status, answer.fields["access-control-allow-origin"]) == (200, "*")
        assert json.loads(answer.body)["workers"]


def test_an_instance_is_ready_until_it_is_told_to_stop(serve, tmp_path):
    instance, address = serve("--reload-mercy", "30", "--threads", "2")
    assert (fetch(address, "/-/healthy").body, fetch(address, "/-/ready").body) == ("healthy\n", "ready\n")
    gate = tmp_path / "gate"
    with instance.connect() as client:
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_until(lambda: status_of(address)["workers"][0]["in_flight"], "the request")
        status = status_of(address)
        assert (status["ready"], status["phase"]) == (True, "serving")
        # Nothing of the request is told but its age.
        assert list(status["workers"][0]["in_flight"][0]) == ["milliseconds"]
        instance.send_signal(signal.SIGTERM)
        answer = wait_until(lambda: (found := fetch(address, "/-/ready")).status == 503 and found, "not ready")
        assert answer.body == "not ready: it is being stopped\n"
        assert fetch(address, "/-/healthy").status == 200
        gate.touch()
        client.read_response()
    instance.wait_for_exit()


def status_of(address):
    return json.loads(fetch(address, "/-/status").body)


def test_an_instance_stays_ready_while_it_reloads_and_is_not_ready_in_a_pause(serve, call):
    instance, address = serve()
    instance.reload(2)
    assert fetch(address, "/-/ready").status == 200
    assert call("pause", instance.pid)[0] == 0
    assert fetch(address, "/-/ready").body == "not ready: it is paused\n"
    assert call("resume", instance.pid)[0] == 0
    wait_until(lambda: fetch(address, "/-/ready").status == 200, "ready again")


def test_a_page_of_another_site_gets_nothing_by_a_name_that_it_lets_point_here(start):
    instance = start("--metrics", "127.0.0.1:0", "--metrics-host", "shop.internal")
    address = metrics_address(instance)
    for host in ("localhost:9", "127.0.0.1", "[::1]:9", "shop.internal", "192.0.2.7:80"):
        assert fetch(address, "/", host=host).status == 200, host
    for host in ("evil.example", "shop.internal.evil.example"):
        answer = fetch(address, "/", host=host)
        assert answer.status == 403
        assert f"metrics-host = {host}" in answer.body
        for path in ("/metrics", "/-/status"):
            assert fetch(address, path, host=host, user_agent="Mozilla/5.0").status == 403
            # What `fetch()` of a page may send: a script chooses its User-Agent.
            assert fetch(address, path, host=host, user_agent="x").status == 403
            # Prometheus finds the instance by a name of its network.
            assert fetch(address, path, host=host, user_agent="Prometheus/2.53.0").status == 200
        for path in ("/-/healthy", "/-/ready"):
            assert fetch(address, path, host=host, user_agent="kube-probe/1.30").status == 200
            assert fetch(address, path, host=host, user_agent="Mozilla/5.0").status == 403


#: Requests of scripts of a page at http://evil.example, as Firefox 153 sends them: with a User-Agent of the script's, without a
#: Referer, and with an Accept-Language that the script has set to an empty text.
SCRIPTS = [
    "User-Agent: x\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.9\r\nAccept-Encoding: gzip, deflate\r\n"
    "Referer: http://evil.example:9192/\r\nConnection: keep-alive\r\nPriority: u=4\r\n",
    "User-Agent: Prometheus/2.53.0\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.9\r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nPriority: u=4\r\n",
    "User-Agent: Prometheus/2.53.0\r\nAccept: */*\r\nAccept-Language: \r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nPragma: no-cache\r\nCache-Control: no-cache\r\n",
]


@pytest.mark.parametrize("fields", SCRIPTS)
@pytest.mark.parametrize("path", ["/metrics", "/-/status", "/", "/-/events"])
def test_no_script_of_a_rebound_page_reads_the_numbers(path, fields, start):
    address = metrics_address(start("--metrics", "127.0.0.1:0"))
    with connect(address) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: evil.example:9192\r\n{fields}\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_junk_is_answered_or_closed_and_never_served(serve):
    _, address = serve()
    for junk, status in ((b"\n\n", "400"), (b"GET / SMTP\r\n\r\n", "400"), (b"GET /x HTTP/1.1\r\n\r\n", "404")):
        with connect(address) as client:
            client.sendall(junk)
            assert re.match(rb"HTTP/1\.1 " + status.encode(), client.recv(4096))


def test_a_thousand_bad_clients_hold_up_neither_scrapers_nor_new_workers_nor_reloads(serve):
    instance, address = serve(alarms=True)
    asks_and_never_reads = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20
    kinds = (b"", b"GET /met", b"\x16\x03\x01" * 50, asks_and_never_reads, b"x" * 8000)
    with contextlib.ExitStack() as held:
        bad = [held.enter_context(connect(address)) for _ in range(400)]
        for client, junk in zip(bad, itertools.cycle(kinds), strict=False):
            # Those that the server has let go are errors.
            with contextlib.suppress(OSError):
                client.sendall(junk)
        before = instance.worker()
        os.kill(before, signal.SIGKILL)
        for junk in itertools.islice(itertools.cycle(kinds), 600):
            with contextlib.suppress(OSError), connect(address) as client:
                client.sendall(junk)
        wait_until(lambda: instance.workers() not in ([], [before]), "another worker")
        instance.reload(2)
        assert fetch(address, "/-/ready").status == 200
        wait_until(lambda: value_of(address, "bolide_worker_ends_total", cause="signal") == 1, "the end of the worker")
    descriptors = pathlib.Path(f"/proc/{instance.pid}/fd")
    wait_until(lambda: len(list(descriptors.iterdir())) < 60, "the master to have let them go")


def test_quantiles_are_those_of_the_request_lines(start):
    instance = start("--metrics", "127.0.0.1:0", "--threads", "4", "--log-format", "took %(micros) us", logging=True)
    address = metrics_address(instance)
    milliseconds = [1, 2, 3, 4, 5, 8, 10, 15, 20, 40] * 6

    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda wait: instance.get(f"/sleep/{wait / 1000}"), milliseconds))
    count = len(milliseconds)
    wait_until(lambda: value_of(address, "bolide_request_duration_seconds_count") == count, "all requests")
    instance.wait_for_log(r"took \d+ us", count=count)
    taken = sorted(int(found) for found in re.findall(r"took (\d+) us", instance.log))
    assert value_of(address, "bolide_request_duration_seconds_sum") == pytest.approx(sum(taken) / 1e6, rel=1e-6)
    told = status_of(address)["latency_seconds"]
    for share in (50, 90, 99):
        rank = share * count / 100
        # The quantile is between two requests.
        least, most = taken[math.floor(rank) - 1] / 1e6, taken[min(math.ceil(rank), count - 1)] / 1e6
        assert least * 0.95 <= told[f"p{share}"] <= most * 1.05, (share, taken)


def test_groups_of_routes_have_their_requests_and_their_time(serve):
    groups = ("--route-group", "naps /sle*/0.0*", "--route-group", "pids /pid", "--route-group", "pids /headers")
    instance, address = serve(*groups, alarms=True)
    for target in ("/sleep/0.01", "/pid?/sleep/0.01", "/pid", "/no-such-function"):
        instance.get(target)
    wait_until(lambda: value_of(address, "bolide_route_requests_total", route="other", status="5xx") == 1, "all requests")
    told = samples(address)
    counts = {key[1:]: value for key, value in told.items() if key[0] == "bolide_route_requests_total" and value}
    assert counts == {
        (("route", "naps"), ("status", "2xx")): 1,
        (("route", "pids"), ("status", "2xx")): 2,
        (("route", "other"), ("status", "5xx")): 1,
    }
    times = [told["bolide_route_seconds_total", ("route", route)] for route in ("naps", "pids", "other")]
    assert times[0] >= 0.01
    durations = [told["bolide_route_duration_seconds_sum", ("route", route)] for route in ("naps", "pids", "other")]
    assert durations == times
    assert told["bolide_route_duration_seconds_bucket", ("le", "+Inf"), ("route", "pids")] == 2
    assert told["bolide_route_duration_seconds_bucket", ("le", "0.0078125"), ("route", "naps")] == 0
    assert told["bolide_route_duration_seconds_count", ("route", "naps")] == 1
    assert sum(times) == pytest.approx(told["bolide_request_duration_seconds_sum",])


def test_the_time_before_a_request_was_here_is_counted_if_its_reverse_proxy_tells_it(start):
    instance = start("--metrics", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1")
    address = metrics_address(instance)
    assert value_of(address, "bolide_request_waiting_seconds_count") is None
    # In whole seconds: no field rounds it up.
    began = int(time.time()) - 100
    for start_of in (f"t={began:.3f}", f"{began * 1000:.0f}", "nonsense"):
        instance.get("/pid", headers=[("X-Request-Start", start_of)])
    wait_until(lambda: value_of(address, "bolide_request_waiting_seconds_count") == 2, "two times")
    assert 200 <= value_of(address, "bolide_request_waiting_seconds_sum") < 1000


def test_waits_for_the_gil_and_collections_of_garbage_are_measured_where_a_scraper_comes(start, tmp_path):
    (tmp_path / "collecting.py").write_text(
        "import gc\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/collect': gc.collect()\n"
        "    start_response('200 OK', [('Content-Length', '2')])\n"
        "    return [str(len(gc.callbacks)).rjust(2).encode()]\n"
    )
    instance = start("--metrics", "127.0.0.1:0", "--threads", "2", module="collecting")
    address = metrics_address(instance)
    before = value_of(address, "bolide_gc_collections_total", generation="2")
    for _ in range(3):
        assert instance.body("/collect") == " 1"
    told = wait_until(
        lambda: ((found := samples(address))["bolide_gc_collections_total", ("generation", "2")] >= before + 3 and found),
        "three collections",
    )
    counts = [value for key, value in told.items() if key[0] == "bolide_gc_collections_total"]
    assert told["bolide_gc_pause_seconds_count",] == sum(counts)
    # A thread waits for it after it has slept.
    wait_until(
        lambda: instance.body() and value_of(address, "bolide_gil_wait_seconds_count"), "a wait for the GIL", look_seconds=0.1
    )
    # Nothing is measured for an instance without metrics.
    assert start(module="collecting").body("/") == " 0"
