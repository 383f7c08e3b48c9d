"""gevent at startup: it is patched in before the application is imported, and what is wrong is told with the line to write."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support_instance import LOAD_FAILED

#: Notes at its import whose functions the standard library has, and answers with them.
SHOP = """\
import json, os, socket, subprocess, threading, time
import early
seen = early.seen()
def application(environ, start_response):
    start_response("200 OK", [])
    return [json.dumps(answer(environ["PATH_INFO"])).encode()]
def answer(path):
    return {"seen": seen, "early": early.SEEN, "pid": os.getpid(), "loaded": early.PID}
"""
#: Imported by the application, or by options before it.
EARLY = """\
import os, socket, threading, time
def seen():
    return [socket.socket.__module__, time.sleep.__module__, threading.local.__module__]
SEEN, PID = seen(), os.getpid()
"""
PATCHED = ["gevent._socket3", "gevent.hub", "gevent._gevent_clocal"]
NATIVE = ["socket", "time", "_thread"]

PATCH = ("--gevent", "10", "--gevent-monkey-patch")
#: The line of the log if nothing is patched.
BLOCKS = "WARNING: gevent has not patched the standard library"
INSTALL = f"{sys.executable} -m pip install 'gevent>=23.7'"


@pytest.fixture
def shop(tmp_path):
    def shop(more="", before="", early=EARLY, name="shop.py"):
        (tmp_path / name).write_text(before + SHOP + more)
        (tmp_path / "early.py").write_text(early)

    shop()
    return shop


def answers(instance, target="/"):
    return json.loads(instance.body(target))


@pytest.fixture
def old(tmp_path):
    """Writes a module `gevent` into the application's directory."""

    def old(text):
        (tmp_path / "gevent.py").write_text(text)

    return old


@pytest.mark.parametrize(
    "options", [("--gevent", "10"), ("--async", "10", "--lazy-apps"), PATCH], ids=["gevent", "async", "patch"]
)
def test_without_gevent_the_start_fails_and_says_what_to_install(options, fail, tmp_path, shop):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    serve = ("--http-socket", "127.0.0.1:0", "--master", "--module", "shop", "-H", "bare")
    status, lines = fail(*serve, *options)
    assert status == LOAD_FAILED, lines
    assert f"command line: `{options[0][2:]} = 10` needs gevent" in lines[-1], lines
    assert f"environment {tmp_path}/bare: {tmp_path}/bare/bin/python -m pip install 'gevent>=23.7'" in lines[-1], lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__version__ = '21.12.0'\n", "`gevent = 10` needs gevent 23.7, and {prefix} has 21.12.0"),
        ("__version__ = '1.5a4'\n", "needs gevent 23.7, and {prefix} has 1.5a4"),
        ("", "needs gevent 23.7, and {prefix} has a module of that name"),
        (
            "raise ValueError('greenlet size changed')\n",
            "gevent in {prefix} can't be imported: ValueError: greenlet size changed",
        ),
        ("import greenlet_of_old\n", "gevent in {prefix} can't be imported: No module named 'greenlet_of_old'"),
    ],
    ids=["old", "ancient", "other", "broken", "incomplete"],
)
def test_a_gevent_that_does_not_work_fails_the_start_with_the_line_to_type(text, words, fail, old, shop):
    old(text)
    status, lines = fail("--http-socket", "127.0.0.1:0", "--master", "--module", "shop", "--gevent", "10")
    assert status == LOAD_FAILED, lines
    assert words.format(prefix=sys.prefix) in lines[-1], lines
    assert INSTALL in lines[-1], lines


def test_a_check_loads_the_application_as_a_start_does(call, old, tmp_path, shop):
    # A module that is imported at the wrong moment raises an exception.
    shop(before="import socket\nassert socket.socket.__module__.startswith('gevent')\n")
    lines = "[uwsgi]\nhttp = 127.0.0.1:0\nmaster = true\nmodule = shop\ngevent = 10\n"
    (tmp_path / "shop.ini").write_text(lines + "gevent-monkey-patch = true\n")
    status, said = call("check", "--load", "shop.ini")
    assert status == 0, said
    old("__version__ = '20.1'\n")
    status, said = call("check", "--load", "shop.ini")
    assert status != 0
    assert INSTALL in said
    assert "shop.ini:5: `gevent = 10` needs gevent" in said


FIRST = {
    "module": (),
    "import": ("--import", "early"),
    "shared-import": ("--shared-import", "early"),
    "alias": ("--pymodule-alias", "other=early"),
    "post-fork": ("--post-fork", "early:seen"),
}


