"""The entries for the-benchmarker/web-frameworks have the files that its contract wants, and the run of them here knows each."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "bench" / "the-benchmarker"
ENTRIES = sorted(path.name for path in (DIRECTORY / "python").iterdir())


if sys.version_info < (3, 11):
    pytest.skip("the benchmark suite needs Python 3.11", allow_module_level=True)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_has_the_files_that_the_contract_wants(entry):
    directory = DIRECTORY / "python" / entry
    framework = yaml.safe_load((directory / "config.yaml").read_text())["framework"]
    assert sorted(framework) == ["engines", "version", "website"]
    assert framework["engines"] == ["bolide"]
    # That project installs the directory as the package `server`, by flit.
    assert 'name = "server"' in (directory / "pyproject.toml").read_text()
    assert (directory / "server.py").read_text().startswith('"""')


def test_the_run_of_the_entries_knows_each_of_them():
    command = [sys.executable, "-m", "bench.web_frameworks", "--list"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    engines = dict(line.split(": ") for line in listed.splitlines())
    assert sorted(engines) == ENTRIES
    assert all(names.startswith("bolide, ") for names in engines.values())
