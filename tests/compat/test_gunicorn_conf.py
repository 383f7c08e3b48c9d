"""A gunicorn.conf.py under Bolide, and the same file under gunicorn itself."""

import collections
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from support import processes
from support.client import Client
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until

APPLICATION = """
import json, os
def app(environ, start_response):
    told = {name: environ[name] for name in ("REQUEST_METHOD", "PATH_INFO", "wsgi.url_scheme", "wsgi.multiprocess")}
    told["SHOP"] = os.environ.get("SHOP")
    body = json.dumps(told, sort_keys=True).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""
HOOKED = """
import os
bind = ["127.0.0.1:0"]
workers = 1 + 1
threads = 2
worker_class = "gthread"
forwarded_allow_ips = "127.0.0.1"
control_socket_disable = True
os.environ["SHOP"] = "of the file"
def note(what, *seen):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "notes"), "a") as file:
        file.write(" ".join([what, str(os.getpid()), *map(str, seen)]) + "\\n")
def on_starting(server):
    note("on_starting", server.cfg.workers)
def when_ready(server):
    server.log.info("the doors are open")
    note("when_ready", server.cfg.workers)
def pre_fork(server, worker):
    note("pre_fork", worker.age)
def post_fork(server, worker):
    worker.log.info("worker %s is here", worker.age)
    note("post_fork", worker.pid)
def post_worker_init(worker):
    note("post_worker_init", worker.pid)
def pre_request(worker, req):
    note("pre_request", req.method, req.path, req.query)
def post_request(worker, req, environ, resp):
    note("post_request", req.method, resp.status)
def worker_exit(server, worker):
    note("worker_exit", worker.pid)
def child_exit(server, worker):
    note("child_exit", worker.pid)
"""


@pytest.fixture
def launch(serve):
    """Starts gunicorn or Bolide with the same file. Returns the server and its address once it serves."""

    def launch(kind, files, *arguments):
        command = [sys.executable, "-m", "gunicorn"] if kind == "gunicorn" else None
        server = serve.prepare(arguments=["-c", "gunicorn.conf.py", *arguments, "app:app"], command=command)
        for name, text in files.items():
            (server.directory / name).write_text(text)
        if kind == "bolide":
            return server.start(), server.address()
        found = server.launch().wait_for_log(r"Listening at: http://127\.0\.0\.1:(\d+) ")
        return server, ("127.0.0.1", int(found[1]))

    return launch


def notes(server):
    file = server.directory / "notes"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def run(directory, *arguments):
    """Runs `bolide` to its end. Returns its status and its output."""
    command = [*program(), *arguments]
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout.decode()


def walk(server, address):
    """Sends one request once all workers are running, then stops. Returns the answer and the counts of the notes."""
    server.wait_for(lambda: sum(note[0] == "post_worker_init" for note in notes(server)) == 2, "both workers are there")
    with Client(address) as client:
        headers = [("X-Forwarded-Proto", "https"), ("Connection", "close")]
        answer = client.request("GET", "/x%20y?a=b", headers)
    server.wait_for(lambda: any(note[0] == "post_request" for note in notes(server)), "the request's end is noted")
    server.stop()
    return answer, collections.Counter(note[0] for note in notes(server))


def test_the_same_file_does_the_same_under_gunicorn_and_here(launch):
    seen = {}
    for kind in ("gunicorn", "bolide"):
        server, address = launch(kind, {"gunicorn.conf.py": HOOKED, "app.py": APPLICATION})
        answer, counts = walk(server, address)
        once = ("on_starting", "when_ready", "pre_request", "post_request")
        texts = {note[0]: note[2:] for note in notes(server) if note[0] in once}
        seen[kind] = (answer.status, json.loads(answer.body), counts, texts)
        assert "the doors are open" in server.log
        assert "worker 2 is here" in server.log
        forked = {note[2] for note in notes(server) if note[0] == "post_fork"}
        assert {note[2] for note in notes(server) if note[0] == "child_exit"} == forked
        assert all(note[1] == note[2] for note in notes(server) if note[0] in ("post_fork", "worker_exit"))
    assert seen["bolide"] == seen["gunicorn"]
    assert json.loads(answer.body)["wsgi.url_scheme"] == "https"


PRINTING = """
import sys
def app(environ, start_response):
    print("to standard output", flush=True)
    print("to standard error", file=sys.stderr, flush=True)
    print("to wsgi.errors", file=environ["wsgi.errors"], flush=True)
    raise RuntimeError("told by the server")
