"""SIGHUP reads the configuration again: changeable options take effect, the log lists the others, and an invalid configuration
changes nothing.
"""

import os
import signal
import socket
import time

import pytest
from support.client import Client
from support.waiting import wait_until
from support_instance import APPLICATIONS, port_is_free
from support_load import Load
from support_processes import descriptors_of, sleeps_mostly
from support_versions import write

PROBE = """\
pythonpath = {probes}
module = probe
master = true
disable-logging = true
"""
LISTEN = "http-socket = 127.0.0.1:0\n"


@pytest.fixture
def configured(start, tmp_path):
    """Writes `app.ini` with these lines beside the probe application, and starts Bolide with it."""

    def rewrite(lines, listen=LISTEN):
        (tmp_path / "app.ini").write_text("[uwsgi]\n" + listen + PROBE.format(probes=APPLICATIONS) + lines)

    def start_from_file(lines="", listen=LISTEN, **options):
        rewrite(lines, listen)
        instance = start("app.ini", module=None, socket=None, master=False, logging=True, **options)
        instance.rewrite = rewrite
        return instance

    return start_from_file


def test_processes_and_threads_of_the_file_are_those_after_a_reload_without_a_lost_request(configured):
    instance = configured("processes = 1\nthreads = 1\n")
    with Load(instance.address()) as load:
        for number, (processes, threads) in enumerate([(3, 4), (2, 1), (5, 2), (1, 1)], 2):
            instance.rewrite(f"processes = {processes}\nthreads = {threads}\n")
            instance.reload(number)
            assert len(instance.workers()) == processes
            load.wait_for_more(20)
    assert load.losses == []
    instance.wait_for_log(r"^bolide: reload: the configuration has changed: workers$", count=4)


def test_harakiri_and_limits_of_the_file_count_after_a_reload(configured, tmp_path):
    instance = configured(alarms=True)
    instance.rewrite("harakiri = 1\nlimit-post = 10\n")
    instance.reload(2)
    assert instance.get("/", method="POST", body=b"x" * 11).status == 413
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    instance.wait_for_log(r"^bolide: harakiri: killing worker 1 \(.*\) while it serves GET /wait")


