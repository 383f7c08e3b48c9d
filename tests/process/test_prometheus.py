"""The real Prometheus scrapes the real program, and the queries of the Grafana dashboard run in it."""

import contextlib
import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from support.metrics import metrics_address
from support.ports import reserve
from support.server import program
from support.tls import Authority
from support.waiting import TIMEOUT_SECONDS, wait_until


@pytest.fixture
def prometheus(tmp_path):
    """Starts Prometheus on a port of its own. It scrapes these addresses each second."""
    with contextlib.ExitStack() as stack:

        def prometheus(name, addresses, *arguments):
            directory = tmp_path / name
            directory.mkdir()
            targets = [f"{host}:{port}" for host, port in addresses]
            jobs = [{"job_name": "shop", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}]
            (directory / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
            port = stack.enter_context(reserve()).getsockname()[1]
            command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", *arguments]
            command.append(f"--web.listen-address=127.0.0.1:{port}")
            log = stack.enter_context((directory / "log").open("wb"))
            process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
            stack.callback(stop, process)
            return f"http://127.0.0.1:{port}"

        yield prometheus


def stop(process):
    process.send_signal(signal.SIGKILL)
    process.wait(TIMEOUT_SECONDS)


def query(url, text):
    """Returns the values of the series that a query gives; none while Prometheus starts."""
    with contextlib.suppress(ConnectionError, urllib.error.URLError):
        asked = f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_SECONDS) as answer:
            return [float(series["value"][1]) for series in json.load(answer)["data"]["result"]]
    return []


def queries_of_the_dashboard():
    printed = subprocess.run([*program(), "grafana"], stdout=subprocess.PIPE, check=True).stdout
    for panel in json.loads(printed)["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


def test_each_query_of_the_dashboard_finds_data(start, prometheus, tmp_path):
    served = Authority(tmp_path / "authority").server()
    tls = ("--https", f"127.0.0.1:0,{served.chain},{served.key}")
    caching = ("--cache2", "name=pages,items=10", "--route", "^/cached cache:key=x,name=pages")
    instance = start("--metrics", "127.0.0.1:0", "--threads", "2", "--route-group", "naps /sleep/", *caching, *tls)
    (tmp_path / "loop.py").write_text("async def application(scope, receive, send): raise NotImplementedError\n")
    loop = start("--metrics", "127.0.0.1:0", "--asgi", "loop:application", module=None, alarms=True)
    addresses = [metrics_address(instance), metrics_address(loop)]
    plain = prometheus("plain", addresses)
    native = prometheus("native", addresses, "--enable-feature=native-histograms")
    asked = dict.fromkeys(queries_of_the_dashboard())
    assert len(asked) >= 20
    quantile = "histogram_quantile(0.5, sum(rate(bolide_request_duration_seconds[1m])))"

    def median_of_all():
        for target in ("/pid", "/cached", "/sleep/0.05", "/sleep/0.05", "/sleep/0.05"):
            instance.get(target)
        # NaN, for which nothing was counted yet, is not data.
        urls = (plain, native)
        missing = [name for name in asked for url in urls if not any(value == value for value in query(url, name[1]))]
        if missing:
            return None
        # Most requests take 50 ms, but a rate also covers only what came between two scrapes, which may be the others of a turn.
        (median,) = query(native, quantile)
        return median if median > 0.001 else None

    median = wait_until(median_of_all, "data for each query of both", seconds=4 * TIMEOUT_SECONDS)
    # A bucket of the native histogram is 9 % wide.
    assert 0.045 < median < 0.5
    # The histogram of a group is coarse: its buckets are 41 % wide.
    (nap,) = query(native, "histogram_quantile(0.5, sum(rate(bolide_route_duration_seconds{route='naps'}[1m])))")
    (text,) = query(plain, "histogram_quantile(0.5, sum by (le) (rate(bolide_route_duration_seconds_bucket{route='naps'}[1m])))")
    assert nap > 0.044
    assert 0.5 < nap / text < 2
    assert query(plain, "bolide_request_duration_seconds_bucket{le='+Inf'}")
    assert query(native, "bolide_request_duration_seconds_bucket") == []
