"""The page at the address of `metrics`: its events, and what a browser shows of them on a desktop and a phone, light and dark."""

import base64
import contextlib
import json
import math
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support import processes
from support.browser import chromium
from support.metrics import fetch, metrics_address
from support.statistics import connect
from support.waiting import wait_until
from support_instance import REFUSED

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
#: Clients with events at the same time (`stats_server.rs`, `MAX_STREAMS`).
MAX_STREAMS = 16
OVERFLOWS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
#: The heads that are outside of their table's box.
HIDDEN_COLUMNS = """
return [...document.querySelectorAll('.scroll')].filter(box => !box.hidden && box.scrollWidth > box.clientWidth + 1)
    .map(box => box.getAttribute('aria-label'))
"""
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
PICTURE_SIZES = {"desktop-light": (1200, 1000, "light"), "phone-light": (390, 844, "light"), "phone-dark": (390, 844, "dark")}


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


def event_after(requests, address):
    """Returns the first event that counts this number of requests, because a worker counts a request after its response."""
    stream, lines = events_of(address)
    with stream, lines:
        while True:
            event = next_event(lines)
            if event["totals"]["requests"] >= requests:
                return event


def test_events_come_again_and_again_with_the_requests_in_flight_and_without_values_of_queries(busy):
    stream, lines = events_of(busy)
    with stream, lines:
        assert "200 OK" in lines.readline()
        event = next_event(lines)
        assert next_event(lines)["now_ms"] > event["now_ms"]

        def is_whole(event):
            # The memory of a process is unknown until the first look at it, and a worker counts a request after its response.
            shown = event["workers"] + event["helpers"]
            is_known = len(event["helpers"]) == 2 and all("resident_bytes" in process for process in shown)
            return is_known and event["totals"]["requests"] >= 1

        event = wait_until(lambda: (found := next_event(lines)) and is_whole(found) and found, "an event with all of it")
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
        instance.wait_for_replacement(killed, count=8)
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


def test_an_event_names_the_site_and_has_totals_routes_and_the_state_of_threads(shop, busy):
    event = event_after(1, busy)
    assert event["site"]["applications"] == ["shop"]
    assert event["site"]["host"] == socket.gethostname()
    assert event["site"]["addresses"] == [f"http://127.0.0.1:{shop.port}"]
    assert event["totals"] == {"requests": 1, "errors": 1}
    assert event["routes"]["source"] == "recorder"
    (route,) = event["routes"]["rows"]
    assert (route["name"], route["requests"], route["errors"]) == ("GET /prices", 1, 1)
    (in_flight,) = [one for worker in event["workers"] for one in worker["in_flight"]]
    assert in_flight["state"] in ("runs", "waits", "disk")


