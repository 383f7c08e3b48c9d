"""The start of an instance: its messages, their order, and the reasons of failed starts."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
from support.server import Server, program
from support.terminal import Terminal
from support_instance import LOAD_FAILED, START_FAILED

SERVE = ("--http-socket", "127.0.0.1:0")
SHOP = """
def application(environ, start_response):
    start_response("200 OK", [])
    return []
"""


def test_the_last_line_of_a_start_says_what_to_open_when_it_is_served(start, tmp_path):
    gate = tmp_path / "gate"
    (tmp_path / "shop.py").write_text(
        "import os, time\nprint('loading', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\nfrom probe import application\n"
    )
    instance = start(module="shop", ready=False)
    instance.wait_for_log("^loading$")
    assert "open http" not in instance.log
    gate.touch()
    instance.wait_for_log(rf"^bolide: ready: .*\nbolide: open http://127\.0\.0\.1:{instance.port}\n\Z")
    assert instance.body() in map(str, instance.workers())


def test_start_up_lines_come_in_order(start):
    instance = start("--uwsgi-socket", "127.0.0.1:0", "--processes", "2", "--threads", "3")
    instance.wait_for_log("^bolide: open http")
    kinds = [
        rf"version \S+, master pid {instance.pid}",
        r"listening on http://127\.0\.0\.1:\d+",
        r"listening on uwsgi://127\.0\.0\.1:\d+",
        r"2 workers \S 3 threads",
        r"ready: 2 workers in [\d.]+ m?s \(the application was loaded in [\d.]+ m?s\)",
        r"open http://127\.0\.0\.1:\d+",
    ]
    lines = instance.log
    places = [re.search(f"^bolide: {kind}$", lines, re.MULTILINE) for kind in kinds]
    assert all(places), lines
    assert [place.start() for place in places] == sorted(place.start() for place in places)


@pytest.mark.parametrize("application", ["nosuch.app:app", "nosuch.py"])
def test_a_start_whose_application_is_missing_does_not_tell_its_address(fail, application, free_port):
    status, lines = fail(application, "--http", f"127.0.0.1:{free_port()}")
    assert status in (START_FAILED, LOAD_FAILED)
    assert "nosuch" in lines[-1]
    assert not [line for line in lines if "listening on" in line]


def test_an_application_that_is_installed_elsewhere_is_served_and_its_address_is_told(start, tmp_path, free_port):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "shop.py").write_text(SHOP)
    places = ("shop:application", "--http", f"127.0.0.1:{free_port()}", "--import", str(tmp_path / "path.py"))
    (tmp_path / "path.py").write_text(f"import sys\nsys.path.append({str(tmp_path / 'far')!r})\n")
    instance = start(*places, socket=None, module=None)
    instance.wait_for_log(r"^bolide: listening on http://.*\nbolide: ready: 1 worker ")


def test_a_port_that_is_misspelled_as_a_protocol_is_an_error_and_a_file_nearly_named_is_offered(fail, tmp_path):
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\n")
    status, lines = fail("--prot", "80", "shop")
    assert (status, len(lines)) == (START_FAILED, 1)
    assert "did you mean `--port 80`?" in lines[0]
    status, lines = fail("uwsgi.ini2")
    assert (status, len(lines)) == (START_FAILED, 1)
    assert lines[0].endswith("there is no file or module uwsgi.ini2 (did you mean uwsgi.ini?)")


def test_a_start_without_a_number_has_one_worker_and_a_terminal_says_how_to_have_one_for_each_cpu(start, tmp_path):
    instance = start()
    cpus = len(os.sched_getaffinity(0))
    assert len(instance.workers()) == 1
    assert "workers auto" not in instance.log
    (tmp_path / "shop.py").write_text(SHOP)
    shown = Terminal(tmp_path, "shop", "--http-socket", "127.0.0.1:0")
    try:
        shown.wait_for(r"open http://127\.0\.0\.1:\d+")
        said = re.search(r"ready: 1 worker .*`--workers auto`\) starts one per CPU \((\d+)\)", shown.words)
        assert (said and int(said[1])) == (cpus if cpus > 1 else None)
        # A person reads the address once.
        assert shown.words.count("http://") == 1
    finally:
        shown.close()


def test_web_concurrency_counts_for_an_application_on_the_command_line(start, fail, tmp_path, free_port):
    bare = ("probe:application", "--http", f"127.0.0.1:{free_port()}")
    three = start(*bare, socket=None, module=None, environment={"WEB_CONCURRENCY": "3"})
    assert len(three.workers()) == 3
    three.stop()
    chosen = start(*bare, "--workers", "2", socket=None, module=None, environment={"WEB_CONCURRENCY": "3"})
    assert len(chosen.workers()) == 2
    chosen.stop()
    (tmp_path / "app.ini").write_text("[uwsgi]\nmodule = probe\nhttp-socket = 127.0.0.1:0\n")
    file = start("app.ini", socket=None, module=None, environment={"WEB_CONCURRENCY": "3"})
    assert len(file.workers()) == 1
    status, lines = fail(*bare, env={**os.environ, "WEB_CONCURRENCY": "many"})
    assert status == START_FAILED
    assert "WEB_CONCURRENCY = many" in lines[-1]


def test_processes_auto_takes_the_cpus_that_the_process_may_use(start):
    cpu = min(os.sched_getaffinity(0))
    pinned = start("--processes", "auto", command=["taskset", "-c", str(cpu), *program()])
    assert len(pinned.workers()) == 1
    every = start("--workers", "auto")
    assert len(every.workers()) == len(os.sched_getaffinity(0))
    assert "workers auto" not in pinned.whole_log() + every.whole_log()


def test_no_configuration_serves_at_port_8000_with_one_worker(start):
    instance = start("probe:application", socket=None, module=None, ready=False)
    instance.wait_for(lambda: "ready: " in instance.log or instance.process.poll() is not None, "it is ready, or has ended")
    if instance.process.poll() is None:
        instance.wait_for_log("^bolide: open http://127.0.0.1:8000$")
        assert len(instance.workers()) == 1
    else:
        # Another program uses the port, such as another run of these tests: the error shows that it was requested.
        assert instance.wait_for_exit() == START_FAILED
        assert "port 8000 of 127.0.0.1 is in use" in instance.lines[-1]


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
def test_a_missing_module_ends_the_start_with_its_name(lazy, fail, tmp_path):
    status, lines = fail(*SERVE, "--module", "no_such_module:application", *lazy)
    assert status == LOAD_FAILED
    assert "there is no module 'no_such_module'" in lines[-1], lines
    # Once, and only with directories of the project.
    assert len([line for line in lines if "there is no module" in line]) == 1
    assert f"{str(tmp_path)!r}" in lines[-1]
    assert "lib/python" not in lines[-1]


def test_a_missing_callable_ends_the_start_with_a_hint(fail, tmp_path):
    (tmp_path / "shop.py").write_text("def app(environ, start_response): pass\n")
    status, lines = fail(*SERVE, "--module", "shop")
    assert status == LOAD_FAILED
    assert "'shop' has no 'application'; did you mean shop:app?" in lines[-1], lines


def test_a_syntax_error_ends_the_start_and_shows_where(fail, tmp_path):
    (tmp_path / "shop.py").write_text("def application(:\n")
    status, lines = fail(*SERVE, "--module", "shop")
    assert status == LOAD_FAILED
    assert "SyntaxError" in lines[-1], lines
    assert any("shop.py" in line and "line 1" in line for line in lines), lines


def test_an_exception_while_loading_ends_the_start_with_its_traceback(fail, tmp_path):
    (tmp_path / "shop.py").write_text("def connect():\n    raise RuntimeError('no database')\nconnect()\n")
    status, lines = fail(*SERVE, "--module", "shop")
    assert status == LOAD_FAILED
    assert "RuntimeError: no database" in lines[-1], lines
    assert any("in connect" in line for line in lines), lines


def test_a_module_that_exits_while_it_is_imported_is_no_application(fail, tmp_path):
    (tmp_path / "shop.py").write_text("raise SystemExit(0)\n")
    status, lines = fail(*SERVE, "--module", "shop")
    assert status == LOAD_FAILED
    assert "SystemExit" in lines[-1], lines


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("end", "told"),
    [("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"), ("os._exit(3)", "exited with status 3")],
    ids=["killed", "exited"],
)
def test_an_application_that_ends_its_process_while_loading_ends_the_start(end, told, processes, fail, tmp_path):
    (tmp_path / "shop.py").write_text(f"import os, signal\n{end}\n")
    status, lines = fail(*SERVE, "--module", "shop", "--processes", processes)
    assert status == LOAD_FAILED
    assert told in lines[-1], lines


def test_a_port_in_use_ends_the_start_and_names_the_port(fail):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, lines = fail("--http-socket", f"127.0.0.1:{port}", "--module", "probe")
    assert status == START_FAILED
    assert re.search(rf"port {port} of 127\.0\.0\.1 is in use, by python\S* \(pid {os.getpid()}\)", lines[-1]), lines
    assert len([line for line in lines if "in use" in line]) == 1


def test_a_second_start_of_the_same_command_line_names_the_first(fail, tmp_path, free_port):
    port = free_port()
    (tmp_path / "shop.py").write_text(SHOP)
    arguments = ("--http-socket", f"127.0.0.1:{port}", "--module", "shop")
    shop = Server(tmp_path, arguments=arguments).start()
    try:
        _, lines = fail(*arguments)
        pid = shop.process.pid
        assert f"port {port} of 127.0.0.1 is in use: pid {pid} already serves this; `bolide reload {pid}`" in lines[-1]
        assert shop.stop() == 0
    finally:
        shop.finish()


@pytest.mark.parametrize("target", ["missing/directory/app.log", "."], ids=["no-directory", "a-directory"])
def test_an_unwritable_log_ends_the_start_and_names_the_file(target, fail):
    status, lines = fail(*SERVE, "--module", "probe", "--logto", target)
    assert status == START_FAILED
    assert "(logto) can't be written" in lines[-1], lines


def test_a_failed_start_is_reported_on_the_terminal_too_when_the_log_is_a_file(fail, tmp_path):
    status, lines = fail(*SERVE, "--module", "no_such_module", "--logto", "app.log")
    assert status == LOAD_FAILED
    assert "no_such_module" in lines[-1], lines
    assert "no_such_module" in (tmp_path / "app.log").read_text().splitlines()[-1]


def test_a_missing_chdir_ends_the_start(fail):
    status, lines = fail(*SERVE, "--module", "probe", "--chdir", "no/such/directory")
    assert status == START_FAILED
    assert "no/such/directory" in lines[-1], lines
    assert "no such directory" in lines[-1]


def test_no_application_is_an_error_that_says_what_to_write(fail):
    status, lines = fail(*SERVE, "--need-app")
    assert status == START_FAILED
    assert "there is no application to serve" in lines[-1], lines
    assert "module = " in lines[-1]


def test_nothing_to_serve_is_an_error_that_says_what_to_write(fail, tmp_path):
    (tmp_path / "app.ini").write_text("[uwsgi]\nmodule = probe\n")
    status, lines = fail("app.ini")
    assert status == START_FAILED
    assert "there is no socket to serve on" in lines[-1], lines
    assert "http = " in lines[-1]


@pytest.mark.parametrize("strict", ["", "strict = true"])
def test_a_planned_option_is_a_warning_with_strict_too(strict, start, tmp_path):
    configuration = f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\nhook-as-vassal = exec:true\n{strict}\n"
    (tmp_path / "app.ini").write_text(configuration)
    instance = start("app.ini", socket=None, module=None)
    assert re.search(r"app\.ini:4: .*`hook-as-vassal` is known, but not supported yet", instance.log)


def test_an_unknown_key_is_reported_with_file_line_and_the_nearest_name(start, fail, tmp_path):
    configuration = "[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\nharakirri = 3\n"
    (tmp_path / "app.ini").write_text(configuration)
    instance = start("app.ini", socket=None, module=None)
    assert re.search(r"app\.ini:4: .*unknown option `harakirri`.*did you mean `harakiri`\?", instance.log), instance.log
    (tmp_path / "app.ini").write_text(configuration + "strict = yes\n")
    status, lines = fail("app.ini")
    assert status == START_FAILED
    assert re.search(r"app\.ini:4: .*unknown option `harakirri`", lines[-1]), lines


def test_a_start_that_fails_leaves_no_process_and_no_socket_file(start, tmp_path):
    instance = start("--socket", "app.sock", "--vacuum", module="no_such_module", ready=False)
    assert instance.wait_for_exit() == LOAD_FAILED
    assert not (tmp_path / "app.sock").exists()


def make_virtualenv(directory):
    """An environment without any package. Returns the directory of its packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    return packages