@pytest.mark.parametrize("name", ["gevent-monkey-patch", "gevent-early-monkey-patch"])
@pytest.mark.parametrize("more", [(), ("--processes", "2"), ("--processes", "2", "--lazy-apps")], ids=["one", "prefork", "lazy"])
def test_the_standard_library_is_patched_before_the_application_is_imported(name, more, start, shop):
    instance = start("--gevent", "10", f"--{name}", *more, module="shop")
    found = answers(instance)
    assert (found["seen"], found["early"]) == (PATCHED, PATCHED)
    assert (found["loaded"] == found["pid"]) == ("--lazy-apps" in more)
    assert "gevent has not" not in instance.log
    assert "MonkeyPatchWarning" not in instance.log
    assert "while it was loaded" not in instance.log
    assert instance.stop() == 0


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_modules_of_options_are_imported_after_the_patch(first, start, shop):
    found = answers(start(*PATCH, *first, module="shop"))
    assert (found["seen"], found["early"]) == (PATCHED, PATCHED)


def test_the_file_of_gunicorn_is_executed_after_the_patch(start, shop, tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text(
        "import early\nbind = '127.0.0.1:0'\nworker_class = 'gevent'\nworker_connections = 7\n"
        "def post_fork(server, worker):\n    pass\n"
    )
    instance = start("-c", "gunicorn.conf.py", "shop", module=None, socket=None, master=False)
    assert answers(instance)["early"] == PATCHED
    assert "7 greenlets (gevent)" in instance.log


def test_each_generation_is_patched(start, shop):
    instance = start("--processes", "2", *PATCH, module="shop")
    for number in (2, 3):
        before = answers(instance)["loaded"]
        instance.reload(number)
        found = answers(instance)
        assert found["seen"] == PATCHED
        assert found["loaded"] != before


@pytest.mark.parametrize("options", [("--gevent", "10"), ("--async", "10", "--ugreen"), ("--loop", "gevent")])
@pytest.mark.parametrize("more", [(), ("--processes", "2", "--lazy-apps")], ids=["one", "lazy"])
def test_an_application_that_is_not_patched_is_told_so_once(options, more, start, shop):
    instance = start(*options, *more, module="shop")
    assert answers(instance)["seen"] == NATIVE
    (told,) = [line for line in instance.lines if BLOCKS in line]
    assert "write `gevent-monkey-patch = true`" in told


def test_an_application_that_patches_itself_is_told_nothing(start, shop):
    shop(before="from gevent import monkey\nmonkey.patch_all()\n")
    instance = start("--gevent", "10", module="shop")
    assert answers(instance)["seen"] == PATCHED
    assert BLOCKS not in instance.log


def test_an_application_that_patches_itself_too_late_is_told_so_by_gevent(start, shop):
    shop(before="from ssl import SSLContext\nfrom gevent import monkey\nmonkey.patch_all()\n")
    instance = start("--gevent", "10", module="shop")
    instance.wait_for_log("MonkeyPatchWarning: Monkey-patching ssl after ssl has already been imported")


#: A greenlet that was started at import, and uses the loop while the application is loaded.
TICKER = """
ticks = []
def tick():
    while True:
        ticks.append(os.getpid())
        time.sleep(0.01)
threading.Thread(target=tick, name="ticker", daemon=True).start()
time.sleep(0.001)
def answer(path):
    time.sleep(0.05)
    return {"ticks": ticks.count(os.getpid()), "names": [thread.name for thread in threading.enumerate()]}
"""


def test_a_thread_that_was_started_at_the_import_lives_on_in_each_worker(start, shop):
    # It is a greenlet then, and the loop is the worker's own.
    shop(TICKER)
    instance = start("--processes", "2", "--fork-safety", "refuse", *PATCH, module="shop")
    assert len(instance.workers()) == 2
    found = answers(instance)
    assert found["ticks"] > 0
    assert "while it was loaded" not in instance.log
    assert instance.stop() == 0


def test_a_connection_that_is_opened_at_the_import_is_told_as_ever(start, shop, tmp_path):
    shop("server = socket.create_server(('127.0.0.1', 0))\nclient = socket.create_connection(server.getsockname())\n")
    instance = start("--processes", "2", *PATCH, module="shop")
    instance.wait_for_log(
        r"the application opened 1 connection \(127\.0\.0\.1:\d+ at shop\.py:\d+\); workers, which are forked later,"
    )
    assert instance.stop() == 0


CHILDREN = """
import multiprocessing
def in_child(queue):
    queue.send(os.getpid())
def answer(path):
    if path == "/subprocess":
        return subprocess.run(["echo", "hello"], capture_output=True, timeout=30).stdout.decode().strip()
    if path == "/fork":
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            time.sleep(0.001)
            os.write(writer, b"hello")
            os._exit(3)
        status = os.waitpid(child, 0)[1]
        return f"{os.read(reader, 9).decode()} {os.waitstatus_to_exitcode(status)}"
    if path == "/multiprocessing":
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(theirs,))
        child.start()
        child.join()
        return "hello" if ours.recv() == child.pid else "other"
"""


@pytest.mark.parametrize("more", [(), ("--processes", "2", "--lazy-apps")], ids=["prefork", "lazy"])
def test_views_have_children_with_a_patched_library(more, start, shop):
    shop(CHILDREN)
    instance = start(*PATCH, *more, module="shop")
    for _ in range(2):
        assert answers(instance, "/subprocess") == "hello"
        assert answers(instance, "/fork") == "hello 3"
        assert answers(instance, "/multiprocessing") == "hello"
    assert instance.stop() == 0


BESIDE = """
import gevent
def answer(path):
    if path == "/wait":
        open("waits", "w").close()
        gevent.sleep(0.2)
        return os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # The other request's sleep ends in the meantime, also in the loop of this process.
        gevent.sleep(0.3)
        os.write(writer, b"hello")
        os._exit(0)
    os.close(writer)
    while not gevent.select.select([reader], [], [], 30)[0]:
        pass
    gevent.os.waitpid(child, 0)
    return os.read(reader, 9).decode()
"""


@pytest.mark.parametrize("options", [("--gevent", "10"), PATCH], ids=["native", "patched"])
def test_a_request_beside_one_that_forks_is_answered_once(options, start, shop, tmp_path):
    shop(BESIDE, before="import gevent, gevent.os, gevent.select\n")
    instance = start(*options, module="shop")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(answers, instance, "/wait")
        instance.wait_for((tmp_path / "waits").exists, "the waiting request")
        assert answers(instance, "/fork") == "hello"
        assert waiting.result() == instance.worker()
    assert instance.stop() == 0


def test_a_mule_is_patched_and_ends_when_it_must(start, shop, tmp_path):
    shop("def work():\n    open('mule', 'w').write(json.dumps(early.seen()))\n    while True:\n        time.sleep(3600)\n")
    instance = start(*PATCH, "--mule=shop:work", module="shop")
    instance.wait_for(lambda: (tmp_path / "mule").exists() and (tmp_path / "mule").read_text(), "the note of the mule")
    assert json.loads((tmp_path / "mule").read_text()) == PATCHED
    instance.reload(2)
    assert instance.stop() == 0


def test_a_spooler_is_patched(start, shop, tmp_path):
    shop(
        "import uwsgi\ndef spooled(job):\n    time.sleep(0.01)\n    open('note', 'w').write(json.dumps(early.seen()))\n"
        "    return uwsgi.SPOOL_OK\nuwsgi.spooler = spooled\n"
        "def answer(path):\n    uwsgi.spool({b'name': b'x'})\n    return 'sent'\n"
    )
    (tmp_path / "jobs").mkdir()
    # A spooler works in its directory.
    note = tmp_path / "jobs" / "note"
    instance = start(*PATCH, "--spooler", "jobs", module="shop")
    assert answers(instance) == "sent"
    instance.wait_for(lambda: note.exists() and note.read_text(), "the note of the job")
    assert json.loads(note.read_text()) == PATCHED


def test_a_module_that_a_view_imports_is_watched(start, shop, tmp_path):
    shop("def answer(path):\n    import late\n    return late.TEXT\n")
    (tmp_path / "late.py").write_text("TEXT = 'old'\n")
    instance = start(*PATCH, "--py-autoreload", "1", module="shop", master=False)
    assert answers(instance) == "old"

    def changed():
        # The master may not know of the module yet. A change that it has seen must not abandon the generation that loads it.
        if "late.py has changed" not in instance.log:
            (tmp_path / "late.py").write_text(f"TEXT = 'young'\n# {os.urandom(8).hex()}\n")
        return answers(instance) == "young"

    instance.wait_for(changed, "the change")


def test_a_probe_that_blocks_the_loop_does_not_become_a_generation(start, shop, tmp_path):
    (tmp_path / "slow").write_text("")
    shop("def answer(path):\n    while path == '/health' and os.path.exists('hang'):\n        pass\n    return 'fine'\n")
    instance = start(*PATCH, "--reload-probe", "/health", "--reload-probe-timeout", "5", module="shop", alarms=True)
    # The limit is also that of this generation, whose probe is answered.
    instance.reload(2)
    (tmp_path / "hang").write_text("")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"reload-probe: GET /health did not answer within 5 s")
    assert answers(instance) == "fine"


