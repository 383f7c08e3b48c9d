"""The documents: each link between them resolves, and each page can be reached from the first one."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: `[text](target)`; external targets contain a colon.
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s:]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if (ROOT / name).is_file()]


def prose(path):
    return CODE.sub("", path.read_text())


def anchor(heading):
    """Returns the anchor of a heading on these pages: letters, digits and hyphens in lower case."""
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


def test_the_first_page_leads_to_every_guide_and_the_readme_to_that():
    linked = {match["target"].partition("#")[0] for match in LINK.finditer(prose(ROOT / "docs" / "contents.md"))}
    guides = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md", "contents.md"}
    assert guides <= linked, f"not in docs/contents.md: {sorted(guides - linked)}"
    assert "docs/index.md" in {match["target"] for match in LINK.finditer(prose(ROOT / "README.md"))}


def architecture():
    # how-to-add.md names files from the top, and has a test of its own.
    pages = (ROOT / "docs" / "internals").glob("*.md")
    return [ROOT / "ARCHITECTURE.md", *sorted(page for page in pages if page.name != "how-to-add.md")]


def test_the_architecture_names_files_that_are_there():
    """`engine/connection` is a file or a directory of the crate `engine`, and likewise for every crate."""
    crates = {path.name for path in (ROOT / "crates").iterdir()}
    pattern = re.compile(r"`((?:crates/|adapters/)?[a-z_]+(?:/[a-z0-9_]+)+)(?:\.rs)?`")
    named, missing = set(), []
    for page in architecture():
        found = set(pattern.findall(page.read_text(encoding="utf-8")))
        named |= found
        for name in sorted(found):
            *directory, crate, rest = re.fullmatch(r"(?:(adapters)/|crates/)?([a-z_]+)(?:/(.+))?", name).groups()
            if directory == [None] and crate not in crates:
                continue
            source = ROOT / (directory[0] or "crates") / crate / "src" / (rest or "").removeprefix("src/")
            if not source.is_dir() and not source.with_name(f"{source.name}.rs").is_file():
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert {"engine", "master", "protocol", "supervision"} <= {name.split("/", 1)[0] for name in named}
    assert len(named) > 40
    assert missing == []


def test_the_architecture_is_read_in_ten_minutes():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= 2000


def test_how_to_add_names_files_that_are_there():
    """Whatever stands in backquotes and begins with a file or directory of the repository."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    top = {name.split("/", 1)[0] for name in tracked}
    text = CODE.sub("", (ROOT / "docs" / "internals" / "how-to-add.md").read_text(encoding="utf-8"))
    paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)/?`", text)
    named = sorted({path for path in paths if path.split("/", 1)[0] in top})
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []
