"""Vassals that start at their first connection: the emperor keeps the socket, and no connection is refused or lost."""

import os
import signal

import pytest
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_processes import children_of, descriptors_of


@pytest.fixture
def emperor(tmp_path):
    made = []

    def emperor(*lines):
        made.append(Emperor(program(), tmp_path, "emperor = {directory}/vassals", "emperor-freq = 3600", *lines))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def waits(emperor, name, address):
    emperor.wait_for_log(f"vassal {name} waits for its first connection at {address}")


@pytest.mark.parametrize("option", ["http-socket", "socket"])
def test_a_vassal_starts_at_its_first_connection_and_serves_it_with_its_own_protocol(option, emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-on-demand-ext = .socket")
    (emperor.vassals / "one.ini.socket").write_text(f"127.0.0.1:{port}\nwhatever else\n")
    protocol = () if option == "http-socket" else ("protocol = http",)
    emperor.write("one.ini", f"{option} = 127.0.0.1:{port}", "env = NAME=one", *protocol)
    emperor.start()
    waits(emperor, "one.ini", f"127.0.0.1:{port}")
    assert children_of(emperor.process.pid) == []
    assert emperor.answer(port)[0] == "one"
    assert len(children_of(emperor.process.pid)) == 1


def test_the_socket_of_a_directory_has_the_name_of_its_vassal(emperor):
    emperor = emperor("emperor-on-demand-dir = {directory}")
    emperor.write("one.ini", "protocol = http", "env = NAME=one")
    emperor.start()
    path = emperor.directory / "one.socket"
    waits(emperor, "one.ini", path)
    with Client(str(path)) as client:
        assert client.request("GET", "/").text.split()[0] == "one"


def test_a_vassal_that_is_idle_ends_and_starts_again(emperor):
    emperor = emperor("emperor-on-demand-dir = {directory}")
    emperor.write("one.ini", "protocol = http", "env = NAME=one", "idle = 1", "die-on-idle = true")
    emperor.start()
    path = emperor.directory / "one.socket"
    waits(emperor, "one.ini", path)
    pids = []
    for turn in (1, 2):
        with Client(str(path)) as client:
            pids.append(client.request("GET", "/").text.split()[1])
        wait_until(lambda turn=turn: emperor.log.count("waits for its next connection") == turn, lambda: emperor.log)
        assert children_of(emperor.process.pid) == []
    assert pids[0] != pids[1]


def test_a_connection_that_comes_while_a_vassal_ends_is_served_by_the_next(emperor):
    emperor = emperor("emperor-on-demand-dir = {directory}")
    emperor.write("one.ini", "protocol = http", "env = NAME=one")
    emperor.start()
    path = emperor.directory / "one.socket"
    waits(emperor, "one.ini", path)
    with Client(str(path)) as client:
        client.request("GET", "/")
    (pid,) = children_of(emperor.process.pid)
    os.kill(pid, signal.SIGSTOP)
    with Client(str(path)) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        os.kill(pid, signal.SIGKILL)
        assert client.read_response().text.split()[0] == "one"


def test_a_changed_file_of_a_vassal_that_waits_counts_at_its_start(emperor):
    emperor = emperor("emperor-on-demand-dir = {directory}")
    emperor.write("one.ini", "protocol = http", "env = NAME=one")
    emperor.start()
    path = emperor.directory / "one.socket"
    waits(emperor, "one.ini", path)
    emperor.write("one.ini", "protocol = http", "env = NAME=two")
    with Client(str(path)) as client:
        assert client.request("GET", "/").text.split()[0] == "two"
    (emperor.vassals / "one.ini").unlink()
    wait_until(lambda: not path.exists(), "the end of the socket")


def test_a_vassal_that_gets_an_address_waits_and_one_that_loses_it_starts(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-on-demand-ext = .socket")
    emperor.write("one.ini", f"http-socket = 127.0.0.1:{port}", "env = NAME=one")
    emperor.start()
    emperor.answer(port)
    (pid,) = children_of(emperor.process.pid)
    address = emperor.vassals / "one.ini.socket"
    address.write_text(f"{emperor.directory}/one.sock")
    waits(emperor, "one.ini", emperor.directory / "one.sock")
    emperor.is_gone(port)
    address.unlink()
    assert emperor.answer(port)[0] == "one"
    assert children_of(emperor.process.pid) != [pid]


def test_an_address_that_can_not_be_had_is_told_once_and_the_others_wait(emperor):
    emperor = emperor("emperor-on-demand-ext = .socket")
    for name, address in (("good", "{directory}/good.sock"), ("bad", "/nonexistent/bad.sock"), ("worse", "what")):
        emperor.write(f"{name}.ini", "protocol = http", f"env = NAME={name}")
        (emperor.vassals / f"{name}.ini.socket").write_text(address.replace("{directory}", str(emperor.directory)))
    emperor.start()
    waits(emperor, "good.ini", emperor.directory / "good.sock")
    emperor.wait_for_log("vassal bad.ini is not started: /nonexistent/bad.sock: its directory does not exist")
    emperor.wait_for_log("vassal worse.ini is not started: `what` is not an address")
    emperor.touch("good.ini")
    with Client(str(emperor.directory / "good.sock")) as client:
        assert client.request("GET", "/").text.split()[0] == "good"
    assert emperor.log.count("bad.ini is not started") == 1


def test_many_vassals_that_wait_cost_a_descriptor_each(emperor):
    count = 100
    emperor = emperor("emperor-on-demand-dir = {directory}")
    for number in range(count):
        emperor.write(f"{number}.ini", "protocol = http", f"env = NAME=site{number}")
    emperor.start()
    wait_until(lambda: emperor.log.count("waits for its first connection") == count, "all wait")
    assert len(descriptors_of(emperor.process.pid)) < count + 30
    assert children_of(emperor.process.pid) == []
    with Client(str(emperor.directory / "7.socket")) as client:
        assert client.request("GET", "/").text.split()[0] == "site7"
