"""Which process loads the application, its effects that workers cannot inherit, and the messages about that."""

import os
import re
import signal
import socket

import pytest

#: An application thread, started at import, and its counter.
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
    """Returns whether two responses show that the application thread has run between them."""
    first = int(instance.body().split()[2])
    instance.wait_for(lambda: int(instance.body().split()[2]) > first, "the application's thread to go on")


@pytest.mark.parametrize("bare", [False, True], ids=["options", "application-alone"])
def test_threads_that_an_application_starts_while_it_is_imported_live_on_in_a_single_worker(bare, start, tmp_path, free_port):
    (tmp_path / "shop.py").write_text(TICKING)
    if bare:
        options = {"socket": None, "module": None}
        instance = start("shop:application", "--http", f"127.0.0.1:{free_port()}", "--enable-threads", master=False, **options)
    else:
        instance = start("--enable-threads", module="shop", master=False)
    assert instance.body().startswith("True ")
    ticks_go_on(instance)
    instance.reload(2)
    ticks_go_on(instance)
    assert "WARNING: while it was loaded" not in instance.whole_log()


@pytest.mark.parametrize("options", [("--master",), ("--processes", "2"), ("--cheaper", "1", "--processes", "3")])
def test_with_a_master_the_application_is_loaded_once_and_lost_threads_are_named(options, start, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    instance = start(*options, module="shop", master=False)
    assert instance.body().startswith("False 1 ")
    (said,) = [line for line in instance.lines if "WARNING: while it was loaded" in line]
    assert "started 1 thread (ticker at shop.py:8); workers, which are forked later, do not have the threads" in said
    assert "`lazy-apps = true`" in said


def test_connections_that_workers_would_share_are_reported_with_their_peers(start, tmp_path):
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
        opened = f"{tmp_path}/cache.sock at shop.py:5, 127.0.0.1:{port} at shop.py:3"
        assert f"opened 2 connections ({opened}) and 1 event loop (epoll at shop.py); workers, which are forked later," in said
        assert "would share what is open" in said
        lazy = start("--processes", "2", "--lazy-apps", module="shop")
        assert "WARNING: while it was loaded" not in lazy.log


def test_descriptors_of_a_library_are_reported_at_the_applications_line(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as database:
        port = database.getsockname()[1]
        (tmp_path / "models.py").write_text(
            "import concurrent.futures, http.client\n"
            f"client = http.client.HTTPConnection('127.0.0.1', {port})\n"
            "client.connect()\n"
            "pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='pool')\n"
            "pool.submit(int)\n"
        )
        (tmp_path / "shop.py").write_text("import models\nfrom probe import application\n")
        instance = start("--processes", "2", module="shop")
    (said,) = [line for line in instance.lines if "WARNING: while it was loaded" in line]
    assert "started 1 thread (pool_0 at models.py:5)" in said
    assert f"opened 1 connection (127.0.0.1:{port} at models.py:3)" in said


def test_the_instrumentation_of_loading_is_removed_in_workers(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import importlib.machinery, socket, threading\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    ours = [threading.Thread.start, socket.socket.connect, importlib.machinery.SourceFileLoader.exec_module]\n"
        "    return [repr([getattr(one, '__module__', '') for one in ours]).encode()]\n"
    )
    assert "bolide" not in start("--processes", "2", module="shop").body()


def test_a_failed_import_is_logged_without_the_servers_own_frames(fail, tmp_path):
    (tmp_path / "shop.py").write_text("import models\n")
    (tmp_path / "models.py").write_text("import parts\n")
    (tmp_path / "parts.py").write_text("raise KeyError('color')\n")
    _, lines = fail("--socket", tmp_path / "socket", "--processes", "2", "--module", "shop")
    files = re.findall(r'File "(.*)", line', "\n".join(lines))
    assert [os.path.basename(file) for file in files] == ["shop.py", "models.py", "parts.py"]


def test_a_warning_about_an_import_names_the_importing_module(start, tmp_path):
    (tmp_path / "old.py").write_text("import warnings\nwarnings.warn('old is old', stacklevel=2)\n")
    (tmp_path / "shop.py").write_text(
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')\n    import old\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [repr([(one.filename.rpartition('/')[2], one.lineno) for one in seen]).encode()]\n"
    )
    assert start("--processes", "2", module="shop").body() == "[('shop.py', 4)]"


def test_code_that_opens_something_is_refused_where_that_is_asked_for(start, fail, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--processes", "2", "--fork-safety", "refuse", module="shop")
    (tmp_path / "shop.py").write_text(TICKING)
    instance.send_signal(signal.SIGHUP)
    said = instance.wait_for_log(r"^bolide: generation 2 could not be loaded \((.*)\): generation 1 keeps serving")
    assert "started 1 thread (ticker at shop.py:8)" in said[1]
    assert "(fork-safety = refuse)" in said[1]
    assert instance.body().isdigit()


def test_an_application_that_opens_nothing_is_not_warned_of(start):
    assert "WARNING: while it was loaded" not in start("--processes", "2").log


def test_a_worker_that_loads_the_application_itself_is_replaced_by_one_that_does(start, tmp_path):
    (tmp_path / "shop.py").write_text(TICKING)
    instance = start(module="shop", master=False, alarms=True)
    first = instance.worker()
    os.kill(first, signal.SIGKILL)
    instance.wait_for(lambda: instance.workers() not in ([], [first]), "another worker")
    assert instance.body().startswith("True ")
