"""Lookup of an application that is named on the command line, and its messages, from the first line that people type."""

import os
import sys
import textwrap

import pytest
from support_instance import LOAD_FAILED, START_FAILED

FLASK = "from flask import Flask\n{name} = Flask(__name__)\n@{name}.route('/')\ndef hello(): return 'hello'\n"
FASTAPI = "from fastapi import FastAPI\n{name} = FastAPI()\n@{name}.get('/')\ndef hello(): return 'hello'\n"
FACTORY = """
    from flask import Flask

    def create_app(greeting="hello"):
        made = Flask(__name__)
        made.add_url_rule("/", view_func=lambda: greeting)
        return made
"""
#: Like an application of Dash: an object that can't be called and contains one of Flask.
DASH_LIBRARY = FLASK.format(name="made") + "class Dash:\n    server = made\n"
DASH = "from dash import Dash\napp = Dash()\n"
DJANGO = {
    "manage.py": "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'mysite.settings')\n",
    "mysite/__init__.py": "",
    "mysite/settings.py": "SECRET_KEY = 'x'\nALLOWED_HOSTS = ['*']\nROOT_URLCONF = 'mysite.urls'\nMIDDLEWARE = []\n",
    "mysite/urls.py": """
        from django.http import HttpResponse
        from django.urls import path

        urlpatterns = [path("", lambda request: HttpResponse("hello"))]
    """,
    **{
        f"mysite/{kind}.py": f"""
            import os
            os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
            from django.core.{kind} import get_{kind}_application
            application = get_{kind}_application()
        """
        for kind in ("wsgi", "asgi")
    },
}


def lay(directory, files):
    """Writes a project."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def plain_environment():
    """Returns the environment without the options of the user who runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("UWSGI_", "BOLIDE_"))}


@pytest.fixture
def serve(start, tmp_path):
    """Serves a command-line name in a directory with these files. Returns the instance."""

    def serve(name, files, *options):
        lay(tmp_path, files)
        return start(name, *options, module=None, master=False)

    return serve


@pytest.mark.parametrize("name", ["app", "app.py", "./app.py", "app:", ".", "{directory}/app.py"])
def test_a_file_with_an_application_is_served_by_any_of_its_names(name, serve, tmp_path):
    instance = serve(name.format(directory=tmp_path), {"app.py": FLASK.format(name="app")})
    assert instance.body() == "hello"
    instance.wait_for_log("serving the Flask application `app` of app.py$")


@pytest.mark.parametrize(("name", "kind"), [("mysite.wsgi", "wsgi"), ("mysite.asgi", "asgi"), ("mysite", "wsgi"), (".", "wsgi")])
def test_a_django_project_is_served_by_its_module_its_package_and_its_directory(name, kind, serve):
    instance = serve(name, DJANGO)
    assert instance.body() == "hello"
    instance.wait_for_log(f"serving the Django application `application` of mysite/{kind}.py")


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("main", {"main.py": FASTAPI.format(name="api")}, "the FastAPI application `api` of main.py$"),
        ("shop", {"shop/__init__.py": FACTORY}, r"the Flask application `create_app\(\)` of shop/__init__.py"),
        ("shop/", {"shop/__init__.py": "", "shop/main.py": FASTAPI.format(name="app")}, "application `app` of shop/main.py"),
        (
            "src/shop/main.py",
            {"src/shop/__init__.py": "", "src/shop/main.py": FASTAPI.format(name="app")},
            "imported as shop.main from",
        ),
        (".", {"src/shop/__init__.py": FACTORY}, r"`create_app\(\)` of src/shop/__init__.py, imported as shop from"),
        ("types.py", {"types.py": FLASK.format(name="app")}, "the Flask application `app` of types.py"),
        (
            "site.py",
            {"site.py": "async def app(scope, receive, send): raise RuntimeError\n" + FLASK.format(name="application")},
            "the Flask application `application` of site.py",
        ),
    ],
    ids=[
        "any name",
        "factory",
        "module in a package",
        "file in a package",
        "src layout",
        "name of the library",
        "application first",
    ],
)
def test_an_application_is_found_wherever_projects_have_it(name, files, told, serve):
    instance = serve(name, files)
    assert instance.body().strip('"') == "hello"
    instance.wait_for_log(f"serving .*{told}")


def test_modules_of_a_file_are_those_beside_it(serve):
    files = {
        "app.py": FLASK.format(name="app") + "import models\n",
        "models.py": "from app import app\n@app.route('/same')\ndef same(): return 'one application'\n",
    }
    instance = serve("app.py", files)
    assert instance.body("/same") == "one application"


