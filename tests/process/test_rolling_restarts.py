"""Rolling restarts behind HAProxy: with `drain-delay`, no request is lost between SIGTERM and the load balancer's next check."""

import threading

import pytest
from support.client import Closed
from support.haproxy import Balancer
from support.waiting import wait_until

#: HAProxy notices after two failed checks. The traffic does not pause for this long, in seconds, on any machine.
QUIET = 4
OPTIONS = ("--health-path", "/healthz", "--drain-delay", "60", "--drain-quiet", QUIET, "--processes", "2")

WAYS = {
    "WSGI": ("--threads", "2"),
    "ASGI": ("--asgi", "shop:application", "--lifespan", "off"),
}
ASGI = """
import os
async def application(scope, receive, send):
    body = str(os.getpid()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
"""


class Traffic:
    """Clients that request without a pause, half of them on a new connection each time."""

    def __init__(self, balancer):
        self._balancer = balancer
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._request, args=(number % 2 == 0,)) for number in range(4)]
        self.workers = set()
        self.lost = []
        self.done = 0
        for thread in self._threads:
            thread.start()

    def _request(self, is_kept):
        client = None
        while not self._is_over.is_set():
            try:
                if client is None:
                    client = self._balancer.connect("balanced")
                answer = client.request("GET", "/")
                if answer.status != 200:
                    self.lost.append(answer)
                self.workers.add(answer.text)
                self.done += 1
            except (OSError, Closed) as error:
                self.lost.append(error)
                client = None
                continue
            if not is_kept or answer.says_close:
                client.close()
                client = None

    def finish(self):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def behind(tmp_path):
    """A load balancer in front of these instances, and traffic through it."""
    running = []

    def behind(instances):
        servers = {f"server-{number}": instance.address() for number, instance in enumerate(instances)}
        running.append(Balancer(tmp_path, servers, "/healthz"))
        running.append(Traffic(running[0]))
        return running[1]

    yield behind
    for part in reversed(running):
        part.finish()


@pytest.mark.parametrize("way", WAYS)
def test_no_request_is_lost_in_rolling_restarts_behind_a_load_balancer(way, start, behind, tmp_path, free_port):
    (tmp_path / "shop.py").write_text(ASGI)

    def serve(port):
        module = None if way == "ASGI" else "probe"
        return start(*OPTIONS, *WAYS[way], socket=f"127.0.0.1:{port}", module=module)

    ports = [free_port(), free_port()]
    instances = [serve(port) for port in ports]
    traffic = behind(instances)

    def is_served_by(instance):
        return lambda: {str(worker) for worker in instance.workers()} & traffic.workers

    for instance in instances:
        wait_until(is_served_by(instance), "requests reach both")
    for place, port in enumerate(ports):
        assert instances[place].stop() == 0
        assert f"no connection has arrived for {QUIET} s" in instances[place].log
        instances[place] = serve(port)
        wait_until(is_served_by(instances[place]), "requests reach the new instance")
    traffic.finish()
    assert traffic.lost == []
    assert traffic.done > 100
