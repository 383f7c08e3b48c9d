"""Packages that were written for uWSGI's spooler, unchanged."""

import pytest
from support.spooler import Shop, jobs_in

TASKS = """\
from uwsgi_tasks import RetryTaskException, TaskExecutor, task
@task(executor=TaskExecutor.SPOOLER)
def send(address, subject):
    note(f"{subject}-{address}-{len(subject)}")
@task(executor=TaskExecutor.SPOOLER, retry_count=2, retry_timeout=1)
def flaky():
    note("flaky")
    raise RetryTaskException()
@task(executor=TaskExecutor.SPOOLER)
def large(data):
    note(str(len(data)))
def application(environ, start_response):
    start_response("200 OK", [])
    send("me", subject="hello")
    large("x" * 200_000)
    flaky()
    return [b"sent"]
"""


@pytest.fixture
def shop(serve, tmp_path):
    return Shop(serve, tmp_path, ["spooler-frequency = 1"], source=TASKS)


def test_uwsgi_tasks_sends_large_and_small_jobs_and_repeats_one(shop):
    assert shop.server.get("/").text == "sent"
    shop.wait_for_count(4)
    assert sorted(shop.words()) == ["200000", "flaky", "flaky", "hello-me-5"]
    shop.wait_until_empty()
    assert jobs_in(shop.jobs) == []
