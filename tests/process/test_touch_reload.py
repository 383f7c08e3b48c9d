"""Files whose change causes a reload: `touch-reload`, `fs-reload` and related options."""

import os

import pytest
from support.waiting import wait_until
from support_load import Load
from test_reload import write


def replace(path, text=""):
    """Replaces this file by another one, as editors and deployment tools do."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.rename(path)


def test_a_touched_file_reloads_without_a_lost_request(start, tmp_path):
    write(tmp_path, "version-1")
    flag = tmp_path / "reload.txt"
    flag.touch()
    instance = start("--processes", "2", "--touch-reload", flag, module="shop")
    with Load(instance.address(), kept_alive=4, fresh=2) as load:
        for number in range(2, 5):
            write(tmp_path, f"version-{'x' * number}")
            flag.touch()
            instance.wait_for_generation(number)
            load.wait(lambda number=number: load.bodies[f"version-{'x' * number}"] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert f"bolide: touch-reload: {flag} has changed" in instance.lines


def test_a_file_counts_when_it_is_made_replaced_switched_by_a_link_or_removed(start, tmp_path):
    releases = tmp_path / "releases"
    for name in ("one", "two"):
        (releases / name).mkdir(parents=True)
        os.utime(releases / name, (0, 0))
    (releases / "two/flag").touch()
    current = tmp_path / "current"
    current.symlink_to(releases / "one")
    flag = current / "flag"
    instance = start("--touch-reload", "current/flag")
    instance.wait_for_text(f"touch-reload = {flag}: there is no such file; it counts as changed when it is created")
    flag.touch()
    instance.wait_for_generation(2)
    replace(flag)
    instance.wait_for_generation(3)
    link = tmp_path / "next"
    link.symlink_to(releases / "two")
    link.rename(current)
    instance.wait_for_generation(4)
    flag.unlink()
    instance.wait_for_generation(5)
    # It does not exist any more, and is still watched.
    flag.touch()
    instance.wait_for_generation(6)


def test_a_time_in_the_future_reloads_once_and_a_later_touch_again(start, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    instance = start("--touch-reload", flag)
    ahead = flag.stat().st_mtime + 1_000_000
    os.utime(flag, (ahead, ahead))
    instance.wait_for_generation(2)
    flag.touch()
    instance.wait_for_generation(3)
    assert instance.log.count("has changed") == 2


def test_several_files_that_change_together_are_one_reload(start, tmp_path):
    flags = [tmp_path / f"flag-{number}" for number in range(3)]
    for flag in flags:
        flag.touch()
    instance = start(*(word for flag in flags for word in ("--touch-reload", flag)))
    with instance.looks_away():
        for flag in flags:
            flag.touch()
    instance.wait_for_generation(2)
    assert instance.log.count("have changed") + instance.log.count("has changed") == 1


@pytest.mark.parametrize("option", ["--touch-workers-reload", "--touch-chain-reload"])
def test_workers_are_replaced_without_a_new_prototype(option, start, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    instance = start("--processes", "2", option, flag)
    prototype, old = instance.prototype(), set(instance.workers())
    with Load(instance.address()) as load:
        flag.touch()
        instance.wait_for_replacement(*old, count=2)
        load.wait_for_more()
    assert load.losses == []
    assert instance.prototype() == prototype


def test_workers_that_are_replaced_have_new_code_with_lazy_apps(start, tmp_path):
    write(tmp_path, "old")
    flag = tmp_path / "flag"
    flag.touch()
    instance = start("--processes", "2", "--lazy-apps", "--touch-chain-reload", flag, module="shop")
    write(tmp_path, "young")
    flag.touch()
    wait_until(lambda: {instance.body() for _ in range(20)} == {"young"}, "new code in all workers")


def test_a_directory_is_watched_with_its_files_and_without_those_below(start, tmp_path):
    directory = tmp_path / "templates"
    (directory / "below").mkdir(parents=True)
    page = directory / "page.html"
    page.write_text("old")
    instance = start("--fs-reload", directory)
    (directory / "below/page.html").write_text("not looked at")
    with instance.looks_away():
        page.write_text("changed")
    instance.wait_for_generation(2)
    page.chmod(0o600)
    instance.wait_for_generation(3)
    page.unlink()
    instance.wait_for_generation(4)
    assert instance.log.count("bolide: fs-reload: ") == 3


def test_a_brutal_reload_does_not_wait_for_requests_in_flight(start, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    instance = start("--fs-brutal-reload", flag)
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    flag.touch()
    instance.wait_for_generation(2)
    assert client.is_closed()
    instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /wait")


def test_files_that_a_reloaded_configuration_names_are_watched_and_others_no_more(start, tmp_path):
    flags = [tmp_path / name for name in ("old", "young")]
    for flag in flags:
        flag.touch()
    settings = tmp_path / "watched.ini"
    settings.write_text(f"[uwsgi]\ntouch-reload = {flags[0]}\n")
    instance = start("--ini", settings)
    settings.write_text(f"[uwsgi]\ntouch-reload = {flags[1]}\n")
    instance.reload(2)
    with instance.looks_away():
        flags[0].touch()
        flags[1].touch()
    instance.wait_for_generation(3)
    instance.wait_for_text(f"touch-reload: {flags[1]} has changed")
    assert f"{flags[0]} has changed" not in instance.log
