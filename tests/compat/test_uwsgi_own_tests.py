"""uWSGI's own tests of the services, from its source distribution: Bolide passes those that uWSGI passes."""

import json

import pytest
from support.client import Client
from support.real_uwsgi import real_uwsgi

#: Runs the tests of a file while the application is loaded. The files run themselves (`pyrun`), which would end the process.
RUNNER = """\
import json, sys, unittest
unittest.main = lambda: None
tests = type(sys)("tests")
exec(compile(open({path!r}).read(), {path!r}, "exec"), vars(tests))
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromModule(tests).run(result)
failed = {{test.id(): text for test, text in result.failures + result.errors}}
answer = json.dumps([result.testsRun, failed]).encode()
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]
"""
#: The files, without `.py`, and how many tests each has.
FILES = {"t/cachebitmap": 15, "t/sharedarea/sharedarea_incdec": 5, "t/sharedarea/bigranges": 2}
#: Tests that fail with uWSGI too, because they compare text with bytes.
FAILS_WITH_UWSGI = {"t/cachebitmap": {"tests.BitmapTest.test_big_random"}}
#: uWSGI stores one item fewer than `items` says, and these tests count on that.
COUNTS_ONE_LESS = {"test_too_much_items", "test_big_delete", "test_lru"}
DIFFERENCES = {"t/cachebitmap": {f"tests.BitmapTest.{name}" for name in COUNTS_ONE_LESS}}


def settings_of(file):
    """The options of a test's ini file, without its socket and its script."""
    lines = file.read_text().splitlines()
    return [line for line in lines if line.startswith(("cache2", "sharedarea"))]


def answer(address):
    with Client(address) as client:
        return json.loads(client.request().text)


@pytest.mark.parametrize("name", FILES)
def test_uwsgis_own_tests_pass_as_they_do_with_uwsgi(name, uwsgi_sources, uwsgi, serve, tmp_path, free_port):
    (tmp_path / "own.py").write_text(RUNNER.format(path=str(uwsgi_sources / f"{name}.py")))
    settings = "\n".join([f"wsgi-file = {tmp_path}/own.py", "master = true", *settings_of(uwsgi_sources / f"{name}.ini")])
    with real_uwsgi(uwsgi, tmp_path / "uwsgi", free_port(), settings) as address:
        count, failed = answer(address)
    assert count == FILES[name]
    assert set(failed) == FAILS_WITH_UWSGI.get(name, set())
    count, failed = answer(serve(settings).address())
    assert count == FILES[name]
    assert set(failed) == FAILS_WITH_UWSGI.get(name, set()) | DIFFERENCES.get(name, set()), failed
