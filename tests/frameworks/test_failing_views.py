"""The traceback page: a view that fails is shown in the browser with its code, whichever framework it is of."""

import base64
import os
import re
import sys
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from support.browser import chromium

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "traceback-page.png"
BROWSER = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
VIEW = """
def of_today(number):
    password = "hunter2"
    return number / (number - number)
"""
APPLICATIONS = {
    "flask": """
import flask
app = flask.Flask(__name__)
@app.get("/")
def view():
    return str(of_today(7))
""",
    "fastapi": """
import fastapi
app = fastapi.FastAPI()
@app.get("/")
async def view():
    return of_today(7)
""",
    "fastapi-in-a-thread": """
import fastapi
app = fastapi.FastAPI()
@app.get("/")
def view():
    return of_today(7)
""",
    "fastapi-with-a-middleware": """
import fastapi
app = fastapi.FastAPI()
@app.middleware("http")
async def timed(request, call_next):
    return await call_next(request)
@app.get("/")
async def view():
    return of_today(7)
""",
    "starlette": """
from starlette.applications import Starlette
from starlette.routing import Route
async def view(request):
    return of_today(7)
app = Starlette(routes=[Route("/", view)])
""",
    "django": """
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x")
django.setup()
from django.urls import path
def view(request):
    return of_today(7)
urlpatterns = [path("", view)]
from django.core.wsgi import get_wsgi_application
app = get_wsgi_application()
""",
    "django-asgi": """
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x")
django.setup()
from django.urls import path
async def view(request):
    return of_today(7)
urlpatterns = [path("", view)]
from django.core.asgi import get_asgi_application
app = get_asgi_application()
""",
    "falcon": """
import falcon
class View:
    def on_get(self, request, response):
        response.media = of_today(7)
app = falcon.App()
app.add_route("/", View())
""",
    "falcon-asgi": """
import falcon.asgi
class View:
    async def on_get(self, request, response):
        response.media = of_today(7)
app = falcon.asgi.App()
app.add_route("/", View())
""",
    "litestar": """
from litestar import Litestar, get
@get("/")
async def view() -> float:
    return of_today(7)
app = Litestar([view])
""",
}


@pytest.fixture
def develop(serve, tmp_path):
    def develop(application, more=""):
        (tmp_path / "shop.py").write_text(VIEW + application)
        return serve(f"pythonpath = {tmp_path}\nchdir = {tmp_path}\nmodule = shop:app\ndevelop = true\n{more}")

    return develop


def ask(server, headers=()):
    with server.connect() as client:
        return client.request("GET", "/", list(headers))


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_view_that_fails_is_shown_in_the_browser_and_logged_once(name, develop, tmp_path):
    server = develop(APPLICATIONS[name])
    page = ask(server, BROWSER)
    text = page.body.decode()
    assert page.status == 500
    assert "<h1>ZeroDivisionError: " in text
    # The innermost frame is the first one, with the expression marked and a link to the editor.
    frame = text[text.index("<details") : text.index("</details>")]
    assert "shop.py, line 4 in <code>of_today</code>" in frame
    assert "hunter2" in re.sub(r"<[^>]*>", "", frame), "the line above"
    # Python tells the expression from 3.11 on.
    column, expression = (12, "number / (number - number)") if sys.version_info >= (3, 11) else (1, "")
    assert f'href="vscode://file{tmp_path}/shop.py:4:{column}"' in frame
    marked = "".join(re.findall(r"<u class=at>(.*?)</u>", frame))
    assert re.sub(r"<[^>]*>", "", marked) == expression
    assert "<details class=values>" not in text
    server.wait_for_text("ZeroDivisionError: ")
    assert server.stop() == 0
    assert server.log.count("ZeroDivisionError: ") == 1, server.log


@pytest.mark.parametrize("name", ["starlette", "django", "litestar"])
def test_programs_get_the_answer_of_the_framework(name, develop):
    answer = ask(develop(APPLICATIONS[name]))
    assert answer.status == 500
    assert b"<details" not in answer.body
    assert b"of_today" not in answer.body


def test_an_error_page_of_the_application_without_an_exception_stays(develop):
    page = ask(develop("import flask\napp = flask.Flask(__name__)\n@app.get('/')\ndef view(): return 'down', 500\n"), BROWSER)
    assert (page.status, page.body) == (500, b"down")


def test_an_error_in_a_template_names_the_template(develop, tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "page.html").write_text("<p>\n{{ order.total.sum }}\n")
    flask = "import flask\napp = flask.Flask(__name__)\n@app.get('/')\ndef view(): return flask.render_template('page.html')\n"
    text = ask(develop(flask), BROWSER).body.decode()
    assert "In the template templates/page.html, line 2." in text
    assert "{{ order.total.sum }}" in text
    (tmp_path / "templates" / "page.html").write_text("<p>\n{% if %}\n")
    assert "In the template templates/page.html, line 2." in ask(develop(flask), BROWSER).body.decode()


def test_the_page_in_a_browser_shows_values_at_a_click_on_a_desktop_and_a_phone(develop):
    server = develop(APPLICATIONS["flask"], "develop-values = true\ndevelop-editor = pycharm\n")
    grounds = set()
    with chromium() as browser:
        for width, height, scheme in [(1280, 640, "light"), (390, 844, "dark")]:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute("executeCdpCommand", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute("executeCdpCommand", {"cmd": "Emulation.setEmulatedMedia", "params": media})
            browser.get(server.url)
            assert "ZeroDivisionError" in browser.find_element(By.TAG_NAME, "h1").text
            values = browser.find_element(By.CSS_SELECTOR, "details.values")
            assert "number" not in values.text
            values.find_element(By.TAG_NAME, "summary").click()
            assert "number 7" in values.text
            assert "password …" in values.text
            link = browser.find_element(By.CSS_SELECTOR, "summary a")
            assert link.get_attribute("href").startswith("pycharm://open?file=/")
            scrolls = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
            assert not browser.execute_script(scrolls), width
            if scheme == "light" and os.environ.get("BOLIDE_WRITE_REFERENCE"):
                PICTURE.write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))
            grounds.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
