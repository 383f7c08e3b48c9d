"""`fork-safety = lazy`: an application that opens resources that workers can't share is loaded by each of them, any
other once.
"""

import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.waiting import wait_until

SAFE = """\
import os, threading, time
loaded_in = os.getpid()
def said():
    # Requests that come in the meantime go to another worker.
    time.sleep(0.02)
    return f"{loaded_in == os.getpid()} {os.getpid()} {threading.active_count()}".encode()
"""
#: An application thread, which lives on in the process that has loaded the application.
TICKER = "import threading\nthreading.Thread(target=threading.Event().wait, name='ticker', daemon=True).start()\n"
INTERFACES = {
    "wsgi": "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [said()]\n",
    "asgi": """\
async def application(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said()})
""",
}
#: Concurrent requests: more than one worker can accept.
CLIENTS = 8
#: The only line of the log.
FOUND = "while it was loaded, the application "
LAZY = "; so each loads the application itself (fork-safety = lazy)"


@pytest.fixture
def shop(tmp_path):
    """Writes the application: its actions at import, and the name of its callable."""

    def shop(opened="", interface="wsgi"):
        # A different size makes it a different file, whatever the clock's resolution.
        (tmp_path / "shop.py").write_text(opened + SAFE + INTERFACES[interface] + f"# {opened!r}\n")

    return shop


@pytest.fixture
def lazily(start):
    def lazily(*options, **more):
        return start("--processes", "2", "--fork-safety", "lazy", *options, module="shop", **more)

    return lazily


def answers(instance):
    """Returns an answer of each worker: whether it has loaded the application, and its number of Python threads."""
    found = {}

    def asked():
        for own, pid, threads in pool.map(lambda _: instance.body().split(), range(CLIENTS)):
            found[int(pid)] = (own == "True", int(threads))
        # With `cheaper` the set of workers may change in a moment.
        workers = instance.workers()
        return workers if set(workers) <= set(found) else None

    with ThreadPoolExecutor(CLIENTS) as pool:
        workers = instance.wait_for(asked, "an answer of each worker")
    return [found[worker] for worker in workers]


def findings(instance):
    return [line for line in instance.lines if FOUND in line]


@pytest.mark.parametrize(
    ("interface", "more"), [("wsgi", ()), ("wsgi", ("--threads", "2")), ("asgi", ())], ids=["wsgi", "wsgi-threads", "asgi"]
)
def test_an_application_that_starts_a_thread_while_it_is_imported_is_loaded_by_each_worker(interface, more, shop, lazily):
    shop(TICKER, interface)
    instance = lazily(*more)
    assert all(own and threads >= 2 for own, threads in answers(instance))
    (said,) = findings(instance)
    assert (
        "the application started 1 thread (ticker at shop.py:2); workers, which are forked later, do not have the threads" in said
    )
    assert said.endswith(LAZY)


def test_each_worker_has_a_connection_of_its_own_and_the_prototype_has_none(shop, lazily):
    with socket.create_server(("127.0.0.1", 0)) as database:
        address = database.getsockname()
        shop(
            f"import socket\nconnection = socket.create_connection({address})\n"
            "connection.send(b'%d ' % __import__('os').getpid())\n"
        )
        instance = lazily()
        assert all(own for own, _ in answers(instance))
        (said,) = findings(instance)
        assert f"opened 1 connection (127.0.0.1:{address[1]} at shop.py:2)" in said
        database.settimeout(30)
        spoken = []
        for _ in range(3):
            with database.accept()[0] as connection:
                spoken.append(int(connection.recv(100)))
    # The first is that of the prototype that detected it, and has ended.
    wait_until(lambda: not os.path.exists(f"/proc/{spoken[0]}"), "the end of the prototype that found it")
    assert sorted(spoken[1:]) == sorted(instance.workers())
    assert spoken[0] not in (instance.prototype(), *instance.workers())


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_application_that_opens_nothing_stays_loaded_once(interface, shop, lazily):
    shop("", interface)
    instance = lazily()
    assert [own for own, _ in answers(instance)] == [False, False]
    assert findings(instance) == []


def test_each_generation_is_inspected_again(shop, lazily):
    shop()
    instance = lazily()
    shop(TICKER)
    instance.reload(2)
    assert all(own for own, _ in answers(instance))
    assert len(findings(instance)) == 1
    shop()
    instance.reload(3)
    assert not any(own for own, _ in answers(instance))
    shop(TICKER)
    instance.reload(4)
    assert all(own for own, _ in answers(instance))
    assert len(findings(instance)) == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--reload-probe", "/health"),
        ("--warmup", "/warm"),
        ("--reload-order", "stop-first"),
        ("--cheaper", "1"),
        ("--reload-probe", "/health", "--reload-canary", "1"),
    ],
    ids=["probe", "warmup", "stop-first", "cheaper", "canary"],
)
def test_a_reload_goes_on_lazily_with_what_else_there_is_of_reloads(options, shop, lazily):
    shop(TICKER)
    instance = lazily(*options)
    instance.reload(2)
    assert all(own for own, _ in answers(instance))
    assert len(findings(instance)) == 2


