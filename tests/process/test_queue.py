"""`queue`: the ring of items that all processes share, over deaths of its users, reloads and upgrades."""

import os
import signal

from support.expressions import Evaluation, evaluate, value
from support.waiting import wait_until
from support_upgrade import stop, upgrade

CONFIGURATION = (
    "wsgi-file = {apps}/expressions.py\nmaster = true\nprocesses = 2\nqueue = 8\nqueue-blocksize = 64\ndisable-logging = true\n"
)


def test_items_go_through_the_queue_of_all_processes_in_order(serve):
    server = serve(CONFIGURATION)
    address = server.address()
    for number in range(3):
        assert value(address, f"uwsgi.queue_push(b'item {number}')") == "True"
    assert evaluate(address, "uwsgi.queue_size", "uwsgi.queue_slot()", "uwsgi.queue_pull_slot()") == ["8", "3", "0"]
    assert [value(address, "uwsgi.queue_pull()"), value(address, "uwsgi.queue_pop()")] == ["b'item 0'", "b'item 2'"]
    assert value(address, "uwsgi.queue_last(2)") == "[b'item 1', None]"


def test_a_queue_keeps_its_items_over_a_reload_and_an_upgrade_and_begins_empty_with_other_settings(serve, tmp_path):
    server = serve(CONFIGURATION + "pidfile2 = {folder}/shop.pid\n")
    address = server.address()
    try:
        assert value(address, "uwsgi.queue_push('kept')") == "True"
        server.send_signal(signal.SIGHUP)
        server.wait_for_log(r"^bolide: ready: ", count=2)
        assert value(address, "uwsgi.queue_last()") == "b'kept'"
        upgrade(server.folder)
        assert value(address, "uwsgi.queue_pull()") == "b'kept'"
        assert value(address, "uwsgi.queue_push('lost')") == "True"
        server.configure((CONFIGURATION + "pidfile2 = {folder}/shop.pid\n").replace("queue = 8", "queue = 9"))
        os.kill(int((server.folder / "shop.pid").read_text()), signal.SIGHUP)
        server.wait_for_text("bolide: reload: queue: its settings have changed: it begins empty")
        wait_until(lambda: evaluate(address, "uwsgi.queue_size", "uwsgi.queue_last()") == ["9", "None"], "the new queue")
    finally:
        stop(server.folder)


def test_a_process_that_is_killed_at_any_moment_tears_no_item_and_holds_nobody_up(serve):
    server = serve(CONFIGURATION)
    server.expects_alarms = True
    address = server.address()
    endless = "[0 for _ in iter(int, 1) if uwsgi.queue_push(os.urandom(1) * 40) and uwsgi.queue_pull() and False]"
    for number in range(8):
        name = f"pid{number}"
        Evaluation(address, f"open({name!r}, 'w').write(str(os.getpid()) + '.')", endless)
        text = wait_until(lambda file=server.folder / name: file.exists() and file.read_text(), "the victim works")
        os.kill(int(text.rstrip(".")), signal.SIGKILL)
        pushed, items = evaluate(address, "uwsgi.queue_push(b'x' * 40)", "[i for i in uwsgi.queue_last(8) if i]")
        assert pushed == "True"
        assert all(len(item) == 40 and len(set(item)) == 1 for item in eval(items)), items
