"""Options of the interpreter and of the sockets do what uWSGI's manual says."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import bolide
import pytest

TELLS = """\
import os, sys, threading
def application(environ, start_response):
    start_response('200 OK', [])
    return [str({answer}).encode()]
"""

#: Socket options of the worker's listening sockets, as the kernel reports them.
SOCKETS = """\
import json, os, socket
def options(number):
    try:
        with socket.socket(fileno=os.dup(number)) as one:
            if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return None
            names = ("SO_KEEPALIVE", "SO_REUSEPORT", "SO_SNDBUF", "SO_RCVBUF")
            told = {name: one.getsockopt(socket.SOL_SOCKET, getattr(socket, name)) for name in names}
            if one.family == socket.AF_INET:
                told["IP_FREEBIND"] = one.getsockopt(socket.SOL_IP, 15)
                told["TCP_FASTOPEN"] = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN)
            return told
    except OSError:
        return None
def application(environ, start_response):
    start_response('200 OK', [])
    found = [options(int(number)) for number in os.listdir("/proc/self/fd")]
    return [json.dumps([one for one in found if one]).encode()]
"""


def started(serve, configuration, files):
    server = serve.prepare(configuration)
    for name, text in files.items():
        path = server.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return server.start()


def told(serve, configuration, answer, **files):
    """Returns the application's answer: the text of an expression."""
    files = {name.replace("__", "/"): text for name, text in files.items()}
    return started(serve, f"wsgi-file = app.py\n{configuration}", {"app.py": TELLS.format(answer=answer), **files}).get().text


@pytest.mark.parametrize("what", ["patch", "patch.py", "./lib/patch.py"])
def test_import_comes_before_the_application(what, serve):
    server = started(
        serve,
        f"wsgi-file = app.py\nimport = {what}",
        {
            "app.py": "import builtins\nSEEN = builtins.patched\n" + TELLS.format(answer="SEEN"),
            "patch.py": "import builtins\nbuiltins.patched = 'by the module'\n",
            "lib/patch.py": "import builtins\nbuiltins.patched = 'by the file'\n",
        },
    )
    assert server.get().text == ("by the file" if "lib" in what else "by the module")


def test_a_failing_import_is_reported_and_the_others_take_effect(serve):
    server = started(
        serve,
        "wsgi-file = app.py\nshared-import = broken\nimport = patch",
        {
            "app.py": TELLS.format(answer="sys.modules['patch'].ORDER"),
            "broken.py": "raise RuntimeError('no luck')\n",
            "patch.py": "import sys\nORDER = 'after broken'\n",
        },
    )
    assert server.get().text == "after broken"
    server.wait_for_text("RuntimeError: no luck")


def test_modules_have_the_names_that_aliases_give(serve):
    server = started(
        serve,
        "wsgi-file = app.py\npymodule-alias = settings=production\npost-pymodule-alias = late=./etc/late.py",
        {
            "app.py": "import settings\n" + TELLS.format(answer="settings.NAME + __import__('late').NAME"),
            "production.py": "NAME = 'production '\n",
            "etc/late.py": "NAME = 'late'\n",
        },
    )
    assert server.get().text == "production late"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_optimize_is_pythons_own(level, serve):
    assert told(serve, f"optimize = {level}", "sys.flags.optimize") == str(level)


#: Is `site` imported? Has a `.pth` file been executed? Where does a package come from? Is each directory in `sys.path` once?
SITE = "['site' in sys.modules, hasattr(sys, 'pth'), sys.modules['installed'].NAME, len(sys.path) == len(set(sys.path))]"


@pytest.fixture
def home(tmp_path):
    """A virtualenv with Bolide, a package and a `.pth` file."""
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "installed.py").write_text("NAME = 'of the virtualenv'\n")
    (packages / "shop.pth").write_text("import sys; sys.pth = True\n")
    (packages / "bolide").symlink_to(Path(bolide.__file__).parent)
    return home


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_plain_program", [True, False])
def test_no_site_leaves_the_packages_of_the_virtualenv_and_executes_no_pth_file(is_plain_program, serve, home, plain_program):
    def seen(no_site):
        server = serve.prepare(
            f"wsgi-file = app.py\nvirtualenv = {home}\nno-site = {no_site}",
            command=[plain_program] if is_plain_program else None,
        )
        (server.directory / "app.py").write_text("import installed\n" + TELLS.format(answer=SITE))
        return server.start().get().text

    assert seen("false") == "[True, True, 'of the virtualenv', True]"
    assert seen("true") == "[False, False, 'of the virtualenv', True]"


