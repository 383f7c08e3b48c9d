"""The examples work as described, started from their own files; only the port differs."""

import json
from pathlib import Path

import pytest
from support.browser import chromium
from support.waiting import wait_until
from websockets.sync.client import connect

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TIMEOUT_SECONDS = 60


def serve_example(serve, name):
    directory = EXAMPLES / name
    text = (directory / "uwsgi.ini").read_text()
    assert text.count("http = 127.0.0.1:8080\n") == text.count("chdir = %d\n") == 1
    server = serve.prepare(arguments=["{directory}/uwsgi.ini"])
    server.ini.write_text(text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("%d", str(directory)))
    return server.start()


@pytest.fixture
def clock(serve):
    return serve_example(serve, "clock")


def test_every_example_has_a_test():
    assert {directory.name for directory in EXAMPLES.iterdir()} == {"clock", "fibonacci"}


def test_the_fibonacci_example_answers(serve):
    server = serve_example(serve, "fibonacci")
    assert json.loads(server.get("/20").body) == [0, 1, 1, 2, 3, 5, 8, 13]
    assert server.get("/9" + "0" * 20).status == 400


def test_the_clock_example_ticks_in_a_browser(clock):
    with chromium() as browser:
        browser.get(clock.url)
        wait_until(lambda: ":" in browser.find_element("id", "time").text, "it ticks")
        first = browser.find_element("id", "time").text
        wait_until(lambda: browser.find_element("id", "time").text != first, "it ticks on")
        # A word that is typed before the WebSocket is open is lost.
        wait_until(lambda: browser.execute_script("return socket.readyState") == 1, "the WebSocket is open")
        browser.find_element("id", "words").send_keys("hello")
        wait_until(lambda: browser.find_element("id", "echo").text == "HELLO", browser.console)
    assert "Traceback" not in clock.log_until_now()


def test_the_clock_example_keeps_the_state_of_its_start_and_stops_with_its_streams_open(clock):
    assert set(json.loads(clock.get("/time").body)) == {"time", "started"}
    with connect(f"ws://127.0.0.1:{clock.port}/echo") as line:
        line.send("words")
        assert line.recv(TIMEOUT_SECONDS) == "WORDS"
    stream = clock.connect()
    stream.send(b"GET /ticks HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert stream.read_head().get("content-type").startswith("text/event-stream")
    # Workers that exceed the mercy are killed, and this is logged.
    clock.expects_alarms = True
    clock.stop()
    stream.read_to_end()
