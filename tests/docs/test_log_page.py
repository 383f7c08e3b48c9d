"""The page "Log lines explained" quotes lines that the program writes: each occurs in the sources."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "log-lines.md"
QUOTED = re.compile(r"^\| `(?P<line>[^`]+)` \|", re.MULTILINE)
SOURCES = (("crates", "*.rs"), ("adapters", "*.rs"), ("python", "*.py"))
#: Placeholders in string literals, and a string that continues in the next line.
OPEN = re.compile(r'\{[^{}\n"]*\}')
GOES_ON = re.compile(r'\\\n\s*|"\s*\n\s*f?"')


def quoted():
    return QUOTED.findall(PAGE.read_text(encoding="utf-8"))


def texts():
    """Returns each source as one text, in which … replaces placeholders."""
    for directory, pattern in SOURCES:
        for path in sorted((ROOT / directory).rglob(pattern)):
            if "test" not in path.name and "target" not in path.parts:
                text = GOES_ON.sub("", path.read_text(encoding="utf-8"))
                yield OPEN.sub("…", text.replace('\\"', '"').replace("`", ""))


def test_each_line_of_the_page_is_one_that_the_program_writes():
    sources = list(texts())
    unknown = []
    for line in quoted():
        parts = [part.strip(" ()") for part in line.replace("`", "").split("…")]
        parts = [part for part in parts if len(part) > 3]
        if not any(all(part in text for part in parts) for text in sources):
            unknown.append(line)
    assert unknown == []


def test_the_page_has_many_lines_and_none_twice():
    lines = quoted()
    assert len(lines) > 60
    assert sorted({line for line in lines if lines.count(line) > 1}) == []
