"""Selects the tests of ``make check`` from the timings of ``make test``, and writes their files to tests/quick_half.txt.

Files are selected as a whole. From each directory it selects the files with the shortest tests, up to half of the directory's
tests.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "build" / "tests.xml"
CHOSEN = ROOT / "tests" / "quick_half.txt"
HEAD = """\
# The quick half of the tests of the program, for `make check`: the files of each directory whose tests take the least time.
# Made by `python3 scripts/quick_half.py` after `make test`; not edited by hand.
"""
#: Packages that `make check` does not install. Files that need them run in `make test` only.
NEEDS = re.compile(r"nginx|haproxy|browser|chromium|h2load|redis|lintian|/logrotate|curl|zsh|groff|systemd-|\bwrk\b")
#: Directories whose tests need other programs, wheels or a built uWSGI.
LEFT_OUT = ("compat", "docs", "frameworks", "packages", "stories")


def measured(reports):
    """Returns the number of tests and their total seconds for each file."""
    found = defaultdict(lambda: [0, 0.0])
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):
        # A test that was interrupted has no name.
        if not case.get("classname"):
            continue
        parts = case.get("classname").split(".")
        # The name of a test in a class contains the class after the file name.
        paths = (ROOT.joinpath(*parts[:count]).with_suffix(".py") for count in range(len(parts), 0, -1))
        file = next(path for path in paths if path.exists())
        found[file][0] += 1
        found[file][1] += float(case.get("time"))
    return found


def quickest(files):
    """Returns the files with the shortest tests, up to half of all tests, as ``(name, tests, seconds)``."""
    half, tests = sum(count for count, _ in files.values()) / 2, 0
    for file, (count, seconds) in sorted(files.items(), key=lambda one: one[1][1] / one[1][0]):
        if tests + count <= half and not NEEDS.search(file.read_text()):
            tests += count
            yield str(file.relative_to(ROOT)), count, seconds


def main():
    directories = defaultdict(dict)
    for file, numbers in measured(sys.argv[1:] or [MEASURED]).items():
        if file.parent.name not in LEFT_OUT:
            directories[file.parent][file] = numbers
    chosen = sorted(one for files in directories.values() for one in quickest(files))
    CHOSEN.write_text(HEAD + "".join(f"{name}\n" for name, _, _ in chosen))
    tests, seconds = (sum(one[place] for one in chosen) for place in (1, 2))
    print(f"{CHOSEN.relative_to(ROOT)}: {tests} tests in {len(chosen)} files, which take {seconds:.0f} s one after the other")


if __name__ == "__main__":
    main()
