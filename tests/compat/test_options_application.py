"""Application options do what uWSGI's manual says: where the application is found, its environment, and where it is mounted."""

import json
import os
import re
import subprocess
import sys
import sysconfig

import pytest
from support.client import Client, Closed
from support.real_uwsgi import prepared as real_prepared
from support.real_uwsgi import real_uwsgi
from support.uwsgi import ask

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
        path = server.directory / name
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
@pytest.mark.parametrize("name", ["site.py", "shop.wsgi", "directory/with-dash.py"])
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


#: A mount for a host and one for a path of it, and the application for all others.
HOSTS = """\
vhost = true
mount = shop.example|=shop.py
mount = shop.example:8000|=port.py
module = main
"""
IDENTIFIED = TELLS.format(answer="__name__ + ' ' + environ.get('UWSGI_APPID', '')")


def answers_of_hosts(address):
    """Returns the bodies of requests for several hosts, the last one without a host."""
    hosts = ("Host: shop.example\r\n", "Host: shop.example:8000\r\n", "Host: blog.example\r\n", "")
    found = []
    for host in hosts:
        with Client(address) as client:
            client.send(f"GET /admin {'HTTP/1.1' if host else 'HTTP/1.0'}\r\n{host}Connection: close\r\n\r\n".encode())
            found.append(client.read_to_end().partition(b"\r\n\r\n")[2].decode())
    return found


def test_with_vhost_the_host_selects_the_application_and_environ_has_its_identifier_as_in_uwsgi(
    serve, uwsgi, tmp_path, free_port
):
    names = ("shop", "port", "main")
    directory, configuration = real_prepared(tmp_path / "theirs", HOSTS, **dict.fromkeys(names, IDENTIFIED))
    with real_uwsgi(uwsgi, directory, free_port(), configuration) as address:
        theirs = answers_of_hosts(address)
    server = started(serve, HOSTS, {f"{name}.py": IDENTIFIED for name in names})
    ours = answers_of_hosts(server.address())
    identifiers = [answer.split(" ")[-1] for answer in ours]
    assert identifiers[:3] == ["shop.example|", "shop.example:8000|", "blog.example|"]
    # Without a host, the name of the machine stands for it.
    assert ours == theirs
    assert [answer.split(" ")[0].rpartition("_")[2] for answer in ours[2:]] == ["main", "main"]


def test_a_reverse_proxy_may_name_the_identifier_of_the_application(serve):
    server = started(
        serve,
        HOSTS.replace("vhost", "vhost-host"),
        {f"{name}.py": IDENTIFIED for name in ("shop", "port", "main")},
        listen=("socket = 127.0.0.1:0",),
    )
    assert ask(server.address("uwsgi"), extra=[("UWSGI_APPID", "shop.example|")]).body.endswith(b"shop.example|")
    assert ask(server.address("uwsgi")).body.endswith(b" www.example.com|")


def test_a_configuration_whose_applications_the_reverse_proxy_names_is_told_how_to_name_them(serve):
    server = serve.prepare("vhost = true").launch()
    assert server.wait_for_exit() != 0
    server.wait_for_text(
        "UWSGI_SCRIPT, UWSGI_MODULE and UWSGI_FILE of a reverse proxy load none here: write `chdir` and `module`"
    )
    without = prepared(serve, "mount = shop.example|=shop.py", {"shop.py": says("shop")}).launch()
    assert without.wait_for_exit() != 0
    without.wait_for_text("requests have no host without `vhost` (write `vhost = true` too)")


def test_chdir_comes_before_sockets_and_the_application(serve):
    server = started(
        serve,
        "chdir = inside\nmodule = shop\nsocket = app.sock",
        {"inside/shop.py": "import os\nDIRECTORY = os.getcwd()\n" + says("inside")},
    )
    assert server.get().text == "inside"
    assert (server.directory / "inside" / "app.sock").exists()


def test_chdir2_comes_after_the_application_is_loaded(serve):
    tells = TELLS.format(answer="AT_LOAD + ' ' + os.getcwd()")
    server = prepared(serve, "module = shop\nchdir2 = after", {"shop.py": tells, "after/file": ""}).start()
    assert server.get().text == f"{server.directory} {server.directory / 'after'}"


