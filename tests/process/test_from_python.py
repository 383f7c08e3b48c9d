"""The server from Python: `bolide.run` and `bolide.testing.serve`."""

import inspect
import os
import signal
import subprocess
import sys

import bolide
import bolide.testing
import httpx
import pytest
import requests
from bolide import _run
from flask import Flask, request
from support import processes
from support.server import Server
from support.waiting import TIMEOUT_SECONDS, wait_until

APPLICATION = """\
import os
import sys

import bolide


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{__name__} {os.environ.get('SHOP_COLOR')} {os.getpid()}".encode()]


"""

flask_shop = Flask(__name__)


@flask_shop.post("/echo")
def echo():
    return {"echo": request.get_json(), "multiprocess": request.environ["wsgi.multiprocess"]}


@pytest.fixture
def script(tmp_path):
    """`script(text)` starts a Python program and waits until it serves; its `run` line follows the application."""
    started = []

    def script(run, name="main.py", ready=True, arguments=None):
        (tmp_path / name).write_text(APPLICATION + run)
        server = Server(tmp_path, arguments=arguments or [str(tmp_path / name)], command=[sys.executable])
        started.append(server)
        return server.start() if ready else server.launch()

    yield script
    for server in started:
        server.finish()


GUARDED = """\
if __name__ == "__main__":
    bolide.run({app}, port=0, processes=1{more})
    print("behind the call")
"""


@pytest.mark.parametrize(
    ("app", "name", "loaded_as"),
    [("app", "main.py", "main"), ('"main:app"', "main.py", "main"), ("app", "my-shop.py", "uwsgi_file_")],
    ids=["object", "name", "file"],
)
def test_a_script_serves_its_application_and_goes_on_when_the_server_is_stopped(script, app, name, loaded_as):
    server = script(GUARDED.format(app=app, more=""), name)
    assert server.get("/").text.startswith(loaded_as)
    assert server.stop(signal.SIGINT) == 0
    assert "behind the call" in server.lines
    assert "Traceback" not in server.log


def test_a_module_that_python_runs_by_its_name_serves_its_application(script, tmp_path):
    (tmp_path / "shop").mkdir()
    text = GUARDED.format(app="app", more=', env={"SHOP_COLOR": "100%d"}')
    server = script(text, "shop/__main__.py", arguments=["-m", "shop"])
    assert server.get("/").text.startswith("shop.__main__ 100%d ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT], ids=["SIGTERM", "SIGQUIT"])
def test_signals_of_the_program_are_the_servers(script, number):
    server = script(GUARDED.format(app="app", more=""))
    assert server.stop(number) == 0
    assert "behind the call" in server.lines


def test_a_hangup_of_the_program_reloads_the_server(script):
    server = script(GUARDED.format(app="app", more=""))
    first = server.get("/").text
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: server.get("/").text != first, "an answer of the new generation")


def test_a_server_ends_with_the_program_that_was_killed(script):
    server = script(GUARDED.format(app="app", more=""))
    server.send_signal(signal.SIGKILL)
    server.process.wait(TIMEOUT_SECONDS)
    wait_until(lambda: not server.processes(), "the end of the server")


def test_a_call_that_is_met_when_the_application_is_loaded_is_refused(script):
    server = script("bolide.run(app, port=0, processes=1)\n", ready=False)
    assert server.wait_for_exit() == 22
    assert 'put the call below `if __name__ == "__main__":`' in server.lines[-1]


#: The bound of these programs: a server that starts servers would otherwise do so without end.
DEEPEST = 3
NESTED = f"""\
import os, sys
depth = int(os.environ.get("NESTED_DEPTH", "0"))
if depth >= {DEEPEST}:
    os._exit(7)
os.environ["NESTED_DEPTH"] = str(depth + 1)
import bolide, bolide.testing, urllib.request
"""
SHOP = 'def application(e, s):\n    s("200 OK", [])\n    return [__name__.encode()]\n'