def test_a_package_that_no_site_leaves_out_is_missed_with_the_reason(serve):
    server = serve.prepare("wsgi-file = app.py\nno-site = true")
    (server.directory / "app.py").write_text("import no_such_package\n")
    assert server.launch().wait_for_exit() == 22
    server.wait_for_text("no-site leaves out the packages of the system and of the user: add their directory with pythonpath")


def test_the_application_sees_the_executable_that_was_named(serve):
    assert told(serve, "py-sys-executable = /srv/shop/bin/python", "sys.executable") == "/srv/shop/bin/python"


def test_threads_have_the_stack_that_was_asked_for(serve):
    answer = "next(line for line in open('/proc/self/status') if line.startswith('VmSize')).split()[1]"
    small, large = (int(told(serve, f"threads = 16\nthread-stack-size = {size}", answer)) for size in (256, 65536))
    # Fifteen more threads of 64 MB each: address space, not memory.
    assert large - small > 15 * 60_000


@pytest.mark.parametrize("option", ["envdir", "early-envdir"])
def test_envdir_sets_a_variable_for_each_file_and_removes_those_of_empty_ones(option, serve, monkeypatch):
    monkeypatch.setenv("GONE", "still here")
    answer = "[os.environ.get(name) for name in ('NAME', 'LINES', 'GONE')]"
    files = {"env__NAME": "shop  \nsecond line\n", "env__LINES": "one\0two", "env__GONE": ""}
    assert told(serve, f"{option} = {{directory}}/env", answer, **files) == "['shop', 'one\\ntwo', None]"


