"""Bolide as the first process of a container: in a PID namespace, whose orphans become children of the master."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.server import program
from support.waiting import wait_until
from support_instance import REFUSED
from support_processes import children_of
from support_upgrade import UPGRADE

#: A PID namespace in which the program is PID 1, as a container runtime starts it.
CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

APPLICATION = """
import subprocess
from probe import application as probe

def application(environ, start_response):
    if environ["PATH_INFO"] == "/orphan":
        # The shell ends at once, and leaves a process behind that ends a moment later.
        subprocess.run(["sh", "-c", "sleep 0.05 & echo $!"], check=True, stdout=subprocess.DEVNULL)
        start_response("200 OK", [])
        return [b"left"]
    return probe(environ, start_response)
"""


def can_be_made():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not can_be_made(), reason="no namespace of pids can be made here (unshare --pid)")


def parent_and_state(pid):
    try:
        rest = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(rest[1]), rest[0]


def zombies_of(pid):
    """Returns the zombies among the children of a process."""
    found = (parent_and_state(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [one for one in found if one == (pid, "Z")]


@pytest.fixture
def contained(start, tmp_path):
    """Starts an instance as PID 1 of a namespace. Returns it with the master's pid outside."""

    def contained(*options):
        (tmp_path / "shop.py").write_text(APPLICATION)
        instance = start("--processes", "2", *options, module="shop", command=[*CONTAINER, *program()])
        instance.wait_for_text("master pid 1")
        (master,) = children_of(instance.pid)
        return instance, master

    return contained


def test_orphans_of_the_application_are_reaped_by_process_1(contained):
    instance, master = contained()
    for _ in range(20):
        assert instance.get("/orphan").status == 200
    # Each was the master's child when it ended; only the prototype is left, and no zombie.
    wait_until(lambda: not zombies_of(master) and len(children_of(master)) == 1, "the end of all orphans")
    os.kill(master, signal.SIGTERM)
    assert instance.wait_for_exit() == 0


def test_sigterm_stops_process_1_within_the_grace_period(contained, tmp_path):
    instance, master = contained("--reload-mercy", "1")
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    # The container runtime would never learn of a request that does not end: it kills after its grace period.
    os.kill(master, signal.SIGTERM)
    assert instance.wait_for_exit() == 0
    assert client.is_closed()
    instance.wait_for_text("did not finish within 1 s (reload-mercy): killing it")


def test_a_request_in_flight_is_answered_before_process_1_ends(contained, tmp_path):
    instance, master = contained()
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    os.kill(master, signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    gate.touch()
    assert client.read_response().status == 200
    assert instance.wait_for_exit() == 0


def test_a_command_within_the_container_reaches_process_1_and_none_from_outside(contained):
    instance, master = contained()
    inside = ["nsenter", f"--target={master}", "--pid", "--mount", *program(), "status", "1"]
    done = subprocess.run(inside, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert done.stdout.startswith("master 1: serving")
    # The abstract name belongs to the network namespace, which the container may share; clients from other namespaces are
    # refused.
    outside = subprocess.run([*program(), "status", "1"], capture_output=True, text=True)
    assert outside.returncode != 0
    assert "serving" not in outside.stdout
    os.kill(master, signal.SIGTERM)
    assert instance.wait_for_exit() == 0


def test_process_1_refuses_an_upgrade_and_says_what_to_do(contained):
    instance, master = contained()
    inside = ["nsenter", f"--target={master}", "--pid", "--mount", *program(), "upgrade", "1"]
    done = subprocess.run(inside, capture_output=True, text=True)
    assert done.returncode == REFUSED, done
    assert "PID 1 of a container can't be replaced" in done.stderr
    assert "start a container of the new image beside this one" in done.stderr
    os.kill(master, UPGRADE)
    instance.wait_for_log(r"^bolide: upgrade \(SIGRTMIN\+2\): PID 1 of a container .*: this master stays$")
    assert instance.get("/").status == 200
    os.kill(master, signal.SIGTERM)
    assert instance.wait_for_exit() == 0