@pytest.mark.parametrize("call", ["bolide.testing.serve(application)", "bolide.run(application, port=0)", "bolide.main()"])
def test_each_way_to_start_a_server_is_refused_while_a_server_loads_the_application(directory, call):
    # The application is the module's own, so the server imports the module with the unguarded call.
    (directory / "nested.py").write_text(
        f"{NESTED}{SHOP}print('depth', depth, flush=True)\n"
        + (f"with {call} as server:\n    pass\n" if "testing" in call else f"{call}\n")
    )
    arguments = [sys.executable, "nested.py"]
    if "main" in call:
        arguments = [sys.executable, "-m", "bolide", "--http-socket=127.0.0.1:0", "nested:application"]
    done = subprocess.run(
        arguments, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode != 0
    name = call.partition("(")[0]
    assert f"{name}() was called while a server was loading the application from the same file" in done.stdout
    assert f"depth {2 if 'main' not in call else 1}" not in done.stdout


def test_an_application_that_the_calling_module_only_imports_is_loaded_from_where_it_is(directory):
    (directory / "shop").mkdir()
    (directory / "shop" / "__init__.py").touch()
    (directory / "shop" / "wsgi.py").write_text(SHOP)
    # This module is not imported by the server, so the unguarded call runs once.
    (directory / "unguarded.py").write_text(
        NESTED + "from shop.wsgi import application\nwith bolide.testing.serve(application) as server:\n"
        "    print(urllib.request.urlopen(server.url).read().decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "unguarded.py"], cwd=directory, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS
    )
    assert (done.returncode, done.stdout.split()) == (0, ["shop.wsgi"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from shop.wsgi import application as app", "shop.wsgi:application"),
        ("from shop.wsgi import application as app\ndef test():\n    app.debug = True", "shop.wsgi:application"),
        # What the module does to the object must be repeated.
        ("from shop.wsgi import application as app\napp.debug = True", "caller:app"),
        ("from shop.wsgi import application as app\ndef f(it=app): pass", "caller:app"),
        ("import shop.wsgi\napp = shop.wsgi.application", "caller:app"),
    ],
)
def test_what_a_module_does_to_an_application_is_repeated(directory, text, expected):
    (directory / "shop").mkdir()
    (directory / "shop" / "wsgi.py").write_text(SHOP)
    (directory / "caller.py").write_text(
        f"{text}\nfrom bolide.loading.application_name import name_of\ndef tell():\n    print(name_of(app, globals()))\ntell()\n"
    )
    done = subprocess.run(
        [sys.executable, "caller.py"], cwd=directory, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.stdout.split() == [expected]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_test_that_is_killed_during_the_start_takes_its_server_with_it(directory, number):
    (directory / "slow.py").write_text(f"import os, time\nopen('loading', 'w').close()\ntime.sleep(600)\n{SHOP}")
    (directory / "killed.py").write_text(
        "import bolide.testing\nserver = bolide.testing.serve('slow:application')\n"
        "import threading\nthreading.Thread(target=server.__enter__, daemon=True).start()\n"
        "while server._process is None: threading.Event().wait(0.01)\nprint(server._process.pid, flush=True)\ninput()\n"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "killed.py"], cwd=directory, **streams) as killed:
        master = int(killed.stdout.readline())
        wait_until((directory / "loading").exists, "the server loads the application")
        killed.send_signal(number)
        wait_until(lambda: not processes.of_session(master), "the end of the server")


def test_a_start_that_fails_is_an_exit_with_its_status(script):
    text = 'if __name__ == "__main__":\n    try:\n        bolide.run("nowhere:app", port=0)\n'
    text += '    except SystemExit as end:\n        print(f"status {end.code}")\n'
    server = script(text, ready=False)
    assert server.wait_for_exit() == 0
    server.wait_for_text("status 22")
    server.wait_for_text("there is no module 'nowhere'")


def words(**keywords):
    arguments = _run.arguments_of("shop:app", keywords)
    return [word for word in arguments[1:] if not word.startswith("--pythonpath=")]


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, []),
        ({"port": 8001}, ["--port=8001"]),
        ({"host": "::1", "port": 8001}, ["--host=::1", "--port=8001"]),
        ({"uds": "/run/shop.sock"}, ["--uds=/run/shop.sock"]),
        ({"fd": 3}, ["--fd=3"]),
        ({"ssl_certfile": "a.crt", "ssl_keyfile": "a.key"}, ["--ssl-certfile=a.crt", "--ssl-keyfile=a.key"]),
        ({"workers": 4, "timeout_keep_alive": 5}, ["--workers=4", "--timeout-keep-alive=5"]),
        ({"processes": 4, "harakiri": 30, "master": True}, ["--processes=4", "--harakiri=30", "--master=true"]),
        ({"log_level": "warning"}, ["--log-level=warning"]),
        ({"log_level": 10, "access_log": False}, ["--log-level=10", "--no-access-log"]),
        ({"proxy_headers": False, "interface": "asgi3"}, ["--proxy-headers=false", "--interface=asgi3"]),
        ({"reload": True, "threads": 2}, ["--threads=2", "--reload"]),
        ({"server_header": False, "date_header": False}, ["--no-server-header", "--no-date-header"]),
        ({"headers": [("X-A", "b"), ("X-C", "d")]}, ["--header=X-A:b", "--header=X-C:d"]),
        ({"add_header": ["A: b", "C: d"]}, ["--add-header=A: b", "--add-header=C: d"]),
    ],
)
def test_keywords_are_words_of_the_command_line(keywords, expected):
    assert words(**keywords) == expected