def test_an_invalid_virtualenv_fails_the_start_and_the_error_says_how_to_create_one(fail, tmp_path):
    (tmp_path / "directory").mkdir()
    for name, reason in [("missing", "does not exist"), ("directory", "is not a virtual environment")]:
        status, lines = fail(*SERVE, "--module", "probe", "--virtualenv", name)
        assert status == START_FAILED
        assert reason in lines[-1], lines
        assert f"python3 -m venv {tmp_path / name}" in lines[-1]


def test_a_virtualenv_of_another_python_is_refused_with_the_command_to_install_bolide(fail, tmp_path):
    # The situation of a Python of another version that looks for a native module that was not built for it.
    packages = make_virtualenv(tmp_path / "other")
    (packages / "sitecustomize.py").write_text("import sys\nsys.modules['bolide._native'] = None\n")
    status, lines = fail(*SERVE, "--module", "probe", "--virtualenv", "other")
    assert status == LOAD_FAILED
    told = "\n".join(lines)
    assert f"{tmp_path}/other/bin/python" in told, told
    assert "pip install bolide" in told
    assert "nothing is served" in lines[-1]


def test_a_virtualenv_that_lacks_bolide_serves_with_its_own_packages(start, tmp_path):
    packages = make_virtualenv(tmp_path / "bare")
    (packages / "only_here.py").write_text("from probe import application\n")
    instance = start("-H", tmp_path / "bare", module="only_here")
    assert json.loads(instance.body("/facts"))["prefix"] == str(tmp_path / "bare")


