"""docs/reference/python.md is made of the signatures and docstrings of the Python package."""

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "bolide"
PAGE = ROOT / "docs" / "reference" / "python.md"

#: What applications and programs may use, by the name that they import it by, and its file.
PUBLIC = {
    "bolide.run": "_run.py",
    "bolide.testing.serve": "testing.py",
    "bolide.testing.Server": "testing.py",
    "bolide.testing.StartFailed": "testing.py",
    "bolide.lease": "leases.py",
    "bolide.Lease": "leases.py",
    "bolide.LogHandler": "log_handler.py",
    "bolide.publish": "publishing/__init__.py",
    "bolide.subscribe": "publishing/__init__.py",
    "bolide.Subscription": "publishing/__init__.py",
    "bolide.Message": "publishing/__init__.py",
    "bolide.Missed": "publishing/__init__.py",
}
HEAD = """\
# The Python package

What programs, tests and applications import. [Bolide from Python](../from-python.md) shows how to use it, and
[The module uwsgi](../uwsgi-module.md) lists the names of uWSGI's module.

This page is made of the signatures and docstrings of the package.
"""

#: If this variable is set, the page is written and not compared.
WRITE = "BOLIDE_WRITE_REFERENCE"
#: An argument with a type and a default.
DEFAULT = re.compile(r"^(\w+: .+?)=(.+)$")
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def page():
    parts = [HEAD]
    for name, file in PUBLIC.items():
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        node = next(node for node in tree.body if getattr(node, "name", None) == name.rpartition(".")[2])
        parts += described(node, name, constants(tree))
    return "\n".join(parts)


def constants(tree):
    """The module's named numbers, which stand for themselves in signatures."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
    return {node.targets[0].id: ast.unparse(node.value) for node in assigned}


def described(node, name, values):
    """Returns the section of a function, or of a class with its public methods."""
    lines = [f"## `{name}`", ""]
    if isinstance(node, ast.ClassDef):
        lines += [prose(node), ""]
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                about = prose(member)
                lines += [f"**`{signature(member, values)}`**", "", *([about, ""] if about else [])]
        return lines
    return [*lines, "```python", f"def {signature(node, values)}: ...", "```", "", prose(node), ""]


def signature(node, values):
    """`serve(app, *, port: int = 0) -> Server`; that of a property is its name and type."""
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list):
        return f"{node.name}{result}"
    arguments = [argument for argument in split(ast.unparse(node.args)) if argument != "self"]
    arguments = [DEFAULT.sub(lambda found: f"{found[1]} = {values.get(found[2], found[2])}", argument) for argument in arguments]
    text = f"{node.name}({', '.join(arguments)}){result}"
    if len(text) <= 100:
        return text
    # Each argument has a line of its own, as in the source.
    return f"{node.name}(\n    " + ",\n    ".join(arguments) + f",\n){result}"


def split(arguments):
    """Splits at the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def prose(node):
    text = ast.get_docstring(node) or ""
    return ROLE.sub(r"`\1`", text).replace("``", "`")


def test_the_reference_of_the_package_is_made_of_its_docstrings():
    if os.environ.get(WRITE):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), f"{PAGE.name} is old: run this test with {WRITE}=1"


def test_each_public_name_is_in_the_reference():
    exported = set()
    for module, file in (("bolide", "__init__.py"), ("bolide.testing", "testing.py")):
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        assigned = next(node for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
        exported |= {f"{module}.{name}" for name in ast.literal_eval(assigned.value)}
    # `main` is the console script.
    assert exported - {"bolide.main", "bolide.__version__"} == set(PUBLIC)
