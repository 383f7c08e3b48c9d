"""`bolide profile`: where the time of all workers goes, as a flame graph and for speedscope, with the share of each route."""

import json
import re
import signal
import subprocess
import threading
import xml.etree.ElementTree as ElementTree

import pytest
from support.browser import chromium
from support.server import program
from support.waiting import wait_until
from support_instance import APPLICATIONS, DONE, MISUSED, REFUSED

#: Length of a profile: a busy machine may take the CPU away from its reader for a part of it.
SECONDS = "3"


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def busy(start):
    """An instance of two workers, with a client that asks for orders."""
    instance = start("--processes", "2", module="states")
    done = threading.Event()

    def ask():
        number = 0
        while not done.is_set():
            number += 1
            assert instance.get(f"/orders/{number}?0.1").status == 200

    client = threading.Thread(target=ask)
    client.start()
    yield instance
    done.set()
    client.join()


def test_a_profile_has_the_functions_and_the_share_of_each_route(busy, call, tmp_path):
    status, said = call("profile", SECONDS, "--rate", "50")
    assert status == DONE, said
    assert re.search(rf"^bolide profile: master \d+, {SECONDS} s, 50 samples a second, 3 processes$", said, re.MULTILINE)
    (share,) = re.findall(r"^ +([\d.]+) %  GET /orders/:id \(runs ([\d.]+) %, waits ([\d.]+) %\)$", said, re.MULTILINE)
    assert all(float(part) > 0 for part in share)
    picture = ElementTree.parse(tmp_path / "bolide-profile.svg")
    names = {box.get("data-name"): float(box.get("data-w")) for box in picture.iter("{http://www.w3.org/2000/svg}g")}
    assert 0 < names["work (states.py)"] <= names["GET /orders/:id"] <= names["all"] == 1200
    assert [name for name in names if re.fullmatch(r"line \d+: \S.*", name)], names
    data = json.loads((tmp_path / "bolide-profile.speedscope.json").read_text())
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = data["shared"]["frames"]
    for profile in data["profiles"]:
        assert re.fullmatch(r"worker [12], MainThread", profile["name"])
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert {frames[stack[0]]["name"] for stack in profile["samples"]} <= {"GET /orders/:id", "no request"}
        # A stack without a function of the application is about the server, and stays whole.
        stacks = [[frames[number]["name"] for number in stack] for stack in profile["samples"]]
        assert not [stack for stack in stacks if "work" in stack and "Half.serve" in stack]
    # A single client's requests may all be answered by one worker.
    samples = [stack for profile in data["profiles"] for stack in profile["samples"]]
    assert any("work" in [frames[number]["name"] for number in stack] for stack in samples)


def test_a_click_on_a_box_of_the_flame_graph_enlarges_it(busy, call, browser, tmp_path):
    assert call("profile", SECONDS, "--idle", "--rate", "50")[0] == DONE
    browser.get((tmp_path / "bolide-profile.svg").as_uri())
    width = """
        const box = [...document.querySelectorAll("g[data-name]")].find((one) => one.dataset.name === arguments[0]);
        if (arguments[1]) box.dispatchEvent(new MouseEvent("click"));
        return box.style.display === "none" ? 0 : Number(box.querySelector("rect").getAttribute("width"));
    """
    before = browser.execute_script(width, "work (states.py)", False)
    assert 0 < before < 1100
    assert browser.execute_script(width, "work (states.py)", True) == 1199.5
    assert browser.execute_script(width, "no request", False) == 0
    # What is around it stays, and leads back.
    assert browser.execute_script(width, "all", True) == 1199.5
    assert browser.execute_script(width, "work (states.py)", False) == pytest.approx(before, abs=0.1)
    assert browser.console() == []


