"""uWSGI's signals: which process runs a handler, how often, and what becomes of them when processes exit.

The probe `signaled` registers handlers, and each request runs the Python code of its query string.
"""

import json
import urllib.parse

from support.statistics import read_statistics, worker_of
from support.waiting import wait_until
from support_processes import is_alive
from support_upgrade import pid_of, upgrade, workers_of

RAISED = "uwsgi.signal({})"


class Signaled:
    """A server with the probe, and its notes."""

    def __init__(self, instance, directory):
        self.instance = instance
        self.directory = directory

    def run(self, code):
        """Runs code in a view. Returns the pid of its worker, and what the code has left in `result`."""
        pid, _, result = self.instance.body(f"/?{urllib.parse.quote(code)}").partition(" ")
        return int(pid), result

    def begin(self, code):
        """Begins a request that runs this code. Returns its client."""
        client = self.instance.connect()
        client.send(f"GET /?{urllib.parse.quote(code)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return client

    def begin_waiting(self, name, code=""):
        """Begins a request that runs this code, and waits in its view until `release`. Returns its client and its worker."""
        client = self.begin(f"{code}\nwait_for({name!r})\nnote('view')")
        waiting = self.directory / f"{name}.waiting"
        wait_until(waiting.exists, "the view that waits")
        return client

    def release(self, name):
        (self.directory / name).touch()

    def notes(self, word=""):
        """Returns the notes that begin with a word, as lists of the word, the worker and the pid."""
        file = self.directory / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split() for line in lines if line.startswith(word)]

    def wait_for_notes(self, word, count):
        wait_until(
            lambda: len(self.notes(word)) >= count, lambda: f"{count} notes of {word}: {self.notes()}; {self.instance.log}"
        )
        return self.notes(word)


def served(start, tmp_path, *arguments, more="", **options):
    return Signaled(start(*arguments, "--env", f"MORE={more}", module="signaled", **options), tmp_path)


def test_a_busy_worker_is_passed_over_for_a_free_one(start, tmp_path):
    site = served(start, tmp_path, "--processes", "2")
    client = site.begin_waiting("gate")
    free, _ = site.run("[uwsgi.signal(1) for _ in range(10)]")
    notes = site.wait_for_notes("any1", 10)
    assert {int(pid) for _, _, pid in notes} == {free}
    assert site.notes("view") == []
    site.release("gate")
    assert client.read_response().status == 200
    assert len(site.notes("any1")) == 10


def test_a_signal_waits_for_the_end_of_a_request_if_no_worker_is_free(start, tmp_path):
    site = served(start, tmp_path)
    client = site.begin_waiting("gate", RAISED.format(1))
    site.release("gate")
    assert client.read_response().status == 200
    site.wait_for_notes("any1", 1)
    assert [word for word, _, _ in site.notes()] == ["view", "any1"]


def test_each_target_gets_its_signals(start, tmp_path):
    site = served(start, tmp_path, "--processes", "3")
    for number in (1, 16, 17, 18, 19):
        site.run(RAISED.format(number))
    site.wait_for_notes("", 1 + 3 + 1 + 1 + 3)
    workers = {number: [worker for _, worker, _ in site.notes(f"at{number}")] for number in (16, 17, 18, 19)}
    assert {number: sorted(found) for number, found in workers.items()} == {
        16: ["1", "2", "3"],
        17: ["1"],
        18: ["2"],
        19: ["1", "2", "3"],
    }
    assert len(site.notes("any1")) == 1


def test_a_target_that_the_instance_does_not_have_is_said_and_gets_nothing(start, tmp_path):
    more = "uwsgi.register_signal(40, 'worker7', noting('lost'))\nuwsgi.register_signal(41, 'nonsense', noting('lost'))"
    site = served(start, tmp_path, more=more, alarms=True)
    site.instance.wait_for_text("signal 40 has the target `worker7`: there are 1 workers; it is dropped whenever it is raised")
    site.instance.wait_for_text("signal 41 has the target `nonsense`: it is not a target")
    site.run("[uwsgi.signal(number) for number in (40, 41, 1)]")
    site.wait_for_notes("any1", 1)
    assert site.notes("lost") == []


