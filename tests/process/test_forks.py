"""Applications that fork in a request: a child that returns does not serve, and one that lives on does not keep a response
open."""

import pytest
from support import processes
from support.waiting import wait_until
from support_processes import children_of

WSGI = """
import os, time
def application(environ, start_response):
    path = environ["PATH_INFO"]
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/return":
        os.fork()
        return [str(os.getpid()).encode()]
    if path == "/generator":
        return generate()
    if path == "/child":
        pid = os.fork()
        if pid == 0:
            time.sleep(300)
            os._exit(0)
        return iter([str(pid).encode()])
    return [str(os.getpid()).encode()]
def generate():
    yield b"begun "
    os.fork()
    yield str(os.getpid()).encode()
"""

ASGI = """
import os, time
async def application(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    if scope["path"] in ("/return", "/generator"):
        os.fork()
    pid = os.getpid()
    if scope["path"] == "/child":
        pid = os.fork()
        if pid == 0:
            time.sleep(300)
            os._exit(0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(pid).encode(), "more_body": scope["path"] == "/child"})
    await send({"type": "http.response.body", "body": b""})
"""


@pytest.fixture(params=["wsgi", "wsgi 2 threads", "asgi"])
def shop(request, start, tmp_path):
    (tmp_path / "shop.py").write_text(ASGI if request.param == "asgi" else WSGI)
    if request.param == "asgi":
        return start("--asgi", "shop", module=None)
    return start("--threads", "2" if "2" in request.param else "1", module="shop")


@pytest.mark.parametrize("path", ["return", "generator"])
@pytest.mark.filterwarnings("ignore")
def test_a_child_that_returns_from_a_view_ends_without_an_answer(shop, path):
    worker = shop.worker()
    for _ in range(5):
        assert shop.get(f"/{path}").text.split()[-1] == str(worker)
        assert shop.get("/").text == str(worker)
    shop.wait_for_log(r"^bolide: a child that the application forked \(pid \d+\) returned from it, and was terminated", 5)
    # The application does not wait for its children, so they stay as zombies.
    wait_until(lambda: all(is_dead(child) for child in children_of(worker)), "the children's end")
    assert shop.stop() == 0


def is_dead(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_an_answer_ends_although_a_child_of_the_application_has_its_socket_open(shop):
    client = shop.connect()
    client.send(b"GET /child HTTP/1.0\r\n\r\n")
    assert client.read_head().status == 200
    child = int(client.read_to_end())
    assert not is_dead(child)
    processes.kill(child)
