"""Writes results as JSON, Markdown and charts, and their tables and lists into pages of the documentation.

A page contains `<!-- measured: DIRECTORY NAME -->`, the table, and `<!-- end of what is measured -->`; DIRECTORY is one of
bench/results, and NAME a key of `quotations.quotes`. Keeping results in that directory rewrites the table, and `tests/docs`
compares both. Runs in the suite's own process.
"""

import json
import re
import shutil

from . import charts, marks, quotations, report
from .places import REPOSITORY, RESULTS

QUOTE = re.compile(
    r"(?P<begin><!-- measured: (?P<directory>\S+) (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<end><!-- end of what is measured -->)",
    re.S,
)


def write_to(directory, results):
    """Replaces a directory by the JSON, the Markdown and the charts of these results. Returns the Markdown."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # The samples took an hour: a fault in what follows must not lose them.
    file = directory / "results.json"
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    results["marks"] = marks.judge(results["scenarios"])
    drawn = charts.charts(results["scenarios"])
    results["charts"] = {name: list(files) for name, files in drawn.items()}
    for files in drawn.values():
        for file_name, picture in files.items():
            (directory / file_name).write_text(picture, encoding="utf-8")
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = report.markdown(results)
    (directory / "results.md").write_text(page, encoding="utf-8")
    return page


def rewritten(text, directory, results):
    """Returns the page's text with the quotations of this directory replaced by those of these results."""
    found = quotations.quotes(results)

    def replace(match):
        if match["directory"] != directory or match["name"] not in found:
            return match[0]
        return f"{match['begin']}\n{found[match['name']]}\n{match['end']}"

    return QUOTE.sub(replace, text)


def pages():
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def update(directory):
    """Rewrites the tables that pages quote from a directory of bench/results. Returns the names of the changed pages."""
    results = json.loads((RESULTS / directory / "results.json").read_text(encoding="utf-8"))
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = rewritten(text, directory, results)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page.relative_to(REPOSITORY).as_posix())
    return changed


def main():
    """`python3 -m bench.documents`: writes all kept results again, and what pages quote of them."""
    for file in sorted(RESULTS.glob("*/results.json")):
        write_to(file.parent, json.loads(file.read_text(encoding="utf-8")))
    directories = {match["directory"] for page in pages() for match in QUOTE.finditer(page.read_text(encoding="utf-8"))}
    for directory in sorted(directories):
        for name in update(directory):
            print(f"{name} quotes the present figures of {directory}")


if __name__ == "__main__":
    main()
