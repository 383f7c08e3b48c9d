"""The screen of `bolide top` at the sizes that terminals have: no number is cut, nothing is lost or garbled by a resize."""

import itertools
import json
import re
import threading

import pytest
from support.waiting import wait_until
from support_top import Screen

SIZES = [(120, 30), (80, 24), (60, 24), (40, 24)]
#: Sizes that a storm of resizes goes through, with one change after the other.
STORM = [(80, 24), (60, 24), (40, 10), (120, 30), (100, 20), (30, 40)]
STORM_ROUNDS = 8
#: No update redraws the screen within the test: a resize that is lost would stay lost.
NEVER = ("--every", "3600")


@pytest.fixture
def screen():
    """Starts `bolide top` in a pseudo-terminal."""
    screens = []

    def screen(*arguments, columns, lines):
        screens.append(Screen(*arguments, columns=columns, lines=lines))
        return screens[-1]

    yield screen
    for one in screens:
        one.close()


def ends_with_keys(lines):
    return lines[-1].startswith("q quit")


def table(lines, title):
    """Returns the rows of a table as dictionaries by column. A row has a value in each column of numbers."""
    begin = next(number for number, line in enumerate(lines) if line.startswith("─ ") and title in line)
    heads = [(head.group(), head.start(), head.end()) for head in re.finditer(r"\S+", lines[begin + 1])]
    rows = list(itertools.takewhile(lambda line: line and not line.startswith(("─", "+")), lines[begin + 2 :]))
    # Numbers are aligned with the end of their head, texts with its begin. `12 %` is one number.
    return [
        {
            name: next(
                (word.group() for word in re.finditer(r"\S+(?: %)?", row) if word.start() == start or word.end() == end), ""
            )
            for name, start, end in heads
        }
        for row in rows
    ]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_numbers_are_whole_at_each_width(columns, lines, start, call, screen, tmp_path):
    instance = start("--processes", "2", "--threads", "2")
    for _ in range(120):
        assert instance.get("/").status == 200

    def counted():
        return sum(worker["requests"] for worker in json.loads(call("status", "--json", instance.pid)[1])["workers"])

    # A worker may count a request after its answer, and the screen is drawn only once.
    wait_until(lambda: counted() == 120, lambda: f"each request counts: {counted()}")
    request = threading.Thread(target=instance.get, args=(f"/wait/here?{tmp_path}/go",))
    request.start()
    wait_until((tmp_path / "go.waiting").exists, "a request in flight")
    try:
        top = screen(instance.pid, *NEVER, columns=columns, lines=lines)
        shown = top.wait_until_shown(ends_with_keys, "the keys")
        status = json.loads(call("status", "--json", instance.pid)[1])
    finally:
        (tmp_path / "go").touch()
        request.join()
    assert all(len(line) <= columns for line in shown)
    assert shown[0].startswith(f"master {instance.pid}: serving")
    head = " ".join(shown[:5])
    most = status["queue"]["most"]
    assert f"queue 0 of {most}" in head or f"q 0/{most}" in head, head
    rows = table(shown, "processes by")
    for worker, row in zip(status["workers"], rows, strict=True):
        expected = {"worker": str(worker["number"]), "pid": str(worker["pid"]), "requests": str(worker["requests"])}
        assert {name: row[name] for name in expected if name in row} == {
            name: value for name, value in expected.items() if name in row
        }
        assert re.fullmatch(r"\d+(?: ?%)?", row["CPU"]), row
        assert re.fullmatch(r"\d+(\.\d)?k?", row["req/s"]), row
        assert re.fullmatch(r"\d+M?", row["memory"]), row
    assert {"pid", "CPU", "memory", "req/s", "busy"} <= set(rows[0])
    (in_flight,) = table(shown, "1 in flight")
    assert in_flight["request"].startswith("GET")