def test_what_wraps_an_application_comes_first(serve):
    text = (
        FASTAPI.format(name="api") + "import socketio\nouter = socketio.ASGIApp(socketio.AsyncServer(async_mode='asgi'), api)\n"
    )
    instance = serve("main", {"main.py": text})
    instance.wait_for_log("serving the Socket.IO application `outer` of main.py")
    assert instance.body() == '"hello"'


def test_the_server_of_an_unnamed_dash_application_is_served(serve):
    instance = serve("app", {"app.py": DASH, "dash.py": DASH_LIBRARY})
    assert instance.body() == "hello"
    instance.wait_for_log("serving the Flask application `app.server` of app.py")


def test_a_factory_that_is_named_without_its_call_is_called_and_that_is_said(serve):
    instance = serve("app:create_app", {"app.py": FACTORY})
    assert instance.body() == "hello"
    instance.wait_for_log(
        "'create_app' is a function without arguments: it is called, and the Flask application `create_app\\(\\)`"
    )


@pytest.mark.parametrize("call", ["create_app('good day')", "create_app(greeting='good day')"])
def test_a_factory_is_called_with_literal_arguments(call, serve):
    assert serve(f"app:{call}", {"app.py": FACTORY}).body() == "good day"


def test_a_call_in_a_configuration_has_arguments_too(start, tmp_path):
    lay(tmp_path, {"app.py": FACTORY, "app.ini": "[uwsgi]\nmodule = app:create_app('good day')\n"})
    assert start("app.ini", module=None).body() == "good day"


def test_a_wsgi_function_is_never_called_to_make_an_application(serve):
    text = "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'plain']\n"
    instance = serve("app", {"app.py": text})
    assert instance.body() == "plain"
    instance.wait_for_log("serving the WSGI application `app` of app.py")


@pytest.mark.parametrize(
    "made",
    [
        "from werkzeug import Request, Response\n@Request.application\ndef app(request):\n    return Response('plain')\n",
        "import inspect\ndef view(request): pass\n"
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'plain']\n"
        "app.__signature__ = inspect.signature(view)\n",
        "def app(environ, start_response, body=b'plain'):\n    start_response('200 OK', [])\n    return [body]\n",
        "def app(*arguments):\n    arguments[1]('200 OK', [])\n    return [b'plain']\n",
    ],
    ids=["decorated", "signature of another", "optional", "any"],
)
def test_a_function_that_can_take_the_arguments_of_wsgi_is_an_application(made, serve):
    assert serve("app:app", {"app.py": made}).body() == "plain"


def test_a_configuration_keeps_to_what_it_names(fail, tmp_path):
    lay(tmp_path, {"app.py": FLASK.format(name="app"), "app.ini": "[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = app\n"})
    status, lines = fail("app.ini")
    assert status == LOAD_FAILED
    assert "app.ini:3: 'app' has no 'application'; it has 'app': write callable = app" in lines[-1]


@pytest.mark.parametrize(
    ("name", "files", "words"),
    [
        ("app:aap", {"app.py": FLASK.format(name="app")}, "'app' has no 'aap'; did you mean `bolide app:app`?"),
        ("ap:app", {"app.py": ""}, "there is no module 'ap'; did you mean `bolide app:app`?"),
        ("ap.py", {"app.py": ""}, "did you mean app.py?"),
        ("shop.wsgy", {"shop/__init__.py": "", "shop/wsgi.py": ""}, "did you mean `bolide shop.wsgi`?"),
        ("app:app", {"src/app.py": ""}, "it is in src: `bolide --pythonpath src app:app`"),
        ("app", {"app.py": "a = 1\n"}, "specify it: `bolide app:NAME`"),
        ("app", {"app.py": "def hello(environ, start_response): pass\n"}, "did you mean `bolide app:hello`?"),
        (
            "app",
            {"app.py": "def create_app(config): pass\n"},
            'its create_app(config) requires arguments; write them, as in `bolide "app:create_app(…)"`',
        ),
        ("app", {"app.py": FLASK.format(name="a") + FLASK.format(name="b")}, "choose one: `bolide app:a`, `bolide app:b`"),
        (
            "app:create_app(1, 2)",
            {"app.py": FACTORY},
            "can't be called like this: too many positional arguments; it is create_app(greeting='hello')",
        ),
        (
            "app:create_app",
            {"app.py": "def create_app(config, *, debug=False): pass\n"},
            "'create_app' of 'app' can't answer requests: it takes (config, *, debug=False), but an application takes",
        ),
        (
            "app:create_app",
            {"app.py": "async def create_app(config): pass\n"},
            "if it creates the application, write its arguments, as in app:create_app(…)",
        ),
        ("app:create_app(x)", {"app.py": FACTORY}, "a call with literal arguments such as create_app('prod')"),
        (
            "app:create_app()",
            {"app.py": "def create_app(): return 7\n"},
            "'create_app()' of 'app' is a int, which can't be called",
        ),
        (
            "app",
            {"app.py": "from aiohttp.web import Application\napp = Application()\n"},
            "'app' of 'app' is an application of aiohttp, which is neither WSGI nor ASGI",
        ),
        ("app:app", {"app.py": DASH, "dash.py": DASH_LIBRARY}, "whose `server` must be served: write app:app.server"),
    ],
)
def test_a_wrong_name_is_answered_with_the_likeliest_line(name, files, words, fail, tmp_path):
    lay(tmp_path, files)
    status, lines = fail(name, "--http-socket", "127.0.0.1:0")
    assert status == LOAD_FAILED
    assert words in lines[-1], lines


