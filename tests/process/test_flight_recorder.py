"""The flight recorder: when a worker dies, the log says what it was doing and which requests it had answered."""

import re

import pytest
from support.client import Closed
from support.http2 import Http2
from support.waiting import wait_until


def test_a_death_names_the_request_in_flight_and_the_last_ones_without_the_values_of_their_queries(start):
    instance = start("--processes", "1", alarms=True)
    for number in range(3):
        instance.get(f"/?number={number}")
    instance.get("/pid?token=s3cret&s3cret")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/exit/3?token=s3cret")
    instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) exited with status 3 while it served GET /exit/3\?token=… \(for .*\)")
    line = instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) had answered, latest first: .*$")[0]
    assert re.search(r"first: GET /pid\?token=…&… \(\d+ in .*, .* ago\), (GET /\?number=… \(200 in .* ago\)(, )?){3}$", line)
    assert "s3cret" not in instance.log


def test_a_worker_that_is_killed_for_harakiri_names_what_it_has_answered_and_its_successor_starts_anew(start):
    instance = start("--processes", "1", "--harakiri", "3", alarms=True)
    instance.get("/pid")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/wait")
    instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) had answered, latest first: GET /pid \(200 in .*\)$")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/exit/4")
    instance.wait_for_text("exited with status 4 while it served GET /exit/4")
    assert instance.log.count("had answered, latest first") == 1


def test_a_death_by_lack_of_memory_is_told_as_the_kernels(start, tmp_path):
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 0\n")
    instance = start("--processes", "1", alarms=True, environment={"BOLIDE_TEST_CGROUP": str(tmp_path)})
    events.write_text("low 0\noom 1\noom_kill 1\n")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/kill/9")
    instance.wait_for_log(r"was killed by SIGKILL, by the kernel for lack of memory \(.*\) while it served GET /kill/9")


INTERFACES = {"asgi": ("--asgi", "dying:asynchronous"), "gevent": ("--module", "dying:greenlets", "--gevent", "20")}


@pytest.mark.parametrize("protocol", ["HTTP/1", "HTTP/2"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_death_names_the_requests_of_a_worker_that_serves_many_on_one_thread(interface, protocol, start):
    instance = start("--processes", "1", "--http2", "h2c", *INTERFACES[interface], module=None, alarms=True)
    assert instance.get("/?token=s3cret").text == "0"
    waiting = [f"GET /wait/{number}?token=s3cret" for number in range(2)]
    if protocol == "HTTP/2":
        shared = Http2(instance.connect())
        shared.read_settings()
        for line in waiting:
            shared.begin(target=line.removeprefix("GET "))
    else:
        clients = [instance.connect() for _ in waiting]
        for client, line in zip(clients, waiting, strict=True):
            client.send(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(lambda: instance.get("/").text == "2", "the requests to wait")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/exit?token=s3cret")
    said = instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) exited with status 3 while it served .*$")[0]
    # The one that its thread was in comes first.
    in_flight = re.findall(r"(GET /\S+) \(for ", said)
    assert (in_flight[0], sorted(in_flight[1:])) == ("GET /exit?token=…", [f"GET /wait/{number}?token=…" for number in range(2)])
    line = instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) had answered, latest first: .*$")[0]
    assert re.search(r"GET /\?token=… \(200 in .* ago\)$", line)
    assert "s3cret" not in instance.log