def test_what_a_warm_up_opens_counts(lazily, tmp_path):
    (tmp_path / "shop.py").write_text(
        SAFE + "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/warm':\n"
        "        threading.Thread(target=threading.Event().wait, name='pool', daemon=True).start()\n"
        "    start_response('200 OK', [])\n    return [said()]\n"
    )
    instance = lazily("--warmup", "/warm")
    assert all(own and threads >= 2 for own, threads in answers(instance))
    assert "started 1 thread (pool at shop.py:9)" in findings(instance)[0]


def test_a_changed_module_reloads_what_workers_have_loaded_themselves(shop, lazily):
    shop(TICKER)
    instance = lazily("--py-autoreload", "1")
    with instance.looks_away():
        shop()
    instance.wait_for_generation(2)
    assert not any(own for own, _ in answers(instance))
    with instance.looks_away():
        shop(TICKER)
    instance.wait_for_generation(3)
    assert all(own for own, _ in answers(instance))


def test_nothing_is_left_of_the_first_try_when_workers_load(shop, lazily, tmp_path):
    steps, program = tmp_path / "steps", tmp_path / "program.pid"
    shop(
        "import atexit, os, subprocess\n"
        f"def step(what):\n    with open({str(steps)!r}, 'a') as file:\n        file.write(f'{{what}} {{os.getpid()}}\\n')\n"
        "step('load')\natexit.register(step, 'leave')\n"
        f"if not os.path.exists({str(program)!r}):\n"
        f"    with open({str(program)!r}, 'w') as file:\n"
        "        file.write(str(subprocess.Popen(['sleep', '1000']).pid))\n"
        # Not a daemon thread: the interpreter waits for it at exit.
        "import threading\nthreading.Thread(target=threading.Event().wait, name='ticker').start()\n"
    )
    instance = lazily(alarms=True)
    sleeper = int(program.read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{sleeper}"), "the end of the program that the first try has started")
    done = [(what, int(pid)) for what, pid in (line.split() for line in steps.read_text().splitlines())]
    (_, first), *others = done
    assert done[0] == ("load", first)
    assert sorted(others) == sorted(("load", worker) for worker in instance.workers())
    wait_until(lambda: not os.path.exists(f"/proc/{first}"), "the end of the first try")
    assert len(findings(instance)) == 1
    assert "has finished serving" not in instance.log


def test_a_worker_that_dies_is_replaced_by_one_that_loads_and_hooks_run_in_each(shop, lazily, tmp_path):
    shop(
        TICKER
        + "import uwsgidecorators\n@uwsgidecorators.postfork\ndef forked():\n    print('forked', os.getpid(), flush=True)\n"
    )
    instance = lazily("--hook-post-fork", "print:a worker begins", alarms=True)
    before = instance.workers()
    os.kill(before[0], signal.SIGKILL)
    instance.wait_for(lambda: len(set(instance.workers()) - {before[0]}) == 2, "another worker")
    assert all(own for own, _ in answers(instance))
    instance.wait_for_log("a worker begins", count=3)
    pids = instance.wait_for(
        lambda: {int(pid) for pid in re.findall(r"^forked (\d+)", instance.log, re.MULTILINE)} >= {*before, *instance.workers()},
        "the function of each worker",
    )
    assert pids
    assert len(findings(instance)) == 1


def test_code_that_workers_can_not_load_leaves_the_old_code_serving(shop, lazily):
    shop()
    instance = lazily()
    # The prototype loads it; a worker, whose parent is a prototype, does not.
    shop(
        TICKER
        + "import os\nwith open(f'/proc/{os.getppid()}/cmdline') as parent:\n    command = parent.read()\n"
        + "if 'prototype' in command:\n    raise KeyError('color')\n"
    )
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: generation 2 could not be loaded \(KeyError: 'color'\): generation 1 keeps serving")
    assert len(findings(instance)) == 1
    assert instance.body().startswith("False ")


def test_a_chain_reload_of_workers_that_load_takes_new_code(shop, lazily, tmp_path):
    (tmp_path / "touched").touch()
    shop(TICKER)
    instance = lazily("--touch-chain-reload", tmp_path / "touched")
    before = set(instance.workers())
    (tmp_path / "touched").write_text("x")
    instance.wait_for_log(r"chain reload \(.*\): 2 workers .*, one by one, each loads the application again$")
    instance.wait_for_log(r"chain reload: all workers are replaced$")
    wait_until(lambda: not before & set(instance.workers()), "the end of all workers of before")