ASGI = """\
import asyncio, threading
async def application(scope, receive, send):
    if scope["type"] == "http":
        text = await asyncio.get_running_loop().run_in_executor(None, lambda: b"hello")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text})
"""


def test_an_asgi_application_is_served_by_its_loop_and_a_line_says_so(start, tmp_path):
    (tmp_path / "shop.py").write_text(ASGI)
    instance = start("--gevent", "10", module="shop")
    assert instance.body() == "hello"
    assert "bolide: command line: `gevent = 10` has no effect: an event loop serves ASGI applications" in instance.log
    assert BLOCKS not in instance.log


@pytest.mark.parametrize("more", [(), ("--processes", "2", "--lazy-apps")], ids=["one", "lazy"])
def test_a_patched_asgi_application_is_not_served(more, fail, tmp_path):
    # Its threads would be greenlets, which run beside no event loop.
    (tmp_path / "shop.py").write_text(ASGI)
    status, lines = fail("--http-socket", "127.0.0.1:0", "--master", "--module", "shop", *PATCH, *more)
    assert status == LOAD_FAILED, lines
    assert "`gevent = 10`: the application is ASGI, and its threads would never run" in lines[-1], lines
    assert "leave `gevent-monkey-patch` (gunicorn's `-k gevent`) out" in lines[-1], lines


