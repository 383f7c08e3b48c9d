"""`refork-after`: a worker that has served becomes the prototype of its generation, and the others are forked from it. If its
application has opened what processes can't share, nothing happens but its replacement.
"""

import json
import os
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.metrics import metrics_address, value_of
from support.postgresql import Postgresql
from support.waiting import wait_until
from support_load import Load
from support_processes import children_of, descriptors_of, status_field
from support_upgrade import HELD, pidfile, upgrade
from support_upgrade import stop as stop_upgraded

#: The application: what a request makes stays in the process, and its forks have it.
SHOP = """\
import os, random, threading, time, uuid
made = []
def opened():
{opened}
def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/open":
        made.append(opened())
    if path == "/slow":
        time.sleep(0.3)
    said = {{"/made": len(made), "/random": random.random(), "/uuid": uuid.uuid4(), "/threads": threading.active_count()}}
    # Requests that come in the meantime go to another worker.
    time.sleep(0.005)
    start_response("200 OK", [])
    return [f"{{os.getpid()}} {{said.get(path, '')}}".encode()]
"""
NOTHING = "    return None"
PROCESSES = 3
REQUESTS = 5
#: Concurrent requests: more than all workers can accept.
CLIENTS = 8

CHOSEN = r"refork-after: worker \d \(pid \d+\) has answered \d+ requests: the other workers will be forked from it$"
SUCCEEDED = r"refork-after: the prototype of generation 1 \(pid (\d+)\) forks workers from now on$"
DONE = (
    r"refork-after: 3 workers forked from one that has served: private memory of a worker was \d+\.\d MB on average, and begins "
    r"with \d+\.\d MB$"
)
REFUSED = r"refork-after: the other workers can't be forked from this one: (.*)$"


@pytest.fixture
def refork(start, tmp_path):
    def refork(*options, opened=NOTHING, processes=PROCESSES, **more):
        (tmp_path / "shop.py").write_text(SHOP.format(opened=opened))
        chosen = ("--processes", str(processes), "--refork-after", str(REQUESTS), *options)
        return start(*chosen, module="shop", **more)

    return refork


def ask(instance, path):
    """Returns an answer of each worker, by its pid."""
    found = {}

    def asked():
        found.clear()
        for pid, *said in pool.map(lambda _: instance.body(path).split(), range(CLIENTS)):
            found[int(pid)] = " ".join(said)
        workers = instance.workers()
        return set(workers) <= set(found) and workers

    with ThreadPoolExecutor(CLIENTS) as pool:
        workers = instance.wait_for(asked, "an answer of each worker")
    return {worker: found[worker] for worker in workers}


