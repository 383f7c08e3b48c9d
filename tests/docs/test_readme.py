"""README.md is short: a stranger sees what Bolide is, starts it, and knows its status, before the first page of the docs."""

import re

import pages
import pytest

MAX_WORDS = 450
MAX_LINES = 90
TEXT = (pages.ROOT / "README.md").read_text(encoding="utf-8")
PICTURE = re.compile(r"!\[[^\]]*\]\((?P<path>[^)]+)\)")
#: The text that scripts/pypi-readme and the release leave out.
UNRELEASED = re.compile(r"<!-- until the first release -->\n.*?<!-- end -->\n", re.DOTALL)


def test_the_readme_has_450_words_and_90_lines_at_most():
    words = re.sub(r"\]\([^)]*\)|<!--.*?-->", "]", TEXT).split()
    assert len([word for word in words if re.search(r"\w", word)]) <= MAX_WORDS
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_the_readme_has_one_picture_one_chart_and_one_table():
    shown = [found["path"] for found in PICTURE.finditer(TEXT)]
    assert [path.split("/")[0] for path in shown] == ["docs", "bench"]
    assert len(re.findall(r"^\| --- ", TEXT, re.MULTILINE)) == 1


@pytest.mark.parametrize("page", pages.names())
def test_what_is_true_until_the_release_stands_in_one_place_that_is_marked(page):
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    assert len(UNRELEASED.findall(text)) <= (page == "README.md")
    assert "not on PyPI" not in UNRELEASED.sub("", text)


def test_the_figures_of_the_status_are_those_of_the_pages():
    status = TEXT.partition("## Status\n")[2].partition("\n## ")[0]
    suite = (pages.ROOT / "docs/autobahn.md").read_text(encoding="utf-8")
    cases, failed = re.search(r"(\d+) cases against .*?(\d+) failed", suite).groups()
    assert failed == "0"
    assert f"none of {cases} cases fails" in status
    setups = re.findall(r"^\* .*: (\d+) passed, (\d+) skipped$", (pages.ROOT / "docs/h2spec.md").read_text("utf-8"), re.MULTILINE)
    assert setups == [("144", "1")] * 4
    assert "144 cases pass and one is skipped, in each of four setups" in status
    targets = list((pages.ROOT / "fuzz/fuzz_targets").glob("*.rs"))
    assert f"[Fuzzing](fuzz) of {len(targets)} " in status
    compared = (pages.ROOT / "tests/compat/test_show_config.py").read_text(encoding="utf-8")
    (number,) = re.findall(r'"BOLIDE_COMPAT_CASES", "(\d+)"', compared)
    assert f"[{number} random configurations]" in status