def test_an_exception_in_a_handler_is_in_the_log_and_in_the_statistics_and_ends_nothing(start, tmp_path, free_port):
    address = ("127.0.0.1", free_port())
    site = served(start, tmp_path, "--stats", "{}:{}".format(*address), alarms=True)
    before = site.instance.worker()
    site.run("[uwsgi.signal(number) for number in (2, 1)]")
    site.wait_for_notes("any1", 1)
    site.instance.wait_for_log(r"^bolide: worker 1: an exception in signal 2$")
    site.instance.wait_for_log(r"^worker 1: TypeError: unsupported operand")
    assert site.instance.worker() == before
    worker = worker_of(address)
    assert (worker["signals"], worker["exceptions"], worker["signal_queue"]) == (2, 1, 0)
    assert site.run("result = [worker['signals'] for worker in uwsgi.workers()]")[1] == "[2]"


def test_more_signals_than_may_wait_are_dropped_and_counted(start, tmp_path, free_port, call):
    address = ("127.0.0.1", free_port())
    site = served(start, tmp_path, "--stats", "{}:{}".format(*address), alarms=True)
    # The only worker is inside of a handler, so that all of them wait.
    site.run(RAISED.format(5))
    wait_until((tmp_path / "handler.waiting").exists, "the handler")
    site.release("handler")
    site.run("[uwsgi.signal(1) for _ in range(1000)]")
    site.instance.wait_for_log(r"^bolide: signals are dropped, because 64 are already waiting for their target: ")

    def is_complete():
        signals = json.loads(call("status", "--json", site.instance.pid)[1])["signals"]
        return signals["dropped"] > 0 and len(site.notes("any1")) + signals["dropped"] + signals["waiting"] == 1000

    wait_until(is_complete, "each signal to be handled or counted")
    assert read_statistics(address)["signal_queue"] == 0


def test_a_worker_that_dies_in_a_handler_takes_no_other_signal_with_it(start, tmp_path):
    site = served(start, tmp_path, "--processes", "2", alarms=True)
    # In one view, so that all of them are on their way when the first one kills its worker.
    site.run("[uwsgi.signal(number) for number in (3, 1, 1, 4, 17, 17)]")
    site.wait_for_notes("at17", 2)
    site.wait_for_notes("any1", 2)
    site.instance.wait_for_text("was killed by SIGKILL")
    site.wait_for_notes("dying3", 1)
    site.wait_for_notes("dying4", 1)
    # The signal that killed a worker is not repeated.
    assert (len(site.notes("dying3")), len(site.notes("dying4"))) == (1, 1)
    assert {worker for _, worker, _ in site.notes("at17")} == {"1"}


def test_harakiri_ends_a_handler_that_takes_too_long(start, tmp_path):
    site = served(start, tmp_path, "--harakiri", "1", alarms=True)
    site.run(RAISED.format(5))
    site.instance.wait_for_log(r"^bolide: harakiri: killing worker 1 \(pid \d+\) while it serves signal 5 ")
    wait_until(lambda: site.instance.workers(), "the replacement")
    site.run(RAISED.format(1))
    site.wait_for_notes("any1", 1)


def test_a_signal_that_is_raised_while_the_application_is_loaded_is_handled_by_a_worker(start, tmp_path):
    site = served(start, tmp_path, "--processes", "2", more="uwsgi.signal(1)\nuwsgi.signal(16)")
    site.wait_for_notes("any1", 1)
    assert sorted(worker for _, worker, _ in site.wait_for_notes("at16", 2)) == ["1", "2"]


def test_threads_of_a_worker_run_handlers_beside_requests(start, tmp_path):
    site = served(start, tmp_path, "--threads", "3")
    client = site.begin_waiting("gate")
    site.run("[uwsgi.signal(1) for _ in range(3)]")
    site.wait_for_notes("any1", 3)
    assert site.notes("view") == []
    site.release("gate")
    assert client.read_response().status == 200


def test_handlers_of_asgi_workers_run_on_the_loop_and_coroutines_become_tasks(start, tmp_path):
    site = Signaled(start("--processes", "2", "--asgi", "signaled_asgi:application", module=None, alarms=True), tmp_path)
    assert site.instance.body("/71/72/70") == "ok"
    assert site.wait_for_notes("waiting71", 1)[0][0] == "waiting71-True"
    site.instance.wait_for_log(r"^worker \d: RuntimeError: signal 72$")
    # The timer of each worker's lifespan is one timer, and the loop stays alive.
    notes = site.wait_for_notes("plain70", 3)
    assert {word for word, _, _ in notes} == {"plain70-True"}
    assert site.instance.stop() == 0


