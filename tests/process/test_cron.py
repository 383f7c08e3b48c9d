"""Cron jobs. A job that is due every minute runs at startup, so no test waits for a minute."""

import signal
from pathlib import Path

import pytest
from support import processes
from support.waiting import wait_until
from support_processes import is_alive

ALWAYS = "-1 -1 -1 -1 -1"


def test_a_job_that_is_due_runs_at_the_start_and_its_words_and_its_end_are_in_the_log(start, tmp_path):
    instance = start("--cron", f"{ALWAYS} echo from the job; pwd; exit 3", "--env", "COLOR=red", alarms=True)
    instance.wait_for_log(r"^\[cron echo\] from the job$")
    instance.wait_for_log(rf"^\[cron echo\] {tmp_path}$")
    instance.wait_for_log(r"^bolide: cron echo \(pid \d+\) exited with status 3 after ")
    assert instance.body()
    assert instance.stop() == 0


def test_a_job_of_another_time_does_not_run(start):
    # The 31st of February never comes.
    instance = start("--cron", "0 0 31 2 -1 echo never", "--cron", f"{ALWAYS} echo always", alarms=True)
    instance.wait_for_log(r"^\[cron echo\] always$")
    instance.wait_for_log(r"^bolide: cron echo \(pid \d+\) exited")
    assert "never" not in instance.log


def test_cron2_takes_its_words_and_a_job_beyond_its_harakiri_is_killed_with_all_that_it_has_started(start, tmp_path):
    note = tmp_path / "pids"
    command = f"sleep 1000 & echo $! > {note}; echo $COLOR; wait"
    # Time enough for its words, also on a busy machine.
    instance = start("--cron2", f"minute=-1,unique=1,harakiri=5 {command}", "--env", "COLOR=red", alarms=True)
    instance.wait_for_log(r"^\[cron sleep\] red$")
    instance.wait_for_log(r"^bolide: cron sleep \(pid \d+\) takes too long \(harakiri\): killing it$")
    instance.wait_for_log(r"^bolide: cron sleep \(pid \d+\) was killed by SIGKILL after ")
    wait_until(lambda: not is_alive(int(note.read_text())), "the end of what the job has started")


def test_cron_harakiri_kills_jobs_that_have_no_limit_of_their_own(start):
    patient = "minute=-1,harakiri=1000 trap 'echo told to end; exit 0' TERM; echo can be told; while :; do sleep 0.1; done"
    instance = start("--cron-harakiri", "1", "--cron", f"{ALWAYS} exec sleep 1000", "--cron2", patient, alarms=True)
    instance.wait_for_log(r"^bolide: cron sleep \(pid \d+\) takes too long \(harakiri\): killing it$")
    instance.wait_for_log(r"^bolide: cron sleep \(pid \d+\) was killed by SIGKILL after ")
    instance.wait_for_text("] can be told")
    assert instance.stop() == 0
    assert "told to end" in instance.log


def test_a_job_that_runs_outlives_a_reload_and_is_stopped_with_the_instance(start, tmp_path):
    note = tmp_path / "pid"
    instance = start("--unique-cron", f"{ALWAYS} echo $$ > {note}; exec sleep 1000", alarms=True)
    pid = int(wait_until(lambda: note.exists() and note.read_text().strip(), "the job"))
    try:
        instance.reload(2)
        assert is_alive(pid)
        assert instance.stop() == 0
        assert not is_alive(pid)
        instance.wait_for_text(f"(pid {pid}) ended on SIGTERM after")
    finally:
        if is_alive(pid):
            processes.kill(pid)


def test_a_killed_master_takes_its_jobs_with_it(start, tmp_path):
    note = tmp_path / "pid"
    instance = start("--cron", f"{ALWAYS} trap '' TERM; echo $$ > {note}; while :; do sleep 1; done", alarms=True)
    pid = int(wait_until(lambda: note.exists() and note.read_text().strip(), "the job"))
    instance.send_signal(signal.SIGKILL)
    instance.process.wait()
    wait_until(lambda: not is_alive(pid), "the end of the job")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("cron", "1 2 3 4", "lacks five numbers and a command"),
        ("cron", "*/5 * * * * x", "has `*/5` instead of a number"),
        ("cron", "1 2 3 4 5", "lacks five numbers and a command"),
        ("cron2", "minute=1", "has no command"),
        ("cron2", "legion=lord x", "not supported"),
        ("legion-cron", "lord 1 1 1 1 1 x", "write `lock-engine = redis://HOST:6379/0`"),
        ("cron-curl", "1 1 1 1 1 http://localhost", "curl -fsS URL"),
    ],
)
def test_a_job_that_can_not_be_is_refused_at_the_start(refuse, option, value, words):
    refuse(option, value, words)


def test_a_time_that_never_comes_is_reported(fail, tmp_path):
    configuration = tmp_path / "uwsgi.ini"
    configuration.write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\ncron = 61 -1 -1 -1 -1 x\n")
    _, lines = fail("check", configuration)
    assert any("there is no minute 61: the command never runs" in line for line in lines), lines


def test_the_attendant_is_not_there_where_nothing_asks_for_it(start):
    instance = start("--auto-procname")
    names = [Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in instance.processes()]
    assert not any(b"attendant" in name for name in names)
