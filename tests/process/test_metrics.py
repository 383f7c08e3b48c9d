"""`enable-metrics` and `metric`: named numbers of the server and of the application, over reloads and restarts."""

import os
import signal
import socket

import pytest
from support.expressions import Evaluation, evaluate, holder, value
from support.statistics import read_statistics
from support.waiting import wait_until

CONFIGURATION = """\
wsgi-file = {apps}/expressions.py
master = true
processes = 2
disable-logging = true
stats = {directory}/stats.sock
metric = orders
metric = name=open,type=gauge,initial_value=5
metric = name=same,type=alias,alias=orders
"""


def metrics_of(server):
    return read_statistics(str(server.directory / "stats.sock"))["metrics"]


def test_all_processes_count_in_the_same_metrics_and_no_addition_is_lost(serve):
    server = serve(CONFIGURATION)
    address = server.address()
    counting = "[uwsgi.metric_inc('orders') for _ in range(5000)].count(True)"
    evaluations = [Evaluation(address, counting) for _ in range(4)]
    assert [evaluation.result() for evaluation in evaluations] == [["5000"]] * 4
    assert evaluate(address, "uwsgi.metric_get('orders')", "uwsgi.metric_get('same')", "uwsgi.metric_get('open')") == [
        "20000",
        "20000",
        "5",
    ]
    told = metrics_of(server)
    assert told["orders"] == {"type": 0, "oid": "", "value": 20000}
    assert told["same"] == {"type": 3, "oid": "", "value": 20000}
    assert told["worker.1.requests"]["oid"] == "3.1.1"
    requests = ("worker.1.requests", "worker.2.requests")
    wait_until(lambda: sum(metrics_of(server)[name]["value"] for name in requests) == 5, "a request is counted after its answer")
    arrived = "uwsgi.metric_get('core.idle_workers') + uwsgi.metric_get('core.busy_workers')"
    wait_until(lambda: value(address, arrived) == "2", "the master's numbers arrive in workers")


def test_a_process_that_is_killed_while_it_counts_holds_nobody_up(serve):
    server = serve(CONFIGURATION)
    server.expects_alarms = True
    address = server.address()
    endless = "[0 for _ in iter(int, 1) if uwsgi.metric_inc('orders') and uwsgi.metric_mul('open', 3) and False]"
    Evaluation(address, "open('pid', 'w').write(str(os.getpid()) + '.')", endless)
    pid = wait_until(lambda: (server.directory / "pid").exists() and (server.directory / "pid").read_text(), "it counts").rstrip(
        "."
    )
    wait_until(lambda: int(value(address, "uwsgi.metric_get('orders')")) > 1000, "it has counted")
    os.kill(int(pid), signal.SIGKILL)
    counted = int(value(address, "uwsgi.metric_get('orders')"))
    assert evaluate(address, "uwsgi.metric_inc('orders')", "uwsgi.metric_get('orders')")[0] == "True"
    assert int(value(address, "uwsgi.metric_get('orders')")) >= counted + 1


def test_metrics_keep_their_values_over_a_reload_also_if_there_are_others_then(serve):
    server = serve(CONFIGURATION)
    assert value(server.address(), "uwsgi.metric_set('orders', 7)") == "True"
    server.configure(CONFIGURATION.replace("metric = orders", "metric = new\nmetric = orders"))
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: ", count=2)
    server.wait_for_text("bolide: reload: metrics: the set of metrics has changed, and those that remain keep their values")
    # The worker of the first generation, which does not know other metrics, may still accept a connection.
    asked = ("uwsgi.metric_get('orders')", "uwsgi.metric_inc('new')")
    wait_until(lambda: evaluate(server.address(), *asked) == ["7", "True"], "the new worker knows both metrics")


def test_metrics_are_computed_from_files_and_from_others(serve):
    lines = """
        metric = name=load,collector=file,arg1={directory}/load,arg1n=1
        metric = name=sum,collector=sum,children=orders;open,initial_value=100
        metric = name=twice,collector=multiplier,arg1n=2,children=sum
        metric = name=avg,collector=avg,children=orders;open
        """
    server = serve(CONFIGURATION + lines)
    address = server.address()
    (server.directory / "load").write_text("0.2 17\n")
    assert value(address, "uwsgi.metric_set('orders', 3), uwsgi.metric_inc('sum')") == "(True, None)"
    names = "[uwsgi.metric_get(name) for name in ('load', 'sum', 'twice', 'avg')]"
    wait_until(lambda: value(address, names) == "[17, 108, 216, 4]", lambda: value(address, names))


