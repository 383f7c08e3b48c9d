"""The unit files in packaging/systemd: systemd accepts them unchanged, and rates their protection as OK."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.server import program

UNITS = Path(__file__).resolve().parents[2] / "packaging" / "systemd"
#: Maximum exposure of `systemd-analyze security`, of 100: below 25 it says OK; a service without protection has 96.
EXPOSURE_MOST = 25


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
    status, said = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MOST}", "--no-pager", str(tmp_path / unit))
    assert status == 0, said[-2000:]


def test_a_unit_with_a_mistake_would_be_noticed(analyze, tmp_path):
    broken = tmp_path / "broken.service"
    broken.write_text((tmp_path / "bolide.service").read_text().replace("KillMode=mixed", "KillMode=mixture"))
    _, said = analyze("verify", "--man=no", str(broken))
    assert "KillMode" in said or "mixture" in said
    open_to_all = tmp_path / "open.service"
    open_to_all.write_text(f"[Service]\nExecStart={program()[0]} x.ini\n")
    status, _ = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MOST}", "--no-pager", str(open_to_all))
    assert status != 0


def test_systemd_takes_the_unit_that_init_writes(analyze, tmp_path):
    folder = tmp_path / "a shop"
    folder.mkdir()
    (folder / "app.py").write_text("def application(environ, start_response):\n    pass\n")
    subprocess.run([*program(), "init", "--systemd", "app:application"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (unit,) = folder.glob("*.service")
    status, said = analyze("verify", "--man=no", str(unit))
    assert (status, [line for line in said.splitlines() if "bolide" in line]) == (0, []), said