def test_the_search_of_the_flame_graph_shows_the_share_of_a_name(busy, call, browser, tmp_path):
    assert call("profile", SECONDS, "--rate", "50")[0] == DONE
    browser.get((tmp_path / "bolide-profile.svg").as_uri())
    search = """
        window.prompt = () => arguments[0];
        document.getElementById("search").dispatchEvent(new MouseEvent("click"));
        return [document.getElementById("found").textContent, document.querySelectorAll("g.found").length];
    """
    text, count = browser.execute_script(search, "WORK")
    assert re.fullmatch(r'\d+\.\d % with "WORK"', text)
    assert 0.0 < float(text.split()[0]) <= 100.0
    assert count > 0
    assert browser.execute_script(search, "all")[0] == '100.0 % with "all"'
    assert browser.execute_script(search, "") == ["", 0]
    assert browser.console() == []


def test_the_servers_own_functions_are_in_a_profile_on_request(busy, call, tmp_path):
    assert call("profile", SECONDS, "--rate", "50", "--server")[0] == DONE
    assert "(prototype.py)" in (tmp_path / "bolide-profile.svg").read_text()


def test_only_threads_with_the_gil_or_also_idle_ones_are_counted_on_request(busy, call, tmp_path):
    status, said = call("profile", SECONDS, "--gil", "--rate", "50", "--output", tmp_path / "gil")
    assert status == DONE, said
    assert "  no thread was busy" in said or " waits " in said
    status, said = call("profile", SECONDS, "--idle", "--rate", "50", "--output", tmp_path / "idle")
    assert status == DONE
    assert " no request (" in said
    idle = json.loads((tmp_path / "idle.speedscope.json").read_text())
    gil = json.loads((tmp_path / "gil.speedscope.json").read_text())
    threads = {profile["name"].split(",")[0] for profile in idle["profiles"]}
    assert threads >= {"prototype", "worker 1", "worker 2"}
    counts = [sum(len(profile["samples"]) for profile in data["profiles"]) for data in (gil, idle)]
    assert counts[0] < counts[1]


def test_a_profile_that_is_killed_leaves_nothing_behind(busy, tmp_path):
    command = [*program(), "profile", "60", "--rate", "1000", str(busy.pid)]
    reader = subprocess.Popen(command, cwd=tmp_path)
    wait_until((tmp_path / "bolide-profile.svg").exists, "the profile to begin")
    workers = busy.workers()
    reader.kill()
    assert reader.wait() == -signal.SIGKILL
    for pid in workers:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            assert "TracerPid:\t0\n" in status.read()
    assert busy.get("/").status == 200
    assert busy.workers() == workers


def test_workers_of_a_reload_are_sampled_too_and_ctrl_c_ends_a_profile_with_its_result(start, tmp_path):
    source = (APPLICATIONS / "states.py").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(source)
    instance = start("--pythonpath", tmp_path, module="shop")
    output = tmp_path / "reloaded"
    command = [*program(), "profile", "600", "--idle", "--rate", "50", "--output", str(output), str(instance.pid)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as reader:
        wait_until(output.with_suffix(".svg").exists, "the profile to begin")
        (tmp_path / "shop.py").write_text(source.replace("work(", "work_anew("))
        # On a busy machine the reader, which looks for processes once a second, may be late.
        assert instance.get("/orders/1?4").status == 200
        instance.reload(2)
        assert instance.get("/orders/1?6").status == 200
        reader.send_signal(signal.SIGINT)
        assert b" GET /orders/:id (" in reader.communicate()[0]
    frames = json.loads(output.with_suffix(".speedscope.json").read_text())["shared"]["frames"]
    assert {"work", "work_anew"} <= {frame["name"] for frame in frames}


def test_wrong_arguments_are_refused_before_anything_is_read(start, call, tmp_path):
    start(module="states")
    for arguments, words in [
        (("profile",), "specify the number of seconds"),
        (("profile", "0"), "from 1 to 3600"),
        (("profile", "1", "--rate", "5000"), "from 1 to 1000"),
        (("profile", "1", "--output", tmp_path / "missing" / "x"), "No such file"),
    ]:
        status, said = call(*arguments)
        assert (status, words in said) == (REFUSED, True), said
    assert call("profile", "1", "--quick")[0] == MISUSED
    (tmp_path / "bolide-profile.svg").symlink_to(tmp_path / "elsewhere")
    assert call("profile", "1")[0] == REFUSED
    assert not (tmp_path / "elsewhere").exists()
