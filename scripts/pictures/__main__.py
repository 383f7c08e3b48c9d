"""Draws pictures of a terminal from the output of the installed Bolide into docs/pictures.

Run it with the Python in which Bolide is installed: .venv-test/bin/python scripts/pictures [DIRECTORY]. Values that differ
between runs (pids, times) and the directory's path are replaced; all other output is unchanged. Those of commands with a screen
or with numbers of a load come from fixed recordings: crates/observing/src/picture.rs.
"""

import re
import sys
import tempfile
from pathlib import Path

from drawing import drawn
from observing import observed
from slow import slow
from start import check, stuck
from tracing import leak, span

ROOT = Path(__file__).resolve().parents[2]

TITLES = {
    "check": "bolide check lists what is misspelled or does nothing, with line, caret and advice",
    "stuck": "A request over its time is in the log with the Python line that it executes",
    "slow": "The report about a slow request names the line, and the database that it waited for",
    "status": "bolide status shows each worker with its requests in flight, age, memory, CPU time, rate and errors",
    "trace": "bolide trace shows the stack of each thread of a worker, and the request that it serves",
    "metrics": "The numbers for Prometheus: requests by status, workers, threads",
    "log-json": "The log as JSON: a request, an exception with its stack, and the request that failed with it",
    "span": "A request as a span: its route, its attributes, and the times of its phases",
    "leak": "The report about a route whose requests leave memory behind",
}


def settled(line, directory):
    line = line.replace(str(directory), "/srv/shop")
    line = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "2026-11-22 13:40:02 ", line)
    line = re.sub(r"\(pid \d+\)", "(pid 4127)", line)
    line = re.sub(r"worker \d", "worker 1", line)
    return re.sub(r"\(for [\d.]+ s\)", "(for 2.0 s)", line)


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    for show in (check, stuck, slow, observed, span, leak):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch).resolve()
            for name, lines in show(scratch).items():
                lines = [settled(line, scratch) for line in lines]
                (directory / f"{name}.svg").write_text(drawn(TITLES[name], lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
