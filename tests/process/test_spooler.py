"""The spooler: jobs that wait as files in a directory, and processes that work on them."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from support import processes
from support.killed_at_step import KilledAtStep
from support.server import program
from support.spooler import MODIFIER, SHOP, Shop, jobs_in, put, write_job
from support.uwsgi import packet
from support.waiting import wait_until
from support_instance import reload_by_command
from support_users import NOBODY, python_for_everybody


@pytest.fixture
def shop(serve, tmp_path):
    """``shop("spooler-processes = 2", source="…")`` starts the application with a spooler."""

    def start(*options, **keywords):
        return Shop(serve, tmp_path, options, **keywords)

    return start


def test_a_job_of_a_worker_is_worked_on_at_once_and_removed(shop):
    found = shop("spooler-frequency = 3600")
    path = found.spool(name="one", color="red")
    name = os.path.basename(path)
    assert re.fullmatch(r"uwsgi_spoolfile_on_.+_\d+_\d+_\d+_\d+_\d+", name)
    assert path == f"{found.jobs}/{name}"
    found.wait_for_notes("one")
    found.spool(name="two")
    found.wait_for_notes("one", "two")
    found.wait_until_empty()
    found.server.wait_for_log(rf"^\[spooler\] written \d+ bytes to file {path}$")
    found.server.wait_for_log(rf"^\[spooler {found.jobs} pid: \d+\] managing request {name} \.\.\.$")
    found.server.wait_for_log(rf"^\[spooler {found.jobs} pid: \d+\] done with task {name} after \d+ seconds$")
    assert os.stat(found.jobs).st_mode & 0o777 == 0o750
    # Requests alone are counted as requests.
    assert "req: 2/2]" in found.server.whole_log()


RESULTS = """\
def work(job):
    word = job[b"name"].decode()
    note(word)
    if word == "raise":
        raise RuntimeError("no hay")
    if word == "exit":
        raise SystemExit(3)
    return {"retry": uwsgi.SPOOL_RETRY, "ignore": uwsgi.SPOOL_IGNORE, "text": "-2", "number": 7}.get(word, uwsgi.SPOOL_OK)
uwsgi.spooler = work
"""


@pytest.mark.parametrize("word", ["retry", "ignore", "raise", "exit", "text", "number"])
def test_a_job_that_is_not_done_stays_and_is_tried_again(word, shop):
    found = shop("spooler-frequency = 1", source=RESULTS)
    found.spool(name=word)
    found.wait_for_count(3)
    assert set(found.words()) == {word}
    assert len({pid for _, pid, _ in found.noted()}) == 1
    assert len(jobs_in(found.jobs)) == 1
    assert not (found.jobs / "failed").exists()
    if word == "raise":
        found.server.wait_for_log(r"^spooler 1: .*RuntimeError: no hay")


ANYWHERE = """\
import uwsgidecorators
uwsgi.spool({b"name": b"load"})
@uwsgidecorators.postfork
def begin():
    if uwsgi.worker_id():
        uwsgi.send_to_spooler({b"name": b"fork"})
