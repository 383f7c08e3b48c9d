"""`reload-browser`: an open page is notified of changes, and reloads."""

import re
from pathlib import Path

import pytest
from support.browser import chromium
from support.waiting import wait_until

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "develop.md"
#: The line from the guide.
(LINE,) = re.findall(r"^<script>.*</script>$", GUIDE.read_text(), re.MULTILINE)

WSGI = f"""\
from shop import views
PAGE = "<!doctype html><title>%s</title>" + {LINE!r}
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/html")])
    return [(PAGE % views.TEXT).encode()]
"""
ASGI = f"""\
from shop import views
PAGE = "<!doctype html><title>%s</title>" + {LINE!r}
async def application(scope, receive, send):
    assert scope["type"] == "http"
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]}})
    await send({{"type": "http.response.body", "body": (PAGE % views.TEXT).encode()}})
"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def package(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "views.py").write_text('TEXT = "old"\n')
    return directory


@pytest.mark.parametrize("application", [WSGI, ASGI], ids=["wsgi", "asgi"])
def test_an_open_page_refreshes_itself_when_code_changes_fails_and_is_mended(application, start, package, browser):
    (package / "__init__.py").write_text(application)
    instance = start("--reload", "--reload-browser", module="shop", master=False, logging=True)
    browser.get(instance.url)

    def has_polled():
        return browser.execute_script("return performance.getEntriesByType('resource').some(e => e.name.includes('.bolide'))")

    def shows(title):
        wait_until(lambda: browser.title == title, lambda: f"{browser.title!r}, {browser.console()}; {instance.log}")
        # A page learns at its first poll to which version it belongs.
        wait_until(has_polled, "the page has polled")

    shows("old")
    steps = [('TEXT = "young"\n', "young"), ("TEXT = prices\n", "NameError: name 'prices' is not defined")]
    for text, title in [*steps, ('TEXT = "younger"\n', "younger")]:
        with instance.looks_away():
            (package / "views.py").write_text(text)
        shows(title)
    # The page polls repeatedly, which does not count as a change.
    assert "GET / " in instance.log
    assert ".bolide" not in instance.log


def test_a_poll_returns_the_current_version_and_later_whether_it_has_changed(start, package):
    (package / "__init__.py").write_text(WSGI)
    instance = start("--reload", "--reload-browser", module="shop", master=False)

    def ask(*headers):
        answer = instance.get("/.bolide/reload", headers)
        assert answer.get("content-type") == "text/event-stream"
        return re.search(r"^id: (.*)$", answer.text, re.MULTILINE)[1], "event: reload" in answer.text

    first, has_changed = ask()
    assert not has_changed
    assert ask(("Last-Event-ID", first)) == (first, False)
    with instance.looks_away():
        (package / "views.py").write_text('TEXT = "young"\n')
    # The old worker may still accept a connection when the new one serves.
    version, _ = wait_until(lambda: (said := ask(("Last-Event-ID", first)))[1] and said, "the news of the new code")
    assert version != first


@pytest.mark.parametrize("options", [("--reload",), ("--reload", "--reload-browser")], ids=["not-asked-for", "for-strangers"])
def test_elsewhere_the_path_is_the_application_s(options, start, package):
    (package / "__init__.py").write_text(WSGI)
    socket = "0.0.0.0:0" if "--reload-browser" in options else "127.0.0.1:0"
    instance = start(*options, module="shop", master=False, socket=socket)
    assert "<title>old</title>" in instance.body("/.bolide/reload")
