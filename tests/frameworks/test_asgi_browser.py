"""A real browser with a real page: WebSockets, events and streams in Chromium."""

import json
import signal

import pytest
from selenium.webdriver.common.by import By
from support.browser import chromium
from support.waiting import wait_until

CONFIGURATION = "pythonpath = {apps}\nasgi = browser_asgi:app"


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shown(serve_module, browser):
    """Returns the texts of the page's paragraphs when all of it is done; and the server's notes."""
    site = serve_module(CONFIGURATION)
    browser.get(site.url)
    wait_until(lambda: browser.title == "done", lambda: f"{paragraphs(browser)}, {browser.console()}")
    texts = paragraphs(browser)
    texts["ends"] = wait_until(lambda: len(ends := json.loads(site.get("/ended").text)) >= 2 and ends, "both sockets have ended")
    texts["console"] = [line for line in browser.console() if "favicon" not in line]
    site.wait_for_log("GET /numbers", count=2)
    texts["log"] = site.log
    return texts


def paragraphs(browser):
    return {element.get_attribute("id"): element.text for element in browser.find_elements(By.TAG_NAME, "p")}


def test_a_page_speaks_by_a_websocket_with_subprotocol_and_compression(shown):
    assert shown["socket"] == "hello from a page, by chat, permessage-deflate"
    assert shown["large"] == "200000 characters came back"
    assert shown["bytes"] == "0 127 128 255"


def test_a_page_sees_the_code_and_the_reason_with_which_the_application_closes(shown):
    assert shown["closed"] == "4002 goodbye true"


def test_the_application_sees_the_code_and_the_reason_with_which_a_page_closes(shown):
    assert shown["left"] == "4100 true"
    assert [4100, "the page goes"] in shown["ends"]
    # It also receives the close event of the close that it began.
    assert sorted(code for code, _ in shown["ends"]) == [4002, 4100]


def test_a_page_receives_each_event_at_once_and_reconnects_when_the_stream_has_ended(shown):
    assert shown["events"] == "1 2 3 4 5"
    assert shown["log"].count("GET /numbers") >= 2


def test_a_page_reads_a_stream_part_by_part_and_uploads(shown):
    assert shown["streamed"] == "one|two|caf\xe9|four"
    assert shown["uploaded"] == "300000 bytes were read"


def test_a_page_has_nothing_to_complain_of(shown):
    assert shown["console"] == []
    assert "Traceback" not in shown["log"]


def test_a_page_is_notified_of_a_reload_and_reconnects_to_the_next_generation(serve, browser):
    site = serve(CONFIGURATION)
    browser.get(f"{site.url}/empty")
    browser.execute_script(
        """
        window.story = [];
        const open = () => {
            const socket = new WebSocket(`ws://${location.host}/socket`, ["chat"]);
            socket.onopen = () => socket.send("here");
            socket.onmessage = (event) => story.push(event.data);
            socket.onclose = (event) => { story.push(event.code); open(); };
        };
        open();
        """
    )

    def story():
        return browser.execute_script("return story")

    wait_until(lambda: story() == ["here"], story)
    site.send_signal(signal.SIGHUP)
    # RFC 6455 has no code for it; 1012 of the registry is "service restart".
    wait_until(lambda: story() == ["here", 1012, "here"], lambda: f"{story()}\n{site.log}")