def test_a_package_that_is_not_installed_is_named_with_the_python_that_lacks_it(fail, tmp_path):
    lay(tmp_path, {"app.py": "import no_such_package\n"})
    _, lines = fail("app", "--http-socket", "127.0.0.1:0")
    assert f"No module named 'no_such_package'; this application's Python, {sys.prefix}" in lines[-1]
    assert "does not have it; is the name misspelled?" in lines[-1]
    lay(tmp_path, {".venv/lib/python3.11/site-packages/no_such_package/__init__.py": ""})
    _, lines = fail("app", "--http-socket", "127.0.0.1:0")
    assert "it is installed in the virtualenv .venv: write --virtualenv .venv" in lines[-1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chekc", "did you mean `bolide check`?"),
        ("notes.txt", "`notes.txt` is neither a configuration nor a Python file"),
        ("empty", "no known application was found in the directory `empty`"),
    ],
)
def test_what_can_be_no_application_starts_nothing(name, words, fail, tmp_path):
    lay(tmp_path, {"notes.txt": "", "empty/notes.txt": ""})
    status, lines = fail(name, env=plain_environment())
    assert (status, len(lines)) == (START_FAILED, 1)
    assert words in lines[0]


def test_alone_it_says_which_command_would_serve_the_directory(call, tmp_path):
    status, said = call(env=plain_environment())
    assert status == 2
    assert said.startswith("usage: bolide APPLICATION")
    lay(tmp_path, {"app.py": FLASK.format(name="app")})
    status, said = call(env=plain_environment())
    assert status == 2
    assert "  bolide app:app  " in said
    assert "a Flask application in app.py" in said


def test_what_init_writes_for_a_package_serves_and_leaves_check_nothing_to_say(call, start, tmp_path):
    lay(tmp_path, {"src/shop/__init__.py": FACTORY})
    status, said = call("init")
    assert status == 0, said
    assert call("check", "bolide.ini", env=plain_environment()) == (0, "nothing to report\n")
    text = (tmp_path / "bolide.ini").read_text().replace("http = 127.0.0.1:8000", "")
    (tmp_path / "bolide.ini").write_text(text)
    assert start("bolide.ini", "--processes", "1", module=None).body() == "hello"


@pytest.mark.parametrize(
    ("imported", "told"),
    [
        ("requsts", "; did you mean requests?"),
        ("yaml", " -m pip install PyYAML"),
        ("psycopg", ' -m pip install "psycopg[binary]"'),
        ("qqzzkk", "; is the name misspelled?"),
    ],
)
def test_a_missing_dependency_is_only_installed_by_a_name_that_is_known(fail, tmp_path, imported, told):
    # The module is missing even where the tests have it.
    (tmp_path / "hiding.py").write_text(
        "def find_spec(name, path, target=None):\n"
        f"    if name == {imported!r}:\n"
        "        raise ModuleNotFoundError('no', name=name)\n"
    )
    (tmp_path / "shop.py").write_text(
        f"import sys\nsys.modules.pop({imported!r}, None)\nsys.meta_path.insert(0, __import__('hiding'))\nimport {imported}\n"
    )
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "shop")
    assert status == LOAD_FAILED
    assert "this application's Python, /" in lines[-1], lines
    assert f"does not have it{':' if 'pip' in told else ''}" in lines[-1], lines
    assert told in lines[-1], lines
    if "pip" not in told:
        assert "pip install" not in "\n".join(lines)