"""
LOGGED = "bind = '127.0.0.1:0'\nerrorlog = 'error.log'\ncontrol_socket_disable = True\n"


def told(server):
    """Sends a request to a server that logs to error.log. Returns what it printed, and the file."""
    file = server.directory / "error.log"
    found = server.wait_for(
        lambda: file.exists() and re.search(r"[Ll]istening (?:at:|on) http://127\.0\.0\.1:(\d+)", file.read_text()), "its address"
    )
    with Client(("127.0.0.1", int(found[1]))) as client:
        assert client.request("GET", "/").status == 500
    server.wait_for(lambda: "told by the server" in file.read_text(), "the exception is logged")
    server.stop()
    return server.log, file.read_text()


@pytest.mark.parametrize("how", ["gunicorn", "file", "flags", "captured"])
def test_without_capture_output_only_the_servers_own_lines_go_to_errorlog(how, serve):
    command = [sys.executable, "-m", "gunicorn"] if how == "gunicorn" else None
    flags = ("--bind", "127.0.0.1:0", "--error-logfile", "error.log")
    server = serve.prepare(arguments=[*(flags if how == "flags" else ()), "app:app"], command=command)
    (server.directory / "app.py").write_text(PRINTING)
    if how != "flags":
        (server.directory / "gunicorn.conf.py").write_text(LOGGED + ("capture_output = True\n" if how == "captured" else ""))
    printed, logged = told(server.launch())
    words = ("to wsgi.errors", "Traceback", "to standard output", "to standard error")
    found = [[word for word in words if word in text] for text in (printed, logged)]
    assert found == ([[], list(words)] if how == "captured" else [list(words[2:]), list(words[:2])])


#: It notes each process that loads it.
LOADED = """
import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "loads"), "a") as file:
    file.write(f"{os.getpid()}\\n")
def app(environ, start_response):
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
"""
TWO_WORKERS = "bind = '127.0.0.1:0'\nworkers = 2\n"
FLAGS = ("--bind", "127.0.0.1:0", "--workers", "2")
INI = "[uwsgi]\nmodule = app:app\nhttp = 127.0.0.1:0\nprocesses = 2\n"
#: The same application from a file of gunicorn, from flags and from an ini, without and with preloading.
PRELOADING = {
    ("gunicorn.conf.py", False): ((), TWO_WORKERS),
    ("gunicorn.conf.py", True): ((), TWO_WORKERS + "preload_app = True\n"),
    ("flags", False): (FLAGS, ""),
    ("flags", True): ((*FLAGS, "--preload"), ""),
    ("uWSGI's flags", True): (("--bind", "127.0.0.1:0", "-p", "2"), ""),
    ("shop.ini", False): ((), INI + "lazy-apps = true\n"),
    ("shop.ini", True): ((), INI),
}


@pytest.mark.parametrize(("how", "preloads"), PRELOADING)
def test_preloading_means_the_same_in_a_file_in_flags_and_in_an_ini(how, preloads, serve):
    flags, text = PRELOADING[how, preloads]
    server = serve.prepare(arguments=[how] if how == "shop.ini" else [*flags, "app:app"])
    (server.directory / "app.py").write_text(LOADED)
    if text:
        (server.directory / how).write_text(text)
    worker = server.start().get().text
    loads = (server.directory / "loads").read_text().split()
    assert (len(loads), worker in loads) == ((1, False) if preloads else (2, True))


METRICS = """
import os
directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics")
os.makedirs(directory, exist_ok=True)
os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
from prometheus_client import multiprocess
bind = "127.0.0.1:0"
workers = 2
def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""
COUNTING = """
import prometheus_client
busy = prometheus_client.Gauge("busy", "requests", multiprocess_mode="liveall")
busy.set(1)
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"counted"]
"""


