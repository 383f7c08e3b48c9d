"""`bolide top` of an emperor: a line for each vassal, in lines and on a screen."""

import os
import re
import signal
import threading

import pytest
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_processes import children_of
from support_top import Screen

#: A site that uses the CPU for some time in each request.
BUSY = """\
import time
def application(environ, start_response):
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""


@pytest.fixture
def emperor(tmp_path):
    """Makes an emperor with these lines."""
    made = []

    def emperor(*lines):
        made.append(Emperor(program(), tmp_path, "emperor = {directory}/vassals", *lines))
        return made[-1]

    yield emperor
    for one in made:
        for pid in children_of(one.process.pid):
            os.kill(pid, signal.SIGCONT)
        one.finish()


@pytest.fixture
def screen():
    """Starts `bolide top` in a pseudo-terminal."""
    screens = []

    def screen(*arguments, **size):
        screens.append(Screen(*arguments, **size))
        return screens[-1]

    yield screen
    for one in screens:
        one.close()


@pytest.fixture
def load():
    """Asks the server at a port again and again."""
    is_over = threading.Event()
    clients = []

    def ask(port):
        with Client(("127.0.0.1", port)) as client:
            while not is_over.is_set():
                client.request("GET", "/")

    def load(port):
        clients.append(threading.Thread(target=ask, args=(port,)))
        clients[-1].start()

    yield load
    is_over.set()
    for client in clients:
        client.join()


def site(port, *lines):
    return [f"http-socket = 127.0.0.1:{port}", "env = NAME=site", *lines]


def serving(emperor, call, count):
    """Waits until `count` vassals serve. Returns the pid of each by its name."""
    file = str(emperor.directory / "emperor.ini")
    said = wait_until(
        lambda: (said := call("status", file)[1]).count(": serving") == count and said, lambda: f"{count}:\n{emperor.log}"
    )
    return {name: int(pid) for name, pid in re.findall(r"^vassal (\S+) \(pid (\d+)\)", said, re.M)}


def test_top_of_an_emperor_has_a_line_for_each_vassal_the_busiest_first(emperor, call, load, free_port):
    busy, calm, silent = free_port(), free_port(), free_port()
    emperor = emperor("emperor-throttle = 600000", "emperor-max-throttle = 600000")
    (emperor.directory / "busy.py").write_text(BUSY)
    emperor.write("calm.ini", *site(calm))
    emperor.write("zebra.ini", *site(busy, "module = busy", "processes = 2"))
    emperor.write("broken.ini", "chdir = /nonexistent")
    emperor.write("silent.ini", *site(silent, "control-socket = off"))
    emperor.start()
    emperor.wait_for_log("starting it again in 10 min")
    pids = serving(emperor, call, 3)
    load(busy)
    status, said = call("top", "--once", str(emperor.directory / "emperor.ini"))
    assert status == 0, said
    first, *lines = said.splitlines()
    summary = (
        rf"emperor {emperor.process.pid}: 4 vassals, 3 serving, 1 paused, (\d+\.\d) requests/s, CPU (\d+) %, (\d+) MiB, version "
    )
    sums = re.match(summary, first)
    assert sums, said
    names = [line.split()[1].rstrip(":") for line in lines]
    # Of two that are equal, the name decides.
    assert (names[0], names[-1], sorted(names[1:3])) == ("zebra.ini", "broken.ini", ["calm.ini", "silent.ini"]), said
    assert lines[-1] == "vassal broken.ini: paused, 1 failure"
    numbers = r"up \d.*, (\d+\.\d|-) requests/s, CPU (\d+) %, (\d+) MiB$"
    found = {}
    for name, line in zip(names[:3], lines[:3], strict=True):
        assert line.startswith(f"vassal {name} (pid {pids[name]}): serving, "), line
        found[name] = re.search(numbers, line).groups()
    assert float(found["zebra.ini"][0]) > 1
    assert int(found["zebra.ini"][1]) > 20
    assert found["calm.ini"][0] == "0.0"
    # It has no control socket, so nothing tells its requests.
    assert found["silent.ini"][0] == "-"
    assert all(int(memory) > 0 for _, _, memory in found.values())
    assert float(sums[1]) == float(found["zebra.ini"][0])
    assert int(sums[2]) >= int(found["zebra.ini"][1])


def test_a_vassal_that_does_not_answer_holds_up_nothing(emperor, call, free_port):
    ports = {"one.ini": free_port(), "two.ini": free_port()}
    emperor = emperor()
    for name, port in ports.items():
        emperor.write(name, *site(port))
    emperor.start()
    pids = serving(emperor, call, 2)
    os.kill(pids["one.ini"], signal.SIGSTOP)
    said = call("top", "--once", str(emperor.process.pid))[1]
    assert re.search(r"^vassal one\.ini .*, - requests/s, CPU \d+ %, \d+ MiB$", said, re.M), said
    assert re.search(r"^vassal two\.ini .*, 0\.0 requests/s, CPU \d+ %, \d+ MiB$", said, re.M), said


def test_the_screen_of_an_emperor_leads_to_a_vassal_and_back(emperor, call, screen, free_port):
    emperor = emperor()
    for number in range(3):
        emperor.write(f"site{number}.ini", *site(free_port()))
    emperor.start()
    pids = serving(emperor, call, 3)
    top = screen(emperor.directory / "emperor.ini", columns=100, lines=24)

    def is_table(lines):
        rows = [line for line in lines if re.match(r"site\d\.ini +serving +\d+ .* \d+\.\d +\d+ % +\d+ MiB +0 +0$", line)]
        return lines[0].startswith(f"emperor {emperor.process.pid}: 3 vassals, 3 serving, 0 paused, ") and len(rows) == 3

    top.wait_until_shown(is_table, "the vassals")
    # By name, and then the second one.
    top.press("sssss")
    top.wait_until_shown(lambda lines: any("vassals by name" in line for line in lines), "the order")
    top.press("j\r")
    vassal = f"master {pids['site1.ini']}: serving, generation 1"
    top.wait_until_shown(lambda lines: lines[0].startswith(vassal) and lines[-1].startswith("q back"), "the vassal")
    top.press("q")
    top.wait_until_shown(lambda lines: is_table(lines) and lines[-1].startswith("q quit  h help  Enter open"), "the vassals")
    emperor.write("site3.ini", *site(free_port()))
    top.wait_until_shown(lambda lines: ": 4 vassals, 4 serving" in lines[0], "the new vassal")
    top.press("/")
    top.press("site3\r")
    top.wait_until_shown(lambda lines: sum(line.startswith("site") for line in lines) == 1, "the filter")
    top.press("q")
    assert top.end() == 0


def test_vassals_that_do_not_fit_are_counted(emperor, call, screen, free_port):
    emperor = emperor("vassal-set = single-interpreter=true")
    for number in range(8):
        emperor.write(f"site{number}.ini", *site(free_port()))
    emperor.start()
    serving(emperor, call, 8)
    top = screen(emperor.process.pid, columns=80, lines=10)

    def is_cut(lines):
        rows = sum(line.startswith("site") for line in lines)
        return 0 < rows < 8 and f"+{8 - rows} more" in lines

    top.wait_until_shown(is_cut, "the number of the others")


def test_the_screen_tells_that_the_emperor_is_gone_and_finds_the_next_one(emperor, call, screen, free_port):
    emperor = emperor()
    emperor.write("one.ini", *site(free_port()))
    emperor.start()
    serving(emperor, call, 1)
    top = screen(emperor.directory / "emperor.ini", columns=80, lines=24)
    top.wait_until_shown(lambda lines: "1 vassal, 1 serving" in lines[0], "the vassal")
    before = emperor.process.pid
    assert emperor.stop() == 0
    top.wait_until_shown(lambda lines: f"emperor {before}: had 1 vassal" in "\n".join(lines[:4]), "the end")
    emperor.start()
    serving(emperor, call, 1)
    top.wait_until_shown(lambda lines: lines[0].startswith(f"emperor {emperor.process.pid}: 1 vassal, 1 serving"), "the next one")
    top.press("\x03")
    assert top.end() == 0