def test_a_threshold_resets_its_metric_and_is_logged(serve):
    server = serve(CONFIGURATION + "metric-threshold = key=orders,value=10,reset=1\n")
    address = server.address()
    assert value(address, "uwsgi.metric_set('orders', 12)") == "True"
    server.wait_for_text("uwsgi.ini:11: metric-threshold: orders is 12, of 10, set to 1")
    assert value(address, "uwsgi.metric_get('orders')") == "1"


def test_values_in_the_directory_of_metrics_outlive_the_instance(serve, tmp_path):
    directory = tmp_path / "numbers"
    directory.mkdir()
    lines = CONFIGURATION + f"metrics-dir = {directory}\nmetrics-dir-restore = true\n"
    server = serve(lines)
    assert value(server.address(), "uwsgi.metric_set('orders', 41)") == "True"
    files = {"orders": "41\n", "open": "5\n", "worker.0.requests": "0\n"}
    wait_until(lambda: all((directory / name).exists() for name in files), "the files")
    wait_until(lambda: {name: (directory / name).read_text() for name in files} == files, "their values")
    server.stop()
    # A server that runs writes it when its worker has counted another request.
    (directory / "worker.1.requests").write_text("1000\n")
    server = serve(lines)
    assert value(server.address(), "uwsgi.metric_inc('orders')") == "True"
    assert value(server.address(), "uwsgi.metric_get('orders')") == "42"
    assert metrics_of(server)["worker.1.requests"]["value"] >= 1000


def test_statsd_receives_the_metrics_of_the_application_and_those_that_begin_again(serve):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(30)
        port = collector.getsockname()[1]
        server = serve(
            CONFIGURATION + f"stats-push = statsd:127.0.0.1:{port},shop\nstats-pusher-default-freq = 1\n"
            "metric = name=burst,type=gauge,reset_after_push=1\n"
        )
        assert value(server.address(), "uwsgi.metric_set('burst', 9)") == "True"
        wait_until(lambda: collector.recv(4096) == b"shop.burst:9|g", "the number", look_seconds=0)
        wait_until(lambda: collector.recv(4096) == b"shop.burst:0|g", "the number after it", look_seconds=0)


def test_without_metrics_each_one_is_0_and_none_can_be_changed(serve):
    server = serve("wsgi-file = {apps}/expressions.py\nmaster = true\nstats = {directory}/stats.sock\n")
    assert evaluate(server.address(), "uwsgi.metric_get('orders')", "uwsgi.metric_inc('orders')") == ["0", "None"]
    assert "metrics" not in read_statistics(str(server.directory / "stats.sock"))


def test_the_servers_numbers_can_be_without_those_of_threads(serve):
    lines = "wsgi-file = {apps}/expressions.py\nmaster = true\nstats = {directory}/stats.sock\nenable-metrics = true\n"
    with_threads, without = (set(metrics_of(serve(lines + more))) for more in ("", "metrics-no-cores = true\n"))
    assert {name for name in with_threads if ".core." in name} == with_threads - without != set()
    assert {"core.total_tx", "worker.0.requests", "worker.1.requests", "socket.0.listen_queue", "rss_size"} <= without


def test_the_statistics_name_the_holder_of_a_lock_and_can_be_without_metrics(serve):
    server = serve(CONFIGURATION + "locks = 1\nstats-no-metrics = true\nstats-no-cores = true\n")
    pid, _ = holder(server, "uwsgi.lock(1)")
    told = read_statistics(str(server.directory / "stats.sock"))
    assert told["locks"] == [{"user 0": 0}, {"user 1": pid}]
    assert "metrics" not in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("metric = name=a b", "`metric` has `a b` as its name"),
        ("metric = name=a,collector=ptr", "`metric` has the collector `ptr`, which calls code in uWSGI itself"),
        ("metric = name=a,type=alias,alias=missing", "there is no metric `missing` before `a`"),
        ("metric = core.overloaded", "there are two metrics `core.overloaded`"),
        ("metric = name=a,collector=file", "`metric` has no file"),
        ("metric-threshold = key=missing,value=1", "there is no metric `missing`"),
        ("metric-threshold = key=core.overloaded", "`metric-threshold` lacks a metric or a value"),
    ],
)
def test_a_mistake_in_a_metric_is_an_error_with_its_line(call, tmp_path, line, words):
    (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nmodule = shop\n{line}\n")
    status, output = call("check", "uwsgi.ini")
    assert status != 0
    assert "uwsgi.ini:3" in output
    assert words in output