def test_workers_that_have_ended_are_forgotten_by_prometheus(launch):
    server, _ = launch("bolide", {"gunicorn.conf.py": METRICS, "app.py": COUNTING})
    directory = server.directory / "metrics"

    def counted():
        return {name for name in os.listdir(directory) if name.startswith("gauge_liveall_")}

    before = counted()
    assert len(before) == 2
    server.send_signal(signal.SIGHUP)
    server.wait_for(lambda: len(counted()) == 2 and not counted() & before, "the files are those of the new workers")
    assert server.get("/").text == "counted"


def test_hooks_that_are_not_called_are_reported_with_their_lines(tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    text = "workers = 2\n\ndef worker_abort(worker):\n    pass\n\nssl_context = lambda conf, default: default()\nworker = 3\n"
    (tmp_path / "gunicorn.conf.py").write_text(text)
    status, said = run(tmp_path, "check", "--format=lines", "gunicorn.conf.py")
    assert status == 0, said
    assert "gunicorn.conf.py:3:5: warning: `worker_abort`: this hook is not called" in said
    assert "gunicorn.conf.py:6:1: warning: `ssl_context`: this hook is not called" in said
    assert "did you mean `workers`?" in said


def test_hooks_of_a_file_that_an_ini_names_are_called_or_reported(serve):
    server = serve.prepare("chdir = {directory}\nmodule = app:app\ngunicorn-hooks = {directory}/hooks.py")
    (server.directory / "app.py").write_text(APPLICATION)
    lines = "def post_fork(server, worker):\n    server.log.info('here is %s', worker.pid)\n\ndef on_exit(server):\n    pass\n"
    (server.directory / "hooks.py").write_text(lines)
    server.start()
    server.wait_for_text(f"here is {server.worker()}")
    server.wait_for_text("hooks.py:4: the hook on_exit is not called here")


def test_a_hook_that_fails_is_in_the_log_and_the_worker_serves(launch):
    text = "bind = '127.0.0.1:0'\ndef post_fork(server, worker):\n    raise RuntimeError('no such drawer')\n"
    server, _ = launch("bolide", {"gunicorn.conf.py": text, "app.py": APPLICATION})
    assert server.get("/").status == 200
    server.wait_for_text("gunicorn.conf.py: post_fork")
    server.wait_for_text("RuntimeError: no such drawer")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers = 2\nworkers = 1 / 0\n", "gunicorn.conf.py:2: error: ZeroDivisionError"),
        ("workers = (\n", "gunicorn.conf.py:1: error: SyntaxError"),
        ("import os\nraise SystemExit(3)\n", "gunicorn.conf.py:2: error: SystemExit: 3"),
        ("import os\nos._exit(0)\n", "has ended without an answer"),
        ("x = 'y' * 9_000_000\n", "its settings are larger than 1 MiB"),
    ],
)
def test_a_file_that_does_not_come_to_its_end_ends_the_start_with_its_line(text, said, tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "gunicorn.conf.py").write_text(text)
    status, log = run(tmp_path, "-c", "gunicorn.conf.py", "app:app")
    assert status != 0
    assert said in log.splitlines()[-1]


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    status, log = run(tmp_path, "-c", "gunicorn.conf.py", "app:app")
    assert status != 0
    assert "can't read" in log


