"""Routes that use metrics, signals and alarms, in response routes too; what is wrong in them is an error of the configuration."""

import pytest
from support.expressions import value
from support.waiting import wait_until

CONFIGURATION = """\
wsgi-file = {apps}/expressions.py
master = true
metric = orders
metric = failures
"""


def test_response_routes_count_and_raise_by_status(serve, tmp_path):
    instance = serve(
        CONFIGURATION
        + f"""\
alarm = note cmd:cat >> {tmp_path}/notes
route-run = metricinc:orders
route = ^/absent return:404
response-route-status = 200 metricset:failures,${{metric[orders]}}
response-route-status = 200 alarm:note ${{REQUEST_METHOD}} has ${{uwsgi[status]}}
response-route-run = signal:17
"""
    )
    address = instance.address()
    assert value(address, "uwsgi.metric_get('failures'), uwsgi.metric_get('orders')") == "(0, 1)"
    assert value(address, "uwsgi.metric_get('failures'), uwsgi.metric_get('orders')") == "(1, 2)"
    notes = tmp_path / "notes"
    wait_until(lambda: notes.exists() and notes.read_text().startswith("POST has 200"), lambda: f"an alarm: {instance.log}")
    # Signals of routes are those of `uwsgi.signal`: no handler is registered.
    instance.wait_for_log("signal 17")
    assert instance.get("/absent").status == 404


def test_threads_that_answer_from_routes_lose_no_change(serve):
    instance = serve(CONFIGURATION + "threads = 4\nprocesses = 2\nroute-run = metricinc:orders,2\nroute = ^/count return:200")
    clients = [instance.connect() for _ in range(8)]
    for _ in range(25):
        for client in clients:
            client.send(b"GET /count HTTP/1.1\r\nHost: x\r\n\r\n")
        for client in clients:
            assert client.read_response().status == 200
    assert value(instance.address(), "uwsgi.metric_get('orders')") == "402"


def test_a_route_on_a_metric_that_does_not_exist_ends_the_request_and_says_so(serve):
    instance = serve(CONFIGURATION + r"route = ^/(\w+) metricinc:$1")
    with instance.connect() as client:
        client.send(b"GET /absent HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.read_to_end() == b""
    instance.wait_for_log(r"there is no metric `absent` that a rule may change$")
    instance.get("/orders")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("route-run = metricinc:absent", r"there is no metric with the name `absent` \(write `metric = absent` for"),
        ("route-run = metricinc:worker.1.requests", r"the metric `worker.1.requests` is not one that a rule may change"),
        ("route-run = signal:soon", r"`signal:soon` is not a signal \(write a number from 0 to 255"),
        ("route-run = alarm:note", r"`alarm:note` has no message \(write `alarm:NAME MESSAGE`\)"),
    ],
)
def test_a_wrong_action_is_an_error_of_the_configuration(line, message, serve):
    instance = serve.prepare(CONFIGURATION + line)
    instance.launch()
    instance.wait_for_log(message)
    assert instance.wait_for_exit() != 0


def test_an_alarm_that_is_not_configured_is_a_warning(serve):
    instance = serve(CONFIGURATION + "route-run = alarm:absent it happened")
    instance.wait_for_log(r"there is no alarm with the name `absent`: the rule has no effect")
    assert value(instance.address(), "1") == "1"
