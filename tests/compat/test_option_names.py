"""The stored names of uWSGI's options equal those of the real program; a unit test compares the catalog with them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

STORED = Path(__file__).resolve().parents[2] / "crates" / "options" / "fixtures" / "uwsgi-2.0.31-help.txt"
OPTION = re.compile(r"^ +(?:-\w\|)?--(?P<name>[a-z0-9][\w.-]*)", re.MULTILINE)
#: If this variable is set, the list is rewritten.
WRITE = "BOLIDE_WRITE_NAMES"
#: uWSGI may have to be built first.
pytestmark = pytest.mark.timeout(1800)


def test_uwsgis_help_has_no_name_that_is_not_stored(uwsgi):
    told = subprocess.run([uwsgi, "--help"], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    names = {match["name"] for match in OPTION.finditer(told)}
    assert "pyargv" in names
    lines = STORED.read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    stored = set(lines) - set(head)
    if os.environ.get(WRITE):
        stored |= names
        STORED.write_text("\n".join([*head, *sorted(stored)]) + "\n")
    # Options of features that it was built without, such as XML, are not in its help.
    assert names <= stored, f"run this with {WRITE}=1, and give the catalog rows for {sorted(names - stored)}"
