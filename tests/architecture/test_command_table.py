"""Each command for a running instance is in a guide, and adding one touches only the files that how-to-add.md lists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MASTER = ROOT / "crates" / "master" / "src"
COMMAND_LINES = ROOT / "crates" / "configuration" / "src" / "instance_commands.rs"
COMMANDS = MASTER / "control" / "commands.rs"

#: `Name => (`, the row of a command line; `Name => CommandRow {` or `Name(payload) => row(`, that of a command.
COMMAND_LINE_ROW = re.compile(r"^    (\w+) => \(\s*\"([\w-]+)\",", re.MULTILINE)
COMMAND_ROW = re.compile(r"^    (\w+)(?:\([^)]*\))? => (?:CommandRow \{|row\()", re.MULTILINE)
MAX_FILES = 4


def test_every_command_of_the_command_line_is_in_a_guide():
    rows = COMMAND_LINE_ROW.findall(COMMAND_LINES.read_text(encoding="utf-8"))
    guides = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    missing = [name for _, name in rows if not re.search(rf"\bbolide {name}\b", guides)]
    assert len(rows) >= 9
    assert missing == []


def test_only_the_rows_know_a_letter_or_a_signal_of_a_command():
    """No file of the master other than `news` matches over all commands; the compiler checks that match for completeness."""
    names = COMMAND_ROW.findall(COMMANDS.read_text(encoding="utf-8"))
    assert len(names) >= 17
    named = {}
    for path in MASTER.rglob("*.rs"):
        code = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        found = {name for name in names if re.search(rf"\bCommand::{name}\b", code)}
        if len(found) > len(names) * 2 // 3:
            named[str(path.relative_to(MASTER))] = found
    assert list(named) == ["supervisor/commands.rs"]
    assert named["supervisor/commands.rs"] == set(names)


def test_the_walk_names_at_most_four_files_and_they_are_there():
    text = (ROOT / "docs" / "internals" / "how-to-add.md").read_text(encoding="utf-8")
    walk = text.split("## How to add a command for a running instance\n")[1].split("\n## ")[0]
    steps = re.findall(r"^(\d)\. [^\n]*?`(crates/[^`]+)`", walk, re.MULTILINE)
    assert [number for number, _ in steps] == [str(number) for number in range(1, MAX_FILES + 1)]
    assert [path for _, path in steps if not (ROOT / path).is_file()] == []