def test_the_last_pythonpath_comes_first(serve):
    server = started(
        serve,
        "pythonpath = one\npythonpath = two\nmodule = shop",
        {"one/shop.py": says("one"), "two/shop.py": says("two"), "shop.py": says("here")},
    )
    assert server.get().text == "two"


@pytest.mark.parametrize("option", ["virtualenv", "home", "venv", "pyhome"])
def test_virtualenv_by_all_its_names(option, serve):
    server = serve.prepare()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(server.directory / "own")], check=True)
    server.configure(f"{FACTS}\n{option} = own")
    facts = json.loads(server.start().get("/facts").text)
    assert facts["prefix"] == str(server.directory / "own")


def test_env_reaches_the_application_and_the_interpreter(serve):
    server = serve(f"{FACTS}\nenv = COLOR=red\nenv = COLOR=blue\nenv = EMPTY=\nenv = PYTHONHASHSEED=0")
    facts = json.loads(server.get("/facts").text)
    assert facts["environment"]["COLOR"] == "blue"
    assert facts["environment"]["EMPTY"] == ""
    hash_with_seed = subprocess.run(
        [sys.executable, "-c", "print(hash('color'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    hashing = TELLS.format(answer="str(hash('color'))")
    seeded = started(serve, "module = shop\nenv = PYTHONHASHSEED=0", {"shop.py": hashing})
    assert seeded.get().text == hash_with_seed.strip()


def test_catch_exceptions_shows_the_traceback_to_the_client(serve):
    fails = "def application(environ, start_response):\n    raise RuntimeError('no database')\n"
    answer = started(serve, "module = shop\ncatch-exceptions = true", {"shop.py": fails}).get()
    assert answer.status == 500
    assert "RuntimeError: no database" in answer.text
    assert "no database" not in started(serve, "module = shop", {"shop.py": fails}).get().text


def test_catch_exceptions_shows_exceptions_during_the_iteration(serve):
    streams = (
        "def application(environ, start_response):\n    start_response('200 OK', [('Content-Length', '7')])\n"
        "    if environ['PATH_INFO'] == '/late':\n        yield b'some'\n"
        "    raise RuntimeError('no database')\n"
    )
    server = started(serve, "module = shop\ncatch-exceptions = true", {"shop.py": streams})
    answer = server.get("/early")
    assert answer.status == 500
    assert "RuntimeError: no database" in answer.text
    # Sent data can't be revoked: the client sees that the answer is incomplete.
    with pytest.raises(Closed):
        server.get("/late")


def test_of_two_applications_for_one_mount_the_first_serves_and_a_warning_quotes_both_lines(serve):
    server = started(serve, "mount = /shop=one.py\nmount = /shop=two.py", {"one.py": says("one"), "two.py": says("two")})
    assert server.get("/shop").text == "one"
    warning = server.wait_for_log("warning: `mount = /shop=two.py` has no effect.*").group()
    assert "uwsgi.ini:3" in warning
    assert any("uwsgi.ini:4" in line for line in server.lines if "has no effect" in line)


@pytest.mark.parametrize(
    ("module", "reason"),
    [("nowhere", "there is no module 'nowhere'"), ("shop:app", "'shop' has no 'app'"), ("broken", "RuntimeError: no settings")],
)
def test_a_module_that_cant_be_loaded_gives_way_to_the_file(module, reason, serve):
    files = {"shop.py": says("module"), "broken.py": "raise RuntimeError('no settings')\n", "site.wsgi": says("file")}
    server = started(serve, f"module = {module}\nwsgi-file = site.wsgi", files)
    assert server.get().text == "file"
    server.wait_for_text(reason)
    assert re.search(r"uwsgi\.ini:4: warning: `wsgi-file` is loaded instead", server.log)


def test_a_module_and_a_file_that_both_fail_end_the_start_with_the_modules_reason(serve):
    server = prepared(serve, "module = nowhere\nwsgi-file = gone.wsgi", {})
    server.launch()
    assert server.wait_for_exit() != 0
    assert "there is no module 'nowhere'" in server.lines[-1]
    server.wait_for_text("there is no file")


def test_a_callable_after_a_colon_is_used_if_there_is_no_other(serve):
    server = started(serve, "wsgi-file = shop.py\ncallable: app", {"shop.py": says("app", "app")})
    assert server.get().text == "app"
    assert re.search(r"uwsgi\.ini:4: warning: `callable: app` is read as `callable = app`", server.log)
    both = {"shop.py": says("app", "app") + says("application")}
    assert started(serve, "wsgi-file = shop.py\ncallable: app", both).get().text == "application"


@pytest.mark.parametrize("other", ["", "mount = /async=other:application"])
def test_wsgi_disable_file_wrapper_leaves_it_out_of_environ(other, serve):
    tells = TELLS.format(answer="repr('wsgi.file_wrapper' in environ)")
    files = {"shop.py": tells, "other.py": "async def application(scope, receive, send):\n    raise RuntimeError\n"}
    if other:
        other += "\nlifespan = off"
    assert started(serve, f"module = shop\n{other}", files).get().text == "True"
    assert started(serve, f"module = shop\n{other}\nwsgi-disable-file-wrapper = true", files).get().text == "False"


def test_the_servers_own_packages_are_not_on_the_path_of_a_virtualenv(serve):
    tells = "import sys\n" + TELLS.format(answer="' '.join(sys.path)")
    server = prepared(serve, "module = shop\nvirtualenv = own", {"shop.py": tells})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(server.directory / "own")], check=True)
    path = server.start().get().text.split()
    site = sysconfig.get_path("purelib")
    assert site not in path
    assert str(server.directory / "own") in " ".join(path)


