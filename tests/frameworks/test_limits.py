"""`bolide.contrib.limits`: Flask-Limiter and slowapi count over all workers of the real program."""

import concurrent.futures
import subprocess
import sys

import pytest
from support.server import APPS, program

FLASK = """
module = limited_flask
pythonpath = {apps}
processes = 4
cache2 = name=limits,items=1000,purge_lru=1
disable-logging = true
"""
FASTAPI = FLASK.replace("module = limited_flask", "asgi = limited_slowapi:application")


def statuses(server, target, count):
    """The statuses of this many requests at the same time, each on a connection of its own."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda _: server.get(target).status, range(count)))
    return found.count(200), found.count(429)


@pytest.mark.parametrize(("configuration", "target", "most"), [(FLASK, "/two", 2), (FASTAPI, "/", 3), (FLASK, "/sliding", 3)])
def test_all_workers_count_together(serve, configuration, target, most):
    server = serve(configuration)
    for client in ("ann", "bob"):
        assert statuses(server, f"{target}?client={client}", 20) == (most, 20 - most)


def test_a_window_ends_when_its_first_request_says(serve):
    server = serve(FLASK)
    assert server.get("/expiry").text == "[1, 2, 3] 3 True True"
    assert server.get("/sliding?client=c").status == 200
    assert server.get("/clear?client=c").text == "0 2 True True"


def test_a_cache_that_is_missing_is_named():
    options = ["--http-socket", "127.0.0.1:0", "--pythonpath", str(APPS), "--module", "limited_flask", "--need-app"]
    done = subprocess.run([*program(), *options], capture_output=True, text=True)
    assert done.returncode != 0
    assert "there is no cache 'limits': write `cache2 = name=limits,items=10000,purge_lru=1`" in done.stdout + done.stderr


def test_outside_of_the_server_everything_passes():
    code = "import limited_flask as site\nprint([site.application.test_client().get('/two').status_code for _ in range(3)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=APPS)
    assert done.stdout.strip() == "[200, 200, 200]", done.stderr
    assert "no limit is counted" in done.stderr
