"""``bolide spool``: jobs as an operator sees and changes them, with and without a running server."""

import json
import os
import time

import pytest
from support.spooler import MODIFIER, Shop, put, write_job
from support.statistics import read_statistics
from support.uwsgi import packet
from support.waiting import wait_until

STUCK = """\
def work(job):
    note(job[b"name"].decode())
    while not os.path.exists(os.path.join(os.path.dirname(NOTES), "go")):
        time.sleep(0.01)
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""


@pytest.fixture
def jobs(tmp_path):
    """A directory with a job of each kind. Returns it and their names."""
    directory = tmp_path / "jobs"
    at = int(time.time()) + 3600
    names = {
        "plain": write_job(directory, name="plain", color="red\x1b[31m"),
        "later": write_job(directory, at=at, name="later"),
        "first": write_job(directory / "5", name="first"),
        "failed": write_job(directory / "failed", name="failed"),
    }
    (directory / "failed" / f"{names['failed']}.reason").write_text("it has ended its spooler 3 times (pid 4711)\n")
    return directory, names


def listed(call, directory):
    status, said = call("spool", "list", "--json", directory)
    assert status == 0, said
    (one,) = json.loads(said)
    return {job["name"]: (job["state"], job["detail"]) for job in one["jobs"]}


def test_jobs_are_listed_in_order_with_what_happens_to_them(call, jobs):
    directory, names = jobs
    status, said = call("spool", "list", directory)
    lines = said.splitlines()
    assert status == 0
    assert lines[0] == f"{directory}: 3 waiting, 0 in progress, 1 failed"
    assert [line.split()[-1] for line in lines[1:5]] == [f"5/{names['first']}", names["plain"], names["later"], names["failed"]]
    assert [line.split()[0] for line in lines[1:5]] == ["waiting", "waiting", "until", "failed"]
    assert lines[5].strip() == "it has ended its spooler 3 times (pid 4711)"
    found = listed(call, directory)
    assert found[names["plain"]] == ("waiting", None)
    assert found[names["later"]][0] == "until"
    assert found[names["failed"]] == ("failed", "it has ended its spooler 3 times (pid 4711)")


def test_the_content_of_a_job_is_shown_without_control_characters(call, jobs):
    directory, names = jobs
    status, said = call("spool", "show", directory, names["plain"])
    assert (status, said) == (0, f"{names['plain']}\n  name = plain\n  color = red\\u{{1b}}[31m\n")
    status, said = call("spool", "show", "--json", directory, f"5/{names['first']}")
    assert json.loads(said)["variables"] == [["name", "first"]]
    put(directory, "uwsgi_spoolfile_on_body", packet([], MODIFIER) + b"\xff text")
    _, said = call("spool", "show", directory, directory / "uwsgi_spoolfile_on_body")
    assert said.splitlines()[1] == "  body (6 B): \\xff text"


def test_failed_jobs_are_retried_and_jobs_are_dropped(call, jobs):
    directory, names = jobs
    assert call("spool", "retry", directory, names["failed"]) == (0, f"job {names['failed']} waits again\n")
    assert listed(call, directory)[names["failed"]] == ("waiting", None)
    assert os.listdir(directory / "failed") == []
    assert call("spool", "retry", "--all", directory) == (0, "no job has failed\n")
    assert call("spool", "drop", directory, names["plain"], f"5/{names['first']}")[0] == 0
    assert set(listed(call, directory)) == {names["later"], names["failed"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "absent"], "there is no directory or file `absent`"),
        (["show", "{directory}", "uwsgi_spoolfile_on_absent"], "there is no job `uwsgi_spoolfile_on_absent`"),
        (["drop", "{directory}", "../../etc/passwd"], "there is no job `../../etc/passwd`"),
        (["drop", "{directory}"], "specify the jobs"),
        (["retry", "{directory}"], "or write `--all`"),
        (["mend", "{directory}", "a"], "there is no action `mend`"),
        (["list"], "specify an action, and a directory"),
        (["list", "--fast", "{directory}"], "there is no flag `--fast`"),
    ],
)
def test_mistakes_are_said(words, said, call, jobs):
    directory, _ = jobs
    status, output = call("spool", *(word.format(directory=directory) for word in words))
    assert status == 2
    assert said in output


def test_the_directories_of_a_configuration_are_found(call, jobs, tmp_path):
    directory, names = jobs
    lines = ["[uwsgi]", "http-socket = 127.0.0.1:0", "module = shop", f"spooler = {directory}", f"spooler = {tmp_path}/other"]
    (tmp_path / "uwsgi.ini").write_text("\n".join(lines))
    (tmp_path / "other").mkdir()
    other = write_job(tmp_path / "other", name="other")
    status, said = call("spool", "list", "uwsgi.ini")
    assert status == 0
    assert f"{directory}: 3 waiting" in said
    assert f"{tmp_path}/other: 1 waiting" in said
    assert call("spool", "drop", "uwsgi.ini", other, names["plain"])[0] == 0


def test_a_job_in_progress_is_seen_everywhere_and_not_dropped(serve, tmp_path, call):
    found = Shop(serve, tmp_path, ["spooler-processes = 2", "stats = {directory}/stats.sock"], source=STUCK)
    path = found.spool(name="one")
    name = os.path.basename(path)
    found.wait_for_notes("one")
    ((_, pid, _),) = found.noted()
    assert listed(call, found.jobs) == {name: ("in progress", pid)}
    status, said = call("spool", "drop", found.jobs, name)
    assert (status, said) == (2, f"bolide spool: job {name}: a process works on it\n")
    _, said = call("status", str(found.server.process.pid))
    assert name in said
    statistics = str(found.server.directory / "stats.sock")
    spoolers = read_statistics(statistics)["spoolers"]
    assert {(one["dir"], one["tasks"], one["respawns"]) for one in spoolers} == {(str(found.jobs), 0, 0)}
    assert {one["pid"]: (one["running"], one["working_on"]) for one in spoolers}[pid] == (1, name)
    assert sorted(one["running"] for one in spoolers) == [0, 1]
    (found.directory / "go").touch()
    found.wait_until_empty()
    wait_until(lambda: sum(one["tasks"] for one in read_statistics(statistics)["spoolers"]) == 1, "a counted job")


def test_root_leaves_the_directory_of_another_user_alone(call, jobs):
    directory, names = jobs
    if os.geteuid() != 0:
        # Only root can make such a directory, and for other users the kernel decides.
        assert call("spool", "drop", directory, names["plain"])[0] == 0
        return
    os.chown(directory, 65534, 65534)
    status, said = call("spool", "drop", directory, names["plain"])
    assert status == 2
    assert "run this command as that user (`sudo -u nobody bolide spool …`)" in said
    assert names["plain"] in os.listdir(directory)
