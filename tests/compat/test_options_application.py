"""The options of the application do what uWSGI's manual says: where it is, what it sees, and where it is mounted."""

import json
import os
import subprocess
import sys

import pytest
from support.client import Closed

SAYS = "def {name}(environ, start_response):\n    start_response('200 OK', [])\n    return [{body}]\n"
#: The same for an answer that is an expression over environ.
TELLS = """\
import os
AT_LOAD = os.getcwd()
def application(environ, start_response):
    start_response('200 OK', [])
    return [({answer}).encode()]
"""
FACTS = "module = probe\npythonpath = {apps}/../process/probes"


def says(text, name="application"):
    return SAYS.format(name=name, body=f"b'{text}'")


def prepared(serve, configuration, files, **options):
    server = serve.prepare(configuration, **options)
    for name, text in files.items():
        path = server.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return server


def started(serve, configuration, files, **options):
    return prepared(serve, configuration, files, **options).start()


@pytest.mark.parametrize("option", ["module", "wsgi"])
@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("shop", ""),
        ("shop:application", ""),
        ("shop", "callable = application"),
        ("shop:other", "callable = application"),
    ],
)
def test_module_names_module_and_callable(option, value, more, serve):
    server = started(serve, f"{option} = {value}\n{more}", {"shop.py": says("application") + says("other", "other")})
    assert server.get().text == ("other" if "other" in value else "application")


def test_module_may_be_in_a_package_and_the_callable_a_call(serve):
    factory = says("made", "made") + "def create_app():\n    return made\n"
    server = started(serve, "module = shop.wsgi:create_app()", {"shop/__init__.py": "", "shop/wsgi.py": factory})
    assert server.get().text == "made"


@pytest.mark.parametrize("option", ["wsgi-file", "file"])
@pytest.mark.parametrize("name", ["site.py", "shop.wsgi", "folder/with-dash.py"])
def test_wsgi_file_loads_a_file_whatever_its_name(option, name, serve):
    assert started(serve, f"{option} = {name}", {name: says("file")}).get().text == "file"


def test_callable_goes_with_wsgi_file(serve):
    assert started(serve, "wsgi-file = shop.py\ncallable = app", {"shop.py": says("app", "app")}).get().text == "app"


def test_mounts_with_manage_script_name(serve):
    answer = "'{name} ' + environ['SCRIPT_NAME'] + ' ' + environ['PATH_INFO']"
    server = started(
        serve,
        "mount = /shop=shop.py\nmount = /shop/admin=admin:application\nmodule = main\nmanage-script-name = true",
        {name + ".py": TELLS.format(answer=answer.format(name=name)) for name in ("shop", "admin", "main")},
    )
    for target, told in {
        "/shop": "shop /shop ",
        "/shop/a": "shop /shop /a",
        "/shopping": "main  /shopping",
        "/shop/admin/b": "admin /shop/admin /b",
        "/": "main  /",
    }.items():
        assert server.get(target).text == told


def test_chdir_comes_before_sockets_and_the_application(serve):
    server = started(
        serve,
        "chdir = inside\nmodule = shop\nsocket = app.sock",
        {"inside/shop.py": "import os\nFOLDER = os.getcwd()\n" + says("inside")},
    )
    assert server.get().text == "inside"
    assert (server.folder / "inside" / "app.sock").exists()


def test_chdir2_comes_after_the_application_is_loaded(serve):
    tells = TELLS.format(answer="AT_LOAD + ' ' + os.getcwd()")
    server = prepared(serve, "module = shop\nchdir2 = after", {"shop.py": tells, "after/file": ""}).start()
    assert server.get().text == f"{server.folder} {server.folder / 'after'}"


def test_pythonpath_folders_come_first_in_their_order(serve):
    server = started(
        serve,
        "pythonpath = one\npythonpath = two\nmodule = shop",
        {"one/shop.py": says("one"), "two/shop.py": says("two"), "shop.py": says("here")},
    )
    assert server.get().text == "one"


@pytest.mark.parametrize("option", ["virtualenv", "home", "venv", "pyhome"])
def test_virtualenv_by_all_its_names(option, serve):
    server = serve.prepare()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(server.folder / "own")], check=True)
    server.configure(f"{FACTS}\n{option} = own")
    facts = json.loads(server.start().get("/facts").text)
    assert facts["prefix"] == str(server.folder / "own")


def test_env_reaches_the_application_and_the_interpreter(serve):
    server = serve(f"{FACTS}\nenv = COLOUR=red\nenv = COLOUR=blue\nenv = EMPTY=\nenv = PYTHONHASHSEED=0")
    facts = json.loads(server.get("/facts").text)
    assert facts["environment"]["COLOUR"] == "blue"
    assert facts["environment"]["EMPTY"] == ""
    hash_with_seed = subprocess.run(
        [sys.executable, "-c", "print(hash('colour'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    hashing = TELLS.format(answer="str(hash('colour'))")
    seeded = started(serve, "module = shop\nenv = PYTHONHASHSEED=0", {"shop.py": hashing})
    assert seeded.get().text == hash_with_seed.strip()


def test_catch_exceptions_shows_the_traceback_to_the_client(serve):
    fails = "def application(environ, start_response):\n    raise RuntimeError('no database')\n"
    answer = started(serve, "module = shop\ncatch-exceptions = true", {"shop.py": fails}).get()
    assert answer.status == 500
    assert "RuntimeError: no database" in answer.text
    assert "no database" not in started(serve, "module = shop", {"shop.py": fails}).get().text


def test_catch_exceptions_shows_what_is_raised_while_the_answer_is_made(serve):
    streams = (
        "def application(environ, start_response):\n    start_response('200 OK', [('Content-Length', '7')])\n"
        "    if environ['PATH_INFO'] == '/late':\n        yield b'some'\n"
        "    raise RuntimeError('no database')\n"
    )
    server = started(serve, "module = shop\ncatch-exceptions = true", {"shop.py": streams})
    answer = server.get("/early")
    assert answer.status == 500
    assert "RuntimeError: no database" in answer.text
    # What has been sent can't be taken back: the client sees that the answer is not whole.
    with pytest.raises(Closed):
        server.get("/late")


def test_two_applications_for_one_mount_are_an_error_that_quotes_both_lines(serve):
    server = prepared(serve, "mount = /shop=one.py\nmount = /shop=two.py", {"one.py": says("one"), "two.py": says("two")})
    server.launch()
    assert server.wait_for_exit() == 1
    assert "uwsgi.ini:3" in server.lines[-1]
    assert "uwsgi.ini:4" in server.lines[-1]
