"""The page at the address of `metrics`: its events, and what a browser shows of them on a desktop and a phone, light and dark."""

import base64
import contextlib
import json
import math
import os
import threading
import time
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support import processes
from support.browser import chromium
from support.metrics import fetch, metrics_address
from support.statistics import connect
from support.waiting import wait_until

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
#: Clients with events at the same time (`stats_server.rs`, `MAX_STREAMS`).
MAX_STREAMS = 16
OVERFLOWS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
GROUND = "return getComputedStyle(document.body).backgroundColor"


SHOP = """
import os, time

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/prices":
        raise RuntimeError("no database")
    if path == "/reports":
        open("waits", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
    time.sleep(int(path.partition("/products/")[2] or 0) / 1000)
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"""
#: With this variable, the test takes the pictures of the documentation, under a load of this many seconds.
WRITES = "BOLIDE_WRITE_REFERENCE"
LOAD_SECONDS = 100


@pytest.fixture
def shop(start, tmp_path):
    """An instance with helpers, a request in flight and one that has failed."""
    (tmp_path / "shop.py").write_text(SHOP)
    options = ("--processes", "2", "--threads", "2", "--mule", "--attach-daemon", "sleep 1000")
    instance = start("--metrics", "127.0.0.1:0", *options, module="shop", alarms=True)
    assert instance.get("/prices?key=secret").status == 500
    request = threading.Thread(target=instance.get, args=("/reports?token=secret",))
    request.start()
    # It does not look at the events: a test of the number of clients that get them must find none.
    wait_until((tmp_path / "waits").exists, "a request in flight")
    yield instance
    (tmp_path / "go").touch()
    request.join()


@pytest.fixture
def busy(shop):
    """The address of the metrics of an instance that has something to show."""
    return metrics_address(shop)


def events_of(address):
    """Opens a stream of events. Returns its socket and a file of its lines."""
    stream = connect(address)
    stream.sendall(b"GET /-/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    lines = stream.makefile("r")
    return stream, lines


def next_event(lines):
    for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


def test_events_come_again_and_again_with_the_requests_in_flight_and_without_values_of_queries(busy):
    stream, lines = events_of(busy)
    with stream, lines:
        assert "200 OK" in lines.readline()
        event = next_event(lines)
        assert next_event(lines)["now_ms"] > event["now_ms"]
        # The memory of a process is unknown until the first look at it.
        while not all("resident_bytes" in process for process in event["workers"] + event["helpers"]):
            event = next_event(lines)
    assert [worker["number"] for worker in event["workers"]] == [1, 2]
    assert all(worker["resident_bytes"] > 1 << 20 for worker in event["workers"])
    assert "secret" not in json.dumps(event)
    assert "/prices?key=" in json.dumps(event["recent_errors"])
    assert [helper["name"] for helper in event["helpers"]] == ["mule 1", "attendant"]
    assert all(helper["resident_bytes"] > 1 << 20 for helper in event["helpers"])
    (generation,) = event["generations"]
    assert (generation["state"], generation["serving"], generation["wanted"], generation["helpers"]) == ("serving", 2, 2, 1)
    (in_flight,) = [one for worker in event["workers"] for one in worker["in_flight"]]
    assert in_flight["phase"] == "application"
    assert in_flight["thread"] in [thread["thread"] for worker in event["workers"] for thread in worker["by_thread"]]


def test_a_hundred_readers_that_take_no_event_delay_nobody_and_are_let_go(start, tmp_path):
    # The counters of many threads make long events, and the buffer of a UNIX socket is full after a few of them.
    instance = start("--metrics", tmp_path / "metrics", "--processes", "8", "--threads", "64", alarms=True)
    address = metrics_address(instance)
    reading, lines = events_of(address)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading)
        stack.enter_context(lines)
        seen = next_event(lines)["now_ms"]
        before = len(os.listdir(f"/proc/{instance.pid}/fd"))
        stalled = [stack.enter_context(events_of(address)[0]) for _ in range(100)]
        killed = instance.workers()[0]
        processes.kill(killed)
        wait_until(lambda: killed not in instance.workers() and len(instance.workers()) == 8, "the fork of the next worker")
        assert fetch(address, "/metrics").status == 200
        assert next_event(lines)["now_ms"] > seen

        def are_gone():
            # The client that takes its events gets each of them in the meantime.
            next_event(lines)
            return len(os.listdir(f"/proc/{instance.pid}/fd")) <= before

        wait_until(are_gone, "readers that take nothing are let go")
        assert all(client.fileno() > 0 for client in stalled)