def test_no_resize_is_lost_or_garbles_the_screen(start, screen):
    instance = start("--processes", "2", "--threads", "2")
    is_over = threading.Event()

    def ask():
        with instance.connect() as connection:
            while not is_over.is_set():
                connection.request("GET", "/")

    load = [threading.Thread(target=ask) for _ in range(4)]
    for client in load:
        client.start()
    try:
        top = screen(instance.pid, *NEVER, columns=80, lines=24)
        top.wait_until_shown(ends_with_keys, "the keys")
        seen = {}
        for number in range(STORM_ROUNDS * len(STORM)):
            # The last one of three stays; the others come while the screen is drawn.
            for step in range(3):
                size = STORM[(number * (step + 1) + step) % len(STORM)]
                top.resize(*size)

            def is_whole(lines, size=size):
                return is_drawn_for(lines, size, instance.pid) and seen.setdefault(size, lines) == lines

            top.wait_until_shown(is_whole, f"the screen of {size}, as before,")
    finally:
        is_over.set()
        for client in load:
            client.join()


def is_drawn_for(lines, size, pid):
    rules = [line for line in lines if line.startswith("─")]
    return (
        len(lines) == size[1]
        and lines[0].startswith(f"master {pid}: serving")
        and ends_with_keys(lines)
        and rules
        and all(len(rule) == size[0] for rule in rules)
    )


def test_workers_that_do_not_fit_are_counted_and_can_be_reached(start, screen):
    instance = start("--processes", "24")
    top = screen(instance.pid, *NEVER, columns=80, lines=24)
    shown = top.wait_until_shown(ends_with_keys, "the keys")
    rows = table(shown, "processes by")
    assert f"+{24 - len(rows)} more" in shown
    top.press("j" * 23)
    above = f"+{24 - len(rows)} above"

    # The screen may be read while it is drawn.
    def has_last(lines):
        return any(line.startswith("24 ") for line in lines) and any(above in line for line in lines)

    top.wait_until_shown(has_last, "the last worker, and how many are above")


def test_a_cheap_instance_says_what_it_waits_for(start, call, screen):
    instance = start("--cheap", "--processes", "2", alarms=True)
    said = call("top", "--once", instance.pid)[1]
    assert "\n0.0 requests/s, 0.0 errors/s, " in said, said
    assert "\nno worker is running (cheap): the first connection starts them\n" in said, said
    top = screen(instance.pid, columns=80, lines=24)
    why = "no worker is running (cheap): the first connection starts them"
    top.wait_until_shown(lambda lines: why in lines, why)
    assert "-0.0" not in top.emulated.text()
    assert instance.get("/").status == 200
    top.wait_until_shown(lambda lines: why not in lines and any(line.startswith("1 ") for line in lines), "a worker")


def test_the_screen_of_an_instance_that_has_ended_begins_with_that(start, screen):
    instance = start()
    top = screen(instance.pid, columns=80, lines=24)
    top.wait_until_shown(ends_with_keys, "the keys")
    assert instance.stop() == 0

    # The screen may be read while it is drawn.
    def is_told(lines):
        return "the instance has exited" in " ".join(lines[:2]) and f"master {instance.pid}: was serving" in "\n".join(lines)

    shown = top.wait_until_shown(is_told, "the end of the instance")
    assert not any(line.startswith(f"master {instance.pid}: serving") for line in shown)


def test_a_stack_fits_a_narrow_screen(start, call, screen):
    instance = start()
    instance.connect().send(b"GET /stuck/300 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: "/stuck/300" in call("status", instance.pid)[1], "a request in flight")
    top = screen(instance.pid, *NEVER, columns=60, lines=40)
    top.wait_until_shown(ends_with_keys, "the keys")
    top.press("\r")
    stack = r"probe\.py:\d+ stuck_in_the_database|can't be read"
    top.wait_until_shown(lambda lines: any("stack" in line for line in lines) and re.search(stack, "\n".join(lines)), "the stack")
