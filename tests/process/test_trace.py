"""`bolide trace`: what each thread of an instance is doing, read from the memory of its processes in any state they are in."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until
from support_hostile import identity_options
from support_instance import DONE, MISUSED, NO_ANSWER, NO_INSTANCE

SOURCE = (Path(__file__).parent / "probes" / "states.py").read_text(encoding="utf-8").splitlines()


def line_of(text):
    """Returns the number of the only line that contains this."""
    (number,) = [number for number, line in enumerate(SOURCE, 1) if text in line]
    return number


@contextlib.contextmanager
def in_flight(instance, tmp_path, *paths):
    """Sends a request to each path, and lets them go at the end."""
    clients = []
    for path in paths:
        gate = tmp_path / path
        os.mkfifo(f"{gate}.fifo")
        client = instance.connect()
        client.send(f"GET /{path}?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        # The other end of a FIFO can be opened only when there is a reader.
        pipe = os.open(f"{gate}.fifo", os.O_RDWR)
        wait_until(gate.with_suffix(".waiting").exists, f"the request for /{path}")
        clients.append((client, gate, pipe))
    yield
    for client, gate, pipe in clients:
        gate.touch()
        os.write(pipe, b"1")
        assert client.read_response().status == 200
        os.close(pipe)


def traced(call, *arguments):
    status, said = call("trace", "--json", *arguments)
    assert status == DONE, said
    return {process["name"]: process for process in json.loads(said)["processes"]}


def thread_in(processes, function):
    """Returns the only thread that is in this function, with the place in the stack."""
    found = [
        (process, thread, place)
        for process in processes.values()
        for thread in process["threads"]
        for place, frame in enumerate(thread["frames"])
        if frame["function"].rsplit(".", 1)[-1] == function
    ]
    assert len(found) == 1, found
    return found[0]


def all_have_arrived(processes):
    """Returns the processes if each thread is at the line where it stays until its gate opens."""
    places = [("hold", "PyDLL(None).read"), ("partner", "wait_for(first)"), ("lock_up", "wait_for(second)")]
    lines = []
    for function, text in places:
        _, thread, place = thread_in(processes, function)
        lines.append(thread["frames"][place]["line"] == line_of(text))
        lines.append(not thread["is_running"])
    # A thread that computes gives the interpreter away for a moment whenever another one asks for it.
    lines.append(thread_in(processes, "spin")[1]["holds_gil"])
    return all(lines) and processes


def test_each_thread_is_shown_where_it_is_also_in_c_code_in_a_loop_and_in_a_deadlock(start, call, tmp_path):
    instance = start("--processes", "3", module="states")
    with in_flight(instance, tmp_path, "hold", "spin", "lock-up"):
        processes = wait_until(lambda: all_have_arrived(traced(call)), "the requests to be where they stay")
        status, said = call("trace")
        assert status == DONE
        process, thread, place = thread_in(processes, "hold")
        assert (thread["holds_gil"], thread["is_running"], thread["is_partial"]) == (True, False, False)
        assert thread["frames"][place]["file"].endswith("states.py")
        (request,) = process["in_flight"]
        assert (request["thread"], request["text"].split("?")[0]) == (thread["id"], "GET /hold")
        process, thread, place = thread_in(processes, "spin")
        assert (thread["holds_gil"], thread["frames"][place]["line"] >= line_of("while steps")) == (True, True)
        process, thread, place = thread_in(processes, "partner")
        assert (thread["name"], thread["holds_gil"]) == ("Partner", False)
        assert thread["frames"][place - 1]["line"] == line_of("while not lock.acquire")
        assert thread_in(processes, "lock_up")[1]["name"] == "MainThread"
    line = line_of("PyDLL(None).read")
    state = r"thread \d+ \(MainThread\): waits, holds the GIL, GET /hold\S* \(for .*\)"
    assert re.search(rf"{state}\n    \S+/states.py:{line} hold\n", said)
    assert re.search(r"^prototype \(pid \d+\) of generation 1, Python 3\.\d+: serving$", said, re.MULTILINE)


def in_mule(processes, names):
    """Returns the processes if they have these names, and the mule is in its function."""
    assert set(processes) <= names
    functions = [frame["function"] for thread in processes.get("mule 1", {}).get("threads", []) for frame in thread["frames"]]
    return set(processes) == names and "mule" in functions and processes


def test_one_process_is_chosen_by_its_number_its_pid_or_its_name(start, call, tmp_path):
    instance = start("--processes", "2", "--mule=states:mule", "--pidfile", tmp_path / "shop.pid", module="states")
    names = {"prototype", "worker 1", "worker 2", "mule 1"}
    everything = wait_until(lambda: in_mule(traced(call), names), "the mule to wait for messages")
    for chosen, name in [("2", "worker 2"), ("mule1", "mule 1"), (everything["worker 1"]["pid"], "worker 1")]:
        assert set(traced(call, chosen, "shop.pid")) == {name}
    assert set(traced(call, "all", instance.pid)) == set(everything)
    status, said = call("trace", "3")
    assert status == NO_INSTANCE
    assert "no such process; these are running: prototype (pid" in said
    assert call("trace", "--rate")[0] == MISUSED


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="tasks of CPython 3.14 are not listed: see docs/trace-and-profile.md")
@pytest.mark.parametrize("loop", ["asyncio", "auto"])
def test_tasks_are_shown_with_what_they_await(loop, start, call, tmp_path):
    instance = start("--processes", "2", "--asgi", "tasks:application", "--loop", loop, module=None)
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the request")
    tasks = {task["name"]: task for process in traced(call).values() for task in process.get("tasks", [])}
    functions = [frame["function"] for frame in tasks["the gate"]["frames"]]
    assert functions[-1] == "pass_gate"
    assert not tasks["the gate"]["is_partial"]
    (request,) = [task for task in tasks.values() if "view" in [frame["function"] for frame in task["frames"]]]
    assert request["awaits"] == "task the gate"
    assert re.search(r"^  task \S.*: awaits task the gate, GET /\n    \S+/tasks.py:\d+ view\n", call("trace")[1], re.MULTILINE)
    gate.touch()
    assert client.read_response().status == 200


def test_local_variables_are_shown_on_request_only(start, call, tmp_path):
    instance = start("--processes", "2", module="states")
    with in_flight(instance, tmp_path, "spin"):
        _, plain = call("trace")
        # A request says that it is there before it has all of its variables.
        detailed = wait_until(lambda: "steps = " in (said := call("trace", "--locals")[1]) and said, "the request in its loop")
    assert "spinner" not in plain
    for line in ['name = "spinner"', "number = 7", r"gate = <Gate at 0x[0-9a-f]+>", r"steps = \d+"]:
        assert re.search(rf"^      {line}$", detailed, re.MULTILINE), line


def ask(instance, question):
    """Asks the master at its control socket, as the command does."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(f"\0bolide/{instance.pid}")
        channel.sendall(json.dumps(question).encode() + b"\n")
        with channel.makefile() as answers:
            return json.loads(answers.readline())


