"""Process and thread options do what uWSGI's manual says, from every source of options."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.server import program
from support.waiting import wait_until

PROBE = "module = probe\npythonpath = {apps}/../process/probes"
COMMAND_LINE = ["--pythonpath", "{apps}/../process/probes", "--http-socket", "127.0.0.1:0", "--disable-logging"]
CPUS = len(os.sched_getaffinity(0))


def workers(server):
    """Returns the number of workers that are reported at startup, and checks that they exist."""
    count = int(re.search(r"^bolide: ready: (\d+) workers? in", server.log, re.MULTILINE)[1])
    # The master, a prototype, and the workers.
    assert len(server.processes()) == 2 + count
    return count


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("", 1),
        ("processes = 3", 3),
        ("workers = 2", 2),
        ("processes = 2\nprocesses = 3", 3),
        ("processes = auto", CPUS),
    ],
)
def test_processes_is_the_number_of_workers(line, count, serve):
    assert workers(serve(f"{PROBE}\n{line}")) == count


@pytest.mark.parametrize("arguments", [["-p", "3"], ["-p3"], ["--processes=3"], ["--workers", "3"]], ids=" ".join)
def test_processes_on_the_command_line(arguments, serve):
    assert workers(serve(arguments=[*COMMAND_LINE, "-w", "probe", *arguments])) == 3


@pytest.mark.parametrize(
    "arguments",
    [["-w", "probe"], ["--wsgi", "probe"], ["--module", "probe:application"], ["probe:application"]],
    ids=" ".join,
)
def test_the_application_on_the_command_line(arguments, serve):
    server = serve(arguments=[*COMMAND_LINE, *arguments])
    assert server.get().text.isdigit()


def test_a_file_on_the_command_line_is_an_application(serve):
    for name in ["served.py", "served.wsgi"]:
        server = serve.prepare(arguments=[*COMMAND_LINE, "{directory}/" + name])
        (server.directory / name).write_text("from probe import application\n")
        assert server.start().get().text.isdigit()


@pytest.mark.parametrize(("line", "count"), [("threads = 3", 3), ("threads = 1", 1)])
def test_threads_answer_at_the_same_time(line, count, serve):
    server = serve(f"{PROBE}\n{line}\nenable-threads = true")
    gate = server.directory / "gate"
    clients = [server.connect() for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(f"GET /wait?{gate}{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(lambda: all(Path(f"{gate}{number}.waiting").exists() for number in range(count)), "all in the application")
    for number, client in enumerate(clients):
        Path(f"{gate}{number}").touch()
        assert client.read_response().text == "waited"
    assert server.get("/multi").text.split()[0] == str(count > 1)


def test_threads_auto_adds_threads_while_the_running_ones_are_blocked(serve):
    server = serve(f"{PROBE}\nthreads = auto")
    server.wait_for_text("1 worker × 1 to ")
    gate = server.directory / "gate"
    clients = [server.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.send(f"GET /wait?{gate}{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(Path(f"{gate}{number}.waiting").exists, f"request {number} in the application beside the others")
    for number, client in enumerate(clients):
        Path(f"{gate}{number}").touch()
        assert client.read_response().text == "waited"


def test_threads_of_the_application_run_without_enable_threads(serve):
    server = serve.prepare("master = true\nmodule = shop\npythonpath = {directory}\npythonpath = {apps}/../process/probes")
    (server.directory / "shop.py").write_text(
        "import os, threading\nfrom probe import application as probe\n"
        "ticks = []\n"
        "def tick():\n    while True:\n        ticks.append(1); threading.Event().wait(0.01)\n"
        "os.register_at_fork(after_in_child=lambda: threading.Thread(target=tick, daemon=True).start())\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', []); return [str(len(ticks)).encode()]\n"
    )
    server.start()
    first = int(server.get().text)
    wait_until(lambda: int(server.get().text) > first + 1, "ticks between requests")


@pytest.mark.parametrize("prefix", ["UWSGI_", "BOLIDE_"])
def test_options_come_from_the_environment(prefix, serve):
    server = serve(PROBE, environment={f"{prefix}PROCESSES": "2", f"{prefix}PROCNAME_PREFIX": "shop-"})
    assert workers(server) == 2
    names = {Path(f"/proc/{process.pid}/comm").read_text().strip() for process in server.processes()}
    assert names == {"shop-bolide mas", "shop-bolide pro", "shop-bolide w 1", "shop-bolide w 2"}


@pytest.mark.parametrize("option", ["lazy-apps", "lazy"])
def test_lazy_apps_loads_the_application_in_each_worker(option, serve):
    facts = json.loads(serve(f"{PROBE}\n{option} = true").get("/facts").text)
    assert facts["loaded_in"] == facts["pid"]
    facts = json.loads(serve(f"{PROBE}\nmaster = true").get("/facts").text)
    assert facts["loaded_in"] != facts["pid"]


@pytest.mark.parametrize(
    "lines",
    [
        "master = true\nsingle-interpreter = true\nneed-app = true\nenable-threads = true\nthunder-lock = true",
        "die-on-term = true\nhttp-auto-chunked = true\nignore-sigpipe = true\nplugin = python3\nplugins = python,http",
    ],
)
def test_accepted_options_are_silent(lines, serve):
    server = serve(f"{PROBE}\n{lines}\nstrict = true")
    assert server.get().status == 200
    assert not re.search(r"uwsgi\.ini:\d+", server.log), server.log


def test_die_on_term_or_not_sigterm_stops(serve):
    for line in ["die-on-term = true", ""]:
        assert serve(f"{PROBE}\n{line}").stop(signal.SIGTERM) == 0


def test_a_plugin_that_is_not_built_in_is_warned_of(serve):
    assert re.search(r"uwsgi\.ini:\d+: .*the plugin `lua`", serve(f"{PROBE}\nplugins = python,lua").log)


def test_need_app_or_not_a_start_without_application_fails(serve):
    for line in ["need-app = true", ""]:
        server = serve.prepare(f"module = no_such_module\n{line}").launch()
        assert server.wait_for_exit() == 22


# The plain program


@pytest.mark.timeout(900)
def test_the_plain_program_runs_the_python_of_path(plain_program, serve):
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    server = serve(PROBE, command=[plain_program], environment={"PATH": search})
    assert json.loads(server.get("/facts").text)["prefix"] == sys.prefix
    assert server.stop() == 0


@pytest.mark.timeout(900)
def test_the_plain_program_runs_the_python_of_virtualenv(plain_program, serve):
    server = serve(f"{PROBE}\nvirtualenv = {sys.prefix}", command=[plain_program], environment={"PATH": "/nowhere"})
    assert json.loads(server.get("/facts").text)["prefix"] == sys.prefix


@pytest.mark.timeout(900)
def test_the_plain_program_without_the_package_says_how_to_install_it(plain_program, serve):
    server = serve.prepare(PROBE, command=[plain_program])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(server.directory / "bare")], check=True)
    server.configure(f"{PROBE}\nvirtualenv = {{directory}}/bare")
    server.expects_alarms = True
    server.launch()
    assert server.wait_for_exit() != 0
    assert f"{server.directory}/bare/bin/python -m pip install bolide" in server.lines[-1], server.log


@pytest.mark.timeout(900)
def test_the_plain_program_without_a_python_says_what_to_install(plain_program, serve):
    server = serve.prepare(PROBE, command=[plain_program], environment={"PATH": "/nowhere"}).launch()
    assert server.wait_for_exit() == 1
    assert "no `python3` is in PATH: install Python 3.9 or later, then `pip install bolide`" in server.lines[-1]


@pytest.mark.timeout(900)
def test_the_plain_program_and_the_console_script_give_the_same_version(plain_program):
    versions = [
        subprocess.run([*command, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split(", ")
        for command in ([plain_program], program())
    ]
    # Only one of them runs in a Python, whose path it prints.
    assert versions[0][0] == versions[1][0] != ""
