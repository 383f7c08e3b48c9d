"""A slow start: after a while the log says which process is waited for, and shows its stack."""

#: Shortens the half minute until then.
SOON = {"BOLIDE_TEST_NOTICE_MS": "300"}

HANGING = """
import time
def wait_for_the_database():
    time.sleep(300)
wait_for_the_database()
"""

LIFESPAN = """
import asyncio
async def wait_for_the_database():
    await asyncio.sleep(300)
async def application(scope, receive, send):
    await receive()
    await wait_for_the_database()
"""


#: The import is told after half of this time, which is sooner than after 5 s. A busy machine needs some of it to come so far.
LIMITED = ("--http-socket", "127.0.0.1:0", "--module", "shop", "--load-timeout", "9")
SERVING = """
from wsgiref.simple_server import make_server
def run():
    make_server("127.0.0.1", 0, None).serve_forever()
run()
"""


def test_an_import_that_does_not_end_is_named_with_its_line(fail, tmp_path):
    (tmp_path / "shop.py").write_text(HANGING)
    _, lines = fail(*LIMITED)
    told = "loading the application takes longer than 4.5 s; it is at shop.py:4 in wait_for_the_database"
    assert [line for line in lines if line.endswith(told)], lines
    assert lines[-1].startswith("bolide: the application could not be loaded: it was not ready within 9 s (load-timeout)")
    assert not [line for line in lines if "reload" in line]


def test_an_import_that_does_not_end_is_named_with_its_line_in_a_worker_with_gevent_too(start, tmp_path):
    (tmp_path / "shop.py").write_text("def compute():\n    while True:\n        pass\ncompute()\n")
    # The thread that looks gets the interpreter between two turns of the loop, on a busy machine late.
    instance = start("--gevent", "10", "--gevent-monkey-patch", module="shop", ready=False)
    instance.wait_for_log(r"loading the application takes longer than 5 s; it is at shop\.py:[123] in compute$")


#: Its import waits in C code, so the innermost frames are those of importlib.
STUCK_IN_IMPORT = """\
import contextlib, functools, os, sys
# The finder below stops all imports, those of the thread that looks too.
from bolide.development import traceback_page
_, writer = os.pipe()
os.set_blocking(writer, False)
for size in (65536, 1):
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(size))
os.set_blocking(writer, True)
full = open(writer, "w")
sys.meta_path.insert(0, type("Finder", (), {"find_spec": functools.partial(print, file=full, flush=True)}))
import slow_one
"""


def test_an_installed_application_that_does_not_load_is_named_with_the_module_that_it_imports(start, tmp_path):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "installed.py").write_text(STUCK_IN_IMPORT)
    instance = start("--pythonpath", packages, module="installed", ready=False)
    instance.wait_for_log(
        r"loading the application takes longer than 5 s; it is at \S*installed\.py:13 in <module>, which imports slow_one$"
    )


def test_a_module_that_runs_a_server_of_its_own_is_told_what_to_do(start, tmp_path):
    (tmp_path / "shop.py").write_text(SERVING)
    instance = start(module="shop", ready=False)
    instance.wait_for_log(
        r"it is at shop\.py:4 in run, where the module runs a server of its own \(socketserver\) and never returns: "
        r'write that call below `if __name__ == "__main__":`$'
    )


def test_a_worker_that_does_not_come_to_serve_is_named_with_its_stack(start, tmp_path):
    (tmp_path / "shop.py").write_text(HANGING)
    instance = start("--lazy-apps", "--processes", "2", module="shop", ready=False, environment=SOON)
    for number in (1, 2):
        instance.wait_for_log(rf"^bolide: worker {number} \(pid \d+\) is not ready yet; its stack:$")
    instance.wait_for_log("in wait_for_the_database$", count=2)
    assert instance.stop() == 0
    assert "bolide: stop: the application is still being loaded; " in instance.log


def test_a_lifespan_that_does_not_start_is_named_with_its_stack(start, tmp_path):
    (tmp_path / "shop.py").write_text(LIFESPAN)
    instance = start("--asgi", "shop", module=None, ready=False, environment=SOON)
    instance.wait_for_log(
        r"^bolide: worker 1: the application's lifespan has not reported for 0.3 s that its startup is complete; it is waiting "
        r"here:$"
    )
    instance.wait_for_log("^worker 1: .* in wait_for_the_database$")
    assert instance.stop() == 0