def test_a_signal_without_a_handler_is_said_once(start, tmp_path):
    site = served(start, tmp_path, alarms=True)
    site.run("[uwsgi.signal(number) for number in (99, 99, 1)]")
    site.wait_for_notes("any1", 1)
    site.instance.wait_for_log(r"^bolide: worker 1: signal 99 has no handler here: register it while the application is loaded$")
    assert site.instance.log.count("signal 99 has no handler") == 1


def test_errors_of_the_functions_are_those_of_uwsgi(start, tmp_path):
    site = served(start, tmp_path)

    def error(call):
        code = (
            f"try:\n    result = repr(({call}))\nexcept Exception as error:\n    result = f'{{type(error).__name__}}: {{error}}'"
        )
        return site.run(code)[1]

    assert error("uwsgi.signal_registered(1), uwsgi.signal_registered(99), uwsgi.signal_registered(257)") == "(True, None, True)"
    assert error("uwsgi.add_cron(1, -1, -1, -1, -1, -1)") == "True"
    assert error("uwsgi.register_signal(1, 'x' * 64, print)") == "ValueError: unable to register signal"
    assert error("uwsgi.signal('1')").startswith("TypeError: ")
    assert error("uwsgi.signal(1.5)").startswith("TypeError: ")
    assert error("uwsgi.add_timer(1, 0)").startswith("ValueError: ")
    assert error("uwsgi.add_file_monitor(1, 'x' * 255)") == "ValueError: unable to add file monitor"
    assert error("uwsgi.signal(1, '127.0.0.1:9')").startswith("OSError: unable to deliver signal 1 to node 127.0.0.1:9")


def test_signal_wait_runs_the_handlers_of_what_comes_until_its_own(start, tmp_path):
    site = served(start, tmp_path, "--processes", "2")
    # The view has worker 1 or 2 alone to itself, so the signals are for that one.
    client = site.begin(
        "Path('began.part').write_text(str(uwsgi.worker_id()))\nos.rename('began.part', 'began')\n"
        "uwsgi.signal_wait(16 + uwsgi.worker_id())\nresult = str(uwsgi.signal_received())"
    )
    began = tmp_path / "began"
    wait_until(began.exists, "the view")
    own = 16 + int(began.read_text())
    site.run(f"uwsgi.signal(16), uwsgi.signal({own})")
    assert client.read_response().text.split()[1] == str(own)
    assert [word for word, worker, _ in site.notes("at") if worker == began.read_text()] == ["at16", f"at{own}"]


def test_workers_that_wait_for_a_signal_before_they_serve_get_it(start, tmp_path):
    more = """
if True:
    def wait():
        if uwsgi.worker_id() != 2:
            uwsgi.signal_wait(16)
            note(f"received{uwsgi.signal_received()}")
    uwsgi.post_fork_hook = wait
"""
    site = served(start, tmp_path, "--processes", "3", more=more, ready=False)
    site.instance.wait_for_log("listening on")
    site.run(RAISED.format(16))
    notes = site.wait_for_notes("received16", 2)
    assert sorted(worker for _, worker, _ in notes) == ["1", "3"]
    site.instance.wait_for_log("ready: 3 workers")


def test_lazy_applications_have_their_targets(start, tmp_path):
    site = served(start, tmp_path, "--processes", "2", "--lazy-apps")
    site.run("[uwsgi.signal(number) for number in (16, 18)]")
    assert sorted(worker for _, worker, _ in site.wait_for_notes("at16", 2)) == ["1", "2"]
    assert [worker for _, worker, _ in site.wait_for_notes("at18", 1)] == ["2"]


def test_mules_and_farms_have_their_signals(start, tmp_path):
    targets = {50: "mule", 51: "mules", 52: "mule2", 53: "farm_paint", 54: "farm1"}
    more = "\n".join(
        f"uwsgi.register_signal({number}, {target!r}, lambda number: note(f'mule-{{uwsgi.mule_id()}}-{{number}}'))"
        for number, target in targets.items()
    )
    site = served(start, tmp_path, "--mules", "3", "--farm", "paint:2,3", more=more)
    for number in targets:
        site.run(RAISED.format(number))
    notes = [word.split("-")[1:] for word, _, _ in site.wait_for_notes("mule-", 7)]
    mules = {number: sorted(mule for mule, found in notes if found == str(number)) for number in targets}
    assert mules[51] == ["1", "2", "3"]
    assert mules[52] == ["2"]
    assert len(mules[50]) == 1
    assert set(mules[53] + mules[54]) <= {"2", "3"}
    # A reload has other mules, with the same targets.
    site.instance.reload(2)
    site.run(RAISED.format(51))
    assert len(site.wait_for_notes("mule-", 10)) == 10


