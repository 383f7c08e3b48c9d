"""`pyrun`: a file that is executed instead of a worker, and ends the instance."""

import signal

import pytest
from support.waiting import wait_until
from support_instance import reload_by_command

TELLS = "import sys, uwsgi\nopen('told', 'a').write(repr((__name__, sys.argv[1:], uwsgi.worker_id(), uwsgi.mule_id())) + '\\n')\n"
WAITS = TELLS + "import time\nwhile True:\n    time.sleep(60)\n"
#: The end of a file, and the exit status of the instance.
ENDS = {
    "the end": ("", 0),
    "an exit": ("sys.exit(7)\n", 7),
    "an exit with words": ("sys.exit('no')\n", 1),
    "an exception": ("raise RuntimeError('no')\n", 1),
    "a hard exit": ("import os\nos._exit(9)\n", 9),
    "a signal": ("import os\nos.kill(os.getpid(), 9)\n", 137),
}


def prepared(serve, script, more="", **options):
    server = serve.prepare(f"pyrun = work.py\npyargv = --all 2\n{more}", **options)
    (server.directory / "work.py").write_text(script)
    server.expects_alarms = True
    return server


def told(server, count):
    file = server.directory / "told"
    return wait_until(lambda: file.exists() and (lines := file.read_text().splitlines())[count - 1 :] and lines, "it is told")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("more", ["", "master = true", "lazy-apps = true\nmaster = true"])
def test_the_instance_has_the_exit_status_of_its_script(end, more, serve):
    rest, status = ENDS[end]
    server = prepared(serve, TELLS + rest, more)
    server.launch()
    assert server.wait_for_exit() == status
    assert told(server, 1) == ["('__main__', ['--all', '2'], 1, 0)"]
    assert "the instance exits with it" in server.log


@pytest.mark.parametrize("option", ["python", "py"])
def test_a_script_has_uwsgis_other_names_too_and_needs_no_socket(option, serve):
    server = serve.prepare(f"{option} = work.py", listen=())
    server.expects_alarms = True
    (server.directory / "work.py").write_text(TELLS + "sys.exit(3)\n")
    server.launch()
    assert server.wait_for_exit() == 3


def test_a_reload_ends_the_script_and_starts_it_again_and_a_stop_ends_it(serve):
    server = prepared(serve, WAITS, "master = true\nharakiri = 1\nreload-mercy = 600").launch()
    told(server, 1)
    reload_by_command(server)
    told(server, 2)
    assert server.stop() == 0
    assert "harakiri" not in server.log


def test_a_stop_ends_a_script_that_the_master_does_not_know_to_run_yet(serve):
    server = prepared(serve, WAITS, "master = true\nreload-mercy = 600\nshared-pyimport = stopping.py")
    # The master sends the order to fork, and reads nothing until it is continued.
    (server.directory / "stopping.py").write_text(
        "import os, signal\nos.register_at_fork(before=lambda: os.kill(os.getppid(), signal.SIGSTOP))\n"
    )
    server.launch()
    told(server, 1)
    server.send_signal(signal.SIGTERM)
    server.send_signal(signal.SIGCONT)
    assert server.wait_for_exit() == 0


def test_a_stop_ends_a_script_whose_signal_was_lost(serve):
    lost = (
        "import os, signal, time\nhelper_signal = signal.SIGRTMIN + 12\n"
        "before = signal.signal(helper_signal, signal.SIG_IGN)\nopen('told', 'a').write('ready\\n')\n"
        "while not os.path.exists('go'):\n    time.sleep(0.01)\n"
        "signal.signal(helper_signal, before)\nwhile True:\n    time.sleep(60)\n"
    )
    server = prepared(serve, lost, "master = true\nreload-mercy = 600").launch()
    told(server, 1)
    server.send_signal(signal.SIGTERM)
    server.wait_for_log("stop: no request is in flight; waiting for")
    (server.directory / "go").touch()
    assert server.wait_for_exit() == 0


def test_a_script_that_is_missing_ends_the_start(serve):
    server = serve.prepare("pyrun = nowhere.py")
    server.expects_alarms = True
    server.launch()
    assert server.wait_for_exit() != 0
    assert "nowhere.py" in server.log


def test_the_other_workers_serve(serve):
    server = prepared(serve, WAITS, "wsgi-file = {apps}/echo.py\nmaster = true\nprocesses = 2").start()
    told(server, 1)
    assert server.get("/").status == 200
    assert server.stop(signal.SIGINT) == 0
