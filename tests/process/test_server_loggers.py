"""The loggers of other servers (`gunicorn.error`, `uvicorn.access` and their relatives) with their options."""

import json

import pytest

#: Writes to each logger that the query names, and answers.
WSGI = """
import logging
{setup}

def app(environ, start_response):
    for name in filter(None, environ["QUERY_STRING"].split(",")):
        logging.getLogger(name).info("paid by card, says %s", name)
        logging.getLogger(name).warning("out of cards, says %s", name)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
ASGI = """
import logging
{setup}

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    for name in filter(None, scope["query_string"].decode().split(",")):
        logging.getLogger(name).info("paid by card, says %s", name)
        logging.getLogger(name).warning("out of cards, says %s", name)
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
GUNICORN = ("--bind", "127.0.0.1:0", "--worker-class", "gthread")
UVICORN = ("--host", "127.0.0.1", "--port", "0")
LINES = {
    "gunicorn": (GUNICORN, WSGI, ["gunicorn.error", "gunicorn.access"]),
    "gunicorn with uvicorn's workers": (
        ("--bind", "127.0.0.1:0", "-k", "uvicorn.workers.UvicornWorker"),
        ASGI,
        ["gunicorn.error", "uvicorn", "uvicorn.error"],
    ),
    "gunicorn with gevent": (("--bind", "127.0.0.1:0", "-k", "gevent"), WSGI, ["gunicorn.error"]),
    "uvicorn": ((*UVICORN, "--no-use-colors"), ASGI, ["uvicorn", "uvicorn.error", "uvicorn.access"]),
    "hypercorn": (("--bind", "127.0.0.1:0", "--websocket-ping-interval", "5"), ASGI, ["hypercorn.error", "hypercorn.access"]),
    "granian": ((*UVICORN, "--interface", "asgi"), ASGI, ["granian.access", "granian.server", "_granian"]),
}
RECIPE = """
log = logging.getLogger("shop")
server = logging.getLogger("gunicorn.error")
log.handlers = server.handlers
log.setLevel(server.level or logging.WARNING)
"""
PROBES = "class Probes(logging.Filter):\n    def filter(self, record):\n        return '/health' not in record.getMessage()\n"


@pytest.fixture
def run(serve):
    def run(words, application, setup="", **files):
        server = serve.prepare(arguments=[*words, "app:app"])
        (server.directory / "app.py").write_text(application.format(setup=setup))
        for name, text in files.items():
            (server.directory / name.replace("__", ".")).write_text(text)
        return server.start()

    return run


def ask(server, *targets):
    """Asks for these paths, and then for one whose line is awaited: those of the others have been written, or never will be."""
    with server.connect() as client:
        for target in [*targets, "/last"]:
            assert client.request(target=target).status == 200
    return server


@pytest.mark.parametrize("line", LINES)
def test_info_reaches_the_log(run, line):
    words, application, names = LINES[line]
    server = ask(run(words, application), f"/?{','.join(names)}")
    for name in names:
        server.wait_for_text(f"paid by card, says {name}")


def test_the_recipe_for_flask_behind_gunicorn_works(run):
    server = ask(run(("--bind", "127.0.0.1:0"), WSGI, RECIPE), "/?shop")
    server.wait_for_text("paid by card, says shop")


@pytest.mark.parametrize("name", ["gunicorn.error", "uvicorn.error"])
def test_the_level_follows_the_command_line(run, name):
    words = {"gunicorn.error": GUNICORN, "uvicorn.error": UVICORN}[name]
    server = ask(run((*words, "--log-level", "warning"), WSGI), f"/?{name}")
    server.wait_for_text(f"out of cards, says {name}")
    assert "paid by card" not in server.whole_log()


CHANGES = {
    "filter": "{access}.addFilter(Probes())",
    "filter in the list": "{access}.filters.append(Probes())",
    "filter of the handler": "{access}.handlers[0].addFilter(Probes())",
    "function": "{access}.filter = lambda record: '/health' not in record.getMessage()",
}
ACCESS = {
    "gunicorn.access": (GUNICORN, WSGI),
    "uvicorn.access": (UVICORN, ASGI),
    "hypercorn.access": LINES["hypercorn"][:2],
    "granian.access": LINES["granian"][:2],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ACCESS)