def test_a_spooler_has_its_signals(start, tmp_path):
    more = "uwsgi.register_signal(50, 'spooler', lambda number: note(f'spooler-{uwsgi.i_am_the_spooler()}'))"
    (tmp_path / "jobs").mkdir()
    site = served(start, tmp_path, "--spooler", tmp_path / "jobs", more=more)
    site.run("[uwsgi.signal(50) for _ in range(3)]")
    notes = site.wait_for_notes("spooler-", 3)
    assert {word for word, _, _ in notes} == {"spooler-True"}
    assert len({pid for _, _, pid in notes}) == 1


def test_a_busy_mule_is_passed_over_and_takes_signals_while_it_waits_for_messages(start, tmp_path):
    more = """
if True:
    def handle(number):
        note(f"mule{number}-{uwsgi.mule_id()}")
        if number == 60:
            wait_for("mule")
    uwsgi.register_signal(60, "mule", handle)
    uwsgi.register_signal(61, "mule", handle)
    from uwsgidecorators import mule
    @mule(1)
    def loop():
        while True:
            note("message-" + uwsgi.mule_get_msg().decode())
"""
    site = served(start, tmp_path, "--mules", "2", more=more)
    site.run(RAISED.format(60))
    ((busy, _, _),) = site.wait_for_notes("mule60", 1)
    site.run("[uwsgi.signal(61) for _ in range(3)]")
    free = {word for word, _, _ in site.wait_for_notes("mule61", 3)}
    assert len(free) == 1
    assert busy[-1] not in {word[-1] for word in free}
    site.release("mule")
    site.run("uwsgi.mule_msg(b'hello', 1)")
    site.wait_for_notes("message-hello", 1)


def test_paused_workers_run_no_handler_until_they_go_on(start, tmp_path, call):
    site = served(start, tmp_path, "--pidfile", tmp_path / "shop.pid")
    client = site.begin_waiting("gate", RAISED.format(1))
    assert call("pause")[0] == 0
    site.release("gate")
    assert client.read_response().status == 200
    site.instance.wait_for_text("paused")
    assert [word for word, _, _ in site.notes()] == ["view"]
    assert call("resume")[0] == 0
    site.wait_for_notes("any1", 1)


NEW = """
from uwsgidecorators import timer

@timer(1)
def tick(number):
    note("tick-{version}")
"""


def test_a_reload_has_the_timers_of_the_new_code_alone(start, tmp_path):
    (tmp_path / "version").write_text("old")
    more = "version = Path('version').read_text()\n" + NEW.replace('"tick-{version}"', 'f"tick-{version}-"')
    site = served(start, tmp_path, more=more)
    site.wait_for_notes("tick-old-", 1)
    (tmp_path / "version").write_text("new")
    site.instance.reload(2)
    before = len(site.notes("tick-old-"))
    site.wait_for_notes("tick-new-", 2)
    assert len(site.notes("tick-old-")) == before


def test_a_generation_that_can_not_be_loaded_registers_and_raises_nothing(start, tmp_path):
    more = NEW.replace("{version}", "") + "\nif uwsgi.is_a_reload:\n    uwsgi.signal(1)\n    uwsgi.add_timer(1, 1)\n    1 / 0"
    site = served(start, tmp_path, more=more, alarms=True)
    site.wait_for_notes("tick-", 1)
    site.instance.send_signal(1)
    site.instance.wait_for_text("generation 2 could not be loaded")
    site.wait_for_notes("tick-", len(site.notes("tick-")) + 2)
    assert site.notes("any1") == []


def test_an_upgrade_hands_the_timers_over(upgradable, tmp_path):
    more = NEW.replace("{version}", "")
    instance = upgradable("--processes", "2", "--env", f"MORE={more}", module="signaled")
    site = Signaled(instance, tmp_path)
    old = instance.pid
    site.wait_for_notes("tick-", 1)
    upgrade(tmp_path)
    wait_until(lambda: not is_alive(old), "the end of the old master")
    workers = set(map(str, workers_of(pid_of(tmp_path))))
    count = len(site.notes("tick-"))
    notes = site.wait_for_notes("tick-", count + 2)[count:]
    assert {pid for _, _, pid in notes} <= workers
