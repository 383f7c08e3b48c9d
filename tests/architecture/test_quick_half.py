"""The list of the tests of `make check` contains existing files, each once."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_make_check_names_files_that_are_there():
    named = [line for line in (ROOT / "tests" / "quick_half.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == [], "run `make test`, then scripts/quick_half.py"
    assert named == sorted(set(named))
