"""`bolide top`: lines without a terminal, and a screen in a real pseudo-terminal that is as it was afterwards."""

import json
import os
import re
import signal
import termios
import threading

import pytest
from support.metrics import metrics_address, value_of
from support.waiting import wait_until
from support_instance import DONE, NO_INSTANCE, REFUSED
from support_top import Screen


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


def test_top_without_a_terminal_prints_lines_with_the_requests_in_flight(start, call):
    instance = start("--processes", "2", "--threads", "2")
    instance.connect().send(b"GET /sleep/300?token=secret HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: "/sleep/300" in call("status", instance.pid)[1], "a request in flight")
    status, said = call("top", "--once", instance.pid)
    assert status == DONE
    assert said.startswith(f"master {instance.pid}: serving, generation 1, ")
    assert re.search(r"^\d+\.\d requests/s, \d+\.\d errors/s, .*, queue \d+ of \d+$", said, re.M)
    assert re.search(r"^generation 1: serving, age .*, 2 of 2 workers, ready after ", said, re.M), said
    assert len(re.findall(r"^worker [12] \(pid \d+\) of generation 1: serving, up .* MiB, ", said, re.M)) == 2
    assert re.search(r"^worker [12]: GET /sleep/300\?token=\S+ \(for .*, waits\)$", said, re.M), said
    assert "secret" not in said


def test_the_attendant_is_among_the_processes_and_status_says_which_generation_forms(start, call, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--attach-daemon", "sleep 1000", "--workers", "1", module="shop", alarms=True)
    for command in ("top", "--once"), ("status",):
        said = call(*command, instance.pid)[1]
        assert re.search(r"^attendant \(pid \d+\).*: serving\b.*, \d+ MiB", said, re.M), said
    assert "\ngeneration 1:" not in said
    (tmp_path / "shop.py").write_text(
        f"import os, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.01)\nfrom probe import application\n"
    )
    instance.send_signal(signal.SIGHUP)
    forms = r"^generation 2: forming, age .*, 0 of 1 worker, loads the application$"
    wait_until(lambda: re.search(forms, call("status", instance.pid)[1], re.M), forms)
    assert "generation 1: serving, " in call("status", instance.pid)[1]
    (tmp_path / "go").touch()
    instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")


def test_top_says_which_requests_have_failed(start, call):
    instance = start()
    assert instance.get("/bytes/none?key=secret").status == 500
    error = r"^error: 500 in worker 1, .* ago: GET /bytes/none\?key=\S+$"
    # A worker may record it after its answer.
    said = wait_until(lambda: (said := call("top", "--once", instance.pid)[1]) and re.search(error, said, re.M) and said, error)
    assert "secret" not in said


def test_top_shows_the_generation_that_drains_and_a_reload_that_has_failed(start, call, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--processes", "2", module="shop", alarms=True)
    request = threading.Thread(target=instance.get, args=("/wait/here?first",))
    request.start()
    wait_until((tmp_path / "first.waiting").exists, "a request in flight")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    drains = r"^generation 1: draining, age .*, 1 worker, 1 request left$"
    said = wait_until(lambda: (said := call("top", "--once", instance.pid)[1]) and re.search(drains, said, re.M) and said, drains)
    assert re.search(r"^generation 2: serving, age .*, 2 of 2 workers, ", said, re.M), said
    # A newer generation comes first.
    assert said.index("generation 2:") < said.index("generation 1:")
    (tmp_path / "first").touch()
    request.join()
    (tmp_path / "shop.py").write_text("raise RuntimeError('no database')\n")
    assert call("reload", "--wait", instance.pid)[0] == REFUSED
    said = call("top", "--once", instance.pid)[1]
    assert re.search(r"^the last reload has failed: .*no database", said, re.M), said


def test_top_fills_a_terminal_obeys_its_keys_and_leaves_it_as_it_was(start, screen):
    instance = start("--processes", "2")
    top = screen(instance.pid)
    top.wait_for(rf"master {instance.pid}: serving, generation 1")
    assert termios.tcgetattr(top.terminal)[3] & termios.ICANON == 0
    top.press("s")
    top.wait_for("CPU")
    top.press("h")
    top.wait_for("Any key closes this")
    top.press("h")
    top.press("\r")
    top.wait_for(r"(?s)stack.*(thread|prototype|can't be read)")
    top.press("q")
    top.press("u")
    top.wait_for(r"thread \d+ waits \S+ .*idle")
    top.press("u")
    top.press("/")
    top.wait_for("filter _")
    top.press("z")
    top.wait_for("z_")
    top.press("\x1b")
    top.wait_for(r"1 \d+ 1 serving")
    top.press("p")
    top.wait_for("paused")
    top.resize(60, 15)
    os.killpg(top.process.pid, signal.SIGWINCH)
    top.wait_for(rf"master {instance.pid}: serving")
    top.press("q")
    assert top.end() == 0
    assert "\x1b[?1049l" in top.said
    assert termios.tcgetattr(top.terminal) == top.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_top_and_the_terminal_is_as_before(number, start, screen):
    instance = start()
    top = screen(instance.pid)
    top.wait_for("serving")
    top.process.send_signal(number)
    assert top.end() == 0
    assert "\x1b[?1049l" in top.said
    assert termios.tcgetattr(top.terminal) == top.before


def test_top_says_that_the_instance_is_gone_and_goes_on(start, screen, call):
    instance = start()
    top = screen(instance.pid)
    top.wait_for("serving")
    assert instance.stop() == 0
    top.wait_for("does not exist: the instance has exited")
    assert top.process.poll() is None
    top.press("\x03")
    assert top.end() == 0
    assert call("top", instance.pid)[0] == NO_INSTANCE


def test_status_and_top_count_what_sticky_and_publish_have_done(start, call, screen, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import bolide\ndef application(environ, start_response):\n"
        "    bolide.publish('news', 'sold')\n    start_response('200 OK', [])\n    return [b'done']\n"
    )
    options = ("--processes", "2", "--sticky", "query:sid", "--publish", "--metrics", "127.0.0.1:0")
    instance = start(*options, module="shop")

    def status():
        return json.loads(call("status", "--json", instance.pid)[1])

    assert status()["sticky"] == {"here": 0, "moved": 0, "relayed": 0, "learned": 0, "not_moved": 0}
    for _ in range(20):
        instance.body("/?sid=ann")
    sticky = wait_until(lambda: sum((found := status()["sticky"]).values()) == 20 and found, "each request counts")
    assert (sticky["learned"], sticky["here"] + sticky["moved"], sticky["not_moved"]) == (1, 19, 0)
    for result, count in sticky.items():
        assert value_of(metrics_address(instance), "bolide_sticky_requests_total", result=result) == count
    lines = [
        f"sticky: {sticky['here']} here, {sticky['moved']} moved, 0 relayed, 1 learned, 0 not moved",
        "publish: 20 messages, 0 delivered, 0 missed, 0 processes listen",
    ]
    for command in ("top", "--once"), ("status",):
        said = call(*command, instance.pid)[1].splitlines()
        assert [line for line in said if line.startswith(("sticky", "publish"))] == lines
    shown = screen(instance.pid).wait_until_shown(lambda shown: set(lines) <= set(shown), lines[0])
    assert shown[shown.index(lines[0]) + 1] == lines[1]
    # A small screen is for the processes.
    small = screen(instance.pid, lines=19).wait_until_shown(lambda shown: shown[-1].startswith("q quit"), "the keys")
    assert not set(lines) & set(small)
    # Workers that have exited count too.
    instance.reload(2)
    instance.wait_for_replacement(count=2)
    assert status()["sticky"] == sticky


@pytest.mark.parametrize("options", [("--processes", "2"), ("--sticky", "query:sid")], ids=["without it", "one worker"])
def test_status_does_not_mention_sticky_where_it_has_no_effect(options, start, call):
    instance = start(*options)
    assert json.loads(call("status", "--json", instance.pid)[1])["sticky"] is None
    assert not re.search("^(sticky|publish)", call("status", instance.pid)[1], re.M)