def work(job):
    note(job[b"name"].decode())
    if job[b"name"] == b"load":
        uwsgi.spool(name="spooler", body=b"large")
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    uwsgi.spool({"name": "asgi"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""


def test_jobs_are_written_from_anywhere(shop):
    found = shop("spooler-frequency = 3600", "interface = asgi", source=ANYWHERE)
    found.server.get("/")
    expected = ["asgi", "fork", "load", "spooler"]
    wait_until(lambda: sorted(found.words()) == expected, lambda: f"{found.words()} {found.server.log}")


LOOKING = """\
def work(job):
    with open(os.path.join(os.path.dirname(NOTES), "seen"), "w") as file:
        print(uwsgi.i_am_the_spooler(), uwsgi.spooler_pid() == os.getpid(), uwsgi.spooler_pids() == [os.getpid()], file=file)
        print(os.getcwd(), os.getpriority(os.PRIO_PROCESS, 0), file=file)
        own = uwsgi.spooler_get_task(os.path.join(os.fsdecode(uwsgi.spoolers[0]), job["spooler_task_name"].decode()))
        print(own == job, uwsgi.worker_id(), file=file)
    note("seen")
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
def application(environ, start_response):
    start_response("200 OK", [])
    at = str(time.time() + 3600)
    path = uwsgi.spool(color="red", at=at, body=b"\\xff body", count=3)
    seen = [uwsgi.i_am_the_spooler(), uwsgi.spooler_jobs() == [path], uwsgi.spooler_pid() in uwsgi.spooler_pids()]
    task = uwsgi.spooler_get_task(path.decode())
    seen.append(task == {"spooler_task_name": path, b"color": b"red", b"at": at.encode(), b"count": b"3", "body": b"\\xff body"})
    seen += [uwsgi.spooler_get_task("/absent"), uwsgi.spoolers == (os.path.dirname(path),) * 2]
    seen += [uwsgi.SPOOL_OK, uwsgi.SPOOL_RETRY, uwsgi.SPOOL_IGNORE]
    uwsgi.spool(name="go")
    return [repr(seen).encode()]
"""


def test_functions_about_jobs_and_spoolers_say_what_is(shop):
    found = shop("spooler-processes = 2", source=LOOKING)
    assert found.server.get("/").text == "[None, True, True, True, None, True, -2, -1, 0]"
    found.wait_for_notes("seen")
    lines = (found.directory / "seen").read_text().splitlines()
    assert lines[0].startswith("True ")
    assert lines[1:] == [f"{found.jobs} 19", "True 0"]


def test_a_job_with_a_time_waits_for_it_and_no_longer(shop):
    found = shop("spooler-frequency = 3600")
    # Longer than a busy machine needs for the other job.
    at = int(time.time()) + 6
    path = found.spool(name="later", at=at)
    assert os.stat(path).st_mtime == at
    found.spool(name="now")
    found.wait_for_count(2)
    assert found.words() == ["now", "later"]
    assert found.noted()[1][2] >= at


def test_ordered_jobs_follow_their_priorities(shop, tmp_path):
    jobs = tmp_path / "jobs"
    for priority in ("", "10", "9", "1"):
        for place in range(2):
            write_job(jobs / priority, name=f"p{priority}-{place}")
    found = shop("spooler-ordered = true", spooler=f"spooler = {jobs}")
    found.wait_for_notes("p1-0", "p1-1", "p9-0", "p9-1", "p10-0", "p10-1", "p-0", "p-1")
    found.spool(name="new", priority="5")
    found.wait_for_count(9)
    assert (jobs / "5").is_dir()
    assert "ValueError: unable to spool job: `priority` is not a number" in found.spool(name="x", priority="../other")


def test_without_order_jobs_with_a_priority_are_worked_on_too(shop):
    found = shop("spooler-frequency = 3600")
    found.spool(name="one", priority="3")
    found.wait_for_notes("one")


#: The first job lasts until another process works on one too.
SHARED = """\
def work(job):
    note(job[b"name"].decode())
    while len({line.split()[1] for line in open(NOTES)}) < 2:
        time.sleep(0.01)
    time.sleep(0.02)
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""


def test_spoolers_of_one_directory_share_its_jobs_and_none_is_worked_on_twice(shop):
    found = shop("spooler-processes = 3", source=SHARED)
    for number in range(40):
        write_job(found.jobs, name=str(number))
    found.wait_for_count(40)
    found.wait_until_empty()
    assert sorted(map(int, found.words())) == list(range(40))
    assert len({pid for _, pid, _ in found.noted()}) > 1


def test_a_spooler_is_replaced_after_its_number_of_jobs_without_a_pause(shop):
    found = shop("spooler-max-tasks = 2", "spooler-quiet = true")
    for number in range(6):
        found.spool(name=str(number))
    found.wait_for_count(6)
    pids = [pid for _, pid, _ in found.noted()]
    assert len(set(pids)) == 3
    found.server.wait_for_log(rf"^\[spooler .* pid: {pids[0]}\] maximum number of tasks reached \(2\) recycling \.\.\.$")
    assert "next attempt" not in found.server.log
    assert "managing request" not in found.server.log


STUCK = """\
def work(job):
    note(job[b"name"].decode())
    if job[b"name"] == b"stuck":
        time.sleep(3600)
    if job[b"name"] == b"kill":
        os.kill(os.getpid(), 9)
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""


def test_a_job_beyond_its_time_is_killed_and_given_up_after_three_attempts(shop):
    found = shop("spooler-harakiri = 1", source=STUCK)
    found.server.expects_alarms = True
    name = os.path.basename(found.spool(name="stuck"))
    found.server.wait_for_log(rf"giving up on job {name}")
    assert found.words() == ["stuck"] * 3
    assert len({pid for _, pid, _ in found.noted()}) == 3
    found.server.wait_for_log(r"harakiri: killing spooler 1", count=3)
    found.spool(name="after")
    found.wait_for_count(4)


def test_set_user_harakiri_limits_a_job(shop):
    limited = STUCK.replace("    if job", "    uwsgi.set_user_harakiri(1)\n    if job", 1)
    found = shop("spooler-frequency = 1", source=limited)
    found.server.expects_alarms = True
    found.spool(name="stuck")
    found.server.wait_for_log(r"harakiri: killing spooler 1")
    found.spool(name="after")
    wait_until(lambda: "after" in found.words(), "the next job")


def test_a_job_that_kills_its_spooler_three_times_is_given_up_with_the_reason(shop):
    found = shop("spooler-frequency = 1", source=STUCK)
    found.server.expects_alarms = True
    name = os.path.basename(found.spool(name="kill"))
    found.wait_for_count(3)
    pids = [pid for _, pid, _ in found.noted()]
    reason = "it has ended its spooler 3 times (" + ", ".join(f"pid {pid}" for pid in pids) + ")"
    found.server.wait_for_log(rf"giving up on job {name}, now in the directory `failed`: {re.escape(reason)}")
    assert (found.jobs / "failed" / f"{name}.reason").read_text() == f"{reason}\n"
    assert (found.jobs / "failed" / name).exists()
    assert not os.listdir(found.jobs / ".attempts")
    found.spool(name="after")
    found.wait_for_count(4)
    assert found.words() == ["kill"] * 3 + ["after"]


KILLS = 10


def test_no_job_is_lost_when_spoolers_are_killed_at_any_moment(shop):
    found = shop("spooler-processes = 2", "spooler-frequency = 1", "spooler-quiet = true")
    found.server.expects_alarms = True
    killed = set()
    wanted = set()
    for round in range(KILLS):
        noted = len(found.noted())
        names = {f"{round}-{number}" for number in range(12)}
        wanted |= names
        for name in sorted(names):
            write_job(found.jobs, name=name)
        found.wait_for_count(noted + 1)
        # Jobs are short, so this hits any of the steps of a job or none.
        _, pid, _ = found.noted()[-1]
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        found.wait_until_empty()
        assert set(found.words()) == wanted
    assert len(killed) == KILLS
    assert not (found.jobs / "failed").exists()


def test_no_job_is_lost_whichever_step_of_it_kills_the_spooler(shop, tmp_path):
    kill = KilledAtStep(tmp_path)
    found = shop("spooler-frequency = 1", environment=kill.environment)
    found.server.expects_alarms = True

    def work_off(name):
        write_job(found.jobs, name=name)
        found.wait_until_empty()
        attempts = found.jobs / ".attempts"
        wait_until(lambda: not attempts.exists() or not os.listdir(attempts), lambda: found.server.log)

    step = 0
    has_killed = True
    while has_killed:
        # A spooler that has done a job is replaced without a pause.
        work_off("before")
        kill.arm(step)
        work_off(f"step-{step}")
        has_killed = kill.has_killed()
        kill.disarm()
        step += 1
    # The lock, the note of the attempt created and written, the job and the note removed.
    assert step > 5
    assert {word for word in found.words() if word != "before"} == {f"step-{number}" for number in range(step)}
    assert not (found.jobs / "failed").exists()


GENERATIONS = """\
def work(job):
    note("begin")
    while not os.path.exists(os.path.join(os.path.dirname(NOTES), "go")):
        time.sleep(0.01)
    note("end")
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""


def test_a_reload_never_has_two_generations_of_a_spooler_and_lets_a_job_finish(shop):
    found = shop("spooler-frequency = 1", source=GENERATIONS)
    found.spool(name="one")
    found.wait_for_notes("begin")
    ((_, first, _),) = found.noted()
    found.spool(name="two")
    reload_by_command(found.server)
    assert found.words() == ["begin"]
    assert processes.look(first) is not None
    (found.directory / "go").touch()
    found.wait_for_notes("begin", "end", "begin", "end")
    one, two = found.noted()[:2], found.noted()[2:]
    assert [pid for _, pid, _ in one] == [first, first]
    assert first not in [pid for _, pid, _ in two]
    found.wait_until_empty()
    assert not (found.jobs / "failed").exists()


def state_of_spooler(found, call):
    status, said = call("status", found.server.process.pid, "--json")
    assert status == 0, said
    (helper,) = json.loads(said)["helpers"]
    return helper["state"]


def test_a_stop_lets_a_job_finish_and_leaves_the_others(shop, call):
    found = shop(source=GENERATIONS)
    found.spool(name="one")
    found.wait_for_notes("begin")
    waiting = os.path.basename(found.spool(name="two"))
    found.server.send_signal(signal.SIGTERM)
    wait_until(lambda: state_of_spooler(found, call) == "ending", "the spooler has its order")
    (found.directory / "go").touch()
    assert found.server.wait_for_exit() == 0
    assert found.words() == ["begin", "end"]
    assert jobs_in(found.jobs) == [waiting]


def test_files_that_are_no_jobs_are_said_once_and_nothing_is_lost(shop):
    found = shop("spooler-frequency = 1")
    put(found.jobs, "uwsgi_spoolfile_on_junk", b"hello")
    (found.jobs / "uwsgi_spoolfile_on_directory").mkdir()
    # The one is of another user if we are root, the other can't be read if we are not.
    foreign = write_job(found.jobs, name="foreign", at=time.time() + 3600)
    if os.geteuid() == 0:
        os.chown(found.jobs / foreign, 65534, 65534)
    else:
        os.chmod(found.jobs / foreign, 0)
    os.utime(found.jobs / foreign, (1, 1))
    found.spool(name="one")
    found.wait_for_notes("one")
    found.server.wait_for_log(r"giving up on job uwsgi_spoolfile_on_junk, now in the directory `failed`: it is not a job")
    found.server.wait_for_log(r"job uwsgi_spoolfile_on_directory stays in the directory: it is a directory")
    found.server.wait_for_log(rf"job {foreign} stays in the directory: it (belongs to user 65534|can't be opened)")
    for number in range(3):
        found.spool(name=str(number))
        found.wait_for_count(number + 2)
    log = found.server.log
    assert [log.count(f"job {name} stays") for name in ("uwsgi_spoolfile_on_directory", foreign)] == [1, 1]
    assert (found.jobs / "failed" / "uwsgi_spoolfile_on_junk").read_bytes() == b"hello"
    assert (found.jobs / foreign).exists()


def test_jobs_go_on_when_attempts_can_not_be_noted_and_junk_stays_when_it_can_not_be_moved(shop, tmp_path):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for taken in (".attempts", "failed"):
        (jobs / taken).write_text("a file instead of a directory")
    put(jobs, "uwsgi_spoolfile_on_junk", b"hello")
    found = shop("spooler-frequency = 1", spooler=f"spooler = {jobs}")
    for number in range(3):
        found.spool(name=str(number))
        found.wait_for_count(number + 1)
    found.server.wait_for_log(r"can't count attempts at jobs: Not a directory")
    found.server.wait_for_log(r"job uwsgi_spoolfile_on_junk stays in the directory: it can't be moved to the directory `failed`")
    wait_until(lambda: jobs_in(jobs) == ["uwsgi_spoolfile_on_junk"], lambda: f"{os.listdir(jobs)}; {found.server.log}")
    assert found.server.log.count("can't count attempts at jobs") == 1
    assert found.server.log.count("job uwsgi_spoolfile_on_junk stays") == 1


def test_a_reload_with_another_directory_moves_the_spooler_there(shop):
    found = shop()
    found.spool(name="one")
    found.wait_for_notes("one")
    configuration = found.server.directory / "uwsgi.ini"
    configuration.write_text(configuration.read_text().replace(str(found.jobs), f"{found.jobs}-2"))
    found.server.send_signal(signal.SIGHUP)
    found.server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    # A worker of the old generation may still take a connection.
    second = f"{found.jobs}-2/uwsgi_spoolfile_on_"
    wait_until(lambda: found.spool(name="two").startswith(second), "a job in the second directory")
    wait_until(lambda: "two" in found.words() and jobs_in(f"{found.jobs}-2") == [], lambda: found.server.log)


FULL = """\
import resource
def application(environ, start_response):
    start_response("200 OK", [])
    said = []
    for most in (10, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        try:
            said.append(uwsgi.spool(name="one").decode())
        except ValueError as error:
            said.append(str(error))
    return ["\\n".join(said).encode()]
"""


def test_a_job_for_which_there_is_no_room_is_an_error_that_says_so_and_leaves_nothing(shop):
    found = shop(source=FULL)
    refused, written = found.server.get("/").text.splitlines()
    assert refused == f"unable to spool job: {found.jobs}: File too large (os error 27)"
    assert written.startswith(f"{found.jobs}/uwsgi_spoolfile_on_")
    found.wait_for_notes("one")
    found.wait_until_empty()
    assert os.listdir(found.jobs / ".new") == []


def test_spoolers_import_their_own_modules_and_work_in_their_own_directory(shop, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tasks.py").write_text(
        "import os, shop, uwsgi\ndef work(job):\n    shop.note(os.getcwd())\n    return uwsgi.SPOOL_OK\nuwsgi.spooler = work\n"
    )
    options = ["spooler-import = absent_module", "spooler-import = tasks", f"spooler-chdir = {tmp_path}/elsewhere"]
    found = shop(*options, source="del uwsgi.spooler\n")
    found.server.expects_alarms = True
    found.spool(name="one")
    found.wait_for_notes(str(tmp_path / "elsewhere"))
    found.server.wait_for_log(r"absent_module")


def test_without_a_function_jobs_stay_and_it_is_said_once(shop):
    found = shop("spooler-frequency = 1", source="del uwsgi.spooler\n")
    found.spool(name="one")
    found.server.wait_for_log(r"unable to find the spooler function, have you loaded it into the spooler process \?$")
    assert len(jobs_in(found.jobs)) == 1


def test_jobs_of_another_program_that_writes_in_place_are_found_too(shop):
    found = shop("spooler-frequency = 3600")
    found.spool(name="first")
    found.wait_for_notes("first")
    data = packet([("name", "second")], MODIFIER)
    with open(found.jobs / "uwsgi_spoolfile_on_other", "wb", buffering=0) as file:
        file.write(data[:5])
        file.write(data[5:])
    found.wait_for_notes("first", "second")


def test_a_job_names_its_directory_and_an_external_directory_has_no_spooler(shop):
    found = shop("spooler = {directory}/second", "spooler-external = {directory}/external", "spooler-frequency = 1")
    found.spool(name="one", spooler=found.server.directory / "second")
    found.wait_for_notes("one")
    external = found.server.directory / "external"
    found.spool(name="two", spooler=external)
    found.spool(name="three")
    found.wait_for_notes("one", "three")
    assert len(jobs_in(external)) == 1
    said = found.spool(name="four", spooler="/absent")
    assert said == 'ValueError: unable to spool job: unable to find spooler "/absent"'


def test_touch_spoolers_reload_replaces_spoolers_alone(shop):
    found = shop("touch-spoolers-reload = {directory}/touched")
    found.spool(name="one")
    found.wait_for_notes("one")
    before = {process.pid for process in found.server.processes()}
    (found.server.directory / "touched").touch()
    found.server.wait_for_log(r"replacing the spoolers")
    ((_, first, _),) = found.noted()
    wait_until(lambda: processes.look(first) is None, "the end of the first spooler")
    found.spool(name="two")
    found.wait_for_count(2)
    assert before - {process.pid for process in found.server.processes()} == {first}


def test_the_frequency_is_changed_while_spoolers_run(shop):
    source = RESULTS + "def application(environ, start_response):\n    start_response('200 OK', [])\n"
    source += "    uwsgi.spool(name='retry')\n    return [repr(uwsgi.set_spooler_frequency(1)).encode()]\n"
    found = shop("spooler-frequency = 3600", source=source)
    assert found.server.get("/").text == "True"
    # The second job wakes the spooler, which reads the frequency then.
    found.server.get("/")
    found.wait_for_count(8)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_directory_that_the_user_of_the_application_cannot_use_is_a_warning_of_the_start_and_of_check(start, open_directory):
    directory = open_directory / "theirs"
    directory.mkdir(mode=0o700)
    (open_directory / "shop.py").write_text("def application(environ, start_response):\n    pass\n")
    (open_directory / "app.ini").write_text(f"[uwsgi]\nhttp = 127.0.0.1:0\nmodule = shop\nuid = nobody\nspooler = {directory}\n")
    warning = f"app.ini:5: warning: the spool directory {directory} belongs to root (mode 700), and `uid` is nobody"
    checked = subprocess.run([*program(), "check", "app.ini"], cwd=open_directory, capture_output=True, text=True, timeout=60)
    assert checked.stdout.count(warning) == 1, checked.stdout
    # The user of uid may not be able to execute the Python of these tests: the warning does not depend on that.
    instance = start("--ini", open_directory / "app.ini", module=None, socket=None, ready=False, alarms=True)
    instance.wait_for_text(warning.removeprefix("app.ini:5: warning: "))
    assert instance.log.count(warning.removeprefix("app.ini:5: warning: ")) == 1
    assert f"chown nobody {directory}" in instance.log


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_the_directory_is_created_for_the_user_of_the_application(start, open_directory):
    python = python_for_everybody(open_directory)
    (open_directory / "shop.py").write_text(SHOP + f"NOTES = '{open_directory}/jobs/notes'\nuwsgi.spool(name='one')\n")
    options = ["--uid", "nobody", "--chdir", open_directory, "--spooler"]
    if python is None:
        # The user of uid can't execute a Python in root's home, and this is logged at startup.
        assert start(*options, open_directory / "jobs", module="shop:application", ready=False).wait_for_exit() != 0
        return
    keywords = {"module": "shop:application", "command": [python, "-m", "bolide"]}
    start(*options, open_directory / "jobs", **keywords)
    notes = open_directory / "jobs" / "notes"
    wait_until(lambda: notes.exists() and notes.read_text().startswith("one "), "a job")
    there = (open_directory / "jobs").stat()
    assert (there.st_uid, there.st_mode & 0o777) == (NOBODY.pw_uid, 0o750)
    # In a directory of a third user no one of the two may create it.
    (open_directory / "theirs").mkdir()
    os.chown(open_directory / "theirs", 1, 1)
    failed = start(*options, open_directory / "theirs" / "jobs", ready=False, **keywords)
    assert failed.wait_for_exit() == 1
    assert re.search(
        r"the directory of the spooler, .*/theirs/jobs, can't be created: .*Create it for the application's user", failed.log
    )
