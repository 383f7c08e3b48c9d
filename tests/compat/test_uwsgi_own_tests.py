"""uWSGI's own tests of its services, from its source distribution, run as they are: Bolide passes those that uWSGI passes."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest
from support.server import program

END_SECONDS = 120

#: The configurations whose script (`pyrun`) is the test, and how many tests each has.
SCRIPTS = {"t/cachebitmap": 15, "t/sharedarea/sharedarea_incdec": 5, "t/sharedarea/bigranges": 2}
#: Tests that fail with uWSGI too, because they compare text with bytes.
FAILS_WITH_UWSGI = {"t/cachebitmap": {"test_big_random"}}
#: uWSGI stores one item fewer than `items` says, and these tests count on that. Here `items` are as many as it says, which no
#: application of uWSGI can miss: what is kept in addition would have been refused or removed. The migration page lists it.
COUNTS_ONE_LESS = {"test_too_much_items", "test_big_delete", "test_lru"}
DIFFERENCES = {"t/cachebitmap": COUNTS_ONE_LESS}
#: Files of uWSGI's tests that are not run, with the reason.
#: `t/runner` is none of these: it needs plugins of other languages and the port 8000.
NOT_RUN = {
    "t/core/readline/__init__.py": "an application without a test",
    "t/core/readline/app.py": "an application without a test",
    "t/core/readline/client.py": "an application without a test",
    "t/cachetest.py": "an application without a test",
    "t/python/spooler_priority/spooler_priority_test.py": "its handler has the syntax of Python 2, and uWSGI fails it too",
    "t/python/spooler_priority/spooler_priority_handler.py": "belongs to spooler_priority_test.py",
    "t/python/spooler_priority/spooler_priority_constants.py": "belongs to spooler_priority_test.py",
    "t/spooler/cheap.py": "an application without a test",
    "t/spooler/read.py": "an application without a test",
    "t/spooler/reload.py": "an application without a test",
    "t/mules/mulebrain.py": "the mule of signal_management.py",
    "t/mules/reload.py": "an application without a test",
    "t/python/forcecl.py": "an application without a test",
    "t/python/helloapp.py": "an application without a test",
    "t/python/spooler_handler.py": "an application without a test",
    "t/python/testba.py": "an application without a test",
    "t/python/testmultipleenv.py": "an application without a test",
    "t/python/timers.py": "an application without a test",
    "t/python/wsgi_chunked.py": "an application without a test",
    "t/python/manage_script_name/useless_app.py": "an application without a test",
    "t/pypy/t_continulet1.py": "for PyPy",
    "t/pypy/t_continulet2.py": "for PyPy",
}
#: What belongs to the tests that are run.
RUN = {
    "t/python/spooler_decorators/spooler_decorator_tests.py",
    "t/python/spooler_decorators/spooler_handlers.py",
    "t/mules/signal_management.py",
    *(f"{name}.py" for name in SCRIPTS),
}


@pytest.fixture
def sources(uwsgi_sources, tmp_path):
    """A copy of uWSGI's tests: they write beside themselves."""
    shutil.copytree(uwsgi_sources / "t", tmp_path / "sources" / "t")
    return tmp_path / "sources"


@pytest.fixture
def alone():
    """The configurations share the sockets that they name below /tmp."""
    with open("/tmp/.uwsgi-own-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def outcome(command, sources, **variables):
    """Returns how many tests ran, and the names of those that failed."""
    done = subprocess.run(
        command,
        cwd=sources,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=END_SECONDS,
    )
    count = re.search(r"Ran (\d+) tests? in", done.stdout)
    assert count, done.stdout
    failed = set(re.findall(r"(?:FAIL|ERROR): (\w+) \(", done.stdout))
    return int(count[1]), failed, done


@pytest.mark.parametrize("name", SCRIPTS)
def test_uwsgis_own_scripts_pass_as_they_do_with_uwsgi(name, sources, uwsgi, alone):
    count, failed, _ = outcome([uwsgi, f"{name}.ini"], sources)
    assert (count, failed) == (SCRIPTS[name], FAILS_WITH_UWSGI.get(name, set()))
    count, failed, done = outcome([*program(), f"{name}.ini"], sources)
    assert (count, failed) == (SCRIPTS[name], FAILS_WITH_UWSGI.get(name, set()) | DIFFERENCES.get(name, set())), done.stdout
    assert done.returncode == (1 if failed else 0), done.stdout


def test_uwsgis_own_test_of_the_spoolers_decorators_passes(sources, alone):
    directory = sources / "t/python/spooler_decorators"
    (directory / "jobs").mkdir()
    variables = {"PYTHONPATH": str(directory), "SPOOLER_DIR": str(directory / "jobs")}
    command = [*program(), "t/python/spooler_decorators/spooler_decorator_test.ini"]
    count, failed, done = outcome(command, sources, **variables)
    assert (count, failed, done.returncode) == (1, set(), 0), done.stdout


#: Seconds that uWSGI's tests of mules allow a whole run, and what a busy machine needs instead. A mule that is not killed works
#: for longer.
SHORT = {
    "signal_management.py": {"started_at, 6)": "started_at, 60)", "started_at, 8)": "started_at, 60)"},
    "mulebrain.py": {"('test_mule_timeout', 10)": "('test_mule_timeout', 120)"},
}


def test_uwsgis_own_tests_of_mules_pass(sources):
    for name, longer in SHORT.items():
        path = sources / "t/mules" / name
        text = path.read_text()
        for before, after in longer.items():
            assert before in text
            text = text.replace(before, after)
        path.write_text(text)
    words = " ".join(f"'{word}'" for word in program())
    (sources / "uwsgi").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (sources / "uwsgi").chmod(0o755)
    count, failed, done = outcome([sys.executable, "t/mules/signal_management.py"], sources)
    assert (count, failed) == (4, set()), done.stdout


def test_each_of_uwsgis_python_files_is_run_or_named_with_its_reason(uwsgi_sources):
    found = {str(path.relative_to(uwsgi_sources)) for path in (uwsgi_sources / "t").rglob("*.py")}
    assert found == RUN | set(NOT_RUN)