@pytest.mark.parametrize(
    ("keywords", "error", "part"),
    [
        ({"harakri": 3}, TypeError, "did you mean harakiri?"),
        ({"daemonize": "/tmp/log"}, TypeError, "foreground"),
        ({"version": True}, TypeError, "does not start a server"),
        ({"log_config": {}}, TypeError, "leave it out"),
        ({"http": "8000"}, ValueError, "would be a UNIX socket"),
        ({"port": 70_000}, ValueError, "is not a port"),
        ({"uds": "/run/a", "port": 1}, ValueError, "can't be combined"),
        ({"ssl_keyfile": "a.key"}, ValueError, "ssl_certfile"),
        ({"log_level": "loud"}, ValueError, "critical"),
        ({"threads": object()}, TypeError, "an option must be a text"),
    ],
)
def test_an_invalid_keyword_or_value_is_refused_before_anything_starts(keywords, error, part):
    with pytest.raises(error, match=part):
        words(**keywords)


def test_every_keyword_is_typed_and_is_an_option():
    parameters = inspect.signature(bolide.run).parameters.values()
    assert all(one.annotation is not inspect.Parameter.empty for one in parameters)
    plain = {"app", "options", "host", "port", "uds", "fd", "reload", "log_level", "access_log", "factory", "app_dir"}
    for one in parameters:
        if one.name not in plain and not one.name.startswith("ssl_"):
            assert words(**{one.name: "1"})[0].startswith("--"), one.name


def test_an_object_without_a_name_is_refused_in_words():
    with pytest.raises(ValueError, match="is not bound to a name at the top level of a module"):
        bolide.testing.serve(Flask("elsewhere"))
    with pytest.raises(TypeError, match="neither"):
        bolide.testing.serve(3)


# `bolide.testing.serve`.


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_flask_application_of_the_test_itself_is_served():
    with bolide.testing.serve(flask_shop) as server:
        answer = requests.post(f"{server.url}/echo", json={"a": 1}, timeout=TIMEOUT_SECONDS)
        assert answer.json() == {"echo": {"a": 1}, "multiprocess": False}
        server.wait_for_log("POST /echo")
    assert "stopped after" in server.log.splitlines()[-1]


