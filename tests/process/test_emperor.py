"""An emperor: what it does beyond uWSGI's. tests/compat has the rules that are uWSGI's."""

import os
import signal
import subprocess

import pytest
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_instance import COMMAND_SECONDS, NO_INSTANCE, REFUSED
from support_processes import children_of

#: The places are looked at only at startup: later changes are those that the kernel reports.
NO_LOOKS = "emperor-freq = 3600"


@pytest.fixture
def emperor(tmp_path):
    """Makes an emperor with these lines."""
    made = []

    def emperor(*lines):
        places = () if any(line.startswith("emperor =") for line in lines) else ("emperor = {directory}/vassals",)
        made.append(Emperor(program(), tmp_path, *places, NO_LOOKS, *lines))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def test_changes_act_without_a_look(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(one, "one"))
    emperor.start()
    emperor.answer(one)
    emperor.write("two.ini", *site(two, "two"))
    emperor.answer(two)
    emperor.write("one.ini", *site(one, "changed"))
    wait_until(lambda: emperor.answer(one)[0] == "changed", "the new file")
    (emperor.vassals / "two.ini").unlink()
    emperor.is_gone(two)


def test_a_file_below_a_pattern_that_appears_with_its_directory_is_started(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor = {directory}/more/*/*/*.ini")
    more = emperor.directory / "more"
    more.mkdir()
    emperor.start()
    emperor.wait_for_log("emperor pid")
    (more / "a" / "b").mkdir(parents=True)
    emperor.write("one.ini", *site(port, "one")).rename(more / "a" / "b" / "one.ini")
    assert emperor.answer(port)[0] == "one"


def test_a_file_with_an_older_time_counts_as_changed(emperor, free_port):
    port = free_port()
    emperor = emperor()
    path = emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    emperor.wait_for_log("reloads: its file has changed")


def test_a_link_that_is_moved_to_another_file_reloads_gracefully(emperor, free_port):
    port = free_port()
    emperor = emperor()
    releases = emperor.directory / "releases"
    releases.mkdir()
    for name in ("two", "one"):
        emperor.write(f"{name}.ini", *site(port, name)).rename(releases / f"{name}.ini")
    link = emperor.vassals / "site.ini"
    link.symlink_to(releases / "one.ini")
    emperor.start()
    emperor.answer(port)
    (pid,) = children_of(emperor.process.pid)
    # The other file is older.
    (emperor.vassals / "next").symlink_to(releases / "two.ini")
    (emperor.vassals / "next").rename(link)
    wait_until(lambda: emperor.answer(port)[0] == "two", lambda: emperor.log)
    assert children_of(emperor.process.pid) == [pid]


def test_two_vassals_of_one_name_in_two_directories_are_two(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor("emperor = {directory}/vassals", "emperor = {directory}/more")
    more = emperor.directory / "more"
    more.mkdir()
    emperor.write("site.ini", *site(two, "two")).rename(more / "site.ini")
    emperor.write("site.ini", *site(one, "one"))
    emperor.start()
    assert (emperor.answer(one)[0], emperor.answer(two)[0]) == ("one", "two")
    (more / "site.ini").unlink()
    emperor.is_gone(two)
    assert emperor.answer(one)[0] == "one"


def test_a_vassal_that_hangs_is_killed_and_starts_again(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-required-heartbeat = 2")
    emperor.write("one.ini", *site(port, "one", "heartbeat = 1"))
    emperor.start()
    emperor.answer(port)
    (pid,) = children_of(emperor.process.pid)
    os.kill(pid, signal.SIGSTOP)
    emperor.wait_for_log(f"vassal one.ini (pid {pid}) has sent no heartbeat for too long: killing it")
    wait_until(lambda: children_of(emperor.process.pid) not in ([], [pid]), "another process")
    assert emperor.answer(port)[0] == "one"


def test_a_vassal_that_is_killed_starts_again(emperor, free_port):
    port = free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    (pid,) = children_of(emperor.process.pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: children_of(emperor.process.pid) not in ([], [pid]), "another process")
    assert emperor.answer(port)[0] == "one"


def test_a_crash_loop_is_told_once_and_a_new_file_does_not_wait_for_its_pause(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-throttle = 20", "emperor-max-throttle = 86400000")
    emperor.write("one.ini", *site(port, "one", "chdir = /nonexistent"))
    emperor.start()
    wait_until(lambda: emperor.log.count("/nonexistent") >= 5, lambda: emperor.log)
    assert emperor.log.count("exited with status 1 before it served: starting it again in 20 ms") == 1
    assert emperor.log.count("starting it again") == 1
    emperor.write("one.ini", *site(port, "one"))
    assert emperor.answer(port)[0] == "one"


def test_only_some_vassals_start_at_the_same_time(emperor, tmp_path, free_port):
    ports = [free_port() for _ in range(5)]
    emperor = emperor("emperor-starts-max = 2")
    slow = (
        f"import os, time\nopen(f'{tmp_path}/' + os.environ['NAME'] + '.begun', 'w')\n"
        f"while not os.path.exists('{tmp_path}/go'):\n    time.sleep(0.01)\n"
    )
    (tmp_path / "slow.py").write_text(slow)
    for number, port in enumerate(ports):
        emperor.write(f"{number}.ini", *site(port, f"site{number}", "shared-import = slow"))
    emperor.start()
    begun = lambda: list(tmp_path.glob("*.begun"))  # noqa: E731
    wait_until(lambda: len(begun()) == 2, "two begin")
    assert len(children_of(emperor.process.pid)) == 2
    (tmp_path / "go").touch()
    for port in ports:
        emperor.answer(port)


def test_the_end_of_the_emperor_completes_requests(emperor, free_port, tmp_path):
    port = free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    assert emperor.stop(signal.SIGTERM) == 0
    assert emperor.log.splitlines()[-1].endswith("bolide: the emperor has ended, and all its vassals")


@pytest.mark.parametrize("command", ["reload", "stop"])
def test_commands_reach_the_emperor_by_its_configuration(emperor, free_port, command):
    port = free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    _, worker, *_ = emperor.answer(port)
    done = subprocess.run(
        [*program(), command, str(emperor.directory / "emperor.ini")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    if command == "stop":
        assert emperor.process.wait(COMMAND_SECONDS) == 0
        emperor.is_gone(port)
    else:
        wait_until(lambda: emperor.answer(port)[1] != worker, "new workers")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["emperor = /nonexistent"], "emperor.ini:2: error: `emperor = /nonexistent`: there is no such directory"),
        (["emperor = pg://host=x"], "vassals are read from directories, not from pg"),
        (["emperor = zmq://tcp://*:5252"], "vassals are read from directories, not from zmq"),
        (["emperor = {directory}", "http-socket = 127.0.0.1:0"], "an emperor serves nothing itself"),
        (["emperor = {directory}", "module = hosted"], "an emperor serves nothing itself"),
        (["emperor = {directory}", "emperor-broodlord = 4"], "`emperor-broodlord` is not supported"),
        (["emperor = {directory}", "vassal-set = processes"], "`vassal-set = processes` does not set an option"),
    ],
)
def test_what_an_emperor_can_not_be_is_told_at_startup(tmp_path, lines, words):
    emperor = Emperor(program(), tmp_path, *lines)
    emperor.start()
    assert emperor.process.wait(COMMAND_SECONDS) == 1
    assert words in emperor.log


def test_an_option_that_has_no_effect_in_an_emperor_is_told_and_where_it_belongs(emperor, free_port):
    port = free_port()
    emperor = emperor(
        "processes = 4", "harakiri = 30", "master = true", "die-on-term = true", "log-date = true", "hook-asap = cd:."
    )
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    told = [line for line in emperor.log.splitlines() if "has no effect in an emperor" in line]
    assert [line.split("`")[1] for line in told] == ["processes", "harakiri"]
    assert "or `vassal-set = processes=4` for all" in told[0]


def asked(emperor, *words):
    done = subprocess.run(
        [*program(), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS, check=False
    )
    return done.returncode, done.stdout


def test_the_status_of_an_emperor_has_a_line_for_each_vassal_and_a_site_is_found_by_its_name(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-throttle = 600000", "emperor-max-throttle = 600000")
    emperor.write("first-site.ini", *site(port, "one"))
    emperor.write("broken-site.ini", "chdir = /nonexistent")
    emperor.start()
    emperor.answer(port)
    emperor.wait_for_log("starting it again in 10 min")
    file = str(emperor.directory / "emperor.ini")
    wait_until(lambda: "serving" in asked(emperor, "status", file)[1], "a vassal that serves")
    status, said = asked(emperor, "status", file)
    first, *lines = sorted(said.splitlines())
    assert (status, first) == (0, f"emperor {emperor.process.pid}: 2 vassals, version {first.rsplit(' ', 1)[1]}")
    assert lines[0] == "vassal broken-site.ini: paused; 1 failure"
    (pid,) = children_of(emperor.process.pid)
    assert lines[1].startswith(f"vassal first-site.ini (pid {pid}): serving; up ")
    status, said = asked(emperor, "status", "first-site")
    assert (status, f"master {pid}: serving" in said) == (0, True), said
    status, said = asked(emperor, "reload", "--wait", "first-site.ini")
    assert (status, "generation 2" in said) == (0, True), said


def test_the_name_of_a_site_leads_to_it_in_status_top_and_reload(emperor, free_port):
    port = free_port()
    emperor = emperor()
    emperor.write("named-site.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    (pid,) = children_of(emperor.process.pid)
    for name in ("named-site", "named-site.ini"):
        for command in (["status"], ["top", "--once"]):
            status, said = asked(emperor, *command, name)
            assert (status, said.startswith(f"master {pid}: serving, generation 1, ")) == (0, True), said
    status, said = asked(emperor, "reload", "named-site")
    assert (status, said) == (0, f"master {pid}: reloading\n")
    wait_until(lambda: "generation 2" in asked(emperor, "status", "named-site")[1], "the reload")
    status, said = asked(emperor, "status", "no-such-site")
    assert (status, "no-such-site: there is no such file" in said) == (NO_INSTANCE, True), said


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        ("processes = many", [], "broken-site.ini:6: error: `processes = many`: `many` is not a number"),
        ("ini = /nonexistent.ini", [], "broken-site.ini:6: error: can't read `/nonexistent.ini`"),
        ("module = no_such_module", ["--wait"], "there is no module 'no_such_module'"),
    ],
)
def test_a_reload_of_a_site_with_a_broken_file_tells_why_and_the_site_serves_on(emperor, free_port, line, options, words):
    port = free_port()
    emperor = emperor()
    emperor.write("broken-site.ini", *site(port, "one"))
    emperor.start()
    before = emperor.answer(port)
    emperor.write("broken-site.ini", *site(port, "changed", line))
    status, said = asked(emperor, "reload", *options, "broken-site")
    assert (status, words in said) == (REFUSED, True), said
    assert emperor.answer(port) == before


def test_a_site_that_a_command_has_stopped_stays_so_until_its_file_changes(emperor, free_port):
    port = free_port()
    emperor = emperor()
    emperor.write("stopped-site.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    assert asked(emperor, "stop", "stopped-site")[0] == 0
    emperor.wait_for_log("a command has stopped it, and a change of its file starts it again")
    emperor.is_gone(port)
    assert "vassal stopped-site.ini: stopped" in asked(emperor, "status", str(emperor.directory / "emperor.ini"))[1]
    emperor.touch("stopped-site.ini")
    assert emperor.answer(port)[0] == "one"
