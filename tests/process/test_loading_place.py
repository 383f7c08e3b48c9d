"""Where the application is loaded, what workers can't have of it, and what is said of that."""

import os
import signal
import socket

import pytest

#: A thread of the application's own, started while it is imported, and what it has counted so far.
TICKING = """\
import os, threading, time
loaded_in, ticks = os.getpid(), 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.01)
threading.Thread(target=tick, name="ticker", daemon=True).start()
def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{loaded_in == os.getpid()} {threading.active_count()} {ticks}".encode()]
"""


def ticks_go_on(instance):
    """Whether two answers show that the thread of the application has run between them."""
    first = int(instance.body().split()[2])
    instance.wait_for(lambda: int(instance.body().split()[2]) > first, "the application's thread to go on")


@pytest.mark.parametrize("bare", [False, True], ids=["options", "application-alone"])
def test_threads_that_an_application_starts_while_it_is_imported_live_on_in_a_single_worker(bare, start, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    if bare:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        options = {"socket": None, "module": None}
        instance = start("shop:application", "--http", f"127.0.0.1:{port}", "--enable-threads", master=False, **options)
    else:
        instance = start("--enable-threads", module="shop", master=False)
    assert instance.body().startswith("True ")
    ticks_go_on(instance)
    instance.reload(2)
    ticks_go_on(instance)
    assert "WARNING: while it was loaded" not in instance.log


@pytest.mark.parametrize("options", [("--master",), ("--processes", "2"), ("--cheaper", "1", "--processes", "3")])
def test_with_a_master_the_application_is_loaded_once_and_lost_threads_are_named(options, start, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    instance = start(*options, module="shop", master=False)
    assert instance.body().startswith("False 1 ")
    (said,) = [line for line in instance.lines if "WARNING: while it was loaded" in line]
    assert "started 1 thread (ticker); workers are forked later: they do not have the threads" in said
    assert "`lazy-apps = true`" in said


def test_connections_that_workers_would_share_are_told_with_their_peers(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as database, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "cache.sock"))
        local.listen()
        port = database.getsockname()[1]
        (tmp_path / "shop.py").write_text(
            "import socket, asyncio\nfrom probe import application\n"
            f"pool = socket.create_connection(('127.0.0.1', {port}))\n"
            f"cache = socket.socket(socket.AF_UNIX)\ncache.connect({str(tmp_path / 'cache.sock')!r})\n"
            "listening = socket.create_server(('127.0.0.1', 0))\nloop = asyncio.new_event_loop()\n"
        )
        preloaded = start("--processes", "2", module="shop")
        (said,) = [line for line in preloaded.lines if "WARNING: while it was loaded" in line]
        assert f"opened 2 connections ({tmp_path}/cache.sock, 127.0.0.1:{port});" in said.replace(
            f"127.0.0.1:{port}, {tmp_path}/cache.sock", f"{tmp_path}/cache.sock, 127.0.0.1:{port}"
        )
        assert "would share the connections" in said
        lazy = start("--processes", "2", "--lazy-apps", module="shop")
        assert "WARNING: while it was loaded" not in lazy.log


def test_an_application_that_opens_nothing_is_not_warned_of(start):
    assert "WARNING: while it was loaded" not in start("--processes", "2").log


def test_a_worker_that_loads_the_application_itself_is_replaced_by_one_that_does(start, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    instance = start(module="shop", master=False, alarms=True)
    first = instance.worker()
    os.kill(first, signal.SIGKILL)
    instance.wait_for(lambda: instance.workers() not in ([], [first]), "another worker")
    assert instance.body().startswith("True ")
