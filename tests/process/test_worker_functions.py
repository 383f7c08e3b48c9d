"""Functions of the application that each worker calls when it starts and when it ends."""

import os
import signal

import pytest

WSGI = """\
def application(environ, start_response):
    start_response("200 OK", [])
    return [told()]
"""
ASGI = """\
async def application(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": told()})
"""
SHOP = """\
import os, time
opened, notes = [], os.path.join(os.path.dirname(__file__), "notes")
def note(what):
    with open(notes, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")
def open_all():
    opened.append(os.getpid())
    note("opened")
def failing():
    raise RuntimeError("no such drawer")
def forget():
    note("forgot")
def stuck():
    note("stuck")
    time.sleep(600)
def told():
    return f"{os.getpid()} {opened}".encode()
"""

INTERFACES = {"wsgi": ("module = shop:application", WSGI), "asgi": ("asgi = shop:application", ASGI)}


@pytest.fixture
def shop(serve, tmp_path):
    """Starts a server with the shop and additional options. Returns it and the function that reads its notes."""

    def start(interface, *options, source=""):
        option, application = INTERFACES[interface]
        (tmp_path / "shop.py").write_text(SHOP + application + source)
        instance = serve("\n".join([f"chdir = {tmp_path}", option, *options]))

        def notes(what):
            file = tmp_path / "notes"
            pairs = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
            return [int(pid) for word, pid in pairs if word == what]

        return instance, notes

    return start


@pytest.mark.parametrize("loading", ["master = true", "lazy-apps = true", ""], ids=["prototype", "lazy", "alone"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_each_worker_calls_post_fork_before_it_serves_and_worker_exit_when_it_ends(interface, loading, shop):
    count = 2 if loading else 1
    instance, notes = shop(interface, loading, f"processes = {count}", "post-fork = shop:open_all", "worker-exit = shop:forget")
    assert len(notes("opened")) == count
    pid, opened = instance.get("/").text.split(maxsplit=1)
    assert opened == f"[{pid}]"
    assert notes("forgot") == []
    instance.send_signal(signal.SIGHUP)
    instance.wait_for(lambda: len(notes("forgot")) == count, "the old workers' end")
    assert sorted(notes("forgot")) == sorted(notes("opened")[:count])
    assert instance.stop() == 0
    assert sorted(notes("forgot")) == sorted(notes("opened"))
    assert len(notes("forgot")) == 2 * count


def test_a_function_that_fails_is_in_the_log_and_the_worker_serves(shop):
    instance, notes = shop("wsgi", "post-fork = shop:failing", "post-fork = shop:open_all", "worker-exit = shop:failing")
    assert len(notes("opened")) == 1
    assert instance.get("/").status == 200
    assert instance.stop() == 0
    for option in ("post-fork", "worker-exit"):
        instance.wait_for_text(f"an exception in {option} = shop:failing")
    assert instance.log.count("RuntimeError: no such drawer") == 2


def test_a_function_that_does_not_come_back_is_left_behind(shop):
    instance, notes = shop("wsgi", "worker-exit = shop:stuck")
    (worker,) = [instance.worker()]
    assert instance.stop() == 0
    assert notes("stuck") == [worker]
    instance.wait_for_text("stops waiting for worker-exit = shop:stuck")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("post-fork = shop:nothing", "'shop' has no 'nothing'"),
        ("worker-exit = shop:notes", "'shop:notes' is a str, which can't be called"),
        ("worker-exit = nowhere:forget", "there is no module 'nowhere' for the function 'nowhere:forget'"),
        ("post-fork = shop.open_all", "does not contain a function"),
    ],
)
def test_a_function_that_is_not_there_fails_the_start(option, said, serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP + WSGI)
    instance = serve.prepare(f"chdir = {tmp_path}\nmodule = shop:application\n{option}").launch()
    assert instance.wait_for_exit() != 0
    instance.wait_for_text(said)
    instance.wait_for_text("uwsgi.ini:5")


def test_uwsgis_own_hooks_are_called_too(shop):
    source = """
import uwsgi, uwsgidecorators
uwsgi.post_fork_hook = lambda: note("hook")
uwsgi.atexit = lambda: note("atexit")
uwsgidecorators.postfork(lambda: note("decorated"))
@uwsgidecorators.postfork(2)
def second():
    note(f"second{uwsgi.worker_id()}")
"""
    instance, notes = shop("wsgi", "processes = 2", source=source)
    assert len(notes("hook")) == len(notes("decorated")) == 2
    assert len(notes("second2")) == 1
    assert notes("second1") == []
    assert instance.stop() == 0
    assert sorted(notes("atexit")) == sorted(notes("hook"))


def test_a_worker_that_is_replaced_calls_worker_exit(shop):
    instance, notes = shop("wsgi", "processes = 1", "master = true", "worker-exit = shop:forget")
    worker = instance.worker()
    os.kill(worker, signal.SIGTERM)
    instance.wait_for(lambda: notes("forgot") == [worker], "the worker's end")


def test_a_prometheus_gauge_forgets_workers_that_have_ended(shop, tmp_path):
    pytest.importorskip("prometheus_client")
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    source = """
from prometheus_client import CollectorRegistry, Gauge, generate_latest, multiprocess
alive = Gauge("alive", "workers", multiprocess_mode="livesum")
def begin():
    alive.set(1)
def end():
    multiprocess.mark_process_dead(os.getpid())
def told():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return generate_latest(registry)
"""
    instance, _ = shop(
        "wsgi",
        "processes = 2",
        f"env = PROMETHEUS_MULTIPROC_DIR={metrics}",
        "post-fork = shop:begin",
        "worker-exit = shop:end",
        source=source,
    )
    assert "\nalive 2.0" in instance.get("/").text
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"ready: 2 workers of generation 2")
    # A prototype has a file as well, which is empty.
    instance.wait_for(lambda: len(list(metrics.glob("gauge_livesum_*.db"))) == 4, "the old workers to be forgotten")
    assert "\nalive 2.0" in instance.get("/").text
