"""docs/uwsgi-module.md and the type stubs agree with the table of names."""

import ast
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "uwsgi-module.md"
STUBS = ROOT / "python" / "uwsgi-stubs" / "__init__.pyi"

#: The part of the page between these lines is generated from the table.
BEGIN, END = "<!-- names: made from python/bolide/uwsgi/names.py -->\n", "<!-- names end -->\n"

#: If this variable is set, the page is written and not compared.
WRITE = "BOLIDE_WRITE_REFERENCE"


def names():
    """Returns the table from the source tree: importing it has no dependencies."""
    scope = {}
    path = ROOT / "python" / "bolide" / "uwsgi" / "names.py"
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


def tables():
    table = names()
    lines = ["", "| name | what it is |", "| --- | --- |"]
    lines += [f"| `{name}` | {text} |" for name, text in sorted(table["HERE"].items())]
    lines += ["", "## Names that are not available yet", "", "| what they belong to | names |", "| --- | --- |"]
    for reason, listed in table["MILESTONES"].values():
        lines.append(f"| {reason} | {', '.join(f'`{name}`' for name in sorted(listed.split()))} |")
    return "\n".join(lines) + "\n\n"


def test_the_page_has_the_names_of_the_table():
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    if os.environ.get(WRITE):
        PAGE.write_text(before + BEGIN + tables() + END + after)
    else:
        assert old == tables(), f"{PAGE.name} differs from the table: run this test with {WRITE}=1"


def test_the_stubs_declare_the_names_that_are_here():
    tree = ast.parse(STUBS.read_text())
    declared = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    declared |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert declared == set(names()["HERE"])


def test_no_name_is_both_here_and_missing():
    table = names()
    assert not set(table["HERE"]) & set(table["LATER"])
    listed = [name for _, text in table["MILESTONES"].values() for name in text.split()]
    assert len(listed) == len(set(listed)), sys.version
