"""The unit files in packaging/systemd: systemd accepts them unchanged, and rates their protection as OK."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
from support.server import program

UNITS = Path(__file__).resolve().parents[2] / "packaging" / "systemd"
#: Maximum exposure of `systemd-analyze security`, of 100: below 25 it says OK; a service without protection has 96.
MAX_EXPOSURE = 25
#: The same for the units that `bolide init` writes, and what a port below 1024 adds.
MAX_INIT_EXPOSURE = 20
LOW_PORT = 2


@pytest.fixture
def analyze(tmp_path):
    """Runs systemd-analyze on copies of the units, in which the program is the one under test."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    for unit in UNITS.iterdir():
        text = unit.read_text()
        assert "/usr/bin/bolide" in text or unit.suffix == ".socket"
        (tmp_path / unit.name).write_text(text.replace("/usr/bin/bolide", program()[0]))
    # An instance of a template is a separate unit.
    for kind in ("service", "socket"):
        shutil.copy(tmp_path / f"bolide@.{kind}", tmp_path / f"bolide@shop.{kind}")

    def analyze(*arguments):
        done = subprocess.run(["systemd-analyze", *arguments], cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return analyze


@pytest.mark.parametrize("unit", ["bolide.service", "bolide.socket", "bolide@shop.service", "bolide@shop.socket"])
def test_systemd_takes_the_unit_without_a_word(unit, analyze, tmp_path):
    status, said = analyze("verify", "--man=no", str(tmp_path / unit))
    # Messages about other units of this machine are ignored.
    ours = [line for line in said.splitlines() if "bolide" in line]
    assert (status, ours) == (0, []), said


@pytest.mark.parametrize("unit", ["bolide.service", "bolide@shop.service"])
def test_the_service_is_well_protected(unit, analyze, tmp_path):
    status, said = analyze("security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager", str(tmp_path / unit))
    assert status == 0, said[-2000:]


def test_a_unit_with_a_mistake_would_be_noticed(analyze, tmp_path):
    broken = tmp_path / "broken.service"
    broken.write_text((tmp_path / "bolide.service").read_text().replace("KillMode=mixed", "KillMode=mixture"))
    _, said = analyze("verify", "--man=no", str(broken))
    assert "KillMode" in said or "mixture" in said
    open_to_all = tmp_path / "open.service"
    open_to_all.write_text(f"[Service]\nExecStart={program()[0]} x.ini\n")
    status, _ = analyze("security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager", str(open_to_all))
    assert status != 0


#: A configuration that writes to many places.
WRITES = """[uwsgi]
module = app
http-socket = 0.0.0.0:80
socket = /run/shop/sockets/app.sock
stats = {directory}/run/stats.sock
pidfile = /run/shop/app.pid
logto = /var/log/shop/app.log
spooler = {directory}/jobs
crash-reports = /var/lib/shop/crashes
cache2 = name=pages,items=10,store=/var/cache/shop/pages
queue = 10
queue-store = {directory}/data/queue
"""


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "a shop"
    directory.mkdir()
    (directory / "app.py").write_text("def application(environ, start_response):\n    pass\n")
    return directory


def init(directory, *arguments):
    """Returns the unit that `bolide init --systemd` writes, and what it says."""
    for unit in directory.glob("*.service"):
        unit.unlink()
    command = [*program(), "init", "--systemd", *arguments]
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=60)
    (unit,) = directory.glob("*.service")
    return unit, done.stdout


def settings(unit):
    found = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def is_taken(unit, analyze, more=0):
    """Checks that systemd takes the unit without a word and rates its protection; returns its settings."""
    status, said = analyze("verify", "--man=no", str(unit))
    assert (status, [line for line in said.splitlines() if unit.name in line]) == (0, []), said
    status, said = analyze("security", "--offline=true", f"--threshold={MAX_INIT_EXPOSURE + more}", "--no-pager", str(unit))
    assert status == 0, said[-2000:]
    return settings(unit)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_the_unit_that_init_writes_runs_as_the_owner_of_the_directory_and_is_protected_like_the_packages(project, analyze):
    owner = pwd.getpwnam("daemon")
    os.chown(project, owner.pw_uid, owner.pw_gid)
    unit, said = init(project, "app:application")
    found = is_taken(unit, analyze)
    assert found["User"] == ["daemon"]
    assert "DynamicUser" not in found
    assert "sudo systemctl enable --now" in said
    packaged = settings(UNITS / "bolide.service")
    own = {"Description", "Documentation", "ExecStart", "ExecReload", "User", "Group", "RuntimeDirectory", "StateDirectory"}
    own |= {"LogsDirectory", "PrivateTmp"}  # The directory of the test is in /tmp.
    assert {key: value for key, value in found.items() if key not in own} == {
        key: value for key, value in packaged.items() if key not in own
    }


@pytest.mark.skipif(os.getuid() != 0, reason="the directory belongs to root")
def test_a_directory_of_root_gets_a_user_of_systemds_and_no_service_of_root(project, analyze):
    unit, said = init(project, "app:application")
    found = is_taken(unit, analyze)
    assert found["DynamicUser"] == ["yes"]
    assert "User" not in found
    assert "DynamicUser=" in said
    unit, _ = init(project, "--user", "www-data")
    assert is_taken(unit, analyze)["User"] == ["www-data"]
    for wrong in (["--user", "root"], ["--user", "0"], ["--user"], ["--user", "a b"], ["--user=-x"]):
        done = subprocess.run([*program(), "init", "--systemd", *wrong], cwd=project, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert "user" in done.stderr + done.stdout


def test_the_service_may_write_where_the_configuration_writes_and_nowhere_else(project, analyze):
    (project / "bolide.ini").write_text(WRITES.format(directory=project))
    unit, said = init(project, "--user", "www-data")
    found = is_taken(unit, analyze, more=LOW_PORT)
    paths = [f'"-{project}/{name}"' for name in ("data", "jobs", "run")]
    assert sorted(found["ReadWritePaths"]) == paths
    assert found["RuntimeDirectory"][0].split() == ["bolide", "shop", "shop/sockets"]
    assert found["LogsDirectory"][0].split() == ["bolide", "shop"]
    assert found["StateDirectory"][0].split() == ["bolide", "shop/crashes"]
    assert found["CacheDirectory"] == ["shop"]
    assert found["AmbientCapabilities"] == ["CAP_NET_BIND_SERVICE"]
    assert f'sudo install -d -o www-data "{project}/data" "{project}/jobs" "{project}/run"' in said


def test_the_user_of_the_configuration_is_that_of_the_unit(project, analyze):
    (project / "bolide.ini").write_text("[uwsgi]\nmodule = app\nhttp = 127.0.0.1:8000\nuid = www-data\ngid = www-data\n")
    unit, _ = init(project)
    found = is_taken(unit, analyze)
    assert (found["User"], found["Group"]) == (["www-data"], ["www-data"])


def test_the_unit_of_an_emperor_is_one(call, analyze, tmp_path):
    assert call("init", "--emperor")[0] == 0
    status, said = analyze("verify", "--man=no", str(tmp_path / "bolide-emperor.service"))
    ours = [line for line in said.splitlines() if "bolide" in line]
    assert (status, ours) == (0, []), said
