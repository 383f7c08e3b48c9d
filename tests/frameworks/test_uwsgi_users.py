"""Libraries that use the module `uwsgi`, unmodified."""

import pytest

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


def test_sentry_reports_and_warns_of_nothing(serve, tmp_path):
    pytest.importorskip("sentry_sdk")
    (tmp_path / "shop.py").write_text(SENTRY)
    instance = serve(f"chdir = {tmp_path}\nmodule = shop\nmaster = true")
    assert instance.get("/fail").status == 500
    assert instance.get("/").text == "['KeyError']"
    assert "IMPORTANT: We detected the use of uWSGI" not in instance.whole_log()