def accepts(path):
    """Whether a connection is accepted: a socket that is bound does not listen yet."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_the_file_beside_the_command_is_read_as_gunicorn_reads_it(serve):
    for command in ([sys.executable, "-m", "gunicorn"], None):
        server = serve.prepare(arguments=["app:app"], command=command)
        (server.directory / "app.py").write_text(APPLICATION)
        (server.directory / "gunicorn.conf.py").write_text("raw_env = ['SHOP=open']\nbind = 'unix:app.sock'\n")
        server.launch()
        server.wait_for(lambda path=server.directory / "app.sock": accepts(path), "the socket of the file accepts")
        with Client(str(server.directory / "app.sock")) as client:
            assert json.loads(client.request().body)["SHOP"] == "open"
        server.stop()
    assert "`gunicorn.conf.py` in this directory is read, as gunicorn reads it" in server.log


def test_a_call_from_python_and_another_configuration_do_not_read_the_file(tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text("raise RuntimeError('read')\n")
    (tmp_path / "app.py").write_text("raise SystemExit('not read')\n")
    (tmp_path / "other.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\n")
    (tmp_path / "call.py").write_text("import bolide\nif __name__ == '__main__':\n    bolide.run('app:app', port=0)\n")
    assert "RuntimeError: read" in run(tmp_path, "app:app")[1]
    assert "not read" in run(tmp_path, "other.ini", "app:app")[1]
    called = subprocess.run([sys.executable, "call.py"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert "not read" in called.stderr, called.stderr


def test_the_command_line_counts_for_more_than_the_file(tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "gunicorn.conf.py").write_text("bind = '127.0.0.1:9001'\nworkers = 3\nwsgi_app = 'other:app'\n")
    line = ["--processes", "2", "--http", "127.0.0.1:9002", "-c", "gunicorn.conf.py", "app:app"]
    status, said = run(tmp_path, "config", *line)
    assert status == 0
    shown = [line.split("#")[0].strip() for line in said.splitlines()]
    assert {"processes = 2", "http = 127.0.0.1:9002", "module = app:app"} <= set(shown)
    assert "http = 127.0.0.1:9001" not in shown


#: Files as in real projects, with the expected result.
FILES = {
    "django": (
        """
import multiprocessing
bind = "unix:/run/shop/gunicorn.sock"
workers = multiprocessing.cpu_count() * 2 + 1
timeout = 60
max_requests = 1000
max_requests_jitter = 50
umask = 0o007
proc_name = "shop"
accesslog = None
errorlog = "-"
""",
        ["http-socket = unix:/run/shop/gunicorn.sock", "chmod-socket = 770", "harakiri = 60", "max-requests = 1000"],
    ),
    "uvicorn workers": (
        """
worker_class = "uvicorn.workers.UvicornWorker"
bind = ["0.0.0.0:8000", "[::1]:8000"]
workers = 4
timeout = 120
graceful_timeout = 15
keepalive = 65
""",
        ["http = 0.0.0.0:8000", "processes = 4", "worker-reload-mercy = 15", "http-keepalive = 65", "lazy-apps = true"],
    ),
    "environment": (
        """
import os
bind = f"{os.environ.get('HOST', '0.0.0.0')}:{os.environ.get('SHOP_PORT', '8080')}"
workers = int(os.getenv("SHOP_WORKERS", "2"))
threads = int(os.getenv("SHOP_THREADS", 4))
raw_env = ["DJANGO_SETTINGS_MODULE=shop.settings", "TZ=UTC"]
""",
        ["http = 0.0.0.0:8080", "processes = 2", "threads = 4", "env = DJANGO_SETTINGS_MODULE=shop.settings", "env = TZ=UTC"],
    ),
    "logs": (
        """
accesslog = "/var/log/shop/access.log"
errorlog = "/var/log/shop/error.log"
access_log_format = '%({X-Request-Id}i)s %(h)s "%(r)s" %(s)s %(B)s %(D)s'
loglevel = "warning"
""",
        [
            "req-logger = file:/var/log/shop/access.log",
            "logto = /var/log/shop/error.log",
            "log-output = false",
            'log-format = %(var.HTTP_X_REQUEST_ID) %(addr) "%(method) %(uri) %(proto)" %(status) %(rsize) %(micros)',
        ],
    ),
    "preloaded": ("preload_app = True\nworkers = 4\nworker_tmp_dir = '/dev/shm'\n", ["master = true", "processes = 4"]),
    "proxied": (
        """