def test_clients_with_events_are_few_and_a_foreign_name_gets_none(busy):
    opened = [events_of(busy) for _ in range(MAX_STREAMS)]
    try:
        assert all("200 OK" in lines.readline() for _, lines in opened)
        assert fetch(busy, "/-/events").status == 503
        for path in ("/", "/-/events", "/-/page.js"):
            assert fetch(busy, path, host="evil.example").status == 403
        assert fetch(busy, "/metrics").status == 200
    finally:
        for stream, lines in opened:
            lines.close()
            stream.close()
    wait_until(lambda: streams_again(busy), "room for another client")


def streams_again(address):
    stream, lines = events_of(address)
    with stream, lines:
        return "200 OK" in lines.readline()


def test_a_browser_shows_the_page_in_each_size_and_color_without_a_message_in_its_console(shop, busy):
    grounds = set()
    with chromium() as browser:

        def text(name):
            return browser.find_element(By.ID, name).text

        for width, height, scheme in [(1280, 800, "light"), (1280, 800, "dark"), (390, 844, "light"), (390, 844, "dark")]:
            emulate(browser, width, height, scheme)
            browser.get("http://{}:{}/".format(*busy))
            wait_until(lambda: len(text("workers").splitlines()) == 2, "two workers")
            wait_until(lambda: "GET /reports?token=" in text("requests"), "the request in flight")
            assert "application" in text("requests")
            assert "GET /prices?key=" in text("errors")
            assert text("generations").startswith("1 serving ")
            assert "mule 1" in text("helpers")
            assert "attendant" in text("helpers")
            assert "secret" not in browser.page_source
            assert text("state").startswith("serving, generation 1")
            assert not browser.execute_script(OVERFLOWS), f"wider than {width} px"
            grounds.add((scheme, browser.execute_script(GROUND)))
        assert len(grounds) == 2
        # By the keyboard alone: the first stop is the filter, the next one pauses.
        browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        browser.switch_to.active_element.send_keys("no such worker")
        wait_until(lambda: text("workers") == "", "no worker")
        browser.switch_to.active_element.send_keys(Keys.CONTROL, "a")
        browser.switch_to.active_element.send_keys(Keys.DELETE, Keys.TAB)
        browser.switch_to.active_element.send_keys(Keys.SPACE)
        assert browser.find_element(By.ID, "pause").get_attribute("aria-pressed") == "true"
        button = browser.find_elements(By.CSS_SELECTOR, "#heads button")[5]
        button.send_keys(Keys.ENTER)
        assert browser.find_elements(By.CSS_SELECTOR, "#heads th")[5].get_attribute("aria-sort") == "descending"
        # The threads of a worker unfold, and the keyboard stays at its button although the rows are new each second.
        button = browser.find_element(By.CSS_SELECTOR, "#workers button")
        number = button.text
        button.send_keys(Keys.ENTER)
        browser.find_element(By.ID, "pause").send_keys(Keys.SPACE)
        # The order may have changed, as the workers are sorted by what changes.
        buttons = "[...document.querySelectorAll('#workers button')]"
        browser.execute_script(f"{buttons}.find(button => button.textContent === arguments[0]).focus()", number)
        state = text("requests")
        wait_until(lambda: text("requests") != state, "the next event")
        assert browser.switch_to.active_element.text == number
        assert browser.switch_to.active_element.get_attribute("aria-expanded") == "true"
        assert text("workers").count("thread ") == 2
        browser.switch_to.active_element.send_keys(Keys.ENTER)
        assert "thread " not in text("workers")
        assert browser.console() == []
        if os.environ.get(WRITES):
            take_pictures(browser, shop)


def emulate(browser, width, height, scheme):
    def set_up(command, **parameters):
        browser.execute("executeCdpCommand", {"cmd": command, "params": parameters})

    set_up("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
    set_up("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def take_pictures(browser, instance):
    """Takes the pictures of docs/top.md, with charts of a load that rises and falls."""
    until = time.monotonic() + LOAD_SECONDS

    def ask(number):
        connection = instance.connect()
        while (left := until - time.monotonic()) > 0:
            connection.request("GET", f"/products/{4 + 8 * number + int(20 * (1 + math.sin(left / 6)))}")
            time.sleep(0.02 * (1 + math.cos(left / 9)))

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for client in clients:
        client.start()
    time.sleep(LOAD_SECONDS - 10)
    for name, size in ("desktop-light", (1280, 900, "light")), ("phone-dark", (390, 844, "dark")):
        emulate(browser, *size)
        time.sleep(2)
        (PICTURES / f"page-{name}.png").write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))
    for client in clients:
        client.join()
