"""`reload-order = stop-first`: for an application with a resource that only one process can hold."""

import signal
import threading

from support.waiting import TIMEOUT_SECONDS
from support_load import Load

#: Locks a file for the lifetime of its process, as an embedded database does.
EXCLUSIVE = """\
import fcntl
held = open({path!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""


def write(tmp_path, version):
    text = EXCLUSIVE.format(path=str(tmp_path / "data.lock"), version=version, length=len(version))
    (tmp_path / "shop.py").write_text(text)


def test_an_application_that_holds_a_lock_is_reloaded_and_clients_wait(start, tmp_path):
    write(tmp_path, "old")
    instance = start("--reload-order", "stop-first", module="shop")
    with Load(instance.address(), kept_alive=2, fresh=2) as load:
        write(tmp_path, "young")
        instance.reload(2)
        load.wait(lambda: load.bodies["young"] > 0, "the new version")
    assert load.losses == []
    instance.wait_for_text("generation 1 ends first (reload-order), clients wait until generation 2 is ready")
    write(tmp_path, "youngest")
    instance.reload(3)
    assert instance.body() == "youngest"


def test_without_it_the_log_says_what_would_help(start, tmp_path):
    write(tmp_path, "old")
    instance = start(module="shop")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(
        r"generation 2 could not be loaded \(BlockingIOError: .*`reload-order = stop-first` ends that one first\)"
    )
    assert instance.body() == "old"


def test_a_generation_that_can_not_be_loaded_is_tried_again_while_clients_wait(start, tmp_path):
    write(tmp_path, "old")
    instance = start("--reload-order", "stop-first", module="shop")
    (tmp_path / "shop.py").write_text("def (:\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"generation 2 could not be loaded \(SyntaxError.*\): nothing is served, clients wait; next attempt in")
    answers = []
    client = threading.Thread(target=lambda: answers.append(instance.body()))
    client.start()
    write(tmp_path, "mended")
    instance.send_signal(signal.SIGHUP)
    client.join(TIMEOUT_SECONDS)
    assert answers == ["mended"]
    assert instance.stop() == 0


def test_a_stop_while_nothing_serves_ends_at_once(start, tmp_path):
    write(tmp_path, "old")
    instance = start("--reload-order", "stop-first", module="shop")
    (tmp_path / "shop.py").write_text("def (:\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 2 could not be loaded")
    assert instance.stop() == 0
