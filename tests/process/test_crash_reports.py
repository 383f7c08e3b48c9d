"""`crash-reports`: a worker that dies unexpectedly leaves a report, which `bolide crash` explains."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time

import pytest
from support import processes
from support.client import Closed
from support.server import program
from support.waiting import wait_until

DEADLY = """
import ctypes, faulthandler, os, signal, threading, time
from probe import application as probe

if "CHAINED" in os.environ:
    faulthandler.enable()

begun = threading.Event()

def wait_elsewhere():
    begun.set()
    time.sleep(600)

def application(environ, start_response):
    if environ["PATH_INFO"] == "/native":
        import greenlet

        threading.Thread(target=wait_elsewhere, daemon=True).start()
        # A thread that has started may not have called its function yet.
        begun.wait()
        ctypes.string_at(0)
    if environ["PATH_INFO"] == "/stuck":
        print("stuck", flush=True)
        wait_elsewhere()
    if environ["PATH_INFO"] == "/exit":
        os._exit(3)
    if environ["PATH_INFO"] == "/killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if environ["PATH_INFO"] == "/abort":
        os.abort()
    return probe(environ, start_response)
"""


@pytest.fixture
def deadly(start, tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY)
    directory = tmp_path / "crashes"
    directory.mkdir()

    def begin(*options, **more):
        return start(
            "--processes", "1", "--crash-reports", str(directory), *options, module="deadly", alarms=True, **more
        ), directory

    return begin


def die(instance, target):
    """Send a request that ends its worker. Return the path of the report, and the report."""
    before = instance.log.count("crash report: ")
    with pytest.raises(Closed):
        instance.connect().request("GET", target, headers=[("Cookie", "c00kie"), ("Authorization", "s3cret")])
    instance.wait_for(lambda: instance.log.count("crash report: ") > before, "the report")
    path = instance.log.split("read it with: bolide crash ")[-1].splitlines()[0]
    with open(path) as file:
        text = file.read()
    assert not any(word in text for word in ["s3cret", "c00kie"])
    return path, json.loads(text)


def explained(path, *flags):
    result = subprocess.run([*program(), "crash", *flags, path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_native_fault_leaves_the_stacks_of_all_threads_and_the_native_function(deadly):
    instance, _ = deadly()
    instance.get("/?key=s3cret")
    path, report = die(instance, "/native?token=s3cret")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert (report["signal"], report["fault"]["signal"], report["fault"]["address"]) == (11, 11, "0x0")
    assert "in string_at" in report["stacks"]
    assert "in wait_elsewhere" in report["stacks"]
    assert report["in_flight"][0]["request"] == "GET /native?token=…"
    assert [request["request"] for request in report["last"]] == ["GET /?key=…"]
    assert report["memory"]
    assert report["limits"]
    assert report["modules"]
    text = explained(path, "--all")
    assert "was killed by SIGSEGV" in text
    assert "accessed invalid memory in " in text
    assert f"{report['fault']['module']}+" in text
    assert "GET /native?token=…" in text
    assert re.search(r"^  greenlet \d\S+: greenlet/_greenlet\.", text, re.MULTILINE)
    # The next worker has a report of its own, and none of the first one's state.
    _, second = die(instance, "/exit")
    assert (second["signal"], second["status"], second["stacks"], second["fault"]) == (None, 3, "", None)
    assert "os._exit(3)" in explained(instance.log.split("bolide crash ")[-1].splitlines()[0])


def test_a_kill_from_outside_is_told_as_one(deadly):
    instance, _ = deadly()
    path, report = die(instance, "/killed")
    assert (report["signal"], report["by_kernel"]) == (9, False)
    assert "Another process sent SIGKILL" in explained(path)


def test_a_kill_for_lack_of_memory_is_told_as_the_kernels(deadly, tmp_path):
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 0\n")
    (tmp_path / "memory.max").write_text("268435456\n")
    instance, _ = deadly(environment={"BOLIDE_TEST_CGROUP": str(tmp_path)})
    events.write_text("low 0\noom 1\noom_kill 1\n")
    path, report = die(instance, "/killed")
    assert (report["signal"], report["by_kernel"], report["cgroup"]["memory.max"]) == (9, True, "268435456")
    text = explained(path)
    assert "The kernel was out of memory and chose this process." in text
    assert "memory.max of the control group: 268435456" in text


def test_an_abort_below_limit_as_is_explained_by_it_and_a_memory_error_is_no_death(deadly):
    instance, directory = deadly("--limit-as", "3000")
    assert instance.get("/reserve/4000").status == 500
    assert list(directory.iterdir()) == []
    path, report = die(instance, "/abort")
    assert (report["signal"], report["settings"]["limit-as"]) == (6, 3000 << 20)
    assert "probably because it could not allocate memory within `limit-as`" in explained(path)


def test_a_worker_that_is_killed_for_its_memory_leaves_the_request_that_took_it(deadly):
    instance, _ = deadly("--evil-reload-on-rss", "200")
    with contextlib.suppress(Closed):
        instance.connect().request("GET", "/grow/200?token=s3cret")
    instance.wait_for_text("crash report: ")
    path = instance.log.split("read it with: bolide crash ")[-1].splitlines()[0]
    with open(path) as file:
        report = json.load(file)
    assert report["killed_for"] == "memory"
    # It may have answered before the limit was looked at.
    assert "GET /grow/200?token=…" in [request["request"] for request in report["in_flight"] + report["last"]]
    assert "more memory than its limit" in explained(path)


def test_a_worker_that_is_killed_for_harakiri_leaves_its_stacks(deadly):
    instance, _ = deadly("--harakiri", "3")
    path, report = die(instance, "/wait")
    assert report["killed_for"] == "harakiri"
    assert "in do_wait" in report["stacks"]
    assert "longer than `harakiri`" in explained(path)


def test_a_worker_that_gets_no_cpu_for_a_while_leaves_its_stacks_all_the_same(deadly):
    """It goes on before the server waits no longer, for which a busy machine may be too late. So one of several rounds counts."""
    # The worker has to be stopped within this time.
    instance, _ = deadly("--harakiri", "4")

    def leaves_stacks(turn):
        (worker,) = wait_until(instance.workers, "a worker")
        client = instance.connect()
        client.send(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
        instance.wait_for_log("^stuck$", count=turn)
        # A process without CPU time: a kill that does not wait for its stack would come first.
        os.kill(worker, signal.SIGSTOP)
        instance.wait_for_log("its Python stack:", count=turn)
        asked = time.monotonic()
        wait_until(lambda: time.monotonic() > asked + 1.3, "more than the wait for its connections")
        processes.kill(worker, signal.SIGCONT)
        instance.wait_for_log("crash report: ", count=turn)
        path = instance.log.split("read it with: bolide crash ")[-1].splitlines()[0]
        with open(path) as file:
            report = json.load(file)
        return "in application" in report["stacks"] and "in application" in instance.log.split("its Python stack:")[turn]

    assert any(leaves_stacks(turn) for turn in range(1, 4)), instance.log


def test_the_handler_of_the_application_still_gets_the_fault(deadly):
    instance, _ = deadly("--env", "CHAINED=1")
    _, report = die(instance, "/native")
    assert "in string_at" in report["stacks"]
    instance.wait_for_text("Fatal Python error: Segmentation fault")


def test_a_start_and_a_check_warn_of_a_directory_that_is_not_there(start, tmp_path, call):
    (tmp_path / "app.ini").write_text("[uwsgi]\ncrash-reports = nowhere\n")
    warning = f"app.ini:2: warning: `crash-reports`: there is no directory `{tmp_path}/nowhere`, so no report can be written"
    status, said = call("check", "app.ini")
    assert (status, warning in said) == (2, True), said
    instance = start("--ini", tmp_path / "app.ini")
    instance.wait_for_text("there is no directory")


def test_what_is_no_report_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    for arguments in [[], [str(tmp_path / "none")], [str(tmp_path / "other.json")]]:
        result = subprocess.run([*program(), "crash", *arguments], capture_output=True, text=True, timeout=60)
        assert result.returncode != 0
        assert result.stderr


def test_a_report_that_is_a_fifo_or_names_one_is_read_without_a_wait(tmp_path):
    fifo, report = tmp_path / "fifo", tmp_path / "crash.json"
    os.mkfifo(fifo)
    refused = subprocess.run([*program(), "crash", fifo], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert "it is not a regular file" in refused.stderr
    site = tmp_path / "site-packages"
    (site / "shop-1.0.dist-info").mkdir(parents=True)
    os.mkfifo(site / "shop-1.0.dist-info" / "RECORD")
    os.mkfifo(site / "shop.so")
    for module in (fifo, site / "shop.so", "/dev/tty", "/proc/kmsg", "/"):
        fault = {"module": str(module), "offset": 1, "address": "0x0", "instruction": "0x1"}
        report.write_text(json.dumps({"format": 1, "signal": 11, "fault": fault, "modules": [str(module)]}))
        assert str(module) in explained(str(report))


def test_no_control_character_of_a_report_reaches_the_terminal(tmp_path):
    evil = "\x9b2J\x1b[31m\0"
    request = {"request": evil, "thread": evil, "status": evil, "ms": evil}
    fault = {"module": f"/lib/{evil}.so", "offset": 1, "address": evil, "instruction": evil}
    report = tmp_path / "crash.json"
    more = {"in_flight": [request], "last": [request], "fault": fault, "stacks": f"{evil}\n{evil}", "cause": f"{evil}\n{evil}"}
    report.write_text(json.dumps({"format": 1, "signal": 11, "worker": evil, "pid": evil, **more}))
    for flags in ((), ("--all",)):
        text = explained(str(report), *flags)
        assert not [character for character in text if character in "\x9b\x1b\0\r"]
        assert r"\u{9b}" in text
