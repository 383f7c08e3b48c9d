"""`develop`: a request after a save sees the new code, or the reason why it can't be loaded, and never the old page."""

import json
import os
import threading
import time

import pytest
from support.waiting import wait_until
from support_develop import APP, ASGI, BROWSER, GEVENT

#: A module whose import takes until a file is there.
WAITING = """\
import pathlib, time
def until(path):
    while not path.exists():
        time.sleep(0.02)
until(pathlib.Path({path!r}))
TEXT = "{text}"
"""


@pytest.fixture
def package(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "views.py").write_text('TEXT = "old"\n')
    return directory


@pytest.fixture
def develop(start, package):
    def develop(application, *options, **others):
        (package / "__init__.py").write_text(application)
        return start("--reload", *options, module="shop", master=False, **others)

    return develop


@pytest.fixture
def save(package, tmp_path, call):
    """Saves a module whose import takes until the returned path exists."""

    def save(instance, text):
        ready = tmp_path / "ready"
        with instance.looks_away():
            (package / "views.py").write_text(WAITING.format(path=str(ready), text=text))
        instance.wait_for_text("shop/views.py has changed: reloading")
        wait_until(lambda: old_worker_waits(call, instance), "the worker to let requests wait")
        return ready

    return save


def old_worker_waits(call, instance):
    """With `stop-first`, the old worker has exited instead."""
    workers = json.loads(call("status", "--json", instance.pid)[1])["workers"]
    return all(worker["state"] == "paused" for worker in workers if worker["generation"] == 1)


def asked(ask):
    """Begins a request in a thread. Returns the thread, and the list that its answer goes to."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


@pytest.mark.parametrize(("application", "options"), [(APP, ()), (ASGI, ()), (APP, GEVENT)], ids=["wsgi", "asgi", "gevent"])
def test_requests_after_a_save_wait_for_the_new_code_on_new_and_on_kept_connections(application, options, develop, save):
    instance = develop(application, *options)
    kept = instance.connect()
    assert instance.body(connection=kept) == "old"
    ready = save(instance, "young")
    requests = [asked(instance.body), asked(lambda: instance.body(connection=kept))]
    # Both are on their way before the import ends: a worker that did not wait would answer within this time.
    for thread, _ in requests:
        thread.join(0.3)
        assert thread.is_alive()
    ready.touch()
    for thread, answers in requests:
        thread.join()
        assert answers == ["young"]


def test_a_browser_that_asks_after_a_save_of_broken_code_sees_the_reason_and_programs_get_the_old_code(develop, save):
    instance = develop(APP)
    # The line in the log does not show that the worker lets requests wait.
    ready = save(instance, 'young" + prices + "')
    thread, answers = asked(lambda: instance.get("/", BROWSER))
    ready.touch()
    thread.join()
    (page,) = answers
    assert page.status == 500
    assert "NameError" in page.text
    assert instance.body() == "old"


def test_with_stop_first_requests_wait_too(develop, save):
    instance = develop(APP, "--reload-order", "stop-first")
    ready = save(instance, "young")
    thread, answers = asked(instance.body)
    ready.touch()
    thread.join()
    assert answers == ["young"]


def test_an_import_that_takes_long_is_told_in_the_log_and_to_browsers(develop, save, tmp_path):
    # Python itself starts late, as on a busy machine: the page is written later than requests would wait otherwise.
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text("import time\ntime.sleep(1)\n")
    instance = develop(APP, environment={"PYTHONPATH": str(slow)})
    ready = save(instance, "young")
    instance.wait_for_log(r"loading the application takes longer than 5 s; it is at shop/views\.py:\d in until")
    page = instance.get("/", BROWSER)
    assert (page.status, "shop/views.py" in page.text) == (503, True)
    assert "The new code has been loading for" in page.text
    assert instance.body() == "old"
    ready.touch()
    wait_until(lambda: instance.get("/", BROWSER).text == "young", "the new code")


def test_a_second_save_of_the_same_size_within_a_second_is_seen(develop, package):
    # Without this, tests run without bytecode files.
    instance = develop(APP, environment={"PYTHONDONTWRITEBYTECODE": ""})
    views = package / "views.py"
    # However slow the machine is, this second is not over.
    second = int(time.time()) + 3600
    for part, text in enumerate(("one", "two")):
        with instance.looks_away():
            views.write_text(f'TEXT = "{text}"\n')
            os.utime(views, ns=(second * 10**9 + part,) * 2)
        wait_until(lambda text=text: instance.body() == text, "the new code")


def test_a_pause_while_requests_wait_for_new_code_is_the_users_and_outlives_code_that_does_not_load(develop, save, call):
    instance = develop(APP)
    ready = save(instance, 'young" + prices + "')
    assert call("pause", instance.pid)[0] == 0
    instance.wait_for_text("paused (")
    ready.touch()
    instance.wait_for_text("the new code could not be loaded")
    assert json.loads(call("status", "--json", instance.pid)[1])["paused"]