forwarded_allow_ips = "10.0.0.1,10.0.0.2"
secure_scheme_headers = {"X-FORWARDED-PROTO": "https"}
proxy_protocol = True
""",
        ["trusted-proxies = 10.0.0.1, 10.0.0.2, unix", "http-enable-proxy-protocol = true"],
    ),
    "measured": (
        "statsd_host = '127.0.0.1:8125'\nstatsd_prefix = 'shop'\nreload = True\nreload_extra_files = ['settings.toml']\n",
        ["stats-push = statsd:127.0.0.1:8125,shop", "py-autoreload = 1", "touch-reload = settings.toml"],
    ),
    "limits": (
        """
limit_request_line = 8190
limit_request_fields = 200
limit_request_field_size = 131072
backlog = 512
class Quiet:
    pass
logger_class = Quiet
""",
        ["buffer-size = 131072", "listen = 512"],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_as_projects_have_them_become_options(name, tmp_path):
    text, expected = FILES[name]
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "settings.toml").write_text("")
    (tmp_path / "gunicorn.conf.py").write_text(text)
    status, said = run(tmp_path, "config", "-c", "gunicorn.conf.py", "app:app")
    assert status == 0, said
    shown = {line.split("# gunicorn.conf.py")[0].strip() for line in said.splitlines()}
    assert set(expected) <= shown, said


def test_loggers_of_a_dictionary_are_set_up_before_the_application_is_loaded(launch):
    text = (
        "bind = '127.0.0.1:0'\n"
        "logconfig_dict = {'version': 1, 'handlers': {'plain': {'class': 'logging.StreamHandler', 'formatter': 'plain'}},\n"
        "    'formatters': {'plain': {'format': 'shop says: %(message)s'}}, 'root': {'level': 'INFO', 'handlers': ['plain']},\n"
        "    'loggers': {'gunicorn.error': {'level': 'INFO', 'handlers': ['plain']}}}\n"
    )
    application = APPLICATION + "import logging\nlogging.getLogger('shop').info('it is loaded')\n"
    server, _ = launch("bolide", {"gunicorn.conf.py": text, "app.py": application})
    wait_until(lambda: "shop says: it is loaded" in server.log, lambda: server.log)


#: It writes its pid, and does not end while the test checks it.
ENDLESS = "import os, time\nwith open('pid', 'w') as file:\n    file.write(f'{os.getpid()} ')\ntime.sleep(777)\n"


def wait_for_pid(directory):
    file = directory / "pid"
    wait_until(lambda: file.exists() and file.read_text().endswith(" "), "the file to be executed")
    return int(file.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_file_that_is_executed_ends_with_the_start_that_reads_it(number, tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text(ENDLESS)
    command = [*program(), "-c", "gunicorn.conf.py", "app:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        pid = wait_for_pid(tmp_path)
        started.send_signal(number)
    wait_until(lambda: processes.look(pid) is None, "the end of the file's process")


def test_a_file_that_is_executed_for_a_reload_ends_with_a_master_that_is_killed(launch):
    server, _ = launch("bolide", {"gunicorn.conf.py": "bind = '127.0.0.1:0'\n", "app.py": APPLICATION})
    (server.directory / "gunicorn.conf.py").write_text(ENDLESS)
    server.send_signal(signal.SIGHUP)
    pid = wait_for_pid(server.directory)
    server.send_signal(signal.SIGKILL)
    wait_until(lambda: processes.look(pid) is None, "the end of the file's process")


def test_a_file_that_reads_standard_input_finds_nothing_there(tmp_path):
    text = "import sys\nbind = f'127.0.0.1:80{len(sys.stdin.read())}1'\n"
    (tmp_path / "gunicorn.conf.py").write_text(text)
    status, said = run(tmp_path, "config", "-c", "gunicorn.conf.py", "app:app")
    assert status == 0, said
    assert "127.0.0.1:8001" in said
