"""The rules of an emperor that users rely on: each with uWSGI and with Bolide."""

import json
import os
import signal
import threading

import pytest
from support.cells import children_of
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.statistics import read_raw
from support.waiting import wait_until


@pytest.fixture(params=["uwsgi", "bolide"])
def emperor(request, tmp_path):
    """Makes an emperor with these lines."""
    made = []
    command = request.getfixturevalue("uwsgi") if request.param == "uwsgi" else program()

    def emperor(*lines, start=True, **options):
        usual = ("emperor-freq = 1", "emperor-stats = {directory}/stats")
        places = () if any(line.startswith("emperor =") for line in lines) else ("emperor = {directory}/vassals",)
        made.append(Emperor(command, tmp_path, *places, *usual, *lines, **options))
        made[-1].is_bolide = request.param == "bolide"
        return made[-1].start() if start else made[-1]

    yield emperor
    for one in made:
        one.finish()


def vassals(emperor):
    """What the emperor says about its vassals, by their names."""
    said = json.loads(read_raw(str(emperor.directory / "stats")))
    return {vassal["id"]: vassal for vassal in said["vassals"]}


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def pids_at(emperor, port):
    """Returns the worker and the parent of the worker that answer."""
    _, worker, parent, *_ = emperor.answer(port)
    return int(worker), int(parent)


def test_each_configuration_of_a_directory_is_a_vassal_and_other_files_are_not(emperor, free_port):
    emperor = emperor(start=False)
    names = ("one.ini", ".hidden.ini")
    others = ("old.ini.bak", "notes.txt", "new.skel")
    ports = {name: free_port() for name in (*names, *others)}
    for name, port in ports.items():
        emperor.write(name, *site(port, name.split(".")[-2] or "hidden"))
    port = free_port()
    (emperor.vassals / "four.yml").write_text(f"uwsgi:\n  http-socket: 127.0.0.1:{port}\n  pythonpath: ..\n  module: hosted\n")
    emperor.start()
    emperor.answer(port)
    for name in names:
        emperor.answer(ports[name])
    assert set(vassals(emperor)) == {*names, "four.yml"}


def test_a_vassal_of_a_directory_is_started_there_and_one_of_a_pattern_where_the_emperor_was(emperor, free_port):
    emperor = emperor("emperor = {directory}/vassals", "emperor = {directory}/more/*/*.ini", start=False)
    below = emperor.directory / "more" / "below"
    below.mkdir(parents=True)
    one, two = free_port(), free_port()
    emperor.write("one.ini", *site(one, "%d"))
    emperor.write("two.ini", *site(two, "%d")).rename(below / "two.ini")
    emperor.start()
    assert emperor.answer(one)[0].rstrip("/") == str(emperor.vassals)
    assert emperor.answer(two)[0].rstrip("/") == str(below)
    found = vassals(emperor)
    assert set(found) == {"one.ini", str(below / "two.ini")}
    cwd = {name: os.readlink(f"/proc/{vassal['pid']}/cwd") for name, vassal in found.items()}
    assert list(cwd.values()) == [str(emperor.vassals), str(emperor.directory)]


def test_vassal_set_is_weaker_than_the_own_line_and_what_is_included_is_stronger(emperor, free_port):
    more = "{directory}/all.ini"
    emperor = emperor("vassal-set = threads=2", "vassal-set = env=FROM=set", f"vassals-include = {more}", start=False)
    (emperor.directory / "all.ini").write_text("[uwsgi]\nprocesses = 4\nwho = %n\n")
    port = free_port()
    emperor.write("one.ini", *site(port, "one", "processes = 2", "threads = 3", "stats = %d/one.sock"))
    emperor.start()
    emperor.answer(port)

    def counted():
        workers = json.loads(read_raw(str(emperor.vassals / "one.sock")))["workers"]
        return len(workers), len(workers[0]["cores"])

    wait_until(lambda: counted() == (4, 3), counted)


def test_a_touch_renews_the_workers_and_loses_nothing(emperor, free_port):
    port = free_port()
    emperor = emperor(start=False)
    emperor.write("one.ini", *site(port, "one", "processes = 2"))
    emperor.start()
    emperor.answer(port)
    wait_until(lambda: vassals(emperor)["one.ini"]["accepting"], "an accepting vassal")
    master, (worker, _) = vassals(emperor)["one.ini"]["pid"], pids_at(emperor, port)
    losses, over = [], threading.Event()

    def ask():
        while not over.is_set():
            try:
                with Client(("127.0.0.1", port)) as client:
                    assert client.request("GET", "/").status == 200
            except Exception as error:
                losses.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    emperor.touch("one.ini")
    wait_until(lambda: vassals(emperor)["one.ini"]["respawns"] == 1, "a reload")
    wait_until(lambda: pids_at(emperor, port)[0] != worker, "new workers")
    over.set()
    thread.join()
    assert losses == []
    assert vassals(emperor)["one.ini"]["pid"] == master


