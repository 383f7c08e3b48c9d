"""The numbers of all vassals at one address (`metrics` of the emperor)."""

import os
import signal
import socket
import struct

import pytest
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until

#: The master of a site answers questions at this name.
CONTROL_NAME = "\0bolide/{pid}"


@pytest.fixture
def emperor(tmp_path, free_port):
    """Makes an emperor with these lines and the address `metrics`, whose port is its `port`."""
    made = []

    def emperor(*lines, **options):
        port = free_port()
        lines = ("emperor = {directory}/vassals", f"metrics = 127.0.0.1:{port}", *lines)
        made.append(Emperor(program(), tmp_path, *lines, **options))
        made[-1].port = port
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def asked(emperor, path="/metrics", *fields):
    with Client(("127.0.0.1", emperor.port)) as client:
        return client.request("GET", path, headers=fields)


def samples(emperor):
    """Returns the value of each series."""
    page = asked(emperor).text
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    series = [tuple(line.rsplit(" ", 1)) for line in lines]
    assert len(dict(series)) == len(series), "a series appears twice"
    return {name: float(value) for name, value in series}


def requests(emperor, name):
    return samples(emperor).get(f'bolide_requests_total{{site="{name}",status="2xx"}}')


def test_the_numbers_of_all_vassals_are_on_one_page_by_their_names(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor("emperor-throttle = 600000", "emperor-max-throttle = 600000")
    emperor.write("one.ini", *site(one, "one"))
    emperor.write("two.ini", *site(two, "two"))
    emperor.write("broken.ini", "chdir = /nonexistent")
    emperor.start()
    emperor.answer(one)
    for _ in range(3):
        emperor.answer(two)
    emperor.wait_for_log("starting it again in 10 min")
    wait_until(lambda: (requests(emperor, "one.ini"), requests(emperor, "two.ini")) == (1, 3), lambda: asked(emperor).text)
    found = samples(emperor)
    assert found['bolide_vassal_up{site="broken.ini"}'] == 0
    assert found['bolide_vassal_failures{site="broken.ini"}'] == 1
    assert (found['bolide_vassals{state="serving"}'], found['bolide_vassals{state="paused"}']) == (2, 1)
    emperor.touch("one.ini")
    reloads = 'bolide_vassal_reloads_total{site="one.ini"}'
    wait_until(lambda: samples(emperor)[reloads] == 1, lambda: asked(emperor).text)


def test_each_form_of_the_page_has_the_sites(emperor, free_port):
    port = free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(port, "one"))
    emperor.start()
    emperor.answer(port)
    wait_until(lambda: requests(emperor, "one.ini") == 1, lambda: asked(emperor).text)
    openmetrics = asked(emperor, "/metrics", ("Accept", "application/openmetrics-text"))
    assert openmetrics.get("content-type").startswith("application/openmetrics-text")
    assert 'bolide_vassal_up{site="one.ini"} 1\n' in openmetrics.text
    assert openmetrics.text.endswith("# EOF\n")
    protobuf = asked(emperor, "/metrics", ("Accept", "application/vnd.google.protobuf"))
    assert protobuf.get("content-type").startswith("application/vnd.google.protobuf")
    assert b"\x0a\x04site\x12\x07one.ini" in protobuf.body


def test_two_sites_of_one_name_have_the_names_of_their_directories(emperor, free_port, tmp_path):
    one, two = free_port(), free_port()
    other = tmp_path / "other"
    other.mkdir()
    emperor = emperor("emperor = {directory}/other")
    emperor.write("site.ini", *site(one, "one"))
    (other / "site.ini").write_text(f"[uwsgi]\npythonpath = {tmp_path}\nmodule = hosted\nhttp-socket = 127.0.0.1:{two}\n")
    emperor.start()
    emperor.answer(one)
    emperor.answer(two)
    names = [f"{tmp_path}/vassals/site.ini", f"{tmp_path}/other/site.ini"]
    wait_until(lambda: [requests(emperor, name) for name in names] == [1, 1], lambda: asked(emperor).text)


def test_a_site_that_does_not_answer_is_left_out_and_the_others_are_shown(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(one, "one"))
    emperor.write("two.ini", *site(two, "two"))
    emperor.start()
    emperor.answer(one)
    master = int(emperor.answer(two)[2])
    # With a prototype, the worker's parent is that, and its own is the master.
    stopped = master_of(emperor, master)
    os.kill(stopped, signal.SIGSTOP)
    try:
        up = 'bolide_vassal_up{site="%s"}'
        wait_until(
            lambda: [samples(emperor)[up % name] for name in ("one.ini", "two.ini")] == [1, 0], lambda: asked(emperor).text
        )
        assert requests(emperor, "one.ini") == 1
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: samples(emperor)[up % "two.ini"] == 1, lambda: asked(emperor).text)


def master_of(emperor, pid):
    """Returns the child of the emperor that is this process, or an ancestor of it."""
    while True:
        with open(f"/proc/{pid}/stat") as status:
            parent = int(status.read().rsplit(")", 1)[1].split()[1])
        if parent == emperor.process.pid:
            return pid
        pid = parent


def test_probes_learn_that_the_emperor_lives_and_other_pages_need_its_name(emperor):
    emperor = emperor("metrics-host = shop.internal").start()
    emperor.wait_for_log("metrics of all vassals at")
    assert (asked(emperor, "/-/healthy").text, asked(emperor, "/-/ready").text) == ("healthy\n", "ready\n")
    assert asked(emperor, "/-/status").text.startswith('{"addresses":[]')
    assert asked(emperor, "/elsewhere").status == 404
    foreign = ("Host", "evil.example"), ("User-Agent", "Mozilla/5.0")
    assert asked(emperor, "/metrics", *foreign).status == 403
    assert asked(emperor, "/metrics", ("Host", "shop.internal"), foreign[1]).status == 200


def test_a_process_that_has_taken_the_name_of_a_site_is_not_believed(emperor, free_port):
    port = free_port()
    emperor = emperor()
    # What listens there is this process, which is not the vassal.
    emperor.write("one.ini", *site(port, "one", "control-socket = off"))
    emperor.start()
    master = master_of(emperor, int(emperor.answer(port)[2]))
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(CONTROL_NAME.format(pid=master))
        impostor.listen()
        assert samples(emperor)['bolide_vassal_up{site="one.ini"}'] == 0
        impostor.settimeout(TIMEOUT_SECONDS)
        taken, _ = impostor.accept()
        with taken:
            pid, *_ = struct.unpack("3i", taken.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            assert (pid, taken.recv(100)) == (emperor.process.pid, b"")


@pytest.mark.parametrize("at", ["control socket", "metrics"])
def test_a_client_that_sends_nothing_is_let_go(at, emperor):
    emperor = emperor().start()
    emperor.wait_for_log("metrics of all vassals at")
    is_metrics = at == "metrics"
    with socket.socket(socket.AF_INET if is_metrics else socket.AF_UNIX) as silent:
        silent.settimeout(TIMEOUT_SECONDS)
        silent.connect(("127.0.0.1", emperor.port) if is_metrics else CONTROL_NAME.format(pid=emperor.process.pid))
        assert silent.recv(1) == b""