def open_in_each(instance):
    """Has each worker open what the application opens, and answer enough requests."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        seen = set()

        def ask_all():
            seen.update(answer.split()[0] for answer in pool.map(lambda _: instance.body("/open"), range(CLIENTS)))
            return len(seen) >= PROCESSES

        instance.wait_for(ask_all, "each worker has opened it")
        list(pool.map(lambda _: instance.body("/"), range(REQUESTS * PROCESSES * 2)))


def wait_for_change(instance, former):
    """Waits until one prototype is left that is not the former one; returns its pid."""
    instance.wait_for_log(SUCCEEDED)
    wait_until(lambda: former not in instance.prototypes(), lambda: f"the end of the former prototype:\n{instance.log}")
    return instance.prototype()


@pytest.mark.parametrize("threads", ["1", "4"])
def test_workers_are_forked_from_one_that_has_served(threads, refork):
    instance = refork("--threads", threads)
    former, before = instance.prototype(), set(instance.workers())
    # No request comes before: the first worker that has answered enough is chosen.
    open_in_each(instance)
    instance.wait_for_log(DONE)
    prototype = wait_for_change(instance, former)
    assert prototype not in before
    assert not before & set(instance.workers())
    made = ask(instance, "/made")
    assert len(made) == PROCESSES
    assert all(int(count) >= 1 for count in made.values()), made
    # Once in a generation.
    for _ in range(REQUESTS * PROCESSES * 2):
        instance.body()
    assert len(re.findall(CHOSEN, instance.log_until_now(), re.MULTILINE)) == 1
    assert instance.prototype() == prototype


def test_no_request_is_lost_while_the_prototype_changes(refork):
    instance = refork("--refork-max", "7", opened=NOTHING)
    with Load(instance.address(), kept_alive=4, fresh=2) as load:
        instance.wait_for_log(SUCCEEDED, count=3)
        load.wait_for_more()
    assert load.losses == []


def test_a_new_prototype_keeps_nothing_of_the_worker_open(refork):
    instance = refork()
    former = instance.prototype()
    before = descriptors_of(former)
    open_in_each(instance)
    prototype = wait_for_change(instance, former)

    def talks(descriptors):
        return {target for target in descriptors.values() if target.startswith(("socket:", "pipe:", "anon_inode:"))}

    # Its own control socket is the only new one.
    new = talks(descriptors_of(prototype)) - talks(before)
    assert len(new) == 1, new


def test_forks_have_their_own_random_numbers(refork):
    instance = refork()
    former = instance.prototype()
    open_in_each(instance)
    wait_for_change(instance, former)
    for path in ("/random", "/uuid"):
        said = ask(instance, path)
        assert len(set(said.values())) == PROCESSES, said


#: What a request opens, and the words for it in the log.
OPENED = {
    "connection": (
        "    import socket\n    return socket.create_connection({address})",
        r"connections? \(127.0.0.1:\d+ at shop.py:5",
    ),
    # The latest places are kept.
    "connection after many": (
        "    import socket\n    for _ in range(1100): socket.socket(type=socket.SOCK_DGRAM).connect({address})\n"
        "    return socket.create_connection({address})",
        r"connections? \(.*127.0.0.1:\d+ at shop.py:6",
    ),
    "socket": ("    import socket\n    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", r"sockets? \(descriptor \d+"),
    "thread": (
        "    thread = threading.Thread(target=threading.Event().wait, name='ticker', daemon=True)\n    thread.start()",
        r"threads? \(ticker at shop.py:5",
    ),
    "lock": ("    made.append(threading.Lock())\n    made[-1].acquire()", r"held locks? \(in a builtins.list"),
    "reentrant lock": ("    made.append(threading.RLock())\n    made[-1].acquire()", r"held locks? \(in a builtins.list"),
    "lock of a file": (
        "    import fcntl\n    file = open(f'locked{{os.getpid()}}.{{len(made)}}', 'w')\n    fcntl.flock(file, fcntl.LOCK_EX)\n"
        "    return file",
        r"file locks? \(/.*/locked\d+",
    ),
    "shared mapping": ("    import mmap\n    return mmap.mmap(-1, 8192)", r"shared mappings? \(anonymous"),
    "pipe": ("    return os.pipe()", r"pipes \(descriptor \d+, descriptor \d+"),
    "epoll": ("    import select\n    return select.epoll()", r"epolls? \(descriptor \d+"),
    "child process": (
        # It exits with the worker.
        "    import subprocess\n    return subprocess.Popen(['cat'], stdin=subprocess.PIPE)",
        r"child process(es)? \(cat \(pid \d+\)",
    ),
    "timer": ("    import signal\n    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)", r"timer \(ITIMER_VIRTUAL"),
}


@pytest.mark.parametrize("what", OPENED)
def test_it_refuses_to_share_what_the_application_has_opened_and_says_what(what, refork):
    code, words = OPENED[what]
    with socket.create_server(("127.0.0.1", 0)) as database:
        instance = refork(opened=code.format(address=database.getsockname()))
        former = instance.prototype()
        open_in_each(instance)
        (held,) = instance.wait_for_log(REFUSED).groups()
        assert re.search(words, held), held
        # The worker is replaced like a worn one.
        instance.wait_for(lambda: len(instance.workers()) == PROCESSES, "its replacement")
        assert instance.prototype() == former
        assert len(ask(instance, "/")) == PROCESSES
        instance.stop()


def test_mules_and_spoolers_are_forked_from_the_new_prototype_when_their_work_is_done(refork, tmp_path):
    (tmp_path / "work.py").write_text("import time\nimport uwsgi\nwhile True:\n    uwsgi.mule_get_msg()\n")
    (tmp_path / "jobs").mkdir()
    instance = refork("--mule=work.py", "--spooler", tmp_path / "jobs")
    former = instance.prototype()
    open_in_each(instance)
    prototype = wait_for_change(instance, former)
    wait_until(lambda: len(children_of(prototype)) == PROCESSES + 2, "the workers, the mule and the spooler")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reload_replaces_what_was_forked_from_a_worker(when, refork, tmp_path):
    instance = refork()
    former = instance.prototype()
    open_in_each(instance)
    if when == "after":
        wait_for_change(instance, former)
    else:
        instance.wait_for_log(CHOSEN)
    instance.reload(2)
    assert len(instance.workers()) == PROCESSES
    assert set(ask(instance, "/made").values()) == {"0"}
    # The new generation has its own turn.
    open_in_each(instance)
    instance.wait_for_log(SUCCEEDED.replace("generation 1", "generation 2"))


def test_the_death_of_the_new_prototype_starts_another_generation_and_loses_nothing(refork):
    instance = refork(alarms=True)
    former = instance.prototype()
    open_in_each(instance)
    prototype = wait_for_change(instance, former)
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        os.kill(prototype, signal.SIGKILL)
        instance.wait_for_generation(2)
        load.wait_for_more()
    assert load.losses == []
    # The new generation has had enough requests for its own turn, in which a worker and its replacement live side by side.
    instance.wait_for(lambda: len(instance.workers()) == PROCESSES, "as many workers as before")


def test_a_worker_that_dies_is_replaced_from_the_new_prototype(refork):
    instance = refork(alarms=True)
    former = instance.prototype()
    open_in_each(instance)
    prototype = wait_for_change(instance, former)
    (first, *_) = instance.workers()
    os.kill(first, signal.SIGKILL)
    instance.wait_for_replacement(first, count=PROCESSES)
    assert len(children_of(prototype)) == PROCESSES


def test_a_worker_with_a_stuck_request_is_killed_and_the_former_prototype_stays(refork, tmp_path):
    stuck = "    with open(f'stuck{os.getpid()}', 'a') as file:\n        file.write('.')\n    time.sleep(600)"
    instance = refork("--threads", "4", "--harakiri", "6", processes=2, opened=stuck, alarms=True)
    former = instance.prototype()
    clients = []

    def all_are_stuck():
        files = list(tmp_path.glob("stuck*"))
        # One after the other: more of them would take all threads while a worker is late.
        if len(files) < 2 and sum(file.stat().st_size for file in files) == len(clients):
            clients.append(instance.connect())
            clients[-1].send(b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n")
        return len(files) == 2

    instance.wait_for(all_are_stuck, "a stuck request in each worker")
    for _ in range(REQUESTS * 4):
        instance.body()
    instance.wait_for_log(CHOSEN)
    instance.wait_for_log(r"harakiri: killing worker \d")
    instance.wait_for(lambda: len(instance.workers()) == 2, "the replacement")
    assert instance.prototype() == former
    assert not re.search(SUCCEEDED, instance.log_until_now(), re.MULTILINE)


def test_a_canary_and_max_requests_go_on_beside_it_and_lose_nothing(refork):
    options = ("--max-requests", "60", "--min-worker-lifetime", "0", "--reload-canary", "1", "--refork-max", "7")
    instance = refork(*options)
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        instance.wait_for_log(SUCCEEDED)
        instance.reload(2)
        instance.wait_for_log(SUCCEEDED.replace("generation 1", "generation 2"))
        load.wait_for_more()
    assert load.losses == []


def test_an_upgrade_replaces_what_was_forked_from_a_worker(refork, tmp_path):
    instance = refork("--pidfile", pidfile(tmp_path))
    former = instance.prototype()
    open_in_each(instance)
    wait_for_change(instance, former)
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        upgrade(tmp_path)
        load.wait_for_more()
    assert load.losses == []
    stop_upgraded(tmp_path)
    instance.wait_until_gone()


def test_it_stops_in_the_middle_like_at_any_time(refork):
    instance = refork()
    open_in_each(instance)
    instance.wait_for_log(CHOSEN)
    assert instance.stop(signal.SIGTERM) == 0


def test_processes_of_the_new_prototype_are_a_group_of_their_own(refork):
    instance = refork()
    former = instance.prototype()
    open_in_each(instance)
    prototype = wait_for_change(instance, former)
    assert {int(status_field(worker, "NSpgid").split()[0]) for worker in instance.workers()} == {prototype}


def test_status_and_metrics_show_what_workers_are_forked_from(refork, call):
    instance = refork("--metrics", "127.0.0.1:0")
    former = instance.prototype()
    status = json.loads(call("status", "--json", str(instance.pid))[1])
    assert [(one["pid"], one["worker"]) for one in status["prototypes"]] == [(former, None)]
    open_in_each(instance)
    prototype = wait_for_change(instance, former)
    status = json.loads(call("status", "--json", str(instance.pid))[1])
    (one,) = status["prototypes"]
    assert one["pid"] == prototype
    assert one["worker"]["number"] in (1, 2, 3)
    assert {worker["prototype"] for worker in status["workers"]} == {prototype}
    assert all(0 < worker["private_bytes"] < worker["resident_bytes"] for worker in status["workers"])
    said = call("status", str(instance.pid))[1]
    assert re.search(
        rf"^prototype \(pid {prototype}\) of generation 1: forked from worker \d \(pid \d+\), 3 workers ", said, re.M
    )
    address = metrics_address(instance)
    assert [value_of(address, "bolide_reforks_total", result=result) for result in ("done", "failed")] == [1, 0]


UWSGI = """\
import os
import uwsgi
from uwsgidecorators import postfork, signal
after_fork = []
@postfork
def note():
    after_fork.append(os.getpid())
