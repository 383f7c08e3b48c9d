"""The terminal pictures in the README match the output of the program."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_pictures_of_the_readme_are_what_the_program_prints(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "scripts" / "pictures"), str(tmp_path)], check=True, timeout=200)
    for drawn in sorted(tmp_path.iterdir()):
        stored = ROOT / "docs" / "pictures" / drawn.name
        assert drawn.read_text() == stored.read_text(), f"{stored} is of another program: .venv-test/bin/python scripts/pictures"
    assert {path.name for path in tmp_path.iterdir()} == {"check.svg", "stuck.svg"}
