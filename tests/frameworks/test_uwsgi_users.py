"""Libraries that use the module `uwsgi`, as they come."""

import pytest
from support.websocket import WebSocket

FLASK_UWSGI_WEBSOCKET = """
from flask import Flask
from flask_uwsgi_websocket import WebSocket
app = Flask(__name__)
websocket = WebSocket(app)
@app.route("/")
def index():
    return "fine"
@websocket.route("/echo")
def echo(client):
    while True:
        message = client.receive()
        if message is None:
            return
        client.send(message)
application = app
"""

SENTRY = """
import sentry_sdk
from sentry_sdk.integrations.wsgi import SentryWsgiMiddleware
events = []
sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", before_send=lambda event, hint: events.append(event), default_integrations=False)
def failing(environ, start_response):
    if environ["PATH_INFO"] == "/fail":
        raise KeyError("cart")
    start_response("200 OK", [])
    return [str([event["exception"]["values"][0]["type"] for event in events]).encode()]
application = SentryWsgiMiddleware(failing)
"""


def test_flask_uwsgi_websocket_echoes(serve, tmp_path):
    """It is not among what the tests install: it compiles uWSGI, and wants a Flask below 2.3."""
    pytest.importorskip("flask_uwsgi_websocket", exc_type=ImportError)
    (tmp_path / "shop.py").write_text(FLASK_UWSGI_WEBSOCKET)
    instance = serve(f"chdir = {tmp_path}\nmodule = shop\nthreads = 2")
    websocket = WebSocket(instance.connect(), "/echo").open()
    for text in ("hello", "Läden", "x" * 70_000):
        websocket.send_text(text)
        assert websocket.read_message() == text
    assert instance.get("/").text == "fine"
    assert websocket.close()[0] == 1000


def test_sentry_reports_and_warns_of_nothing(serve, tmp_path):
    pytest.importorskip("sentry_sdk")
    (tmp_path / "shop.py").write_text(SENTRY)
    instance = serve(f"chdir = {tmp_path}\nmodule = shop\nmaster = true")
    assert instance.get("/fail").status == 500
    assert instance.get("/").text == "['KeyError']"
    assert "IMPORTANT: We detected the use of uWSGI" not in instance.log
