"""The documents: each link between them leads somewhere, and each page is linked from the README."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: `[text](target)`; a target in another place of the web has a colon.
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s:]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if (ROOT / name).is_file()]


def prose(path):
    return CODE.sub("", path.read_text())


def anchor(heading):
    """The anchor that a heading gets where these pages are shown: letters, digits and hyphens in lower case."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path):
    return {anchor(match["text"]) for match in HEADING.finditer(prose(path))}


@pytest.mark.parametrize("name", documents())
def test_every_link_leads_somewhere(name):
    page = ROOT / name
    for match in LINK.finditer(prose(page)):
        path, _, place = match["target"].partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name}: {match['target']} does not exist"
        if place and target.suffix == ".md":
            assert place in anchors(target), f"{name}: {match['target']} has no such heading"


def test_the_readme_leads_to_every_guide():
    linked = {match["target"].partition("#")[0] for match in LINK.finditer(prose(ROOT / "README.md"))}
    guides = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert guides <= linked, f"not in the README: {sorted(guides - linked)}"
