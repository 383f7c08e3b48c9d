"""Variables of the configuration count for all that the instance does: its clock, its lines, and the programs it starts."""

import datetime
import os
import re
import signal
import urllib.request

import pytest
from support import processes
from support.waiting import wait_until
from support_users import NOBODY

#: Zones without daylight saving time, far from each other and from UTC.
TOKYO, LIMA = "XXT-9", "XXL+5"
#: What the application has, and a program that it starts.
TELLS = """\
import os, subprocess
program = subprocess.run("printf %s ${LC_CTYPE-none}", shell=True, capture_output=True, text=True, check=True).stdout
def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{os.environ.get('LC_CTYPE', 'none')} {program}".encode()]
"""
DATE = r"\w{3} \w{3} +\d+ (\d\d):\d\d:\d\d \d{4}"


def hour_in(zone):
    hours = -int(zone[3:])
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)).hour


def hours(log, pattern):
    return {int(found.group(1)) for found in re.finditer(pattern, log, re.MULTILINE)}


def this_and_next_hour(zone):
    return {hour_in(zone), (hour_in(zone) - 1) % 24}


@pytest.fixture
def in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")


def test_every_line_of_the_log_has_the_zone_of_the_configuration(start, in_utc):
    instance = start("--env", f"TZ={TOKYO}", "--log-date", logging=True, ready=False)
    instance.wait_for_text("open http://")
    with urllib.request.urlopen(re.search(r"open (http://\S+)", instance.log)[1]) as answer:
        assert answer.status == 200
    assert instance.stop() == 0
    server = hours(instance.log, rf"^{DATE} - bolide: ready")
    requests = hours(instance.log, rf"\[{DATE}\] GET ")
    assert server, instance.log
    assert requests, instance.log
    assert server | requests <= this_and_next_hour(TOKYO), instance.log


def due_now(zone):
    """Minute and hour of cron in this zone: those of now and of the next minute, so that one of them is due within the test."""
    hours = -int(zone[3:])
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    return [(time.minute, time.hour) for time in (now, now + datetime.timedelta(minutes=1))]


@pytest.mark.parametrize("variable", ["before", "after", "file"])
def test_cron_goes_by_the_zone_of_the_configuration(variable, start, in_utc, monkeypatch, tmp_path):
    (tmp_path / "zone.env").write_text(f"TZ={TOKYO}\n")
    zone = ["--env", f"TZ={TOKYO}"]
    if variable == "file":
        # A variable of the environment counts more than one of such a file.
        monkeypatch.delenv("TZ")
        zone = ["--env-file", str(tmp_path / "zone.env")]
    jobs = [word for minute, hour in due_now(TOKYO) for word in ("--cron", f"{minute} {hour} -1 -1 -1 echo due in $TZ")]
    instance = start(*(jobs + zone if variable == "after" else zone + jobs), alarms=True)
    instance.wait_for_log(rf"^\[cron echo\] due in {re.escape(TOKYO)}$")


