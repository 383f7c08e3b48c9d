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
    """A folder with a job of each kind. Returns it and their names."""
    folder = tmp_path / "jobs"
    at = int(time.time()) + 3600
    names = {
        "plain": write_job(folder, name="plain", colour="red\x1b[31m"),
        "later": write_job(folder, at=at, name="later"),
        "first": write_job(folder / "5", name="first"),
        "failed": write_job(folder / "failed", name="failed"),
    }
    (folder / "failed" / f"{names['failed']}.reason").write_text("it has ended its spooler 3 times (pid 4711)\n")
    return folder, names


def listed(call, folder):
    status, said = call("spool", "list", "--json", folder)
    assert status == 0, said
    (one,) = json.loads(said)
    return {job["name"]: (job["state"], job["detail"]) for job in one["jobs"]}


def test_jobs_are_listed_in_order_with_what_happens_to_them(call, jobs):
    folder, names = jobs
    status, said = call("spool", "list", folder)
    lines = said.splitlines()
    assert status == 0
    assert lines[0] == f"{folder}: 3 waiting, 0 in progress, 1 failed"
    assert [line.split()[-1] for line in lines[1:5]] == [f"5/{names['first']}", names["plain"], names["later"], names["failed"]]
    assert [line.split()[0] for line in lines[1:5]] == ["waiting", "waiting", "until", "failed"]
    assert lines[5].strip() == "it has ended its spooler 3 times (pid 4711)"
    found = listed(call, folder)
    assert found[names["plain"]] == ("waiting", None)
    assert found[names["later"]][0] == "until"
    assert found[names["failed"]] == ("failed", "it has ended its spooler 3 times (pid 4711)")


def test_the_content_of_a_job_is_shown_without_control_characters(call, jobs):
    folder, names = jobs
    status, said = call("spool", "show", folder, names["plain"])
    assert (status, said) == (0, f"{names['plain']}\n  name = plain\n  colour = red\\u{{1b}}[31m\n")
    status, said = call("spool", "show", "--json", folder, f"5/{names['first']}")
    assert json.loads(said)["variables"] == [["name", "first"]]
    put(folder, "uwsgi_spoolfile_on_body", packet([], MODIFIER) + b"\xff text")
    _, said = call("spool", "show", folder, folder / "uwsgi_spoolfile_on_body")
    assert said.splitlines()[1] == "  body (6 B): \\xff text"


def test_failed_jobs_are_retried_and_jobs_are_dropped(call, jobs):
    folder, names = jobs
    assert call("spool", "retry", folder, names["failed"]) == (0, f"job {names['failed']} waits again\n")
    assert listed(call, folder)[names["failed"]] == ("waiting", None)
    assert os.listdir(folder / "failed") == []
    assert call("spool", "retry", "--all", folder) == (0, "no job has failed\n")
    assert call("spool", "drop", folder, names["plain"], f"5/{names['first']}")[0] == 0
    assert set(listed(call, folder)) == {names["later"], names["failed"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "absent"], "there is no folder or file `absent`"),
        (["show", "{folder}", "uwsgi_spoolfile_on_absent"], "there is no job `uwsgi_spoolfile_on_absent`"),
        (["drop", "{folder}", "../../etc/passwd"], "there is no job `../../etc/passwd`"),
        (["drop", "{folder}"], "name the jobs"),
        (["retry", "{folder}"], "or write `--all`"),
        (["mend", "{folder}", "a"], "there is no action `mend`"),
        (["list"], "name an action, and a folder"),
        (["list", "--fast", "{folder}"], "there is no flag `--fast`"),
    ],
)
def test_mistakes_are_said(words, said, call, jobs):
    folder, _ = jobs
    status, output = call("spool", *(word.format(folder=folder) for word in words))
    assert status == 2
    assert said in output


def test_the_folders_of_a_configuration_are_found(call, jobs, tmp_path):
    folder, names = jobs
    lines = ["[uwsgi]", "http-socket = 127.0.0.1:0", "module = shop", f"spooler = {folder}", f"spooler = {tmp_path}/other"]
    (tmp_path / "uwsgi.ini").write_text("\n".join(lines))
    (tmp_path / "other").mkdir()
    other = write_job(tmp_path / "other", name="other")
    status, said = call("spool", "list", "uwsgi.ini")
    assert status == 0
    assert f"{folder}: 3 waiting" in said
    assert f"{tmp_path}/other: 1 waiting" in said
    assert call("spool", "drop", "uwsgi.ini", other, names["plain"])[0] == 0


def test_a_job_in_progress_is_seen_everywhere_and_not_dropped(serve, tmp_path, call):
    found = Shop(serve, tmp_path, ["spooler-processes = 2", "stats = {folder}/stats.sock"], source=STUCK)
    path = found.spool(name="one")
    name = os.path.basename(path)
    found.wait_for_notes("one")
    ((_, pid, _),) = found.noted()
    assert listed(call, found.jobs) == {name: ("in progress", pid)}
    status, said = call("spool", "drop", found.jobs, name)
    assert (status, said) == (2, f"bolide spool: job {name}: a process works on it\n")
    _, said = call("status", str(found.server.process.pid))
    assert name in said
    statistics = str(found.server.folder / "stats.sock")
    spoolers = read_statistics(statistics)["spoolers"]
    assert {(one["dir"], one["tasks"], one["respawns"]) for one in spoolers} == {(str(found.jobs), 0, 0)}
    assert {one["pid"]: (one["running"], one["working_on"]) for one in spoolers}[pid] == (1, name)
    assert sorted(one["running"] for one in spoolers) == [0, 1]
    (found.folder / "go").touch()
    found.wait_until_empty()
    wait_until(lambda: sum(one["tasks"] for one in read_statistics(statistics)["spoolers"]) == 1, "a counted job")


def test_root_leaves_the_folder_of_another_user_alone(call, jobs):
    folder, names = jobs
    if os.geteuid() != 0:
        # Only root can make such a folder, and for other users the kernel decides.
        assert call("spool", "drop", folder, names["plain"])[0] == 0
        return
    os.chown(folder, 65534, 65534)
    status, said = call("spool", "drop", folder, names["plain"])
    assert status == 2
    assert "run this command as that user (`sudo -u nobody bolide spool …`)" in said
    assert names["plain"] in os.listdir(folder)