def test_a_named_asgi_application_needs_no_gevent(start, tmp_path):
    (tmp_path / "shop.py").write_text(ASGI)
    (tmp_path / "gevent.py").write_text("raise RuntimeError('imported')\n")
    instance = start(*PATCH, "--asgi", "shop", module=None)
    assert instance.body() == "hello"
    assert "`gevent = 10` has no effect: it is for WSGI applications" in instance.log


LINES = {
    "async": ("--async", "10", "--greenlet"),
    "asyncio": ("--asyncio", "10"),
    "tornado": ("--tornado", "10"),
    "loop": ("--loop", "async", "--async", "10"),
}


@pytest.mark.parametrize("options", LINES.values(), ids=LINES)
def test_uwsgis_other_engines_are_served_in_greenlets_and_a_line_says_so(options, start, shop):
    shop(
        "import gevent, uwsgi\ndef answer(path):\n    uwsgi.async_sleep(0.001)\n    uwsgi.suspend()\n"
        "    return repr(gevent.getcurrent())\n"
    )
    instance = start(*options, module="shop")
    assert "greenlet" in answers(instance).lower()
    assert re.search(r"note: `\w+ = \w+`: requests run as gevent's greenlets, so gevent must be installed", instance.log)
    assert "10 greenlets (gevent)" in instance.log


def test_a_line_of_gunicorn_serves_in_greenlets(start, shop):
    shop("import gevent\ndef answer(path):\n    return [repr(gevent.getcurrent()), early.SEEN]\n")
    bind = (
        "--bind",
        "127.0.0.1:0",
        "-k",
        "gevent",
        "--worker-connections",
        "9",
        "--threads",
        "4",
        "shop:application",
    )
    instance = start(*bind, module=None, socket=None, master=False)
    greenlet, seen = answers(instance)
    assert "greenlet" in greenlet.lower()
    assert seen == PATCHED
    assert "9 greenlets (gevent)" in instance.log
    assert re.search(r"note: `threads = 4` has no effect for WSGI applications: `gevent = 9`", instance.log)


@pytest.mark.parametrize(("waits", "seconds"), [(True, 0.3), (False, 3600)])
def test_the_end_of_a_worker_waits_for_the_applications_greenlets_if_it_is_asked_to(waits, seconds, start, shop, tmp_path):
    shop(
        f"import gevent\ndef work():\n    gevent.sleep({seconds})\n    open('done', 'w').close()\n"
        "def answer(path):\n    gevent.spawn(work)\n    return 'fine'\n"
    )
    options = ("--gevent-wait-for-hub",) if waits else ()
    instance = start(*PATCH, *options, module="shop")
    assert answers(instance) == "fine"
    assert instance.stop() == 0
    assert (tmp_path / "done").exists() == waits
