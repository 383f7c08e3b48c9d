"""Mules: processes beside the workers that have the application loaded."""

import os
import signal

import pytest
from support import processes
from support.statistics import read_statistics
from support.waiting import wait_until
from support_instance import reload_by_command
from support_mules import SHOP, helpers_of, prepare, wait_for_notes
from support_processes import command_line_of


@pytest.fixture
def shop(serve, tmp_path):
    """Starts the shop with mules."""
    return lambda *options, **more: prepare(serve, tmp_path, *options, **more)


CODES = {"function": "mule = shop:forever", "loop": "mule = shop:busy", "file": "mule = work.py", "waiting": "mules = 1"}
WORK = """\
import shop
if __name__ == "__main__":
    shop.forever()
"""


@pytest.mark.parametrize("code", CODES)
def test_a_mule_ends_at_once_at_a_reload_and_at_a_stop_whatever_its_code_does(code, shop, call):
    instance = shop(CODES[code], "mule-reload-mercy = 600", files={"work.py": WORK})

    def pid(generation):
        def found():
            mules = helpers_of(call, instance)
            is_there = [(one["name"], one["generation"], one["state"]) for one in mules] == [("mule 1", generation, "serving")]
            return is_there and mules[0]["pid"]

        return wait_until(found, lambda: f"the mule of generation {generation}: {instance.log}")

    first = pid(1)
    if code != "waiting":
        assert wait_for_notes(instance, "works", 1) == [first]
    reload_by_command(instance)
    second = pid(2)
    assert processes.look(first) is None
    if code != "waiting":
        wait_for_notes(instance, "works", 2)
    assert instance.stop() == 0
    assert processes.look(second) is None
    assert "mule 1" not in instance.log


def test_a_mule_has_its_name_in_ps_and_in_status_and_its_row_in_statistics(shop, call):
    instance = shop("mules = 2", "auto-procname = true", "stats = {directory}/stats.sock", "processes = 2")
    mules = wait_until(
        lambda: len(found := helpers_of(call, instance)) == 2 and all(one["state"] == "serving" for one in found) and found,
        "two mules",
    )
    assert [(one["name"], one["done"], one["in_flight"]) for one in mules] == [("mule 1", 0, []), ("mule 2", 0, [])]
    assert [command_line_of(one["pid"]) for one in mules] == ["bolide mule 1", "bolide mule 2"]
    _, said = call("status", str(instance.process.pid))
    assert f"mule 2 (pid {mules[1]['pid']}) of generation 1: serving, 0 done, idle; up " in said
    numbers = read_statistics(str(instance.directory / "stats.sock"))
    assert [(one["id"], one["pid"], one["status"]) for one in numbers["mules"]] == [
        (1, mules[0]["pid"], "idle"),
        (2, mules[1]["pid"], "idle"),
    ]
    assert len(numbers["workers"]) == 2
    assert all(one["rss"] > 0 for one in numbers["mules"])


def test_a_mule_that_dies_is_started_again(shop):
    instance = shop("mule = shop:forever")
    instance.expects_alarms = True
    (first,) = wait_for_notes(instance, "works", 1)
    os.kill(first, signal.SIGKILL)
    _, second = wait_for_notes(instance, "works", 2)
    instance.wait_for_log(rf"^bolide: mule 1 \(pid {first}\) was killed by SIGKILL")
    os.kill(second, signal.SIGTERM)
    wait_for_notes(instance, "works", 3)
    instance.wait_for_log(
        rf"^bolide: mule 1 \(pid {second}\) got SIGTERM from pid \d+: it exits after its work, and is replaced$"
    )
    assert instance.get("/").text == "hello"


def test_a_mule_whose_code_raises_is_in_the_log_and_comes_again_with_a_pause(shop):
    instance = shop("mule = shop:failing")
    instance.expects_alarms = True
    wait_for_notes(instance, "works", 2)
    instance.wait_for_log(r"^mule 1: RuntimeError: no hay")
    instance.wait_for_log(r"mule 1 \(pid \d+\) exited with status 1 soon after startup; next attempt in 200 ms")
    assert instance.get("/").text == "hello"


def test_a_mule_in_a_file_without_application_says_what_it_lacks(shop):
    instance = shop("mule = absent.py")
    instance.expects_alarms = True
    instance.wait_for_log(r"^mule 1: FileNotFoundError: .*absent.py")


def test_each_mule_has_the_application_with_lazy_apps_too(shop):
    instance = shop("mule = shop:forever", "lazy-apps = true")
    wait_for_notes(instance, "works", 1)
    assert instance.get("/").text == "hello"


def test_a_mule_without_code_has_to_say_so(shop, call, tmp_path):
    for value in ("", " = true", " = 1"):
        (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nhttp = :0\nmodule = shop\nmule{value}\n")
        status, said = call("check", "uwsgi.ini")
        assert "mule" not in said, said
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp = :0\nmodule = shop\nmule = mailer\n")
    status, said = call("check", "uwsgi.ini")
    assert status != 0
    assert "`mule = mailer` does not contain the code of a mule" in said


def test_a_mule_in_a_loop_writes_to_the_new_file_after_a_log_rotation(serve, call, tmp_path):
    source = "def chatty():\n    while True:\n        uwsgi.log('still here')\n        time.sleep(0.01)\n"
    (tmp_path / "shop.py").write_text(SHOP + source)
    log = tmp_path / "log"
    options = [f"chdir = {tmp_path}", "module = shop:application", "mule = shop:chatty", f"logto = {log}"]
    instance = serve.prepare("\n".join(options)).launch()
    wait_until(lambda: log.exists() and "still here" in log.read_text(), "the mule's lines")
    status, said = call("log-rotate", str(instance.process.pid))
    assert status == 0, said
    wait_until(lambda: "still here" in log.read_text(), "the mule's lines in the new file")
    instance.send_signal(signal.SIGTERM)
    assert instance.wait_for_exit() == 0


def test_a_mule_does_not_outlive_a_master_that_is_killed(shop):
    instance = shop("mule = shop:busy")
    instance.expects_alarms = True
    (mule,) = wait_for_notes(instance, "works", 1)
    os.kill(instance.process.pid, signal.SIGKILL)
    wait_until(lambda: processes.look(mule) is None, "the end of the mule")


def test_a_process_that_a_mule_forks_is_no_second_mule(shop):
    source = (
        "def parent():\n    note('works')\n    child = os.fork()\n    if child == 0:\n        note('child')\n        return\n"
        "    os.waitpid(child, 0)\n    note('reaped')\n    while True: time.sleep(60)\n"
    )
    instance = shop("mule = shop:parent", source=source)
    wait_for_notes(instance, "reaped", 1)
    reload_by_command(instance)
    wait_for_notes(instance, "reaped", 2)
    assert len(instance.notes("works")) == 2
