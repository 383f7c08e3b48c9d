"""A page of the documentation as the steps of its reader: files that it shows, commands, and blocks that are only shown.

A page's own files and first commands, which its reader has already, are in fixtures/. docs/internals/how-to-add.md describes the
markup. This module does not know how a step is executed.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).resolve().parent / "fixtures"

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*) *(?P<rest>.*)$")
TITLE = re.compile(r'title="(?P<name>[^"]+)"')
#: Marks of text that other pages show too: tests/docs/test_includes.py.
INCLUDED = re.compile(r"^<!-- (include: .*|end of include) -->$")
MARK = re.compile(r"^ *<!-- (?P<word>not run|run|exit status|expect): (?P<text>.*?)(?P<end> *-->)?$")
#: Files of a page's fixtures that are not files of its reader: what it shares with other pages, and its first commands.
SHARED, BEFORE = "shared.txt", "before.sh"

#: Languages of commands; `console` also shows their output.
COMMANDS = ("sh", "console")


@dataclass
class Step:
    """``kind`` is ``file``, ``run`` (a command that the reader does not see) or ``block``."""

    kind: str
    text: str
    page: str
    line: int
    language: str = ""
    name: str = ""
    not_run: str = ""
    status: int = 0
    #: The expected findings of `bolide check`.
    expected: str = ""

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def is_commands(self):
        return self.language in COMMANDS

    def commands(self):
        """Returns each command with its shown output."""
        # A console without a prompt contains only commands.
        if self.language == "sh" or self.kind == "run" or not any(line.startswith("$ ") for line in self.text.splitlines()):
            return [(text, []) for text in _joined(self.text.splitlines())]
        found = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (found[-1][0][:-1] + line.strip(), [])
            elif line == "^C":
                found.append((line, []))
            elif found:
                found[-1][1].append(line)
        return found


def _joined(lines):
    """Returns commands, each with its continuation lines after a backslash."""
    commands, open_line = [], ""
    for line in lines:
        if line.endswith("\\"):
            open_line += line[:-1]
        elif (open_line + line).strip() and not line.lstrip().startswith("#"):
            commands.append((open_line + line).strip())
            open_line = ""
    return commands


def names():
    """Returns the pages for readers, as paths in the repository."""
    pages = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return ["README.md", "CONTRIBUTING.md", "SECURITY.md", *pages]


def fixtures(page):
    """Returns the steps before the page's first line: files that its reader has, then commands that its reader has run."""
    own = FIXTURES / page.removeprefix("docs/").removesuffix(".md")
    listed = (own / SHARED).read_text(encoding="utf-8").split() if (own / SHARED).exists() else []
    found = []
    for directory in (*(FIXTURES / "shared" / name for name in listed), own):
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            if path.name not in (SHARED, BEFORE):
                text = path.read_text(encoding="utf-8")
                found.append(Step("file", text, _place(path), 1, name=path.relative_to(directory).as_posix()))
    if (own / BEFORE).exists():
        found.append(Step("run", (own / BEFORE).read_text(encoding="utf-8"), _place(own / BEFORE), 1))
    return found


def _place(path):
    return path.relative_to(ROOT).as_posix()


def steps(page, text=None):
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines() if text is None else text.splitlines()
    found, number, marks = fixtures(page) if text is None else [], 0, {}
    while number < len(lines):
        line = lines[number]
        number += 1
        mark, fence = MARK.match(line), FENCE.match(line)
        if mark and mark["word"] == "run":
            hidden = []
            begun = number
            while mark["end"] is None and lines[number].strip() != "-->":
                hidden.append(lines[number])
                number += 1
            number += mark["end"] is None
            found.append(Step("run", mark["text"] if mark["end"] else "\n".join(hidden), page, begun, status=_status(marks)))
            marks = {}
        elif mark:
            marks[mark["word"]] = mark["text"]
        elif fence:
            begun, body = number, []
            while lines[number].strip() != "```":
                body.append(lines[number][len(fence["indent"]) :] if lines[number].strip() else "")
                number += 1
            number += 1
            title = TITLE.search(fence["rest"])
            step = Step("block", "\n".join(body) + "\n", page, begun, fence["language"])
            step.name = title["name"] if title else ""
            step.not_run, step.status = marks.get("not run", ""), _status(marks)
            step.expected = marks.get("expect", "")
            found.append(step)
            marks = {}
        elif line.strip() and not INCLUDED.match(line):
            marks = {}
    return found


def _status(marks):
    return int(marks.get("exit status", 0))
