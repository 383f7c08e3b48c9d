"""A uWSGI emperor governs Bolide as one of its vassals, so that a host can be moved one site at a time."""

import json

import pytest
from support.emperor import Emperor
from support.server import program
from support.statistics import read_raw
from support.waiting import wait_until


@pytest.fixture
def emperor(uwsgi, tmp_path):
    """A uWSGI emperor whose vassals are Bolide."""
    (command,) = program()
    emperor = Emperor(
        uwsgi,
        tmp_path,
        "emperor = {directory}/vassals",
        f"emperor-wrapper = {command}",
        "emperor-freq = 1",
        "emperor-stats = {directory}/stats",
        "vassal-set = processes=2",
        "die-on-term = true",
    )
    yield emperor
    emperor.finish()


def vassals(emperor):
    """What the emperor says about its vassals, by their names."""
    said = json.loads(read_raw(str(emperor.directory / "stats")))
    return {vassal["id"]: vassal for vassal in said["vassals"]}


def wait_until_loyal(emperor):
    """Waits until the vassals serve with all their workers. A first worker may answer before that."""
    wait_until(
        lambda: all(vassal["loyal"] and vassal["ready"] and vassal["accepting"] for vassal in vassals(emperor).values()),
        lambda: f"loyal vassals: {vassals(emperor)}",
    )


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def test_a_uwsgi_emperor_starts_reloads_and_stops_bolide_by_its_file(emperor, free_port):
    one, two = free_port(), free_port()
    emperor.write("one.ini", *site(one, "one"))
    emperor.write("two.ini", *site(two, "two"))
    emperor.start()
    name, _, prototype, *_ = emperor.answer(one)
    assert (name, emperor.answer(two)[0]) == ("one", "two")
    wait_until_loyal(emperor)
    master = vassals(emperor)["one.ini"]["pid"]
    # `processes` comes from `vassal-set`.
    assert "ready: 2 workers" in emperor.log
    emperor.write("one.ini", *site(one, "changed"))

    def changed():
        name, _, parent, *_ = emperor.answer(one)
        return name == "changed" and parent

    assert wait_until(changed, lambda: f"the new file of the site:\n{emperor.log}") != prototype
    assert (vassals(emperor)["one.ini"]["pid"], vassals(emperor)["one.ini"]["respawns"]) == (master, 1)
    (emperor.vassals / "one.ini").unlink()
    emperor.is_gone(one)
    assert emperor.answer(two)[0] == "two"


def test_bolide_ends_with_its_uwsgi_emperor(emperor, free_port):
    port = free_port()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    emperor.stop()
    emperor.is_gone(port)


def test_a_broken_file_leaves_bolide_serving_under_a_uwsgi_emperor(emperor, free_port):
    port = free_port()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    _, _, prototype, *_ = emperor.answer(port)
    wait_until_loyal(emperor)
    emperor.write("one.ini", *site(port, "two", "no-such-option-here"), "strict = true")
    emperor.wait_for_log("the configuration can't be used, see above: generation 1 keeps serving")
    assert emperor.answer(port)[:3:2] == ["one", prototype]


def test_a_vassal_that_is_idle_leaves_as_with_uwsgi(emperor, free_port):
    port = free_port()
    emperor.write("one.ini", *site(port, "one", "idle = 1", "die-on-idle = true"))
    emperor.start()
    emperor.answer(port)
    emperor.wait_for_log("no request for 1 s (idle, die-on-idle)")
    # uWSGI's emperor starts it again, because its file is still there.
    emperor.wait_for_log("[emperor] removed uwsgi instance one.ini")


@pytest.fixture
def emperor_of_uwsgis(uwsgi, tmp_path):
    """A Bolide emperor whose vassals are uWSGI."""
    made = []

    def emperor(*lines):
        usual = ("emperor = {directory}/vassals", f"emperor-wrapper = {uwsgi}", "emperor-stats = {directory}/stats")
        made.append(Emperor(program(), tmp_path, *usual, *lines))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def test_a_bolide_emperor_starts_reloads_and_stops_a_uwsgi(emperor_of_uwsgis, free_port):
    one, two = free_port(), free_port()
    emperor = emperor_of_uwsgis("vassal-set = processes=2", "emperor-graceful-shutdown = true")
    emperor.write("one.ini", *site(one, "one"))
    emperor.write("two.ini", *site(two, "two"))
    emperor.start()
    assert (emperor.answer(one)[0], emperor.answer(two)[0]) == ("one", "two")
    # uWSGI is loyal after its first request.
    wait_until(
        lambda: all(vassal["loyal"] and vassal["ready"] and vassal["accepting"] for vassal in vassals(emperor).values()),
        lambda: f"loyal vassals: {vassals(emperor)}",
    )
    assert "spawned uWSGI worker 2" in emperor.log
    master = vassals(emperor)["one.ini"]["pid"]
    emperor.write("one.ini", *site(one, "changed"))
    wait_until(lambda: emperor.answer(one)[0] == "changed", lambda: f"the new file of the site:\n{emperor.log}")
    assert vassals(emperor)["one.ini"]["pid"] == master
    (emperor.vassals / "one.ini").unlink()
    emperor.is_gone(one)
    assert emperor.answer(two)[0] == "two"
    assert emperor.stop() == 0
    emperor.is_gone(two)


def test_a_uwsgi_starts_at_its_first_connection_and_leaves_when_it_is_idle(emperor_of_uwsgis, free_port):
    port = free_port()
    emperor = emperor_of_uwsgis("emperor-on-demand-ext = .socket")
    (emperor.vassals / "one.ini.socket").write_text(f"127.0.0.1:{port}")
    emperor.write("one.ini", "protocol = http", "env = NAME=one", "idle = 1", "die-on-idle = true", "processes = 1")
    emperor.start()
    emperor.wait_for_log("vassal one.ini waits for its first connection")
    for turn in (1, 2):
        assert emperor.answer(port)[0] == "one"
        wait_until(lambda turn=turn: emperor.log.count("waits for its next connection") == turn, lambda: emperor.log, seconds=120)
