"""The detectors for source text and for loaded modules use the same names."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ROOT / "crates" / "options" / "src" / "project"
CALLABLES = ROOT / "python" / "bolide" / "loading" / "callables.py"


def in_python(name):
    """Returns a constant of the Python half without importing it."""
    for node in ast.parse(CALLABLES.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{CALLABLES.name} has no {name}")


def in_rust(file, name):
    found = re.search(rf"const {name}: &\[&str\] =\s*&\[(.*?)\];", (TEXTS / file).read_text(), re.DOTALL)
    return tuple(re.findall(r'"([^"]+)"', found[1]))


def test_callables_and_factories_are_those_of_the_look_at_texts():
    for name in ("CALLABLES", "FACTORIES"):
        assert in_rust("source.rs", name) == in_python(name)


def test_frameworks_are_those_of_the_look_at_texts():
    rows = re.findall(
        r'^    framework\("[^"]+", "([^"]+)", Kind::\w+, "(\w+)"\),$', (TEXTS / "source.rs").read_text(), re.MULTILINE
    )
    known = {(package, name) for name, package in rows}
    loaded = {(package, name) for (package, _), name in (in_python("FRAMEWORKS") | in_python("WRAPPERS")).items()}
    assert known == loaded


def test_virtualenvs_have_the_same_names():
    hints = (ROOT / "python" / "bolide" / "loading" / "import_hints.py").read_text()
    assert in_rust("mod.rs", "ENVIRONMENTS") == ast.literal_eval(re.search(r"^ENVIRONMENTS = (.+)$", hints, re.MULTILINE)[1])