def test_routes_come_from_the_requests_that_workers_remember_with_rates_and_quantiles(start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    instance = start("--metrics", "127.0.0.1:0", "--processes", "2", module="shop")
    for number in range(20):
        assert instance.get(f"/orders/{number}?token=secret").status == 200
    assert instance.get("/products/300").status == 200
    event = event_after(21, metrics_address(instance))
    assert "secret" not in json.dumps(event)
    assert (event["routes"]["requests"], event["routes"]["more"]) == (21, 0)
    routes = {route["name"]: route for route in event["routes"]["rows"]}
    assert routes["GET /orders/:id"]["requests"] == 20
    assert routes["GET /orders/:id"]["rate"] > 0
    assert routes["GET /products/:id"]["p99_us"] >= 300_000


def test_routes_of_groups_are_counted_since_startup(start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    groups = ("--route-group", "orders /orders/", "--route-group", "products /products/")
    instance = start("--metrics", "127.0.0.1:0", "--processes", "1", *groups, module="shop", alarms=True)
    for number in range(200):
        assert instance.get(f"/orders/{number}").status == 200
    assert instance.get("/prices").status == 500
    routes = event_after(201, metrics_address(instance))["routes"]
    assert routes["source"] == "route-group"
    rows = {row["name"]: row for row in routes["rows"]}
    assert {name: (row["requests"], row["errors"]) for name, row in rows.items()} == {
        "orders": (200, 0),
        "products": (0, 0),
        "other": (1, 1),
    }
    assert sum(count for _, count in rows["orders"]["latency_us"]) == 200


def text_of(browser, name):
    return browser.find_element(By.ID, name).text


def test_a_browser_shows_the_page_in_each_size_and_color_without_a_message_in_its_console(shop, busy):
    grounds = set()
    with chromium() as browser:

        def text(name):
            return text_of(browser, name)

        for width, height, scheme in [(1200, 800, "light"), (1200, 800, "dark"), (390, 844, "light"), (390, 844, "dark")]:
            emulate(browser, width, height, scheme)
            browser.get("http://{}:{}/".format(*busy))
            wait_until(lambda: len(text("workers").splitlines()) == 2, "two workers")
            wait_until(lambda: "GET /reports?token=" in text("requests"), "the request in flight")
            assert "GET /prices?key=" in text("errors")
            assert "GET /prices" in text("routes")
            assert "mule 1" in text("helpers")
            assert "attendant" in text("helpers")
            assert "secret" not in browser.page_source
            assert text("state").startswith("serving \u00b7 generation 1 for ")
            site = f"shop on {socket.gethostname()}"
            assert (text("title"), browser.title) == (site, site)
            assert text("site") == f"http://127.0.0.1:{shop.port}"
            # One generation that serves needs no table.
            assert not browser.find_element(By.ID, "forming").is_displayed()
            assert not browser.find_element(By.ID, "limits").is_displayed(), "nothing of it is configured"
            assert not browser.execute_script(OVERFLOWS), f"wider than {width} px"
            # A table shows all of its columns within the screen, or fewer columns.
            assert browser.execute_script(HIDDEN_COLUMNS) == [], width
            assert text("workers").splitlines()[0].endswith("of 2")
            assert "0 of" in text("charts")
            grounds.add((scheme, browser.execute_script(GROUND)))
        assert len(grounds) == 2
        emulate(browser, 1200, 800, "light")
        assert "application" in text("requests")
        links = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "nav a")]
        assert [link.rpartition("/")[2] for link in links] == ["metrics", "status"]
        # By the keyboard alone: the first stop is the filter, the next one pauses.
        browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        browser.switch_to.active_element.send_keys("no such worker")
        wait_until(lambda: text("workers") == "", "no worker")
        assert text("no-workers") == "None matches the filter."
        browser.switch_to.active_element.send_keys(Keys.CONTROL, "a")
        browser.switch_to.active_element.send_keys(Keys.DELETE, Keys.TAB)
        browser.switch_to.active_element.send_keys(Keys.SPACE)
        assert browser.find_element(By.ID, "pause").get_attribute("aria-pressed") == "true"
        button = browser.find_elements(By.CSS_SELECTOR, "#heads button")[5]
        button.send_keys(Keys.ENTER)
        assert browser.find_elements(By.CSS_SELECTOR, "#heads th")[5].get_attribute("aria-sort") == "descending"
        # The threads of a worker unfold, and the keyboard stays at its button although the order of rows changes.
        button = browser.find_element(By.CSS_SELECTOR, "#workers button")
        button.send_keys(Keys.ENTER)
        browser.find_element(By.ID, "pause").send_keys(Keys.SPACE)
        browser.execute_script("arguments[0].focus()", button)
        state = text("requests")
        wait_until(lambda: text("requests") != state, "the next event")
        assert browser.switch_to.active_element == button
        assert button.get_attribute("aria-expanded") == "true"
        assert text("workers").count("thread ") == 2
        # The command for its stacks has the pids of the worker and of the master.
        command = browser.find_element(By.CSS_SELECTOR, "#workers code").text
        assert re.fullmatch(rf"bolide trace \d+ {shop.pid}", command), command
        assert int(command.split()[2]) in shop.workers()
        button.send_keys(Keys.ENTER)
        assert "thread " not in text("workers")
        assert browser.console() == []
        if os.environ.get(WRITES):
            take_pictures(browser, shop)