def test_a_new_file_is_served_and_a_removed_one_is_not(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor(start=False)
    emperor.write("one.ini", *site(one, "one"))
    emperor.start()
    emperor.answer(one)
    emperor.write("two.ini", *site(two, "two"))
    assert emperor.answer(two)[0] == "two"
    (emperor.vassals / "one.ini").unlink()
    emperor.is_gone(one)
    assert emperor.answer(two)[0] == "two"
    wait_until(lambda: set(vassals(emperor)) == {"two.ini"}, "one vassal")


def test_a_broken_vassal_is_tried_again_and_the_others_serve(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor("emperor-throttle = 300", start=False)
    emperor.write("one.ini", *site(one, "one"))
    emperor.write("two.ini", f"http-socket = 127.0.0.1:{two}", "chdir = /nonexistent")
    emperor.start()
    assert emperor.answer(one)[0] == "one"
    wait_until(lambda: paused(emperor).get("two.ini", {}).get("attempt", 0) >= 2, lambda: paused(emperor))
    emperor.write("two.ini", *site(two, "two"))
    assert emperor.answer(two)[0] == "two"


def paused(emperor):
    return {vassal["id"]: vassal for vassal in json.loads(read_raw(str(emperor.directory / "stats")))["blacklist"]}


def test_daemonize_in_a_vassal_is_its_log(emperor, free_port):
    port = free_port()
    emperor = emperor(start=False)
    emperor.write("one.ini", *site(port, "one", "daemonize = {directory}/one.log".replace("{directory}", str(emperor.directory))))
    emperor.start()
    emperor.answer(port)
    pid = vassals(emperor)["one.ini"]["pid"]
    with open(f"/proc/{pid}/stat") as stat:
        assert int(stat.read().rsplit(") ", 1)[1].split()[1]) == emperor.process.pid
    assert (emperor.directory / "one.log").read_text()


def test_sigterm_ends_the_emperor_and_all_vassals(emperor, free_port):
    ports = [free_port(), free_port()]
    emperor = emperor(start=False)
    for number, port in enumerate(ports):
        emperor.write(f"{number}.ini", *site(port, str(number)))
    emperor.start()
    for port in ports:
        emperor.answer(port)
    assert emperor.stop(signal.SIGTERM) == 0
    for port in ports:
        emperor.is_gone(port)


def test_sighup_reloads_all_vassals(emperor, free_port):
    port = free_port()
    emperor = emperor(start=False)
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    wait_until(lambda: emperor.answer(port) and vassals(emperor)["one.ini"]["accepting"], "an accepting vassal")
    worker, _ = pids_at(emperor, port)
    emperor.process.send_signal(signal.SIGHUP)
    wait_until(lambda: pids_at(emperor, port)[0] != worker, "new workers")
    assert vassals(emperor)["one.ini"]["respawns"] == 1


def test_vassals_have_the_variables_of_their_emperors_configuration(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor("env = NAME=shared", start=False, environment={"UWSGI_VASSAL_PROCESSES": "2"})
    emperor.write("one.ini", f"http-socket = 127.0.0.1:{one}", "master = true")
    emperor.write("two.ini", *site(two, "own"))
    emperor.start()
    assert (emperor.answer(one)[0], emperor.answer(two)[0]) == ("shared", "own")
    master = vassals(emperor)["one.ini"]["pid"]
    if not emperor.is_bolide:
        # It takes the variable that follows this one for its value, which `unsetenv` has moved to the same place.
        return
    wait_until(lambda: len(workers_below(master)) == 2, lambda: f"two workers below {master}: {emperor.log}")


def workers_below(master):
    """Returns the processes that answer requests: of a Bolide they are children of its prototype."""
    found = children_of(master)
    below = {child for pid in found for child in children_of(pid)}
    return below or found


def test_debians_configuration_of_an_emperor_is_one_with_another_program(emperor, free_port):
    """Its lines but the user, and what they mean."""
    port = free_port()
    lines = ["autoload = true", "master = true", "workers = 2", "no-orphans = true", "log-date = true"]
    emperor = emperor(*lines, start=False)
    emperor.write("one.ini", *site(port, "one", "master = true"))
    emperor.start()
    assert emperor.answer(port)[0] == "one"
    wait_until(lambda: "one.ini" in vassals(emperor), "the statistics")
    # SIGTERM reloads a uWSGI that has a master.
    assert emperor.stop(signal.SIGINT) == 0
    emperor.is_gone(port)