@signal(7, target="worker")
def handle(number):
    open(f"handled{os.getpid()}", "w")
def fork(returns):
    pid = os.fork()
    if pid == 0:
        if returns:
            return "returned"
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/raise":
        uwsgi.signal(7)
    values = {"/number": uwsgi.worker_id(), "/forked": after_fork == [os.getpid()] or after_fork[-1] == os.getpid()}
    said = fork(path == "/fork/return") if path.startswith("/fork/") else values.get(path, "")
    start_response("200 OK", [])
    return [f"{os.getpid()} {said}".encode()]
"""


def test_a_worker_of_the_second_life_is_a_worker_like_any_other(start, tmp_path):
    (tmp_path / "pages.py").write_text(UWSGI)
    instance = start("--processes", "3", "--refork-after", str(REQUESTS), module="pages", alarms=True)
    former = instance.prototype()
    for _ in range(REQUESTS * PROCESSES * 2):
        instance.body()
    wait_for_change(instance, former)
    assert sorted(ask(instance, "/number").values()) == ["1", "2", "3"]
    assert set(ask(instance, "/forked").values()) == {"True"}
    # Children of views are children of the application, and workers are not.
    assert instance.body("/fork/exit").split()[1] == "7"
    assert instance.body("/fork/return").split()[1] == "0"
    instance.wait_for_log(r"a child that the application forked \(pid \d+\) returned from it, and was terminated")
    instance.body("/raise")
    handled = instance.wait_for(lambda: list(tmp_path.glob("handled*")), "the handler of the signal")
    assert int(handled[0].name.removeprefix("handled")) in instance.workers()


def test_connections_that_a_library_opens_again_are_closed(refork, redis):
    made = (
        f"    import redis\n    client = redis.Redis(unix_socket_path='{redis.socket}')\n    client.incr('a')\n    return client"
    )
    instance = refork(opened=made)
    former = instance.prototype()
    open_in_each(instance)
    wait_for_change(instance, former)
    # The forks open connections of their own.
    asked = ask(instance, "/open")
    assert len(asked) == PROCESSES


#: What of the server has descriptors, memory or threads in a worker.
SERVICES = """
http-socket = {directory}/http
uwsgi-socket = 127.0.0.1:0
mule = true
spooler = {directory}/spool
cache2 = name=local,items=10
enable-metrics = true
metric = name=asked
metrics = 127.0.0.1:0
stats = {directory}/stats
crash-reports = {directory}
slow-request = 1
sticky = cookie
bulkhead = name=slow,route=^/slow,max=2
admission = auto
rate-limit = 10000/s
locks = 2
sharedarea = 1
queue = 10
harakiri = 60
health-path = /health
static-map = /static={directory}
otlp = http://127.0.0.1:9
publish = true
cheaper = 2
"""


def test_nothing_of_the_server_itself_prevents_it(start, tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "shop.py").write_text(SHOP.format(opened="    import uwsgi\n    return uwsgi.cache_get('a', 'local')"))
    (tmp_path / "services.ini").write_text("[uwsgi]" + SERVICES.format(directory=tmp_path))
    options = ("--ini", tmp_path / "services.ini", "--processes", "3", "--threads", "2", "--refork-after", str(REQUESTS))
    instance = start(*options, "--refork-max", "2", module="shop", alarms=True)
    instance.body("/slow")
    for number in range(1, 3):
        for _ in range(REQUESTS * PROCESSES * 3):
            for path in ("/open", "/static/shop.py", "/health"):
                instance.get(path)
        prototype = int(instance.wait_for_log(SUCCEEDED, count=number)[1])
        # It is a child of the worker until that has exited.
        wait_until(lambda pid=prototype: instance.prototypes() == [pid], "the end of the former prototype")
    assert not re.search(REFUSED, instance.log_until_now(), re.MULTILINE)
    # The handler of faults is that of the present life.
    (dying, *_) = instance.workers()
    os.kill(dying, signal.SIGSEGV)
    instance.wait_for(lambda: list(tmp_path.glob("crash-*")), "the report of the fault")
    instance.wait_for(lambda: dying not in instance.workers(), "the end of the worker")


def test_connections_of_the_server_to_its_engines_are_closed(refork, redis):
    opened = "    import uwsgi\n    return uwsgi.cache_update('a', b'1', 0, 'pages')"
    instance = refork("--cache2", f"name=pages,engine={redis.url}", opened=opened)
    former = instance.prototype()
    open_in_each(instance)
    wait_for_change(instance, former)
    assert len(ask(instance, "/open")) == PROCESSES


#: How an application asks PostgreSQL by different libraries. Both keep the connection.
ASKS = {
    "Django": """\
    import django
    from django.conf import settings
    if not settings.configured:
        settings.configure(DATABASES={{"default": {{
            "ENGINE": "django.db.backends.postgresql", "HOST": "{directory}", "USER": "postgres", "NAME": "postgres",
            "CONN_MAX_AGE": None,
        }}}})
        django.setup()
    from django.db import connection
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return cursor.fetchone()
""",
    "SQLAlchemy": """\
    import sqlalchemy
    if not made:
        made.append(sqlalchemy.create_engine("postgresql+psycopg2://postgres@/postgres?host={directory}"))
    with made[0].connect() as connection:
        return connection.execute(sqlalchemy.text("select pg_backend_pid()")).scalar()