def test_the_pidfile_of_a_living_instance_is_not_overwritten(start, fail, tmp_path):
    instance = start("--pidfile", tmp_path / "pid")
    status, lines = fail("--http-socket", "127.0.0.1:0", "--wsgi-file", "none.py", "--pidfile", tmp_path / "pid")
    assert status == START_FAILED
    assert f"the pidfile {tmp_path / 'pid'} belongs to a running instance (pid {instance.pid}); stop it first" in lines[-1]
    assert (tmp_path / "pid").read_text().strip() == str(instance.pid)


def test_a_pidfile_that_is_a_device_holds_up_no_instance(start):
    for instance in (start("--pidfile", "/dev/null"), start("--pidfile", "/dev/null")):
        assert instance.body() == str(instance.worker())


def test_a_stale_pidfile_is_taken_over_even_if_its_pid_is_in_use(start, tmp_path):
    (tmp_path / "pid").write_text(f"{os.getpid()} and more\n")
    instance = start("--pidfile", tmp_path / "pid")
    assert (tmp_path / "pid").read_text() == f"{instance.pid}\n"


@pytest.mark.parametrize("end", ["raise RuntimeError('no database')", "os._exit(3)"], ids=["raises", "exits"])
def test_what_an_import_has_started_does_not_outlive_a_failed_start(end, start, tmp_path):
    (tmp_path / "shop.py").write_text(
        f"import os, subprocess, time\nsubprocess.Popen(['sleep', '300'])\nif os.fork() == 0:\n    time.sleep(300)\n{end}\n"
    )
    instance = start(module="shop", ready=False, alarms=True)
    assert instance.wait_for_exit() == LOAD_FAILED
    # A killed process that has closed the log may still be there for a moment.
    instance.wait_until_gone()


def test_show_config_prints_the_configuration_and_serves(start, call):
    unsupported = ("--py-tracebacker", "/tmp/tracebacker", "--never-swap", "--drop-after-apps", "--zerg-server", "/tmp/zerg")
    instance = start("--show-config", "--harakiri", "300000000", *unsupported)
    assert instance.get().status == 200
    said = instance.everything()
    assert ";uWSGI instance configuration" in said
    assert "py-tracebacker = /tmp/tracebacker" in said
    status, said = call("--module", "probe", "--http-socket", "127.0.0.1:0", "--show-config", "--no-server")
    assert status == 0
    assert "http-socket = 127.0.0.1:0" in said