def test_a_filter_keeps_health_probes_out_of_the_log(run, name, change):
    words, application = ACCESS[name]
    setup = PROBES + CHANGES[change].format(access=f"logging.getLogger({name!r})", name=name)
    server = ask(run(words, application, setup), "/health", "/shop", "/health?x=1")
    server.wait_for_log(r"/last")
    assert "/health" not in server.whole_log()
    # The form of a line is the server's.
    assert "GET /shop => generated 2 bytes" in server.whole_log()


SILENCES = {
    "level": "{access}.setLevel(logging.WARNING)",
    "level as an attribute": "{access}.level = logging.ERROR",
    "level of the handler": "{access}.handlers[0].setLevel(logging.WARNING)",
    "disabled": "{access}.disabled = True",
    "no handlers": "{access}.handlers.clear()",
    "other handlers": "{access}.handlers = [logging.NullHandler()]",
    "all of logging": "logging.disable(logging.INFO)",
    "another configuration": "import logging.config; logging.config.dictConfig({{'version': 1}})",
}


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("name", ["gunicorn.access", "uvicorn.access"])
def test_level_handlers_and_disabled_act_on_request_lines(run, name, silence):
    words, application = ACCESS[name]
    server = ask(run(words, application, SILENCES[silence].format(access=f"logging.getLogger({name!r})")), "/shop")
    server.stop()
    assert "/shop" not in server.whole_log()
    assert "/last" not in server.whole_log()


def test_a_change_while_it_serves_counts(run):
    setup = PROBES + "\nimport threading\n"
    application = WSGI.replace(
        'start_response("200',
        'environ["PATH_INFO"] == "/now" and logging.getLogger("gunicorn.access").addFilter(Probes())\n    start_response("200',
    )
    server = ask(run(GUNICORN, application, setup), "/health?first", "/now", "/health?second")
    server.wait_for_log("/last")
    assert "/health?first" in server.whole_log()
    assert "/health?second" not in server.whole_log()


def test_a_handler_gets_records_as_under_the_server(run):
    setup = "handler = logging.FileHandler('lines.log'); handler.setFormatter(logging.Formatter('%(message)s'))\n"
    server = ask(run(UVICORN, ASGI, setup + "logging.getLogger('uvicorn.access').handlers = [handler]"), "/shop?a=b")
    server.wait_for(lambda: "/last" in (server.directory / "lines.log").read_text(), "the line")
    assert '127.0.0.1 - "GET /shop?a=b HTTP/1.1" 200' in (server.directory / "lines.log").read_text()
    assert "/shop" not in server.whole_log()


FILE_HANDLER = {"class": "logging.FileHandler", "filename": "lines.log"}
CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"file": FILE_HANDLER},
    "loggers": {"uvicorn.access": {"handlers": ["file"], "level": "INFO", "propagate": False}},
}


def test_log_config_acts_on_request_lines(run):
    server = ask(run((*UVICORN, "--log-config", "log.json"), ASGI, log__json=json.dumps(CONFIG)), "/shop?a=b")
    server.wait_for(lambda: "/last" in (server.directory / "lines.log").read_text(), "the line")
    assert "GET /shop" not in server.whole_log()


def test_a_log_config_of_other_loggers_changes_no_request_line(run):
    config = '{"version": 1, "disable_existing_loggers": false, "loggers": {"shop": {"level": "DEBUG"}}}'
    ask(run((*UVICORN, "--log-config", "log.json"), ASGI, log__json=config), "/shop").wait_for_log("GET /shop => generated")


def test_a_filter_that_fails_is_told_once_and_hides_no_line(run):
    setup = (
        "def fails(record):\n    raise ValueError('a filter of the shop')\nlogging.getLogger('uvicorn.access').addFilter(fails)"
    )
    server = ask(run(UVICORN, ASGI, setup), "/shop", "/shop")
    server.wait_for_log("GET /last => generated")
    assert server.whole_log().count("ValueError: a filter of the shop") == 1
    assert server.whole_log().count("GET /shop => generated") == 2


DJANGO = (
    "import logging.config; logging.config.dictConfig({{'version': 1, 'loggers': {{'gunicorn.access': {{'level': 'ERROR'}}}}}})"
)


def test_no_configuration_of_logging_silences_request_lines_under_options_of_uwsgi(serve):
    server = serve.prepare("module = app:app")
    text = WSGI.format(setup=DJANGO.format() + "\nassert not logging.getLogger('gunicorn.error').handlers")
    (server.directory / "app.py").write_text(text)
    ask(server.start(), "/shop").wait_for_log("GET /shop => generated")