""",
}


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("library", ASKS)
def test_connections_to_a_database_are_closed_and_opened_again(library, threads, refork):
    server = Postgresql()
    try:
        instance = refork("--threads", threads, opened=ASKS[library].format(directory=server.directory))
        former = instance.prototype()
        open_in_each(instance)
        wait_for_change(instance, former)
        assert len(ask(instance, "/open")) == PROCESSES
        instance.stop()
    finally:
        server.finish()


def test_an_asgi_application_refuses_once_and_goes_on(start, tmp_path):
    (tmp_path / "pages.py").write_text(
        "async def application(scope, receive, send):\n"
        "    if scope['type'] == 'http':\n"
        "        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "        await send({'type': 'http.response.body', 'body': b'fine'})\n"
    )
    instance = start("--processes", "2", "--refork-after", str(REQUESTS), module="pages")
    former = instance.prototype()
    for _ in range(REQUESTS * 4):
        instance.body()
    instance.wait_for_log(
        r"refork-after: the other workers can't be forked from this one: it serves an ASGI application in an event loop, which "
        r"can't be forked$"
    )
    assert instance.prototype() == former
    assert instance.body() == "fine"


def test_the_check_tells_what_a_worker_would_hold(call, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP.format(opened="    return os.pipe()"))
    options = ("--http-socket", "127.0.0.1:0", "--module", "shop", "--processes", "2", "--refork-after", "10")
    status, said = call("check", "--load", *options)
    assert status == 0
    assert "note: refork-after: when it is loaded, the application holds nothing that forks can't share" in said
    status, said = call("check", "--load", *options, "--warmup", "/open")
    assert "warning: refork-after: after the requests of `warmup`, the application holds what forks can't share: 2 pipes" in said


def test_a_master_sleeps_while_a_generation_loads(refork, tmp_path):
    instance = refork()
    instance.body()
    held = tmp_path / "held"
    held.touch()
    (tmp_path / "shop.py").write_text(HELD.format(path=str(held)) + SHOP.format(opened=NOTHING))
    instance.send_signal(signal.SIGHUP)
    instance.wait_for(lambda: len(instance.prototypes()) == 2, "the prototype that loads")
    # Longer than the time between two looks for a worker.
    threading.Event().wait(1.2)
    assert turns_of(instance) < 20
    held.unlink()
    instance.wait_for_generation(2)


def turns_of(instance):
    """Returns how often the master wakes up in half a second."""
    before = int(status_field(instance.pid, "voluntary_ctxt_switches"))
    threading.Event().wait(0.5)
    return int(status_field(instance.pid, "voluntary_ctxt_switches")) - before


def test_an_idle_master_sleeps_when_the_change_is_done(refork):
    instance = refork()
    former = instance.prototype()
    open_in_each(instance)
    wait_for_change(instance, former)
    assert turns_of(instance) < 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--processes", "1"), "it needs at least two workers"),
        (("--processes", "2", "--lazy-apps"), "with `lazy-apps`, workers share nothing"),
        (("--processes", "2", "--gevent", "10"), "an event loop and its greenlets can't be forked"),
    ],
)
def test_where_it_can_not_work_it_is_refused_in_words(options, words, fail):
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "probe", "--refork-after", "10", *options)
    assert status != 0
    assert any(f"`refork-after` can't be used here: {words}" in line for line in lines), lines
