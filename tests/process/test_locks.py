"""`locks`: uwsgi.lock, unlock and is_locked between processes, over deaths of their holders and over reloads."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from support.expressions import Evaluation, evaluate, holder, value
from support.waiting import wait_until

CONFIGURATION = "wsgi-file = {apps}/expressions.py\nmaster = true\nprocesses = 2\nlocks = 2\ndisable-logging = true\n"
DEAD = r"^bolide: pid {pid} died while it held lock {number}: released$"


def test_a_lock_has_one_holder_among_all_processes_and_waiting_stops_no_other_thread(serve):
    server = serve(CONFIGURATION.replace("processes = 2", "processes = 2\nthreads = 2"))
    address = server.address()
    first = Evaluation(address, "uwsgi.lock(1)", "there('held')", "await_it('go')", "uwsgi.unlock(1)")
    wait_until((server.directory / "held").exists, "the lock is held")
    assert evaluate(address, "uwsgi.is_locked(1)", "uwsgi.is_locked()", "uwsgi.is_locked(2)") == ["True", "False", "False"]
    # More requests wait than one process has threads, so one of them waits beside a thread that answers.
    others = [Evaluation(address, "uwsgi.lock(1)", "os.path.exists('go')", "uwsgi.unlock(1)") for _ in range(2)]
    assert value(address, "uwsgi.lock(2), uwsgi.unlock(2)") == "(None, None)"
    (server.directory / "go").touch()
    assert first.result() == ["None"] * 4
    assert [other.result() for other in others] == [["None", "True", "None"]] * 2


def test_a_killed_holder_of_a_lock_holds_nobody_up_and_the_log_names_it(serve):
    server = serve(CONFIGURATION)
    server.expects_alarms = True
    pid, _ = holder(server, "uwsgi.lock()", "uwsgi.lock(2)")
    other = Evaluation(server.address(), "uwsgi.lock()", "uwsgi.unlock()")
    os.kill(pid, signal.SIGKILL)
    assert other.result() == ["None", "None"]
    server.wait_for_log(rf"^bolide: pid {pid} died while it held lock 0, lock 2: released$")
    assert evaluate(server.address(), "uwsgi.is_locked()", "uwsgi.is_locked(2)") == ["False", "False"]


def test_harakiri_frees_the_lock_of_a_request_that_is_stuck(serve):
    server = serve(CONFIGURATION + "harakiri = 5")
    server.expects_alarms = True
    pid, _ = holder(server, "uwsgi.lock(1)")
    server.wait_for_log(DEAD.format(pid=pid, number=1))
    assert value(server.address(), "uwsgi.lock(1), uwsgi.unlock(1)") == "(None, None)"


def test_a_lock_stays_held_when_its_request_ends_and_over_a_reload(serve):
    server = serve(CONFIGURATION.replace("processes = 2", "processes = 1\nreload-mercy = 30"))
    assert value(server.address(), "uwsgi.lock(1)") == "None"
    assert value(server.address(), "uwsgi.is_locked(1)") == "True"
    evaluation = Evaluation(server.address(), "there('in')", "await_it('go')", "uwsgi.is_locked(1)", "uwsgi.unlock(1)")
    wait_until((server.directory / "in").exists, "the old worker has a request")
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: ", count=2)
    # The new worker sees the lock of the old one, and waits for it.
    later = Evaluation(server.address(), "uwsgi.is_locked(1)", "there('go')", "uwsgi.lock(1)", "uwsgi.unlock(1)")
    assert later.result() == ["True", "None", "None", "None"]
    assert evaluation.result() == ["None", "None", "True", "None"]


def test_a_mistake_with_a_lock_is_an_error_and_not_a_wait_without_end(serve):
    server = serve(CONFIGURATION)
    assert evaluate(server.address(), "uwsgi.lock(3)", "uwsgi.unlock(-1)", "uwsgi.is_locked('a')", "uwsgi.lock(1, 2)") == [
        "ValueError: Invalid lock number",
        "ValueError: Invalid lock number",
        "TypeError: 'str' object cannot be interpreted as an integer",
        "TypeError: lock() takes at most 1 argument (2 given)",
    ]
    assert evaluate(server.address(), "uwsgi.lock()", "uwsgi.lock()", "uwsgi.unlock()", "uwsgi.unlock()") == [
        "None",
        "RuntimeError: this thread already holds lock 0, and would wait for itself",
        "None",
        "None",
    ]


def test_a_fork_of_a_holder_does_not_hold_the_lock(serve):
    server = serve(CONFIGURATION)
    child = "[(pid := os.fork()) or os._exit(uwsgi.unlock() is None and uwsgi.is_locked()), os.waitpid(pid, 0)[1] >> 8][1]"
    assert evaluate(server.address(), "uwsgi.lock()", child, "uwsgi.is_locked()", "uwsgi.unlock()") == [
        "None",
        "1",
        "True",
        "None",
    ]


def test_the_decorator_lock_runs_a_function_under_lock_0(serve):
    server = serve(CONFIGURATION)
    decorated = "__import__('uwsgidecorators').lock(lambda: uwsgi.is_locked())()"
    assert evaluate(server.address(), decorated, "uwsgi.is_locked()") == ["True", "False"]


def test_a_lock_that_is_left_when_the_application_is_loaded_is_released_with_a_line_in_the_log(serve, tmp_path):
    (tmp_path / "leaving.py").write_text(
        "import uwsgi\nuwsgi.lock(1)\nuwsgi.sharedarea_rlock(0)\nuwsgi.sharedarea_rlock(0)\nfrom expressions import application\n"
    )
    server = serve(
        CONFIGURATION.replace("{apps}/expressions.py", f"{tmp_path}/leaving.py") + "sharedarea = 1\npythonpath = {apps}\n"
    )
    assert "bolide: lock 1 was still held when the application was loaded: released" in server.log
    assert "bolide: sharedarea 0 was still locked when the application was loaded: released" in server.log
    assert evaluate(server.address(), "uwsgi.lock(1)", "uwsgi.unlock(1)", "uwsgi.sharedarea_write(0, 0, 'x')") == ["None"] * 3


#: Requests in greenlets: one holds the lock over a sleep, and in a worker of its own a lock is held natively.
GREENLETS = """
import os, time, uwsgi
inside, most = [], []
def application(environ, start_response):
    start_response("200 OK", [])
    path = environ["PATH_INFO"]
    if path == "/most":
        return [str(max(most, default=1)).encode()]
    if path == "/twice":
        uwsgi.lock()
        try:
            uwsgi.lock()
        except RuntimeError as error:
            return [str(error).encode()]
        finally:
            uwsgi.unlock()
    if path == "/other":
        # It belongs to another request.
        uwsgi.unlock()
        return [repr(uwsgi.is_locked()).encode()]
    uwsgi.lock()
    inside.append(None)
    most.append(len(inside))
    while path == "/hold" and not os.path.exists("go"):
        open("held", "w").close()
        time.sleep(0.001)
    time.sleep(0.002)
    inside.pop()
    uwsgi.unlock()
    return [b"done"]
"""


def test_requests_in_greenlets_hold_a_lock_one_after_another_and_let_others_run(serve):
    options = "module = shop\npythonpath = {directory}\nmaster = true\nprocesses = 2\ngevent = 20\ngevent-monkey-patch = true"
    server = serve.prepare(options)
    (server.directory / "shop.py").write_text(GREENLETS)
    server.start()
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(server.get, "/hold")
        wait_until((server.directory / "held").exists, "the lock is held")
        others = [pool.submit(server.get, "/") for _ in range(8)]
        # The worker of the holder, and the one whose requests wait, serve others.
        assert {server.get("/other").text for _ in range(6)} == {"True"}
        (server.directory / "go").touch()
        assert {answer.result().text for answer in [first, *others]} == {"done"}
    assert {server.get("/most").text for _ in range(4)} == {"1"}
    assert server.get("/twice").text == "this thread already holds lock 0, and would wait for itself"
    assert server.get("/other").text == "False"
