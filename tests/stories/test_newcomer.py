"""The first hour of people who come from Flask, FastAPI, Django, uvicorn and gunicorn: the commands they type, and the output
they see.
"""

import re
import threading

import pytest
from support.client import Client
from support.waiting import wait_until

FLASK = """
    from flask import Flask

    app = Flask(__name__)

    @app.route("/")
    def home():
        return "hello from Flask"
"""
FASTAPI = """
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/")
    async def home():
        return {"hello": "from FastAPI"}
"""
PLAIN = """
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello from WSGI"]
"""
FACTORY = """
    from flask import Flask

    def create_app():
        made = Flask(__name__)
        made.add_url_rule("/", view_func=lambda: "hello from a factory")
        return made
"""
DJANGO_SETTINGS = """
    SECRET_KEY = "x"
    ALLOWED_HOSTS = ["*"]
    ROOT_URLCONF = "mysite.urls"
    DEBUG = False
"""
DJANGO_URLS = """
    from django.http import HttpResponse
    from django.urls import path

    urlpatterns = [path("", lambda request: HttpResponse("hello from Django"))]
"""
ANY_PORT = ("--http", "127.0.0.1:0")


@pytest.fixture
def mysite(desk):
    desk.write("mysite/__init__.py", "")
    desk.write("mysite/settings.py", DJANGO_SETTINGS)
    desk.write("mysite/urls.py", DJANGO_URLS)
    for interface in ("wsgi", "asgi"):
        desk.write(
            f"mysite/{interface}.py",
            f"""
            import os
            from django.core.{interface} import get_{interface}_application

            os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
            application = get_{interface}_application()
            """,
        )
    desk.write("manage.py", 'import os\nos.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")\n')
    return desk


# The first line.


