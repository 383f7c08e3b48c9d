"""Refusals that have no log line of their own: their number is logged when the minute ends, even if no other follows."""

import pytest
from support.client import Closed
from support.turned_clock import TurnedClock

WORKERS = {
    "one thread": "wsgi-file = {apps}/echo.py",
    "threads": "wsgi-file = {apps}/echo.py\nthreads = 3",
    "gevent": "wsgi-file = {apps}/echo.py\ngevent = 10\ngevent-monkey-patch = true",
    "asgi": "asgi = {apps}/asgi_scope.py",
}
QUIET_SECONDS = 60
#: Most of the quiet minute, which a test does not wait for. The rest is enough for some refusals on a busy machine.
NEARLY_A_MINUTE = QUIET_SECONDS - 8


def refuse(server, times):
    """Connects with TLS, which is not spoken here."""
    for _ in range(times):
        with server.connect() as client:
            client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            client.read_to_end()


def counted(times):
    return (
        rf"^bolide: worker 1: refused a request from 127\.0\.0\.1 with 400.*TLS.* \({times} more like it since the last line\)$"
    )


@pytest.mark.parametrize("worker", WORKERS)
def test_the_number_is_logged_when_the_minute_ends_though_nothing_happens(worker, serve, tmp_path):
    clock = TurnedClock(tmp_path)
    server = serve(WORKERS[worker], environment=clock.environment)
    refuse(server, 1)
    clock.turn(NEARLY_A_MINUTE)
    refuse(server, 3)
    server.wait_for_log(counted(3))
    # No other failure, no other line.
    clock.turn(2 * QUIET_SECONDS)
    assert server.get("/").status == 200
    assert server.stop() == 0
    assert server.whole_log().count("more like it") == 1


@pytest.mark.parametrize("worker", WORKERS)
def test_the_number_is_logged_when_the_worker_ends(worker, serve):
    server = serve(WORKERS[worker])
    refuse(server, 5)
    assert server.stop() == 0
    server.wait_for_log(counted(4))
    assert server.whole_log().count("refused a request") == 2


def test_a_flood_is_one_line_a_minute(serve, tmp_path):
    clock = TurnedClock(tmp_path)
    server = serve(WORKERS["one thread"], environment=clock.environment)
    refuse(server, 3)
    for minute in range(1, 4):
        clock.turn(QUIET_SECONDS + 1)
        # The line of the minute that has ended, and then the count of the next one begins.
        assert server.get("/").status == 200
        server.wait_for_log(counted(2), count=minute)
        refuse(server, 2)
    # The first one, the number of each minute, and that of the last minute when the worker exits.
    assert server.whole_log().count("refused a request") == 5


def test_connections_without_a_proxy_header_are_counted_too(serve):
    server = serve(f"{WORKERS['one thread']}\nenable-proxy-protocol = true")
    for _ in range(3):
        with server.connect() as client, pytest.raises(Closed):
            client.request()
    assert server.stop() == 0
    server.wait_for_log(r"refused a connection from 127\.0\.0\.1.* \(2 more like it since the last line\)$")
