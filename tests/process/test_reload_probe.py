"""Checks that a new generation must pass before it serves, and checks before it is forked."""

import os
import re
import signal
from pathlib import Path

import pytest
from support.waiting import wait_until
from support_load import Load
from support_processes import descriptors_of

#: An application whose health check returns the content of a file.
WSGI = """\
import time
def application(environ, start_response):
    if environ["PATH_INFO"] == "/health":
        kind = open("health").read().strip()
        if kind == "raise":
            raise RuntimeError("no database")
        if kind == "hang":
            time.sleep(300)
        start_response(kind + " status", [])
        return [b"health"]
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""
ASGI = """\
import asyncio, time
ready = False
async def application(scope, receive, send):
    global ready
    if scope["type"] == "lifespan":
        await receive()
        ready = True
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        return await send({{"type": "lifespan.shutdown.complete"}})
    assert ready
    status, body = 200, b"{version}"
    if scope["path"] == "/health":
        kind = open("health").read().strip()
        if kind == "raise":
            raise RuntimeError("no database")
        if kind == "hang":
            await asyncio.sleep(300)
        status, body = int(kind), b"health"
    await send({{"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]}})
    await send({{"type": "http.response.body", "body": body}})
"""
INTERFACES = {"wsgi": WSGI, "asgi": ASGI}
FAILURES = {
    "503": r"reload-probe: GET /health\?deep=1 answered 503",
    "raise": r"reload-probe: GET /health\?deep=1 raised RuntimeError: no database",
    "hang": r"reload-probe: GET /health\?deep=1 did not answer within 5 s \(reload-probe-timeout\)",
}


def write(tmp_path, version, template=WSGI, health="200"):
    (tmp_path / "shop.py").write_text(template.format(version=version, length=len(version)))
    (tmp_path / "health").write_text(health)


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_generation_that_fails_its_probe_does_not_serve(interface, failure, lazy, start, tmp_path):
    template = INTERFACES[interface]
    # At startup there is no old generation to fall back to, so there is no check.
    write(tmp_path, "first", template, health="503")
    options = ("--reload-probe", "/health?deep=1", "--reload-probe-timeout", "5")
    instance = start("--processes", "2", *options, *lazy, module="shop")
    before = sorted(instance.workers())
    with Load(instance.address()) as load:
        write(tmp_path, "second!", template, health=failure)
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(rf"bolide: generation 2 could not be loaded \({FAILURES[failure]}\): generation 1 keeps serving")
        wait_until(lambda: len(instance.prototypes()) == 1, "the end of the generation that failed")
        assert sorted(instance.workers()) == before
        write(tmp_path, "third version", template)
        instance.reload(3)
        load.wait(lambda: load.bodies["third version"] > 0, "the version that works")
    assert load.losses == []
    assert set(load.bodies) == {"first", "third version"}


#: The first worker passes immediately; the second one's response waits for a file, and is its content.
UNEQUAL = {
    "wsgi": """\
import os, time, uwsgi
def application(environ, start_response):
    if environ["PATH_INFO"] == "/health" and uwsgi.worker_id() == 2:
        while not os.path.exists("gate"): time.sleep(0.01)
        start_response(open("gate").read() + " status", [])
        return []
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
""",
    "asgi": """\
import asyncio, os, uwsgi
async def application(scope, receive, send):
    if scope["type"] != "http": raise ValueError(scope["type"])
    status = 200
    if scope["path"] == "/health" and uwsgi.worker_id() == 2:
        while not os.path.exists("gate"): await asyncio.sleep(0.01)
        status = int(open("gate").read())
    await send({{"type": "http.response.start", "status": status, "headers": [(b"content-length", b"{length}")]}})
    await send({{"type": "http.response.body", "body": b"{version}"}})
""",
}


@pytest.mark.parametrize("options", [(), ("--lazy-apps",), ("--threads", "3")], ids=["prototype", "lazy", "threads"])
@pytest.mark.parametrize("interface", UNEQUAL)
def test_no_worker_serves_before_each_of_them_has_passed(interface, options, start, tmp_path):
    if interface == "asgi" and "--threads" in options:
        pytest.skip("an event loop has only one thread")
    template = UNEQUAL[interface]
    write(tmp_path, "first", template)
    instance = start("--processes", "2", "--reload-probe", "/health", *options, module="shop")
    with Load(instance.address(), kept_alive=2, fresh=4) as load:
        for number, (status, body) in enumerate([("503", "first"), ("200", "third version")], 2):
            write(tmp_path, "second!" if status == "503" else "third version", template)
            instance.send_signal(signal.SIGHUP)
            # Both are forked, and the first only waits for the second.
            wait_until(lambda: len(instance.workers()) == 4, "the new workers")
            load.wait_for_more(300)
            assert set(load.bodies) == {"first"}
            (tmp_path / "new").write_text(status)
            (tmp_path / "new").rename(tmp_path / "gate")
            if status == "503":
                instance.wait_for_log(rf"generation {number} could not be loaded \(reload-probe: GET /health answered 503\)")
                wait_until(lambda: len(instance.prototypes()) == 1, "the end of the generation that failed")
            else:
                instance.wait_for_generation(number)
            (tmp_path / "gate").unlink()
            load.wait_for_more()
            assert instance.body() == body
    assert load.losses == []
    assert set(load.bodies) == {"first", "third version"}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_workers_that_wait_for_their_siblings_end_with_the_instance(end, start, tmp_path):
    write(tmp_path, "first", UNEQUAL["wsgi"])
    instance = start("--processes", "2", "--reload-probe", "/health", module="shop")
    instance.send_signal(signal.SIGHUP)
    wait_until(lambda: len(instance.workers()) == 4, "the new workers")
    instance.send_signal(end)
    assert instance.wait_for_exit() == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    instance.wait_until_gone()


def test_a_worker_that_is_replaced_later_is_not_asked(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--reload-probe", "/health", module="shop", alarms=True)
    instance.reload(2)
    (tmp_path / "health").write_text("503")
    old = instance.worker()
    os.kill(old, signal.SIGKILL)
    assert wait_until(lambda: [pid for pid in instance.workers() if pid != old], "a worker in its place")
    assert instance.body() == "first"


WARM = """\
import os, sys
asked = []
def application(environ, start_response):
    if environ["PATH_INFO"] == "/broken":
        raise RuntimeError("too early")
    asked.append(environ["PATH_INFO"] + "?" + environ["QUERY_STRING"] + " in " + str(os.getppid()))
    start_response("500 Error" if environ["PATH_INFO"] == "/five" else "200 OK", [])
    return [str(asked).encode()]
"""


def test_the_application_is_warmed_up_where_it_is_loaded_and_workers_share_it(start, tmp_path):
    (tmp_path / "shop.py").write_text(WARM)
    paths = ("/", "/login?next=%2F", "/broken", "/five")
    instance = start("--processes", "2", *(word for path in paths for word in ("--warmup", path)), module="shop")
    # The prototype, a child of the master, was checked: its workers find the objects that it has created.
    first = instance.body()
    assert first.startswith(f"['/? in {instance.pid}', '/login?next=%2F in {instance.pid}', '/five? in {instance.pid}', '/?")
    assert re.search(r"RuntimeError: too early", instance.log)
    instance.wait_for_log(r"warmup = /five: the application answered 500$")


DJANGO = """\
from django.conf import settings
settings.configure(
    SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
)
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse
from django.urls import path
import os
opened = []
def index(request):
    opened.append((os.getpid(), connection.connection is None))
    with connection.cursor() as cursor:
        cursor.execute("select 1")
        cursor.fetchall()
    return HttpResponse(repr(opened))
urlpatterns = [path("", index)]
application = get_wsgi_application()
"""


def test_django_has_no_connection_open_when_workers_are_forked_after_its_warmup(start, tmp_path):
    pytest.importorskip("django")
    (tmp_path / "shop.py").write_text(DJANGO)
    instance = start("--processes", "2", "--warmup", "/", module="shop")
    assert not [target for target in descriptors_of(instance.prototype()).values() if target.endswith("shop.sqlite3")]
    (warm, was_closed_then), (worker, was_closed) = eval(instance.body())
    assert (warm, was_closed_then, was_closed) == (instance.prototype(), True, True)
    assert worker in instance.workers()


def test_a_warmup_of_an_asgi_application_is_reported(start, tmp_path):
    write(tmp_path, "first", ASGI)
    instance = start("--warmup", "/", module="shop")
    instance.wait_for_log(r"warmup = /: an ASGI application has an event loop in each worker; use its lifespan instead$")


def test_exit_on_reload_ends_the_instance_in_good_order(start):
    instance = start("--exit-on-reload")
    instance.send_signal(signal.SIGHUP)
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("exit-on-reload")


def test_max_fd_is_the_limit_of_workers(start):
    instance = start("--max-fd", "200")
    limits = Path(f"/proc/{instance.worker()}/limits").read_text()
    assert re.search(r"^Max open files +200 +200 ", limits, re.MULTILINE)
