"""SIGHUP: a new generation loads the application and serves before the old one ends, and no request is lost."""

import signal

import pytest
from support.waiting import wait_until
from support_load import Load

#: An application that says which version of it answers.
VERSION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""
VARIANTS = {"plain": (), "lazy": ("--lazy-apps",), "threads": ("--threads", "3")}


def write(tmp_path, version, before=""):
    (tmp_path / "shop.py").write_text(before + VERSION.format(version=version, length=len(version)))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_reload_under_load_loses_no_request(options, start, tmp_path):
    write(tmp_path, "version-1")
    instance = start("--processes", "2", *options, module="shop")
    with Load(instance.address(), kept_alive=4, fresh=3) as load:
        for number in range(2, 6):
            # Each version has a length of its own: Python goes by size and second when it looks for changes.
            write(tmp_path, f"version-{'x' * number}")
            instance.reload(number)
            load.wait(lambda number=number: load.bodies[f"version-{'x' * number}"] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert set(load.bodies) == {"version-1", *(f"version-{'x' * number}" for number in range(2, 6))}


def test_after_a_reload_only_new_code_is_served(start, tmp_path):
    write(tmp_path, "old")
    instance = start("--processes", "2", module="shop")
    workers = set(instance.workers())
    write(tmp_path, "young")
    instance.reload(2)
    assert {instance.body() for _ in range(20)} == {"young"}
    assert not workers & set(instance.workers())


def test_a_kept_alive_connection_is_told_to_close_at_a_reload_and_not_cut(start):
    instance = start()
    client = instance.connect()
    old = client.request().text
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: 1 worker of generation 2 in \d+ ms; generation 1 ends")
    # The order to drain is on its way: until it is there the connection is kept as before.
    answer = wait_until(lambda: ask_for_the_end(client, old), "an answer that says that the connection ends")
    assert answer.says_close
    assert client.is_closed()


def ask_for_the_end(client, expected):
    answer = client.request()
    assert (answer.status, answer.text) == (200, expected)
    return answer if answer.says_close else None


def test_a_request_in_flight_is_finished_by_the_old_generation(start, tmp_path):
    instance = start()
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    old = instance.worker()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    assert instance.body() != str(old)
    gate.touch()
    assert client.read_response().text == "waited"
    instance.wait_for_generation(2)


def test_a_request_that_outlives_reload_mercy_ends_with_the_old_generation(start, tmp_path):
    instance = start("--reload-mercy", "1")
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    instance.reload(2)
    assert client.is_closed()
    assert "has not finished within 1 s (reload-mercy), and is killed while it serves GET /wait" in instance.log


@pytest.mark.parametrize("lazy", [(), ("--lazy-apps",)], ids=["prototype", "lazy"])
def test_an_application_that_does_not_load_leaves_the_old_generation_serving(lazy, start, tmp_path):
    write(tmp_path, "sound")
    instance = start("--processes", "2", *lazy, module="shop")
    with Load(instance.address()) as load:
        write(tmp_path, "broken", before="def (:\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(
            r"^bolide: generation 2 could not be loaded \(SyntaxError: .*shop\.py, line 1\)\): generation 1 goes on"
        )
        load.wait_for_more()
        wait_until(lambda: len(instance.processes()) == 4, "the end of the broken generation")
        write(tmp_path, "mended")
        instance.reload(3)
        load.wait(lambda: load.bodies["mended"] > 0, "the mended version")
    assert load.losses == []
    assert set(load.bodies) == {"sound", "mended"}


def test_a_reload_whose_workers_die_at_birth_is_given_up(start, tmp_path):
    write(tmp_path, "sound")
    instance = start(module="shop", alarms=True)
    write(tmp_path, "dying", before="import os\nos.register_at_fork(after_in_child=lambda: os._exit(9))\n")
    with Load(instance.address()) as load:
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(r"^bolide: generation 2 could not be loaded \(its workers die at birth\): generation 1 goes on")
        load.wait_for_more()
    assert load.losses == []
    assert set(load.bodies) == {"sound"}


def test_sighups_during_a_reload_are_one_reload_after_it(start, tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    write(
        tmp_path,
        "gated",
        before=f"import os, time\nprint('loading', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n",
    )
    instance = start(module="shop")
    gate.unlink()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$", count=2)
    for number in range(1, 4):
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("a generation is being started; another follows it", count=number)
    gate.touch()
    instance.wait_for_generation(3)
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: generation in service: 3, children: ")
    assert "generation 4" not in instance.log


def test_a_reload_starts_a_fresh_interpreter(start, tmp_path):
    # What the old generation left in modules and in the environment is not there any more.
    (tmp_path / "shop.py").write_text(
        "import os\nfrom probe import application\nassert 'LEFT' not in os.environ\nos.environ['LEFT'] = 'behind'\n"
    )
    instance = start(module="shop")
    first = instance.prototype()
    instance.reload(2)
    assert instance.prototype() != first
    assert instance.body() == str(instance.worker())