def test_processes_give_their_permission_from_any_state_and_go_on_where_they_were(start, call, tmp_path):
    """Where the kernel restricts the reading of other processes, the master asks each of its own for it by a signal."""
    instance = start("--processes", "2", "--mule=states:mule", module="states")
    wait_until(lambda: in_mule(traced(call), {"prototype", "worker 1", "worker 2", "mule 1"}), "the mule to wait for messages")
    before = sorted(process["pid"] for process in ask(instance, {"ask": "trace"})["processes"])
    with in_flight(instance, tmp_path, "hold", "spin"):
        assert sorted(process["pid"] for process in ask(instance, {"ask": "trace", "allow": True})["processes"]) == before
        instance.wait_for_log(rf"control socket: process {os.getpid()} may read the memory of workers and mules \(4 asked\)")
        # A signal of anybody else changes nothing: it lacks the secret.
        for pid in before:
            os.kill(pid, signal.SIGRTMIN + 13)
    # The call of C code that was interrupted has gone on: `hold` would fail otherwise.
    assert sorted(process["pid"] for process in ask(instance, {"ask": "trace"})["processes"]) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can have workers of another user")
def test_workers_of_another_user_are_read_by_root_and_also_by_the_root_of_a_container(start, open_directory):
    options, command = identity_options(open_directory)
    shutil.copy(Path(__file__).parent / "probes" / "states.py", open_directory)
    instance = start("--socket", open_directory / "app.sock", *options, module="states", command=command)
    bolide = [*command, "trace", "--json", "1", str(instance.pid)]
    # Root of a container has all rights except that to read processes of others.
    for prefix in ([], ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]):
        done = subprocess.run([*prefix, *bolide], capture_output=True, cwd=open_directory, check=False)
        assert done.returncode == DONE, done.stderr
        (worker,) = json.loads(done.stdout)["processes"]
        assert worker["threads"][0]["is_python"]
    # Another user does not get as far as that.
    other = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    done = subprocess.run([*other, *bolide], capture_output=True, cwd=open_directory, check=False)
    assert done.returncode == NO_ANSWER, done.stderr
