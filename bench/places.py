"""Paths of the suite, and their form in a report: reports never contain a path of this machine."""

import re
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
WEBSOCKET_LOAD_SOURCE = BENCH / "websocket_load.c"
WEBSOCKET_LOAD_PROGRAM = PROGRAMS / "bench-websocket-load"
TLS_LOAD_SOURCE = BENCH / "tls_load.c"
TLS_LOAD_PROGRAM = PROGRAMS / "bench-tls-load"
WAITING_LOAD_SOURCE = BENCH / "waiting_load.c"
WAITING_LOAD_PROGRAM = PROGRAMS / "bench-waiting-load"
FRESH_LOAD_SOURCE = BENCH / "fresh_load.c"
FRESH_LOAD_PROGRAM = PROGRAMS / "bench-fresh-load"
WAITING_LIMIT_SOURCE = BENCH / "waiting_limit.c"
WAITING_LIMIT_PROGRAM = PROGRAMS / "bench-waiting-limit"
RESULTS = BENCH / "results"
LATEST = RESULTS / "latest"

# The interpreter's own modules, as a traceback shows their paths.
INTERPRETER_DIRECTORY = re.compile(r"(?<![\w./-])/[^\s\"']*?(?=/lib/python3\.\d+\b)")


def for_report(text, work_directory=None):
    """Returns the text without paths of this machine."""
    if work_directory is not None:
        text = text.replace(f"{work_directory}", "TEMPORARY")
    text = text.replace(f"{REPOSITORY}/", "").replace(sys.base_prefix, "PYTHON")
    return INTERPRETER_DIRECTORY.sub("PYTHON", text)
