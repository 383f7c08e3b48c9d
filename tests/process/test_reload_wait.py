"""`bolide reload --wait` returns when no connection that is opened from then on can reach the old code."""

import time

import pytest
from support.client import Client
from support.repeating import Repeating
from support.waiting import wait_until
from support_instance import DONE

RELOADS = 6
#: Clients that open a new connection for each request during reloads.
CLIENTS = 12
WSGI = """\
import random, time
VERSION = {version}
def application(environ, start_response):
    time.sleep(random.uniform(0.1, 0.3))
    start_response("200 OK", [("Content-Length", str(len(VERSION)))])
    return [VERSION]
"""
ASGI = """\
import asyncio, random, time
VERSION = {version}
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    # One that waits, and now and then one that holds the loop up.
    await asyncio.sleep(random.uniform(0.1, 0.2))
    if random.random() < 0.2:
        time.sleep(0.3)
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(VERSION))]}})
    await send({{"type": "http.response.body", "body": VERSION}})
"""
SHAPES = {
    "wsgi": (WSGI, ("--processes", "3")),
    "wsgi-threads": (WSGI, ("--processes", "2", "--threads", "3")),
    "asgi": (ASGI, ("--processes", "3")),
}


class Asking(Repeating):
    """Clients that send requests all the time, each on a new connection; records the responses, and the times at which they began
    to connect.
    """

    def __init__(self, address):
        super().__init__(CLIENTS)
        self.address = address
        self.answers = []

    def once(self):
        began = time.monotonic()
        with Client(self.address) as client:
            answer = client.request("GET", "/", [("Connection", "close")])
        self.answers.append((began, int(answer.text)))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_no_connection_that_is_made_after_it_has_the_old_code(start, call, tmp_path, shape):
    text, options = shape

    def write(version):
        (tmp_path / "versions.py").write_text(text.format(version=repr(str(version).encode())))

    write(1)
    way = "--asgi" if text is ASGI else "--module"
    more = ("--lifespan", "off") if text is ASGI else ()
    instance = start("--pythonpath", tmp_path, way, "versions:application", *more, *options, module=None)
    done = []
    with Asking(instance.address()) as asking:
        for version in range(2, 2 + RELOADS):
            write(version)
            status, said = call("reload", "--wait", instance.pid)
            assert status == DONE, said
            done.append((time.monotonic(), version))
            # At least as many responses as there are clients come from connections that were opened after it.
            count = len(asking.answers)
            while len(asking.answers) < count + 3 * CLIENTS and not asking.failures:
                time.sleep(0.01)
    assert asking.failures == []
    ends = [*(returned for returned, _ in done[1:]), float("inf")]
    for (returned, version), until in zip(done, ends):
        late = [got for began, got in asking.answers if returned <= began < until and got < version]
        assert late == [], f"after the reload to {version}"
    assert {version for _, version in done} <= {got for _, got in asking.answers}


def test_a_reload_during_the_start_is_answered_when_the_instance_serves(start, call, tmp_path):
    begun = tmp_path / "begun"
    # The first load lasts until the reload abandons it.
    source = f"""\
import pathlib, time
begun = pathlib.Path({str(begun)!r})
if not begun.exists():
    begun.touch()
    time.sleep(1000)
"""
    (tmp_path / "shop.py").write_text(source + WSGI.format(version="b'new'"))
    instance = start("--pythonpath", tmp_path, module="shop", ready=False)
    wait_until(begun.exists, lambda: instance.log)
    status, said = call("reload", "--wait", str(instance.pid))
    assert (status, "serves" in said) == (DONE, True), said
    assert instance.body() == "new"
