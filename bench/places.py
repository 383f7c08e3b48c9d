"""Where the suite's things are, and how a path is written in a report: never with a folder of this machine in it."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
REPOSITORY = BENCH.parent
APPLICATIONS = BENCH / "applications"
LAUNCHERS = BENCH / "launchers"
VIRTUALENV = BENCH / ".venv"
PROGRAMS = VIRTUALENV / "bin"
PYTHON = PROGRAMS / "python"
LIMIT_SOURCE = BENCH / "limit.c"
LIMIT_PROGRAM = PROGRAMS / "bench-limit"
RESULTS = BENCH / "results"
LATEST = RESULTS / "latest"


def for_report(text, work_folder=None):
    """The text with the folders of this machine taken out."""
    if work_folder is not None:
        text = text.replace(f"{work_folder}", "TEMPORARY")
    return text.replace(f"{REPOSITORY}/", "").replace(sys.base_prefix, "PYTHON")
