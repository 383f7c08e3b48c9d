"""Routes that use metrics, signals and alarms: for the same configuration and requests, real uWSGI and Bolide do the same."""

from support.client import Client
from support.real_uwsgi import prepared, real_uwsgi
from support.waiting import wait_until

APPLICATION = """\
import uwsgi

def note(number):
    with open("signals", "a") as file:
        file.write(f"signal {number}\\n")

uwsgi.register_signal(17, "", note)

def application(environ, start_response):
    body = f"{environ.get('FOUND')} {uwsgi.metric_get('orders')}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""
CONFIGURATION = r"""chdir = {directory}
wsgi-file = {directory}/application.py
master = true
metric = orders
metric = name=seen,type=gauge,initial_value=5
alarm = team cmd:cat >> alarms; echo >> alarms
route = ^/add/(\w+)/(-?\d+) metricinc:$1,$2
route = ^/less metricdec:orders
route = ^/times metricmul:orders,3 and words
route = ^/share metricdiv:orders,2
route = ^/set metricset:orders,-7
route = ^/words metricset:orders,words
route = ^/zero metricdiv:orders,0
route = ^/found addvar:FOUND=${metric[seen]} ${metric[absent]}
route = ^/signal signal:17
route = ^/alarm/(\w+) alarm:team ${REQUEST_METHOD} of $1"""
REQUESTS = [
    "/add/orders/20",
    "/less",
    "/times",
    "/share",
    "/add/seen/2",
    "/found",
    "/add/absent/1",
    "/zero",
    "/set",
    "/add/orders/-3",
    "/words",
    "/signal",
    "/alarm/it",
]


def results_of(address, directory, log):
    """The body of each answer, empty without one, and what signals and alarms have noted."""
    bodies = {}
    for path in REQUESTS:
        with Client(address) as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            bodies[path] = client.read_to_end().partition(b"\r\n\r\n")[2]
    # Each process appends to a file of its own: cat and echo are two writes, and a signal's line could come between them.
    files = [directory / "signals", directory / "alarms"]

    def noted():
        return [line for file in files if file.exists() for line in file.read_text().splitlines() if line]

    wait_until(lambda: len(noted()) >= 2, lambda: f"a signal and an alarm: {noted()}\n{log()}")
    return bodies, noted()


def test_routes_use_metrics_signals_and_alarms_as_in_uwsgi(serve, uwsgi, tmp_path, free_port):
    directory, configuration = prepared(tmp_path / "theirs", CONFIGURATION, application=APPLICATION)
    with real_uwsgi(uwsgi, directory, free_port(), configuration) as address:
        theirs = results_of(address, directory, (directory / "log").read_text)
    directory, configuration = prepared(tmp_path / "ours", CONFIGURATION, application=APPLICATION)
    instance = serve(configuration)
    assert results_of(instance.address(), directory, lambda: instance.log) == theirs
    assert theirs[1] == ["signal 17", "GET of it"]