def test_bolide_alone_says_which_line_serves_the_application_of_this_directory(desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide")
    assert status == 2
    assert "Flask" in shown
    assert re.search(r"\bbolide app(:app|\.py)\b", shown), shown


def test_bolide_alone_in_an_empty_directory_is_a_short_usage(desk):
    status, shown = desk.ended("bolide")
    assert status == 2
    assert "bolide uwsgi.ini" in shown
    assert len(shown.splitlines()) <= 20, shown


def test_the_short_help_fits_a_screen_and_the_long_one_has_all(desk):
    status, short = desk.ended("bolide", "-h")
    assert (status, len(short.splitlines()) <= 40) == (0, True), short
    status, long = desk.ended("bolide", "--help")
    assert status == 0
    assert len(long.splitlines()) > 200
    for word in ("SECONDS", "BYTES", "ADDRESS"):
        assert word in long


@pytest.mark.parametrize("words", [("help",), ("help", "check"), ("version",), ("-V",)], ids=" ".join)
def test_help_and_version_are_words_that_are_understood(words, desk):
    status, shown = desk.ended("bolide", *words)
    assert status == 0
    assert shown.startswith("bolide 0.") if words in [("version",), ("-V",)] else "bolide" in shown


@pytest.mark.parametrize(("typed", "meant"), [("chekc", "check"), ("--workres", "--workers"), ("confg", "config")])
def test_a_misspelled_word_is_reported_with_a_suggestion(typed, meant, desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", typed)
    assert status != 0
    assert meant in shown.splitlines()[-1], shown


@pytest.mark.parametrize(
    "line",
    ["run", "run app:app", "serve app.py", "--app app run", "dev", "app:app --http httptools --ws none --no-access-log"],
)
def test_the_lines_of_other_servers_serve(line, desk, browse):
    desk.write("app.py", FLASK)
    shown = desk.type("bolide", *line.split(), *ANY_PORT)
    assert browse(shown).get().text == "hello from Flask"
    shown.interrupt()
    assert shown.wait_for_end() == 0


@pytest.mark.parametrize(
    ("typed", "meant"), [("restart", "reload"), ("ps", "status"), ("kill", "stop"), ("chekc app.py", "check")]
)
def test_a_word_of_another_program_starts_nothing_and_names_the_command(typed, meant, desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", *typed.split())
    assert status != 0
    assert f"`bolide {meant}" in shown
    assert "listening" not in shown


@pytest.mark.parametrize(
    "named", ["app", "app.py", "./app.py", "app:app", "app.py:app", ".", "app:"], ids=lambda named: named.replace("/", "-")
)
def test_each_way_to_name_a_flask_application_serves_it(named, desk, browse):
    desk.write("app.py", FLASK)
    shown = desk.type("bolide", named, *ANY_PORT)
    assert browse(shown).get().text == "hello from Flask"
    shown.interrupt()
    assert shown.wait_for_end() == 0


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (FASTAPI, "main"),
        (FASTAPI.replace("app", "service"), "main.py"),
        (FLASK.replace("app =", "shop =").replace("@app", "@shop"), "main"),
        (FACTORY, "main"),
        (FACTORY, "main:create_app"),
        (FACTORY.replace("create_app()", "make(name)"), "main:make('you')"),
    ],
    ids=["fastapi", "only-object", "only-flask", "factory-found", "factory-without-call", "factory-with-argument"],
)
def test_what_a_module_has_is_found_and_said(source, named, desk, browse):
    desk.write("main.py", source)
    shown = desk.type("bolide", named, *ANY_PORT)
    assert "hello" in browse(shown).get().text
    shown.interrupt()
    assert shown.wait_for_end() == 0


@pytest.mark.parametrize("named", ["mysite.wsgi", "mysite.asgi", "mysite.wsgi:application", "mysite/wsgi.py", "."])
def test_djangos_own_lines_serve_a_project(named, mysite, browse):
    shown = mysite.type("bolide", named, *ANY_PORT)
    assert browse(shown).get().text == "hello from Django"
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_a_misspelled_callable_is_reported_with_the_line_to_type(desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", "app:aap", *ANY_PORT)
    assert status != 0
    assert "bolide app:app" in shown.splitlines()[-1] or "app:app" in shown.splitlines()[-1], shown


def test_a_failing_import_begins_at_the_persons_own_file(desk):
    desk.write("app.py", "import os\n\nvalue = {}['nothing']\n")
    status, shown = desk.ended("bolide", "app:app", *ANY_PORT)
    assert status != 0
    frames = re.findall(r'File "([^"]+)"', shown)
    assert frames, shown
    assert frames[0].endswith("app.py"), shown
    assert "app" in shown.splitlines()[-1]


# Flags of other servers.


def test_a_bare_port_is_reported_with_its_correct_form(desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", "--http", "8000", "app:app")
    assert status != 0
    assert ":8000" in shown.splitlines()[-1], shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-k", "eventlet"), ("write `gevent` instead",)),
        (("--processes", "four"), ("four", "number")),
    ],
    ids=["-k", "no-number"],
)
def test_what_means_another_thing_here_is_an_error_that_says_both(words, said, desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", *words, "app:app")
    assert status != 0
    for part in said:
        assert part in shown, shown


def test_uvicorns_line_serves(desk, browse):
    desk.write("main.py", FASTAPI)
    shown = desk.type("bolide", "main:app", "--host", "127.0.0.1", "--port", "0", "--workers", "2", "--proxy-headers")
    assert browse(shown).get().text == '{"hello":"from FastAPI"}'
    shown.interrupt()
    assert shown.wait_for_end() == 0


@pytest.mark.parametrize(
    "line",
    [
        "--bind 127.0.0.1:0 --workers 2 --timeout 30 --graceful-timeout 5 --preload app:app",
        "-w 2 -b 127.0.0.1:0 -k gthread --threads 4 --access-logfile - app:app",
    ],
    ids=["long", "short"],
)
def test_gunicorns_line_serves(line, desk, browse):
    desk.write("app.py", FLASK)
    shown = desk.type("bolide", *line.split())
    assert browse(shown).get().text == "hello from Flask"
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_gunicorns_file_serves(desk, browse):
    desk.write("app.py", FLASK)
    desk.write("gunicorn.conf.py", "bind = '127.0.0.1:0'\nworkers = 1 + 1\nraw_env = ['SHOP=open']\n")
    shown = desk.type("bolide", "-c", "gunicorn.conf.py", "app:app")
    assert browse(shown).get().text == "hello from Flask"
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_port_and_web_concurrency_count_where_there_is_no_configuration(desk, free_port):
    desk.write("app.py", FLASK)
    port = free_port()
    shown = desk.type("bolide", "app:app", PORT=str(port), WEB_CONCURRENCY="2")
    shown.wait_for(rf":{port}\b")
    shown.wait_for("2 workers")
    shown.interrupt()
    assert shown.wait_for_end() == 0


# Development.


def test_reload_serves_new_code_and_reports_errors(desk, browse):
    desk.write("app.py", FLASK)
    shown = desk.type("bolide", "app:app", "--reload", *ANY_PORT)
    browser = browse(shown)
    assert browser.get().text == "hello from Flask"
    desk.write("app.py", FLASK.replace("hello", "good morning"))
    wait_until(lambda: browser.get().text == "good morning from Flask", "the new code serves")
    desk.write("app.py", FLASK + "\n    raise RuntimeError('half written')\n")
    shown.wait_for("half written")
    assert browser.get().text == "good morning from Flask"
    desk.write("app.py", FLASK.replace("hello", "good night"))
    wait_until(lambda: browser.get().text == "good night from Flask", "the mended code serves")
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_a_broken_start_in_development_shows_its_traceback_in_the_browser_and_waits_for_the_mend(desk, browse):
    desk.write("app.py", FLASK + "\n    raise RuntimeError('half written')\n")
    shown = desk.type("bolide", "app:app", "--reload", *ANY_PORT)
    browser = browse(shown)
    page = browser.get(headers=[("Accept", "text/html")])
    assert page.status == 500
    assert "half written" in page.text
    assert "app.py" in page.text
    desk.write("app.py", FLASK)
    wait_until(lambda: browser.get().text == "hello from Flask", "the mended code serves")
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_a_breakpoint_opens_the_debugger_in_development(desk, browse):
    desk.write("app.py", FLASK.replace('return "hello', 'basket = 42; breakpoint(); return "hello'))
    shown = desk.type("bolide", "app:app", "--reload", *ANY_PORT)
    browser = browse(shown)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(browser.get().text))
    asking.start()
    shown.wait_for(r"\(Pdb\)")
    shown.type("p basket * 2\n")
    shown.wait_for(r"\b84\b")
    shown.type("c\n")
    asking.join()
    assert answers == ["hello from Flask"]
    shown.interrupt()
    assert shown.wait_for_end() == 0


def test_a_request_is_one_short_line_with_colors_at_a_terminal_alone(desk, browse):
    desk.write("app.py", FLASK)
    shown = desk.type("bolide", "app:app", *ANY_PORT, TERM="xterm-256color")
    browse(shown).get("/nowhere")
    line = shown.wait_for(r"(?m)^.*GET +/nowhere.*404.*$")[0]
    assert len(line) < 80, line
    shown.wait_for("404")
    assert "\x1b[" in shown.text
    plain = desk.type("bolide", "app:app", *ANY_PORT, TERM="xterm-256color", NO_COLOR="1")
    browse(plain).get("/nowhere")
    plain.wait_for("GET +/nowhere")
    assert "\x1b[" not in plain.text


def test_an_open_event_stream_does_not_hold_ctrl_c_up(desk, browse):
    desk.write(
        "main.py",
        """
        import asyncio
        from starlette.applications import Starlette
        from starlette.responses import StreamingResponse
        from starlette.routing import Route

        async def ticks():
            while True:
                yield b"data: tick\\n\\n"
                await asyncio.sleep(0.05)

        async def stream(request):
            return StreamingResponse(ticks(), media_type="text/event-stream")

        app = Starlette(routes=[Route("/ticks", stream)])
        """,
    )
    shown = desk.type("bolide", "main:app", *ANY_PORT)
    browser = browse(shown)
    with Client(("127.0.0.1", browser.port)) as tab:
        tab.send(b"GET /ticks HTTP/1.1\r\nHost: a\r\n\r\n")
        tab.read_until(b"tick")
        shown.interrupt()
        assert shown.wait_for_end() == 0
    assert "Traceback" not in shown.words


# On to production.


def test_init_writes_a_configuration_that_check_has_nothing_against_and_that_serves(desk, browse):
    desk.write("shop/__init__.py", FACTORY)
    status, shown = desk.ended("bolide", "init")
    assert status == 0, shown
    status, shown = desk.ended("bolide", "check", "bolide.ini")
    assert (status, shown) == (0, "nothing to report\n")
    serving = desk.type("bolide", "bolide.ini", "--http", "127.0.0.1:0", "--processes", "1")
    serving.wait_for("ready")
    serving.interrupt()
    assert serving.wait_for_end() == 0


def test_each_mistake_in_a_file_is_reported_with_its_line(desk):
    desk.write(
        "uwsgi.ini", "[uwsgi]\nmodule app:app\nprocesess = 4\nuid = nobody-of-this-name\npidfile = /no/such/directory/x.pid\n"
    )
    status, shown = desk.ended("bolide", "check", "uwsgi.ini")
    assert status != 0
    for number in (2, 3, 4, 5):
        assert f"uwsgi.ini:{number}" in shown, shown
    desk.write("half.ini", "[uwsgi\nmodule = app:app\n")
    status, shown = desk.ended("bolide", "check", "half.ini")
    assert status != 0
    assert "half.ini:1" in shown, shown


def test_a_long_text_is_in_the_pager_and_a_short_one_is_not(desk):
    pager = {"TERM": "xterm", "PAGER": "sed 's/^/> /'"}
    status, shown = desk.ended("bolide", "--help", **pager)
    assert status == 0
    assert "> Usage:\n" in shown
    assert ">       --websocket-ping-interval" in shown
    for words, environment in (
        (["-h"], pager),
        (["--help"], {**pager, "PAGER": ""}),
        (["--help"], {**pager, "TERM": "dumb"}),
        (["--help"], {**pager, "PAGER": "there-is-no-such-pager"}),
    ):
        status, shown = desk.ended("bolide", *words, **environment)
        assert status == 0
        assert "\nUsage:\n" in shown, (words, environment)


def test_less_ends_with_a_key_and_the_text_stays(desk):
    less = desk.type("bolide", "--help", TERM="xterm", PAGER="less")
    less.wait_for("Configuration:")
    less.type("q")
    assert less.wait_for_end() == 0


def test_config_shows_what_a_start_would_do(desk):
    desk.write("app.py", FLASK)
    status, shown = desk.ended("bolide", "config", "app:app")
    assert status == 0
    assert "app:app" in shown
    assert "127.0.0.1:8000" in shown
