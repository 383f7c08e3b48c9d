"""Options of an emperor that are seldom used: each with uWSGI and with Bolide, where uWSGI's works."""

import os
import signal
from pathlib import Path

import pytest
from support.cells import children_of
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until

BOTH = ["uwsgi", "bolide"]


@pytest.fixture
def emperor(request, tmp_path):
    """Makes an emperor of `request.param` with these lines."""
    made = []
    name = getattr(request, "param", "bolide")
    command = request.getfixturevalue("uwsgi") if name == "uwsgi" else program()

    def emperor(*lines):
        usual = ("emperor = {directory}/vassals", "emperor-freq = 1")
        made.append(Emperor(command, tmp_path, *usual, *lines))
        made[-1].command = [command] if isinstance(command, str) else command
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


both = pytest.mark.parametrize("emperor", BOTH, indirect=True)


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_extra_extension_is_one_of_configurations(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-extra-ext = .site")
    emperor.write("one.site", *site(port, "one"))
    emperor.start()
    assert emperor.answer(port)[0] == "one"


@both
def test_only_the_time_of_a_link_counts_with_nofollow(emperor, free_port):
    linked, other = free_port(), free_port()
    emperor = emperor("emperor-nofollow = true")
    real = emperor.write("real.ini", *site(linked, "one")).rename(emperor.directory / "real.ini")
    (emperor.vassals / "one.ini").symlink_to(real)
    emperor.write("other.ini", *site(other, "before"))
    emperor.start()
    (emperor.answer(linked), emperor.answer(other))
    later = real.stat().st_mtime + 5
    real.write_text(real.read_text().replace("NAME=one", "NAME=changed"))
    os.utime(real, (later, later))
    emperor.write("other.ini", *site(other, "after"))
    wait_until(lambda: emperor.answer(other)[0] == "after", "the change of the other site")
    assert emperor.answer(linked)[0] == "one"
    os.utime(emperor.vassals / "one.ini", (later, later), follow_symlinks=False)
    wait_until(lambda: emperor.answer(linked)[0] == "changed", "the new link")


def test_there_are_no_pauses_without_a_blacklist(emperor):
    emperor = emperor("emperor-throttle = 600000", "emperor-max-throttle = 600000", "emperor-no-blacklist = true")
    started = emperor.directory / "started"
    emperor.write("one.ini", "http-socket = 127.0.0.1:0", f"exec-asap = echo >> {started}; false")
    emperor.start()
    wait_until(lambda: started.exists() and len(started.read_text()) >= 3, "three starts")


@both
def test_a_vassal_that_does_not_exit_is_killed_after_the_tolerance(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-curse-tolerance = 1")
    emperor.write("one.ini", *site(port, "one", "master = true"))
    emperor.start()
    emperor.answer(port)
    (master,) = children_of(emperor.process.pid)
    os.kill(master, signal.SIGSTOP)
    (emperor.vassals / "one.ini").unlink()
    wait_until(lambda: not children_of(emperor.process.pid), "its end")


@both
def test_the_emperor_has_a_pidfile_and_a_name_of_its_own(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-pidfile = {directory}/pid", "emperor-procname = lord of the sites")
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    assert (emperor.directory / "pid").read_text().split() == [str(emperor.process.pid)]
    assert Path(f"/proc/{emperor.process.pid}/cmdline").read_bytes().startswith(b"lord of the sites")


@both
@pytest.mark.parametrize("option", ["vassals-include-before", "vassals-inherit", "vassals-inherit-before"])
def test_vassals_have_the_lines_of_a_common_file(emperor, option, free_port):
    port = free_port()
    emperor = emperor(f"{option} = {{directory}}/common.ini")
    (emperor.directory / "common.ini").write_text("[uwsgi]\nenv = NAME=common\n")
    emperor.write("one.ini", f"http-socket = 127.0.0.1:{port}")
    emperor.start()
    assert emperor.answer(port)[0] == "common"


@both
@pytest.mark.parametrize(
    "lines",
    [
        ["emperor-wrapper-override = {directory}/wrapper", "emperor-wrapper = /nonexistent"],
        ["emperor-wrapper = /nonexistent", "emperor-wrapper-fallback = {directory}/wrapper"],
    ],
    ids=["override", "fallback"],
)
def test_the_first_program_that_can_be_executed_is(emperor, lines, free_port, tmp_path):
    port = free_port()
    emperor = emperor(*lines)
    command = " ".join(map(str, emperor.command))
    script(tmp_path / "wrapper", f'echo "$@" > {tmp_path}/wrapped; exec {command} "$@"')
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    assert emperor.answer(port)[0] == "one"
    assert "one.ini" in (tmp_path / "wrapped").read_text()


@both
def test_hooks_tell_of_the_start_and_the_end_of_a_vassal(emperor, free_port, tmp_path):
    port = free_port()
    told = tmp_path / "told"
    emperor = emperor(
        "vassals-start-hook = {directory}/starts",
        "vassals-stop-hook = {directory}/stops",
        f"exec-as-vassal = echo vassal >> {told}",
        f"exec-as-emperor = echo emperor $UWSGI_VASSAL_CONFIG >> {told}",
    )
    for name in ("starts", "stops"):
        script(tmp_path / name, f"echo {name} $1 >> {told}")
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    started = ["emperor one.ini", "starts one.ini", "vassal"]
    wait_until(lambda: sorted(told.read_text().splitlines()) == started, lambda: told.read_text())
    (emperor.vassals / "one.ini").unlink()
    wait_until(lambda: told.read_text().splitlines()[-1] == "stops one.ini", lambda: told.read_text())