def test_a_fastapi_application_is_served_with_its_lifespan_and_its_variables(directory):
    (directory / "fast_shop.py").write_text(
        "import contextlib, os\nfrom fastapi import FastAPI\n\n"
        "@contextlib.asynccontextmanager\nasync def lifespan(app):\n    print('it begins')\n    yield\n    print('it ends')\n\n"
        "def create_app():\n    app = FastAPI(lifespan=lifespan)\n"
        "    @app.get('/color')\n    async def color():\n        return os.environ['SHOP_COLOR']\n    return app\n"
    )
    with bolide.testing.serve("fast_shop:create_app", factory=True, env={"SHOP_COLOR": "red"}) as server:
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_SECONDS) as client:
            assert client.get("/color").json() == "red"
        server.wait_for_log("it begins")
    assert "it ends" in server.log


def test_a_file_is_served_with_options_of_a_configuration(directory):
    (directory / "shop.py").write_text(APPLICATION)
    with bolide.testing.serve(directory / "shop.py", callable="app", add_header="X-Shop: 1", processes=2) as server:
        answer = requests.get(server.url, timeout=TIMEOUT_SECONDS)
    assert answer.headers["X-Shop"] == "1"
    with pytest.raises(requests.ConnectionError):
        requests.get(server.url, timeout=TIMEOUT_SECONDS)


def test_a_start_that_fails_raises_with_the_last_line_of_the_log(directory):
    (directory / "broken_shop.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(bolide.testing.StartFailed, match="No module named 'nothing_of_the_kind'") as failure:
        with bolide.testing.serve("broken_shop:app"):
            pass
    assert "status 22" in str(failure.value)
    assert "broken_shop.py" in failure.value.log


def test_a_server_that_does_not_come_to_serve_is_given_up(directory):
    (directory / "slow_shop.py").write_text("import time\nprint('it loads', flush=True)\ntime.sleep(600)\n")
    with pytest.raises(bolide.testing.StartFailed, match=r"does not serve after 0\.5 s"):
        with bolide.testing.serve("slow_shop:app", start_timeout=0.5):
            pass


def test_a_test_that_is_killed_takes_its_server_with_it(directory):
    (directory / "shop.py").write_text(APPLICATION)
    (directory / "killed.py").write_text(
        "import bolide.testing, os, threading\nserver = bolide.testing.serve('shop:app')\n"
        # The thread that has started the server exits; the process continues.
        "starter = threading.Thread(target=server.__enter__)\nstarter.start()\nstarter.join()\n"
        "print(server._process.pid, server.url, flush=True)\ninput()\n"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "killed.py"], cwd=directory, **streams) as killed:
        master, url = killed.stdout.readline().split()
        assert requests.get(url, timeout=TIMEOUT_SECONDS).text.startswith("shop ")
        session = processes.of_session(int(master))
        assert session
        killed.kill()
        wait_until(lambda: not processes.of_session(int(master)), "the end of the server")


@pytest.mark.parametrize("keyword", ["host", "http_socket", "ssl_certfile", "reload"])
def test_where_a_server_of_a_test_listens_is_settled(keyword):
    with pytest.raises(TypeError, match=keyword):
        bolide.testing.serve(flask_shop, **{keyword: "1"})


def test_an_unknown_keyword_is_refused_before_the_test_begins():
    with pytest.raises(TypeError, match="did you mean harakiri"):
        bolide.testing.serve(flask_shop, harakri=1)


def test_what_console_scripts_start_with_is_not_made_longer():
    """The path to the master imports nothing of `bolide.run`."""
    text = "import bolide, sys; print([name for name in ('bolide._run', 'subprocess', 'typing') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", text],
        env={**os.environ, "PYTHONPATH": os.path.dirname(bolide.__path__[0])},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.stdout.strip() == "[]", done.stderr
