"""The modules of the Python package depend on each other without cycles, and so do its directories.

A module depends on another if it imports it, or a name of it, anywhere in its text. The native module counts as one of them. A
directory stands for everything in it.
"""

import ast
from pathlib import Path

from test_modules import circles

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "bolide"
NATIVE = ("bolide", "_native")


def modules_of(directory):
    """Returns the path of each module by its name."""
    named = {}
    for file in directory.rglob("*.py"):
        parts = (directory.name, *file.relative_to(directory).with_suffix("").parts)
        named[parts[:-1] if parts[-1] == "__init__" else parts] = file
    return named


def imported(tree):
    """Returns the dotted names that a text imports, each with the names that it takes from there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import has the full name of the module"
            yield from ((tuple(node.module.split(".")), alias.name) for alias in node.names)


def knowledge(named):
    """Returns the modules that each module depends on."""
    known = {NATIVE: set()}
    for module, file in named.items():
        found = set()
        for start, name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            places = ((*start, name), start)
            found.update([place for place in places if place in known or place in named][:1])
        known[module] = found - {module}
    return known


def topmost(known):
    """Returns the dependencies between the directories and the modules beside them."""
    crates = {}
    for module, others in known.items():
        crates.setdefault(module[:2], set()).update(other[:2] for other in others if other[:2] != module[:2])
    return crates


def test_python_modules_have_no_cycles():
    known = knowledge(modules_of(PACKAGE))
    assert len(known) > 60
    assert known["bolide", "wsgi"]
    assert circles(known) == set()


def test_python_directories_know_each_other_in_one_direction():
    assert circles(topmost(knowledge(modules_of(PACKAGE)))) == set()


def test_a_cycle_is_found_however_a_module_names_the_other(tmp_path):
    directory = tmp_path / "bolide"
    (directory / "a").mkdir(parents=True)
    (directory / "__init__.py").write_text("from bolide import b\n")
    (directory / "a" / "__init__.py").write_text("")
    (directory / "b.py").write_text("def call():\n    import bolide.a.c\n")
    for text in ("from bolide import b\n", "from bolide.b import call\n", "import bolide.b\n"):
        (directory / "a" / "c.py").write_text(text)
        known = knowledge(modules_of(directory))
        assert circles(known) == {frozenset({("bolide", "b"), ("bolide", "a", "c")})}
        assert circles(topmost(known)) == {frozenset({("bolide", "b"), ("bolide", "a")})}
    (directory / "a" / "c.py").write_text("import os\n")
    assert circles(knowledge(modules_of(directory))) == set()
