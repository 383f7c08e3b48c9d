"""A waiting stop names what it waits for: requests of asynchronous applications, work after responses, and tasks whose client has
disconnected.
"""

import signal

import pytest
from support.waiting import wait_until

#: Tasks run until the file `gate` exists, and log every 0.1 s. A cancelled task goes on while the file `held` exists.
SHOP = """
import asyncio, os
async def work(name):
    try:
        print(name, "has begun", flush=True)
        while not os.path.exists("gate"):
            await asyncio.sleep(0.1)
            print(name, "goes on", flush=True)
        print(name, "is done", flush=True)
    except asyncio.CancelledError:
        print(name, "is cancelled", flush=True)
        while os.path.exists("held"):
            await asyncio.sleep(0.1)
        raise
async def answer(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    if scope["path"] == "/background":
        await answer(send)
        return await work("background")
    if scope["path"] == "/poll":
        await work("poll")
    await answer(send)
"""


@pytest.fixture
def shop(start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return start("--asgi", "shop", module=None)


def ask(instance, path, name):
    client = instance.connect()
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    instance.wait_for_log(f"^{name} has begun$")
    return client


def leave(instance, client):
    """The client disconnects; the worker has noticed it once it answers another client that came later."""
    client.close()
    instance.body()


def test_a_stop_names_a_request_whose_client_has_gone_and_cancels_it_after_seconds(shop, tmp_path):
    # The task must outlive the first line about it, however late that is.
    (tmp_path / "held").touch()
    leave(shop, ask(shop, "/poll", "poll"))
    shop.send_signal(signal.SIGTERM)
    shop.wait_for_log(r"^bolide: stop: waiting for 1 request: GET /poll, whose client has left \(for .*\); ")
    (tmp_path / "held").unlink()
    assert shop.wait_for_exit() == 0
    assert "poll is cancelled" in shop.lines
    shop.wait_for_text("tasks of disconnected clients, still running 3 s after the order to stop, cancelling them: GET /poll")
    assert "killing " not in shop.log


def test_a_stop_names_a_request_of_an_asynchronous_application_and_lets_it_end(shop, tmp_path):
    client = ask(shop, "/poll", "poll")
    shop.send_signal(signal.SIGTERM)
    shop.wait_for_log(r"^bolide: stop: waiting for 1 request: GET /poll \(for .*\); ")
    (tmp_path / "gate").touch()
    assert client.read_response().text == "fine"
    assert shop.wait_for_exit() == 0
    assert "cancelled" not in shop.log


def test_a_stop_names_work_after_an_answer_and_lets_it_end(shop, tmp_path):
    clients = [ask(shop, "/background", "background"), ask(shop, "/poll", "poll")]
    leave(shop, clients[1])
    shop.send_signal(signal.SIGTERM)
    # The line is repeated every five seconds: the other one has had its seconds by then.
    wait_until(lambda: "poll is cancelled" in shop.lines, lambda: shop.log)
    shop.wait_for_log(r"^bolide: stop: waiting for 1 request: GET /background, which goes on after its answer \(for .*\); ")
    (tmp_path / "gate").touch()
    assert shop.wait_for_exit() == 0
    assert "background is done" in shop.lines
    assert "background is cancelled" not in shop.lines


def test_a_stop_counts_the_tasks_that_it_does_not_name(shop, tmp_path):
    clients = [ask(shop, "/poll", "poll") for _ in range(3)]
    shop.wait_for_log("^poll has begun$", count=3)
    shop.send_signal(signal.SIGTERM)
    shop.wait_for_log(r"^bolide: stop: waiting for 1 request: GET /poll and 2 others \(for .*\); ")
    (tmp_path / "gate").touch()
    assert [client.read_response().text for client in clients] == ["fine"] * 3
    assert shop.wait_for_exit() == 0


def test_a_reload_gives_a_request_whose_client_has_gone_the_mercy(shop, tmp_path):
    leave(shop, ask(shop, "/poll", "poll"))
    shop.send_signal(signal.SIGHUP)
    shop.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    # Longer than the seconds that it has at shutdown.
    shop.wait_for_log("^poll goes on$", count=shop.lines.count("poll goes on") + 45)
    (tmp_path / "gate").touch()
    shop.wait_for_log("^poll is done$")
    assert "cancelled" not in shop.log
