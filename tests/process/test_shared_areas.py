"""`sharedarea`: memory that all processes read and write in place, with locks and a wait for changes."""

import os
import signal

from support.expressions import Evaluation, evaluate, holder, value
from support.waiting import wait_until
from support.websocket import WebSocket

CONFIGURATION = (
    "wsgi-file = {apps}/expressions.py\nmaster = true\nprocesses = 2\nsharedarea = 1\nsharedarea = size=100\n"
    "py-sharedarea = 10\ndisable-logging = true\n"
)


def test_processes_read_what_others_write_and_areas_have_the_numbers_of_the_configuration(serve):
    server = serve(CONFIGURATION)
    address = server.address()
    assert value(address, "uwsgi.sharedarea_write(0, 4091, 'hello')") == "None"
    assert [value(address, "uwsgi.sharedarea_read(0, 4091)") for _ in range(4)] == ["b'hello'"] * 4
    assert value(address, "[len(uwsgi.sharedarea_memoryview(number)) for number in range(3)]") == "[4096, 4096, 10]"
    assert value(address, "uwsgi.sharedarea_memoryview(2).__setitem__(slice(0, 2), b'ab')") == "None"
    assert value(address, "bytes(uwsgi.sharedarea_object(2)[:3])") == "b'ab\\x00'"
    assert value(address, "uwsgi.sharedarea_read64(0, 4089)") == "ValueError: error calling uwsgi_sharedarea_read64()"


def test_additions_of_several_processes_at_a_time_are_all_counted(serve):
    server = serve(CONFIGURATION)
    adding = "[uwsgi.sharedarea_inc32(1, 50) for _ in range(3000)].count(None)"
    evaluations = [Evaluation(server.address(), adding) for _ in range(4)]
    assert [evaluation.result() for evaluation in evaluations] == [["3000"]] * 4
    assert value(server.address(), "uwsgi.sharedarea_read32(1, 50)") == "12000"


def test_a_change_wakes_those_that_wait_for_one(serve):
    server = serve(CONFIGURATION.replace("processes = 2", "processes = 3"))
    address = server.address()
    ticking = "[0 for _ in iter(lambda: os.path.exists('seen'), True) if uwsgi.sharedarea_inc8(0, 0) or time.sleep(0.01)]"
    waits = Evaluation(address, "uwsgi.sharedarea_wait(0)", "there('seen')", "uwsgi.sharedarea_wait(1, 100, 1)")
    assert value(address, ticking) == "[]"
    assert waits.result() == ["None", "None", "ValueError: error calling uwsgi_sharedarea_wait()"]


def test_a_killed_holder_of_an_area_holds_nobody_up(serve):
    server = serve(CONFIGURATION)
    server.expects_alarms = True
    address = server.address()
    for name, lock in (("r", "uwsgi.sharedarea_rlock(0)"), ("w", "uwsgi.sharedarea_wlock(0)")):
        pid, _ = holder(server, lock, name=name)
        other = Evaluation(
            address, "uwsgi.sharedarea_write(0, 0, 'x')", "uwsgi.sharedarea_wlock(0)", "uwsgi.sharedarea_unlock(0)"
        )
        os.kill(pid, signal.SIGKILL)
        assert other.result() == ["None"] * 3
        server.wait_for_log(rf"^bolide: pid {pid} died while it changed sharedarea 0: repaired$")


def test_an_area_that_a_thread_has_locked_is_its_own_until_it_unlocks_it(serve):
    server = serve(CONFIGURATION)
    address = server.address()
    first = Evaluation(
        address,
        "uwsgi.sharedarea_wlock(0)",
        "uwsgi.sharedarea_write8(0, 0, 1)",
        "there('held')",
        "await_it('go')",
        "uwsgi.sharedarea_write8(0, 0, 2)",
        "uwsgi.sharedarea_unlock(0)",
    )
    wait_until((server.directory / "held").exists, "the area is locked")
    second = Evaluation(
        address,
        "uwsgi.sharedarea_rlock(0)",
        "os.path.exists('go')",
        "uwsgi.sharedarea_read8(0, 0)",
        "uwsgi.sharedarea_write8(0, 0, 3)",
        "uwsgi.sharedarea_unlock(0)",
    )
    (server.directory / "go").touch()
    assert first.result() == ["None"] * 6
    own = "RuntimeError: this thread has locked sharedarea 0: uwsgi_sharedarea_write8() would wait for itself; unlock it first"
    assert second.result() == ["None", "True", "2", own, "None"]


def test_an_area_keeps_its_bytes_over_a_reload(serve):
    server = serve(CONFIGURATION)
    assert value(server.address(), "uwsgi.sharedarea_write64(0, 8, 12345)") == "None"
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: ", count=2)
    assert value(server.address(), "uwsgi.sharedarea_read64(0, 8)") == "12345"


def test_the_names_are_missing_without_an_area_or_a_queue_and_say_why(serve):
    server = serve("wsgi-file = {apps}/expressions.py\nmaster = true\n")
    assert evaluate(server.address(), "hasattr(uwsgi, 'queue_push')", "uwsgi.queue_size", "uwsgi.sharedarea_read(0, 0)") == [
        "False",
        "AttributeError: `uwsgi.queue_size` exists only if the configuration has the option `queue`",
        "AttributeError: `uwsgi.sharedarea_read` exists only if the configuration has the option `sharedarea`",
    ]


def test_a_websocket_gets_a_part_of_an_area(serve):
    server = serve(CONFIGURATION.replace("expressions.py", "area_socket.py"))
    socket = WebSocket(server.connect()).open()
    assert [socket.read_message(), socket.read_message()] == ["text", b"ext\0"]


def test_an_area_can_be_a_part_of_a_file(serve, tmp_path):
    file = tmp_path / "bytes"
    file.write_bytes(bytes(5000) + b"hello" + bytes(5000))
    lines = "wsgi-file = {apps}/expressions.py\nmaster = true\nprocesses = 2\n"
    server = serve(lines + f"sharedarea = file={file},size=4096,offset=5000\n")
    assert value(server.address(), "uwsgi.sharedarea_read(0, 0, 5), len(uwsgi.sharedarea_memoryview(0))") == "(b'hello', 4096)"
    assert value(server.address(), "uwsgi.sharedarea_write(0, 4091, b'world')") == "None"
    server.stop()
    assert file.read_bytes()[5000 + 4091 :][:6] == b"world\0"


def test_an_area_can_be_that_of_a_descriptor_which_the_server_has_inherited(serve, tmp_path):
    with open(tmp_path / "bytes", "wb+") as file:
        file.write(b"hello" + bytes(4091))
        file.flush()
        lines = f"wsgi-file = {{apps}}/expressions.py\nmaster = true\nsharedarea = fd={file.fileno()},size=4096\n"
        server = serve(lines, kept=(file.fileno(),))
        assert value(server.address(), "uwsgi.sharedarea_read(0, 0, 5)") == "b'hello'"


def test_a_file_that_is_too_short_for_an_area_or_missing_is_an_error_that_names_it(serve, tmp_path):
    (tmp_path / "short").write_bytes(bytes(100))
    for name, words in (("short", "it has 100 bytes, and 4196 are needed"), ("missing", "No such file")):
        server = serve.prepare(f"wsgi-file = {{apps}}/expressions.py\nsharedarea = file={tmp_path}/{name},size=4096,offset=100\n")
        server.launch()
        assert server.wait_for_exit() != 0
        assert f'sharedarea "0": {tmp_path}/{name}: {words}' in server.log
    assert not (tmp_path / "missing").exists()
