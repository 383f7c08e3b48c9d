"""`reload-on-exception` and related options: a worker whose application has raised is replaced, and no client waits for it."""

import re
import signal

import pytest

FAILING = """\
import os
class Lost(ValueError):
    pass
def application(environ, start_response):
    if environ["PATH_INFO"] == "/lost":
        raise Lost("the connection", 3)
    if environ["PATH_INFO"] == "/other":
        raise KeyError("other")
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
"""
FAILING_ASGI = """\
import os
class Lost(ValueError):
    pass
async def application(scope, receive, send):
    if scope["path"] == "/lost":
        raise Lost("the connection", 3)
    if scope["path"] == "/other":
        raise KeyError("other")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"""
INTERFACES = {"wsgi": (FAILING, "--module", ()), "asgi": (FAILING_ASGI, "--asgi", ("--lifespan", "off"))}
NAMES = {
    "type": ("--reload-on-exception-type", "Lost"),
    "type-of-its-module": ("--reload-on-exception-type", "shop.Lost"),
    "value": ("--reload-on-exception-value", "('the connection', 3)"),
    "repr": ("--reload-on-exception-repr", "shop.Lost: ('the connection', 3)"),
}


@pytest.fixture(params=INTERFACES.values(), ids=INTERFACES)
def shop(request, start, tmp_path):
    text, option, more = request.param
    (tmp_path / "shop.py").write_text(text)
    return lambda *options: start(option, "shop:application", *more, *options, module=None)


def test_a_worker_that_saw_an_exception_is_replaced(shop):
    instance = shop("--reload-on-exception", "--min-worker-lifetime", "0")
    old = instance.body()
    assert instance.get("/other").status == 500
    instance.wait_for_replacement(int(old))
    assert instance.body() != old
    instance.wait_for_text("is replaced because of this KeyError (reload-on-exception)")


@pytest.mark.parametrize("named", NAMES.values(), ids=NAMES)
def test_an_exception_that_is_named_replaces_and_another_does_not(named, shop):
    instance = shop(*named)
    old = instance.body()
    assert instance.get("/other").status == 500
    assert instance.get("/lost").status == 500
    instance.wait_for_replacement(int(old))
    assert "KeyError (reload-on-exception)" not in instance.log
    assert instance.log.count("(reload-on-exception)") == 1
    assert instance.body() != old


def test_without_the_option_workers_stay(shop):
    instance = shop()
    old = instance.body()
    assert instance.get("/lost").status == 500
    # A reload supersedes the replacement that the exception would have caused.
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: ")
    assert instance.body() == old


def test_a_worker_that_stays_for_its_least_lifetime_says_so_in_a_line_with_the_time(shop):
    instance = shop("--reload-on-exception", "--min-worker-lifetime", "3600")
    old = instance.body()
    assert instance.get("/other").status == 500
    instance.wait_for_text(
        "is to be replaced because of this KeyError (reload-on-exception), when it has served for 3600 s (min-worker-lifetime)"
    )
    assert instance.body() == old
    # Like each line of the server itself, whichever process writes it.
    said = [line for line in instance.raw_log.splitlines() if "(reload-on-exception)" in line]
    assert len(said) == 1
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d bolide: ", said[0])
