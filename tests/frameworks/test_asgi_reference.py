"""The applications of the ASGI documentation and of asgiref, with asgiref's helpers: WsgiToAsgi, the conversions between
coroutines and functions, and the older double callables.
"""

import json

import httpx
import pytest
from websockets.sync.client import connect

TIMEOUT_SECONDS = 60


@pytest.fixture
def serve_application(serve):
    def serve_it(application, more=""):
        return serve(f"pythonpath = {{apps}}\nasgi = asgiref_asgi:{application}\n{more}")

    return serve_it


def test_the_introductions_application_speaks_both_protocols(serve_application):
    # It raises an exception for the lifespan scope: `lifespan = auto` continues without it.
    server = serve_application("echo")
    assert server.get("/path", method="POST", body=b"x" * 200_000).text == "POST /path 200000"
    with connect(f"ws://127.0.0.1:{server.port}/") as line:
        for text in ("one", "two"):
            line.send(text)
            assert line.recv(TIMEOUT_SECONDS) == text
    assert "Traceback" not in server.whole_log()


def test_the_lifespans_example_keeps_its_state(serve_application):
    server = serve_application("lifespan", "lifespan = on")
    assert json.loads(server.get("/").body) == [["lifespan.startup"], "from startup", "3.0"]
    assert server.stop() == 0
    server.wait_for_text("the application closes")


@pytest.mark.parametrize(
    ("application", "text"),
    [
        ("Double", "double /x"),
        ("double_made_single", "double /x"),
        ("double_function_made_single", "double function /x"),
        ("partial", "by a partial"),
        ("create_app()", "by a partial"),
    ],
)
def test_an_application_of_any_shape_is_served(serve_application, application, text):
    assert serve_application(application).get("/x").text == text


@pytest.mark.parametrize("application", ["Double", "echo", "lifespan", "flask", "partial"])
def test_the_interface_is_detected_from_the_application(serve, application):
    server = serve(f"pythonpath = {{apps}}\nmodule = asgiref_asgi:{application}")
    assert server.get("/hello/ann").status == 200


def test_asgirefs_conversions_keep_their_context_and_their_loop(serve_application):
    server = serve_application("syncs")
    for path in ("/one", "/two"):
        told = json.loads(server.get(path).body)
        assert told == [[path, path], [path, path], True, False, path]


def test_receive_and_send_are_what_coroutines_are(serve_application):
    server = serve_application("awaits_by_hand")
    with server.connect() as client:
        for _ in range(3):
            told = json.loads(client.request().body)
            assert told == ["http.request", "timeout", "slept", "CancelledError"]
    assert "Traceback" not in server.whole_log()


def test_asgirefs_adapter_serves_a_wsgi_application(serve_application):
    server = serve_application("flask")
    with httpx.Client(base_url=server.url, verify=False, trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        assert client.get("/hello/caf\xe9", params={"q": "\u20ac"}).text == "hello caf\xe9 \u20ac"
        assert client.post("/json", json=["x" * 100_000]).json()["received"] == ["x" * 100_000]
        assert [client.get("/cookies").text for _ in range(2)] == ["1 none", "2 yes"]
        assert client.get("/stream").text == "".join(f"{number}\n" for number in range(1000))
        assert client.get("/where").text == f"{server.url}/where"
        assert client.head("/hello/ann").content == b""
        assert client.get("/error").status_code == 500
        assert client.get("/hello/ann").text == "hello ann "