@pytest.mark.parametrize("named", ["app", "app.py", "site.wsgi", "package.wsgi"])
def test_a_file_or_module_without_a_callable_is_served_by_a_default_name(named, serve):
    factory = says("made", "made") + "def create_app():\n    return made\n"
    files = {"app.py": says("app", "app"), "site.wsgi": says("site"), "package/__init__.py": "", "package/wsgi.py": factory}
    server = started(serve, "", files, arguments=[named, "--http", "127.0.0.1:0"])
    assert server.get().text == {"site.wsgi": "site", "package.wsgi": "made"}.get(named, "app")
    assert re.search("serving the WSGI application `(app|create_app\\(\\)|application)` of ", server.log), server.log
    assert "Traceback" not in server.whole_log()


def test_a_callable_that_is_not_there_is_answered_with_the_one_to_name(serve):
    server = prepared(serve, "", {"shop.py": says("app", "app")}, arguments=["shop:aap", "--http", "127.0.0.1:0"])
    server.launch()
    assert server.wait_for_exit() != 0
    assert "did you mean `bolide shop:app`?" in server.lines[-1]


def test_pyargv_is_what_the_application_finds_in_sys_argv(serve):
    tells = "import sys\n" + TELLS.format(answer="repr(sys.argv)")
    assert started(serve, "module = shop", {"shop.py": tells}).get().text == "['uwsgi']"
    server = started(serve, "module = shop\npyargv = -c  'x y.conf'\t--all", {"shop.py": tells})
    assert server.get().text == repr(["uwsgi", "-c", "'x", "y.conf'", "--all"])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("site.py", "uwsgi_file_site"),
        ("{directory}/site.py", None),
        ("shop.wsgi", "uwsgi_file_shop_wsgi"),
        ("a/with-dash.py", "uwsgi_file_a_with-dash"),
    ],
)
def test_the_module_of_a_file_has_the_name_that_uwsgi_gives_it(file, name, serve):
    tells = TELLS.format(answer="__name__")
    server = started(serve, f"wsgi-file = {file}", {"site.py": tells, "shop.wsgi": tells, "a/with-dash.py": tells})
    absolute = "uwsgi_file_" + str(server.directory / "site").replace("/", "_").replace(".", "_")
    assert server.get().text == (name or absolute)


@pytest.mark.parametrize("what", ["static-map = /s=static", "check-static = static", "route = ^/s/a break:200 OK"])
def test_files_and_routes_need_no_application_and_leave_404(what, serve):
    server = started(serve, f"{what}\nneed-app = false", {"static/a": "A", "static/s/a": "A"})
    assert server.get("/s/a").status == 200
    assert server.get("/elsewhere").status == 404


def test_need_app_asks_for_an_application_beside_files(serve):
    server = prepared(serve, "static-map = /s=static\nneed-app = true", {"static/a": "A"})
    server.launch()
    assert server.wait_for_exit() == 1
    assert "there is no application to serve" in server.lines[-1]