def test_rows_stay_so_that_a_click_of_any_length_counts_and_a_selection_stays(start, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    instance = start("--metrics", "127.0.0.1:0", "--processes", "4", module="shop")
    is_over = threading.Event()

    def ask():
        with instance.connect() as connection:
            while not is_over.is_set():
                connection.request("GET", "/orders/1")

    load = threading.Thread(target=ask)
    load.start()
    try:
        with chromium() as browser:
            browser.get("http://{}:{}/".format(*metrics_address(instance)))
            wait_until(lambda: len(text_of(browser, "workers").splitlines()) == 4, "four workers")
            # The order by requests changes under load.
            for _ in range(2):
                browser.find_elements(By.CSS_SELECTOR, "#heads button")[7].click()
            for press in range(12):
                button = browser.find_elements(By.CSS_SELECTOR, "#workers tr:not(.thread):not(.detail) td:first-child button")[
                    press % 4
                ]
                before = button.get_attribute("aria-expanded")
                # Selenium waits between the press and the release; events of the page come in each second.
                actions = ActionChains(browser, duration=0)
                actions.click_and_hold(button).pause((0.06, 0.12, 0.25, 1.2)[press % 4]).release().perform()
                assert button.get_attribute("aria-expanded") != before, f"press {press}"
                button.send_keys(Keys.ENTER)
                assert button.get_attribute("aria-expanded") == before
            pid = browser.execute_script(
                "const td = document.querySelector('#workers tr').children[1];"
                "document.getSelection().selectAllChildren(td); return td.textContent"
            )
            rates = set()

            def has_changed():
                rates.add(text_of(browser, "charts"))
                return len(rates) > 4

            wait_until(has_changed, "several events")
            assert browser.execute_script("return document.getSelection().toString()").strip() == pid
            assert browser.console() == []
    finally:
        is_over.set()
        load.join()


def test_a_failed_reload_is_above_all_else_and_an_instance_without_errors_says_so(start, call, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    instance = start("--metrics", "127.0.0.1:0", "--processes", "1", module="shop", alarms=True)
    (tmp_path / "shop.py").write_text("raise RuntimeError('no database')\n")
    assert call("reload", "--wait", instance.pid)[0] == REFUSED
    with chromium() as browser:
        for width, height in [(800, 500), (390, 664)]:
            emulate(browser, width, height, "light")
            browser.get("http://{}:{}/".format(*metrics_address(instance)))
            wait_until(lambda: "no database" in text_of(browser, "failure"), "the reason")
            assert re.match(r"The reload at \d\d:\d\d:\d\d failed, so generation 1 still serves: ", text_of(browser, "failure"))
            bottom = browser.execute_script("return document.getElementById('failure').getBoundingClientRect().bottom")
            assert bottom < height / 2, bottom
            assert text_of(browser, "no-errors") == "None since startup."
            assert text_of(browser, "no-requests") == "None."
            assert text_of(browser, "no-routes") == "No request in the last two minutes."


#: Each option that counts requests or messages, and the row that it has on the page.
LIMITS = {
    "sticky": (("--sticky", "header:Session"), "0 here"),
    "cancelled requests": (("--cancel-on-disconnect",), "0 running"),
    "admission": (("--admission", "auto"), "0 refused"),
    "publish": (("--publish",), "0 messages"),
    "rate limit login": (("--rate-limit", "name=login,rate=1/d,route=^/login"), "2 refused, 0 uncounted"),
    "bulkhead reports": (("--bulkhead", "name=reports,route=^/reports,max=1"), "1 passed"),
}


def test_limits_and_messages_are_rows_if_they_are_configured(start, call, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "go").touch()
    chosen = [word for options, _ in LIMITS.values() for word in options]
    instance = start("--metrics", "127.0.0.1:0", "--processes", "2", *chosen, module="shop")
    assert [instance.get("/login").status for _ in range(3)] == [200, 429, 429]
    assert instance.get("/reports").status == 200
    with chromium() as browser:

        def rows():
            return text_of(browser, "services").splitlines()

        def shows_all():
            """Each option has a row, and `bolide status` has the same words in a line."""
            status = call("status", instance.pid)[1]
            found = {name: [row for row in rows() if row.startswith(f"{name} ")] for name in LIMITS}
            are_whole = all(len(found[name]) == 1 and words in found[name][0] for name, (_, words) in LIMITS.items())
            return are_whole and all(row.replace(name, f"{name}:", 1) in status for name, (row,) in found.items())

        for width, height in [(1200, 800), (390, 844)]:
            emulate(browser, width, height, "light")
            browser.get("http://{}:{}/".format(*metrics_address(instance)))
            wait_until(shows_all, lambda: f"the counts: {rows()}")
            assert not browser.execute_script(OVERFLOWS), f"wider than {width} px"
            assert browser.execute_script(HIDDEN_COLUMNS) == [], width
        browser.find_element(By.ID, "filter").send_keys("bulkhead")
        wait_until(lambda: text_of(browser, "services").startswith("bulkhead reports "), "the filter")
        assert browser.console() == []


def test_charts_fill_from_the_right_and_have_their_scale_and_time(shop):
    with chromium() as browser:
        emulate(browser, 1200, 800, "light")
        browser.get("http://{}:{}/".format(*metrics_address(shop)))
        cards = wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, ".chart"), "charts")
        assert len(cards) == 6
        wait_until(lambda: "\u221230 s" in cards[0].text, "the time")
        for card in cards:
            axis = [span.text for span in card.find_elements(By.CSS_SELECTOR, ".axis span")]
            assert axis[0] == "\u221230 s"
            assert re.match(r"0 to \S", axis[1]), axis
            assert axis[2] == "now"
        ends = (
            "return [...document.querySelectorAll('.chart path.series0')].map(path => path.getAttribute('d').split(/[ML]/).pop())"
        )

        # A line ends with the last second in which there was a value, and times have one if there was a request.
        def are_up_to_now():
            assert shop.get("/").status == 200
            return all(end.startswith("240.0 ") for end in browser.execute_script(ends))

        wait_until(are_up_to_now, "lines up to now")


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
            wait_ms = 4 + 8 * number + int(20 * (1 + math.sin(left / 6)))
            path = (f"/products/{wait_ms}", "/", f"/orders/{wait_ms}", f"/search?q={wait_ms}")[int(left * 50) % 4]
            connection.request("GET", path)
            time.sleep(0.02 * (1 + math.cos(left / 9)))

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for client in clients:
        client.start()
    emulate(browser, *PICTURE_SIZES["desktop-light"])
    browser.refresh()
    time.sleep(LOAD_SECONDS - 10)
    for name, size in PICTURE_SIZES.items():
        emulate(browser, *size)
        if name.startswith("phone"):
            browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
        time.sleep(2)
        (PICTURES / f"page-{name}.png").write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))
    for client in clients:
        client.join()