def test_unenv_removes_a_variable(serve, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    assert told(serve, "unenv = SECRET_OF_THE_SHELL", "os.environ.get('SECRET_OF_THE_SHELL')") == "None"


def test_eval_is_the_body_of_a_module(serve):
    text = "import shop; application = shop.make()"
    files = {"shop.py": TELLS.format(answer="'evaluated'") + "def make():\n    return application\n"}
    assert started(serve, f"eval = {text}", files).get().text == "evaluated"


PASTE = """\
[app:main]
paste.app_factory = shop:factory
greeting = from the file

[loggers]
keys = root

[handlers]
keys = file

[formatters]
keys =

[logger_root]
level = INFO
handlers = file

[handler_file]
class = FileHandler
args = ("%(here)s/shop.log",)
"""
SHOP = """\
import logging
def factory(settings, greeting):
    def application(environ, start_response):
        logging.info("a line for the file")
        start_response('200 OK', [])
        return [greeting.encode()]
    return application
"""


@pytest.mark.parametrize("name", ["config:shop.ini", "shop.ini", "config:shop.ini#main"])
def test_paste_loads_what_a_file_of_pastedeploy_names(name, serve):
    server = started(serve, f"paste = {name}\npaste-logger = true", {"shop.ini": PASTE, "shop.py": SHOP})
    assert server.get().text == "from the file"
    assert (server.directory / "shop.log").read_text() == "a line for the file\n"


LOGS = """\
import logging
logging.info("a line for the file")
def application(environ, start_response):
    start_response('200 OK', [])
    return [b"served"]
"""
DESCRIBED = """\
{"version": 1, "handlers": {"file": {"class": "logging.FileHandler", "filename": "shop.log"}},
 "root": {"level": "INFO", "handlers": ["file"]}}
"""


@pytest.mark.parametrize("name", ["logging.json", "logging.yaml", "logging.ini"])
def test_log_config_sets_up_logging_before_the_application_is_loaded(name, serve):
    # JSON is YAML.
    text = PASTE.partition("\n\n")[2] if name.endswith(".ini") else DESCRIBED
    server = started(serve, f"module = shop\nchdir = {{directory}}\nlog-config = {name}", {name: text, "shop.py": LOGS})
    assert server.get().text == "served"
    assert (server.directory / "shop.log").read_text() == "a line for the file\n"


def test_a_log_config_that_cannot_be_used_fails_the_start_and_says_why(serve):
    text = DESCRIBED.replace("logging.FileHandler", "no_such_module.Handler")
    server = serve.prepare("module = shop\nchdir = {directory}\nlog-config = logging.json\nneed-app = true")
    (server.directory / "shop.py").write_text(LOGS)
    (server.directory / "logging.json").write_text(text)
    server.launch()
    assert server.wait_for_exit() != 0
    last = server.log.splitlines()[-1]
    assert "logging.json can't be used" in last
    assert "no_such_module" in last


#: A stand-in for the library: its function gets the path of a file and returns an application.
PECAN = "def deploy(path):\n    import shop\n    return shop.made_of(path)\n"


def test_pecan_loads_what_the_library_makes_of_a_configuration(serve):
    made = (
        TELLS.format(answer="open(PATH).read()")
        + "def made_of(path):\n    global PATH\n    PATH = path\n    return application\n"
    )
    files = {"pecan/__init__.py": "", "pecan/deploy.py": PECAN, "shop.py": made, "config.py": "app = {}"}
    assert started(serve, "pecan = config.py\npythonpath = {directory}", files).get().text == "app = {}"


def test_socket_options_of_the_configuration_are_set(serve):
    switches = "so-keepalive = true\nreuse-port = true\nfreebind = true\n"
    sizes = "socket-sndbuf = 65536\nsocket-rcvbuf = 32768\ntcp-fast-open = 16\n"
    server = started(serve, f"wsgi-file = app.py\n{switches}{sizes}socket = {{directory}}/app.sock", {"app.py": SOCKETS})
    told_of = {json.dumps(one) for one in json.loads(server.get().text)}
    unix, tcp = sorted(map(json.loads, told_of), key=len)
    # The kernel doubles sizes for its own overhead (socket(7)).
    wanted = {"SO_KEEPALIVE": 1, "SO_REUSEPORT": 1, "SO_SNDBUF": 131072, "SO_RCVBUF": 65536, "IP_FREEBIND": 1, "TCP_FASTOPEN": 16}
    assert tcp == wanted
    assert (unix["SO_SNDBUF"], unix["SO_RCVBUF"]) == (131072, 65536)


def test_an_abstract_socket_is_no_file(serve):
    server = started(
        serve,
        "wsgi-file = app.py\nabstract-socket = true\nhttp-socket = {directory}/app.sock",
        {"app.py": TELLS.format(answer="'abstract'")},
    )
    path = server.directory / "app.sock"
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{path}")
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").read().endswith(b"abstract")


def test_workers_are_as_pressing_as_was_asked_for(serve):
    usual = int(told(serve, "", "os.getpriority(os.PRIO_PROCESS, 0)"))
    assert int(told(serve, f"prio = {min(19, usual + 5)}", "os.getpriority(os.PRIO_PROCESS, 0)")) == min(19, usual + 5)


def test_a_worker_has_its_own_cpus(serve):
    usable = sorted(os.sched_getaffinity(0))
    lines = "wsgi-file = app.py\nprocesses = 3\ncpu-affinity = 1\nmaster = true"
    server = started(serve, lines, {"app.py": TELLS.format(answer="'served'")})
    master, prototype, *workers = [process.pid for process in server.processes()]
    assert os.sched_getaffinity(master) == os.sched_getaffinity(prototype) == set(usable)
    # Round robin, in the order of their numbers.
    assert [os.sched_getaffinity(worker) for worker in workers] == [{usable[place % len(usable)]} for place in range(3)]


def test_a_worker_has_the_limits_that_were_asked_for(serve):
    answer = "[__import__('resource').getrlimit(limit)[0] for limit in (6, 9)]"
    # RLIMIT_NPROC and RLIMIT_AS on Linux.
    assert told(serve, "limit-nproc = 4321\nlimit-as = 3000", answer) == f"[4321, {3000 * 1024 * 1024}]"
