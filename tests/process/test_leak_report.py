"""`leak-report = N`: routes whose requests leave memory behind are named, and no others."""

import json
import random
import re
import socket
import sys
import time
from pathlib import Path

import pytest

APPLICATIONS = Path(__file__).resolve().parent / "probes"
sys.path.insert(0, str(APPLICATIONS))

import leaking  # noqa: E402
from test_log_json import check_schema  # noqa: E402

#: Requests of each route in a window.
ROUNDS = 120
#: Measured requests of a window with few routes.
WINDOW = 640
#: Leaks that are tried one after the other in a process.
LEAKS_OF_A_PROCESS = 4
#: Seconds after which a test gives up.
MAX_SECONDS = 120


chance = random.Random(25)


def ask(instance, targets, until, port=None, order=chance.shuffle):
    """Requests these targets in changing order, on one connection, until a condition holds. Not every request is measured."""
    packets = [f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for target in targets]
    with socket.create_connection(("127.0.0.1", port or instance.port), timeout=30) as connection:
        end, number = time.monotonic() + MAX_SECONDS, 0
        while time.monotonic() < end:
            number += 1
            order(packets)
            for packet in packets:
                connection.sendall(packet)
                answered = connection.recv(4096)
                while not answered.endswith(b"ok\n"):
                    more = connection.recv(4096)
                    assert more, answered
                    answered += more
            if number % 10 == 0 and until():
                return
    raise AssertionError(f"not within {MAX_SECONDS} s; the log:\n{instance.log}")


def names(kind, table):
    return [f"/{kind}/{name}" for name in table]


def accused(instance):
    lines = [line for line in instance.log.splitlines() if "leak-report: " in line and " leaves about " in line]
    return sorted(line.split("leak-report: GET ")[1].split(" leaves ")[0] for line in lines)


@pytest.fixture
def watch(start):
    def watch(*options, requests, module="leaking", **settings):
        return start("--processes", "1", "--leak-report", str(requests), *options, module=module, **settings)

    return watch


#: Requested beside each leak.
OTHERS = ["/clean/documents", "/clean/collected-cycles"]


def find(instance, leak, others):
    """Requests a leak and other routes until it is accused."""
    ask(instance, [leak, *others], lambda: leak in accused(instance))


def test_leaks_of_twenty_kinds_are_found_and_no_other_route_is_accused(watch):
    assert len(leaking.LEAKS) + len(leaking.ASYNC_LEAKS) + len(["cycles"]) >= 20
    leaks = [leak for leak in names("leak", leaking.LEAKS) if leak != "/leak/rare-and-big"]
    for first in range(0, len(leaks), LEAKS_OF_A_PROCESS):
        # Collections take longer with each leak.
        own = leaks[first : first + LEAKS_OF_A_PROCESS]
        instance = watch(requests=WINDOW)
        for leak in own:
            find(instance, leak, OTHERS)
        assert accused(instance) == sorted(own), instance.log
        instance.finish()


def test_a_large_piece_left_by_one_request_of_fifty_is_found(watch):
    instance = watch(requests=6 * WINDOW)
    ask(instance, ["/leak/rare-and-big"] * 8, lambda: accused(instance) == ["/leak/rare-and-big"])


def test_a_route_that_takes_what_the_interpreter_keeps_free_is_found_and_not_the_one_that_fills_it_up(watch):
    """CPython keeps the tables of small dictionaries that are freed: if one route takes them, the next one seems to grow."""
    instance = watch(requests=WINDOW)
    targets = ["/leak/filled-dictionaries", "/clean/nothing", "/clean/dictionaries"]
    ask(instance, targets, lambda: accused(instance), order=list)
    assert accused(instance) == ["/leak/filled-dictionaries"]


def test_requests_beside_another_one_accuse_no_route_and_the_log_says_so(watch):
    instance = watch("--threads", "2", requests=160)
    with instance.connect() as held:
        held.send(b"GET /held/hold HTTP/1.1\r\nHost: x\r\n\r\n")
        instance.wait_for(lambda: instance.get("/held/is-held").status == 200, "the request is held")
        ask(instance, names("leak", ["list-of-orders", "closures"]), lambda: "had the worker to themselves" in instance.log)
        instance.get("/held/release")
    assert accused(instance) == []


def test_an_accusation_is_an_object_of_the_json_log(watch):
    instance = watch("--log-json", requests=WINDOW, ready=False)
    instance.wait_for(lambda: '"message":"ready: ' in instance.log, "it is ready")
    port = int(re.search(r'"message":"listening on http://127\.0\.0\.1:(\d+)', instance.log)[1])
    ask(instance, ["/leak/list-of-orders", "/clean/nothing"], lambda: '"type":"leak"' in instance.log, port)
    found = [json.loads(line) for line in instance.log.splitlines() if '"type":"leak"' in line]
    assert found[0]["route"] == "GET /leak/list-of-orders"
    assert (found[0]["level"], found[0]["worker"], found[0]["collector"]) == ("warning", 1, True)
    assert found[0]["measured_requests"] == WINDOW // 2
    assert 100 < found[0]["bytes_per_request"] < 2000
    check_schema(found)


def test_leaks_of_an_asgi_application_are_found(watch):
    instance = watch(requests=WINDOW, module="leaking:asgi")
    leaks = [*names("async-leak", leaking.ASYNC_LEAKS), "/leak/list-of-orders"]
    for leak in leaks:
        find(instance, leak, [*names("async-clean", leaking.ASYNC_CLEAN), *OTHERS])
    assert accused(instance) == sorted(leaks), instance.log


def test_cycles_leak_if_the_application_has_turned_the_collector_off(watch):
    instance = watch("--env", "COLLECTOR_OFF=1", requests=WINDOW)
    find(instance, "/off/cycles", ["/clean/nothing"])
    assert accused(instance) == ["/off/cycles"]
    assert "has turned the garbage collector off" in instance.log


def test_twenty_routes_that_only_look_like_leaks_are_not_accused(watch):
    routes = names("clean", leaking.CLEAN)
    assert len(routes) >= 20
    instance = watch(requests=len(routes) * ROUNDS)
    told = [0]

    def has_seen_three_windows():
        told[0] += 10
        return told[0] > 5 * ROUNDS

    ask(instance, routes, has_seen_three_windows)
    assert accused(instance) == []


def test_clean_routes_of_an_asgi_application_are_not_accused(watch):
    routes = names("async-clean", leaking.ASYNC_CLEAN) + names("clean", leaking.CLEAN)
    instance = watch(requests=len(routes) * ROUNDS, module="leaking:asgi")
    told = [0]

    def has_seen_two_windows():
        told[0] += 10
        return told[0] > 4 * ROUNDS

    ask(instance, routes, has_seen_two_windows)
    assert accused(instance) == []