def test_a_reload_changes_the_zone_and_the_one_of_the_start_comes_back(start, in_utc, tmp_path):
    ini = tmp_path / "zone.ini"
    ini.write_text(f"[uwsgi]\nenv = TZ={TOKYO}\nlog-date = true\n")
    instance = start("--ini", str(ini), ready=False)
    instance.wait_for_text("bolide: ready: ")
    for generation, (line, zone) in enumerate([(f"env = TZ={LIMA}", LIMA), ("", "UTC-0")], start=2):
        ini.write_text(f"[uwsgi]\n{line}\nlog-date = true\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_text(f"of generation {generation} in ")
        ready = hours(instance.log, rf"^{DATE} - bolide: ready: .* of generation {generation} ")
        assert ready, instance.log
        assert ready <= this_and_next_hour(zone), instance.log
    assert instance.stop() == 0


def test_a_variable_that_unenv_removes_reaches_no_program(start, monkeypatch, tmp_path):
    monkeypatch.setenv("OF_THE_START", "secret")
    job, hook, daemon = ("echo job ${OF_THE_START-none}", "echo hook ${OF_THE_START-none}", "echo daemon ${OF_THE_START-none}")
    instance = start(
        "--unenv", "OF_THE_START", "--cron", f"-1 -1 -1 -1 -1 {job}", "--hook-asap", f"exec:{hook}",
        "--attach-daemon", f"{daemon}; sleep 1000", alarms=True,
    )  # fmt: skip
    for line in ("job none", "hook none", "daemon none"):
        instance.wait_for_log(rf"{line}$")
    assert "secret" not in instance.log


@pytest.mark.parametrize("master", [True, False])
@pytest.mark.parametrize(("variables", "wanted"), [({}, "none"), ({"LC_CTYPE": "C.UTF-8"}, "C.UTF-8")])
def test_the_application_has_no_locale_that_an_interpreter_has_set(variables, wanted, master, start, monkeypatch, tmp_path):
    # Without a locale, CPython sets LC_CTYPE in its own environment (PEP 538). The console script is such an interpreter.
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tells.py").write_text(TELLS)
    instance = start(
        "--pythonpath", tmp_path, "--hook-asap", "exec:echo hook ${LC_CTYPE-none}", module="tells", master=master, alarms=True
    )  # fmt: skip
    assert instance.body() == f"{wanted} {wanted}"
    instance.wait_for_log(rf"hook {wanted}$")


@pytest.mark.parametrize("option", ["logger", "req-logger"])
def test_a_program_that_reads_lines_has_the_variables_of_the_configuration(option, start, call, monkeypatch, tmp_path):
    monkeypatch.setenv("OF_THE_START", "secret")
    ini, note, pid, said = (tmp_path / name for name in ("piped.ini", "note", "pid", "said"))
    # `$$` stays the number of the program, which the test ends.
    program = f"echo $$ > {pid}; echo $COLOR $PATH ${{OF_THE_START-none}} >> {note}; exec cat >> {said}"

    def configure(color):
        lines = [f"env = COLOR={color}", f"env = PATH=/{color}:/usr/bin:/bin", "unenv = OF_THE_START"]
        ini.write_text("\n".join(["[uwsgi]", *lines, f"{option} = pipe:{program}", ""]))

    def noted():
        return note.read_text().splitlines() if note.exists() else []

    configure("red")
    instance = start("--ini", str(ini), logging=True, alarms=True, ready=False)
    wait_until(lambda: noted() == ["red /red:/usr/bin:/bin none"], noted)
    wait_until(lambda: "bolide: ready: " in instance.log + (said.read_text() if said.exists() else ""), "it serves")
    # The next program has what the instance has then.
    configure("blue")
    assert call("reload", "--wait", str(instance.pid))[0] == 0
    processes.kill(int(pid.read_text()))
    wait_until(lambda: noted()[1:] == ["blue /blue:/usr/bin:/bin none"], noted)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, whose programs become the application's user")
def test_a_program_of_the_applications_user_has_all_variables_of_that_users_file(start, open_directory):
    file, note = open_directory / "app.env", open_directory / "note"
    file.write_text("LD_AUDIT_OF_TEST=/tmp/theirs.so\nCOLOR=red\n")
    note.touch()
    for path in (open_directory, file, note):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    program = f"echo $(id -u) $LD_AUDIT_OF_TEST $COLOR >> {note}; exec cat > /dev/null"
    start("--uid", "nobody", "--env-file", str(file), "--req-logger", f"pipe:{program}", logging=True, ready=False)
    wait_until(lambda: note.read_text() == f"{NOBODY.pw_uid} /tmp/theirs.so red\n", note.read_text)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, whose hooks another user's file must not change")
@pytest.mark.parametrize("owner", ["the application's user", "root"])
def test_what_root_executes_takes_no_path_from_a_file_of_another_user(owner, start, open_directory):
    file, note = open_directory / "app.env", open_directory / "note"
    file.write_text("PATH=/tmp/theirs:/usr/bin:/bin\nLD_AUDIT_OF_TEST=/tmp/theirs.so\nCOLOR=red\nTZ=/tmp/theirs\n")
    if owner != "root":
        os.chown(open_directory, NOBODY.pw_uid, NOBODY.pw_gid)
    instance = start(
        "--uid", "nobody", "--env-file", str(file), "--hook-asap", f"exec:/usr/bin/env > {note}", ready=False
    )  # fmt: skip
    instance.wait_for_text("hook asap: exec:/usr/bin/env")
    instance.wait_for_log("^bolide: (not started|ready)")
    lines = note.read_text().splitlines()
    assert "COLOR=red" in lines
    is_theirs = [line for line in lines if "theirs" in line and line != "TZ=/tmp/theirs"]
    # Only the first case has the file of another user.
    assert bool(is_theirs) == (owner == "root"), lines
    assert ("are not passed to programs that root executes" in instance.log) == (owner != "root")
    assert "TZ = /tmp/theirs is a file that root does not read" in instance.log