def test_a_wrong_configuration_is_reported_with_its_line_and_changes_nothing(configured):
    instance = configured("processes = 2\n")
    before = sorted(instance.workers())
    with Load(instance.address()) as load:
        instance.rewrite("processes = 4\nreload-order = sideways\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(r"^bolide: reload: .*app\.ini:8: .*reload-order")
        instance.wait_for_log(
            r"^bolide: reload: the configuration can't be used, see above: generation 1 keeps serving with its current settings"
        )
        load.wait_for_more()
        assert sorted(instance.workers()) == before
        instance.rewrite("processes = 3\n")
        instance.reload(2)
        assert len(instance.workers()) == 3
    assert load.losses == []


def test_a_wrong_configuration_during_startup_changes_nothing(start, tmp_path):
    gate = tmp_path / "gate"
    write(tmp_path, "served", before=f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n")
    configuration = f"[uwsgi]\n{LISTEN}pythonpath = {tmp_path}\nmodule = shop\nmaster = true\n"
    (tmp_path / "app.ini").write_text(configuration)
    instance = start("app.ini", module=None, socket=None, master=False, ready=False)
    instance.wait_for_log(r"^bolide: listening on ")
    (tmp_path / "app.ini").write_text(configuration + "reload-order = sideways\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(
        r"^bolide: reload: the configuration can't be used, see above: generation 1 keeps starting with its current settings$"
    )
    gate.touch()
    instance.wait_for_log(r"^bolide: ready: ")
    assert instance.body() == "served"


def test_what_needs_a_restart_is_named_and_stays_as_it_was(configured, tmp_path):
    instance = configured(f"pidfile = {tmp_path}/one.pid\n")
    instance.rewrite(f"pidfile = {tmp_path}/two.pid\numask = 027\nprocesses = 2\n")
    instance.reload(2)
    for option in ("pidfile", "uid, gid or umask"):
        instance.wait_for_log(rf"^bolide: reload: {option}: keeps its value until a restart$")
    assert not (tmp_path / "two.pid").exists()
    assert (tmp_path / "one.pid").read_text().strip() == str(instance.pid)
    assert len(instance.workers()) == 2


def test_a_socket_that_stays_is_the_same_and_one_that_is_added_serves(configured, tmp_path, free_port):
    instance = configured()
    port = instance.port
    path = tmp_path / "app.sock"
    with Load(instance.address()) as load:
        second = free_port()
        instance.rewrite("", f"{LISTEN}http-socket = 127.0.0.1:{second}\nhttp-socket = {path}\n")
        instance.reload(2)
        with Client(("127.0.0.1", second)) as client:
            assert client.request("GET", "/").status == 200
        assert path.is_socket()
        load.wait_for_more()
    assert load.losses == []
    assert instance.port == port
    instance.wait_for_log(rf"^bolide: listening on http://127\.0\.0\.1:{second}$")


def test_connections_queued_on_a_removed_socket_are_served_before_it_closes(configured, tmp_path, free_port):
    second = free_port()
    instance = configured("", f"{LISTEN}http-socket = 127.0.0.1:{second}\n")
    gate = tmp_path / "gate"
    # The only worker is busy: new connections wait in the kernel's queue.
    busy = instance.connect()
    busy.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    waiting = [Client(("127.0.0.1", second)) for _ in range(10)]
    for client in waiting:
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    instance.rewrite("")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(rf"^bolide: no longer listening on http://127\.0\.0\.1:{second}$")
    wait_until(lambda: port_is_free(second), "the removed socket's end")
    gate.touch()
    assert [client.read_response().status for client in waiting] == [200] * len(waiting)
    for client in waiting:
        client.close()
    instance.wait_for_generation(2)


def test_a_generation_that_fails_leaves_the_settings_and_closes_what_was_bound_for_it(configured, free_port):
    instance = configured("processes = 2\n")
    second = free_port()
    before = len(descriptors_of(instance.pid))
    instance.rewrite("processes = 4\nmodule = nowhere_to_be_found\n", f"{LISTEN}http-socket = 127.0.0.1:{second}\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: generation 2 could not be loaded .*: generation 1 keeps serving")
    wait_until(lambda: port_is_free(second), "the end of the socket that was bound for it")
    wait_until(lambda: len(instance.prototypes()) == 1, "the end of the generation that failed")
    assert len(instance.workers()) == 2
    assert instance.body().isdigit()
    # The error report of a generation is closed just after it reports readiness.
    wait_until(lambda: len(descriptors_of(instance.pid)) <= before, "no more descriptors than before")
    # The settings that stay are those of startup, also for a worker that is replaced now.
    instance.rewrite("processes = 3\n")
    instance.reload(3)
    assert len(instance.workers()) == 3


def test_an_address_in_use_changes_nothing(configured, free_port):
    instance = configured()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        free = free_port()
        instance.rewrite("", f"{LISTEN}http-socket = 127.0.0.1:{free}\nhttp-socket = 127.0.0.1:{taken}\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(rf"^bolide: reload: .*app\.ini:4: port {taken} of 127\.0\.0\.1 is in use")
        instance.wait_for_log(r"^bolide: reload: the configuration can't be used, see above: generation 1 keeps serving")
    assert port_is_free(free)
    assert instance.body().isdigit()


def test_a_reload_takes_the_directory_placeholders_and_program_of_a_release_that_a_link_leads_to(start, tmp_path):
    for number in (1, 2):
        release = tmp_path / "releases" / str(number)
        release.mkdir(parents=True)
        (release / "shop.py").write_text(
            "import os\ndef application(environ, start_response):\n"
            "    start_response('200 OK', [])\n    return [(os.environ['RELEASE'] + ' ' + os.getcwd()).encode()]\n"
        )
        (release / "app.ini").write_text(
            f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmaster = true\nchdir = %d\nmodule = shop\nenv = RELEASE={number}\n"
        )
    (tmp_path / "current").symlink_to("releases/1")
    instance = start(tmp_path / "current" / "app.ini", module=None, socket=None, master=False)
    assert instance.body() == f"1 {tmp_path}/releases/1"
    (tmp_path / "next").symlink_to("releases/2")
    os.rename(tmp_path / "next", tmp_path / "current")
    instance.reload(2)
    assert instance.body() == f"2 {tmp_path}/releases/2"


def test_sighup_while_the_first_generation_loads_takes_the_new_configuration(configured, tmp_path):
    (tmp_path / "hanging.py").write_text("import time\nprint('hanging', flush=True)\ntime.sleep(300)\n")
    instance = configured(f"chdir = {tmp_path}\nmodule = hanging\n", ready=False)
    instance.wait_for_log("^hanging$")
    instance.rewrite("processes = 2\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: 2 workers")
    assert instance.body().isdigit()


def test_with_stop_first_the_new_configuration_counts_too(configured, free_port):
    instance = configured("reload-order = stop-first\n")
    second = free_port()
    instance.rewrite("reload-order = stop-first\nprocesses = 2\n", f"{LISTEN}http-socket = 127.0.0.1:{second}\n")
    instance.reload(2)
    assert len(instance.workers()) == 2
    with Client(("127.0.0.1", second)) as client:
        assert client.request("GET", "/").status == 200


def test_a_worker_that_may_load_for_longer_than_before_is_waited_for_asleep(configured, tmp_path):
    """The previous limit has expired by then: a timer that stays due would wake the master's loop endlessly."""
    # Longer than the first start needs on a busy machine.
    instance = configured("load-timeout = 10\n")
    (tmp_path / "hanging.py").write_text("import time\nprint('hanging', flush=True)\ntime.sleep(300)\n")
    instance.rewrite("load-timeout = 600\nlazy-apps = true\nimport = hanging\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^hanging$")
    hangs_since = time.monotonic()
    wait_until(lambda: time.monotonic() > hangs_since + 11, "the end of the old limit")
    wait_until(lambda: sleeps_mostly(instance.pid), "two seconds in which it sleeps")
    assert "load-timeout" not in instance.log.split("hanging", 1)[1]
