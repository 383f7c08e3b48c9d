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
    server = serve(CONFIGURATION + "pidfile2 = {directory}/shop.pid\n")
    address = server.address()
    try:
        assert value(address, "uwsgi.queue_push('kept')") == "True"
        server.send_signal(signal.SIGHUP)
        server.wait_for_log(r"^bolide: ready: ", count=2)
        assert value(address, "uwsgi.queue_last()") == "b'kept'"
        upgrade(server.directory)
        assert value(address, "uwsgi.queue_pull()") == "b'kept'"
        assert value(address, "uwsgi.queue_push('lost')") == "True"
        server.configure((CONFIGURATION + "pidfile2 = {directory}/shop.pid\n").replace("queue = 8", "queue = 9"))
        os.kill(int((server.directory / "shop.pid").read_text()), signal.SIGHUP)
        server.wait_for_text("bolide: reload: queue: its settings have changed, so it starts empty")
        wait_until(lambda: evaluate(address, "uwsgi.queue_size", "uwsgi.queue_last()") == ["9", "None"], "the new queue")
    finally:
        stop(server.directory)


def test_a_process_that_is_killed_at_any_moment_tears_no_item_and_holds_nobody_up(serve):
    server = serve(CONFIGURATION)
    server.expects_alarms = True
    address = server.address()
    endless = "[0 for _ in iter(int, 1) if uwsgi.queue_push(os.urandom(1) * 40) and uwsgi.queue_pull() and False]"
    for number in range(8):
        name = f"pid{number}"
        Evaluation(address, f"open({name!r}, 'w').write(str(os.getpid()) + '.')", endless)
        text = wait_until(lambda file=server.directory / name: file.exists() and file.read_text(), "the victim works")
        os.kill(int(text.rstrip(".")), signal.SIGKILL)
        pushed, items = evaluate(address, "uwsgi.queue_push(b'x' * 40)", "[i for i in uwsgi.queue_last(8) if i]")
        assert pushed == "True"
        assert all(len(item) == 40 and len(set(item)) == 1 for item in eval(items)), items


def test_the_items_of_a_queue_with_a_file_outlive_the_instance(serve, tmp_path):
    lines = CONFIGURATION + f"queue-store = {tmp_path}/kept\nqueue-store-sync = 1\n"
    server = serve(lines)
    assert value(server.address(), "[uwsgi.queue_push(b'item %d' % number) for number in range(3)]") == "[True, True, True]"
    assert value(server.address(), "uwsgi.queue_pull()") == "b'item 0'"
    server.stop()
    server = serve(lines)
    assert evaluate(server.address(), "uwsgi.queue_slot()", "uwsgi.queue_pull()", "uwsgi.queue_pop()") == [
        "3",
        "b'item 1'",
        "b'item 2'",
    ]
    assert (tmp_path / "kept").stat().st_size == 8 * 64 + 16


def test_a_file_that_is_no_queue_is_put_aside_and_one_of_another_size_or_instance_is_an_error(serve, tmp_path):
    lines = CONFIGURATION + f"queue-store = {tmp_path}/kept\n"
    (tmp_path / "kept").write_bytes(b"x" * (8 * 64 + 16))
    server = serve(lines)
    server.wait_for_text("bolide: queue: its file is not a queue, so it is renamed to")
    assert value(server.address(), "uwsgi.queue_push('new'), uwsgi.queue_pull()") == "(True, b'new')"
    assert (tmp_path / "kept.broken").read_bytes() == b"x" * (8 * 64 + 16)
    for configuration, words in (
        (lines, "another instance uses it: give each instance its own file"),
        (lines.replace("queue = 8", "queue = 9"), "it has 528 bytes, and a queue of 9 blocks of 64 bytes has 592: "),
    ):
        other = serve.prepare(configuration)
        other.launch()
        assert other.wait_for_exit() != 0
        assert f"queue: {tmp_path}/kept: {words}" in other.log


def test_a_queue_with_a_file_keeps_its_items_when_a_process_is_killed_and_over_an_upgrade(serve, tmp_path):
    server = serve(CONFIGURATION + f"queue-store = {tmp_path}/kept\npidfile2 = {{directory}}/shop.pid\n")
    server.expects_alarms = True
    address = server.address()
    try:
        endless = "[0 for _ in iter(int, 1) if uwsgi.queue_push(os.urandom(1) * 40) and uwsgi.queue_pull() and False]"
        Evaluation(address, "open('pid', 'w').write(str(os.getpid()) + '.')", endless)
        file = server.directory / "pid"
        os.kill(int(wait_until(lambda: file.exists() and file.read_text(), "the victim works").rstrip(".")), signal.SIGKILL)
        assert value(address, "uwsgi.queue_push('kept')") == "True"
        upgrade(server.directory)
        assert value(address, "uwsgi.queue_last()") == "b'kept'"
    finally:
        stop(server.directory)
