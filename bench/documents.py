"""Writes tables of kept results into pages of the documentation.

A page contains `<!-- measured: DIRECTORY NAME -->`, the table, and `<!-- end of what is measured -->`; DIRECTORY is one of
bench/results. Keeping results in that directory rewrites the table, and `tests/docs` compares both. Runs in the suite's own
process.
"""

import json
import re

from . import waiting_tables as tables
from .places import REPOSITORY, RESULTS

QUOTE = re.compile(
    r"(?P<begin><!-- measured: (?P<directory>\S+) (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<end><!-- end of what is measured -->)",
    re.S,
)
KINDS = {"fresh": "new connection", "kept": "keep-alive"}
SHAPES = {"4 × 1": "4x1", "2 × 4": "2x4", "1 × 8": "1x8"}
BOTH = {"mean": tables.response("mean"), "99 %": tables.response("p99")}


def quotes(scenarios):
    """Returns {name: table} of all tables that pages can quote from the scenarios of a run."""
    results = {name: scenario["results"] for name, scenario in scenarios.items()}
    found = {}
    if "waiting" in results:
        here = results["waiting"]
        wsgi = {name: _only(one, without="(") for name, one in here.items()}
        loops = {name: _only(one, only="(") for name, one in here.items()}
        for kind in ("fresh", "kept"):
            points = {f"{words}, ": f"{shape} {kind} 100 ms 80 %" for words, shape in SHAPES.items()}
            found[f"shapes-{kind}"] = tables.by_server(wsgi, points, BOTH)
        four = {"new connection per request, ": "4x1 fresh 100 ms 80 %", "keep-alive, ": "4x1 kept 100 ms 80 %"}
        found["four-workers"] = tables.by_server(wsgi, four, BOTH)
        waits = {"waits, ms": tables.waits("mean"), "1 of 100": tables.waits("p99")}
        found["event-loops"] = tables.by_server(loops, four, waits)
    if "waiting-loads" in results:
        points = {f"{load} %": f"4x1 fresh 100 ms {load} %" for load in (50, 70, 80, 90, 95)}
        found["loads"] = tables.by_server(results["waiting-loads"], points, {"": tables.waits("mean")})
    if "waiting-views" in results:
        points = {f"{words}, {view} ms": f"4x1 {kind} {view} ms 80 %" for kind, words in KINDS.items() for view in (5, 20, 100)}
        found["views"] = tables.by_server(results["waiting-views"], points, {"": tables.response("mean")})
    return found


def _only(here, only="", without=None):
    """Returns the results of a point for the servers whose label contains `only` and does not contain `without`."""
    servers = {
        label: one for label, one in here["servers"].items() if only in label and (without is None or without not in label)
    }
    return {**here, "servers": servers}


def rewritten(text, directory, scenarios):
    """Returns the page's text with the tables of this directory replaced by those of these scenarios."""
    found = quotes(scenarios)

    def replace(match):
        if match["directory"] != directory or match["name"] not in found:
            return match[0]
        return f"{match['begin']}\n{found[match['name']]}\n{match['end']}"

    return QUOTE.sub(replace, text)


def pages():
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def update(directory):
    """Rewrites the tables that pages quote from a directory of bench/results. Returns the names of the changed pages."""
    scenarios = json.loads((RESULTS / directory / "results.json").read_text(encoding="utf-8"))["scenarios"]
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = rewritten(text, directory, scenarios)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page.relative_to(REPOSITORY).as_posix())
    return changed


def main():
    """`python3 -m bench.documents`: rewrites the tables of all pages from the kept results."""
    directories = {match["directory"] for page in pages() for match in QUOTE.finditer(page.read_text(encoding="utf-8"))}
    for directory in sorted(directories):
        for name in update(directory):
            print(f"{name} quotes the present figures of {directory}")


if __name__ == "__main__":
    main()
