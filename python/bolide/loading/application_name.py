"""The name by which another process can load an object of this process: its module or file, and its name there.

The master never holds an application, and each generation loads it again, so an application is passed on by name. It must not
know how a server is started. The process that calls :func:`bolide.run` or ``bolide.testing.serve`` runs it.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

#: The functions that serve an application.
SERVING_CALLS = ("run", "serve")

#: Preferred names if an object has several in its module.
USUAL_NAMES = ("application", "app")

ADVICE = 'pass its name, such as "main:app", or that of a function that creates it: "main:create_app" with factory=True'


def name_of(app: Any, caller: dict[str, Any]) -> str:
    """Return the name of an application as the command line takes it, such as ``shop:app`` or ``/srv/shop.py:app``.

    `caller` has the globals of the calling module, which is searched first: loading that module repeats what it did to the
    object. If that module only imports the object, it is loaded from where it was imported.

    ValueError: the object can't be loaded by a name.
    """
    if isinstance(app, (str, os.PathLike)):
        text = os.fspath(app)
        if not isinstance(text, str) or not text or text.startswith("-"):
            raise ValueError(f"{text!r} does not identify an application: write package.module:callable or file.py")
        return text
    if not callable(app):
        raise TypeError(f"an application must be a name or callable, and {app!r} is neither")
    for module in modules_to_look_at(app, caller):
        attribute = attribute_of(module, app)
        if attribute is not None:
            module, attribute = origin_of(module, attribute, app)
            return f"{place_of(module, attribute)}:{attribute}"
    raise ValueError(
        f"the server is another process and imports the application, but this {type(app).__name__} is not bound to a name at the "
        f"top level of a module: {ADVICE}"
    )


def modules_to_look_at(app: Any, caller: dict[str, Any]) -> list[ModuleType]:
    names = [caller.get("__name__"), "__main__", getattr(app, "__module__", None), *sys.modules]
    modules = (sys.modules.get(name) for name in names if isinstance(name, str) and name.partition(".")[0] != "bolide")
    return [module for module in modules if isinstance(module, ModuleType)]


def origin_of(module: ModuleType, attribute: str, app: Any) -> tuple[ModuleType, str]:
    """Return the module and the name from which a module has imported an object, if its own code does nothing else with the
    object; else the module and the name themselves.
    """
    try:
        with open(module.__file__ or "", "rb") as file:
            tree = ast.parse(file.read())
    except (AttributeError, OSError, SyntaxError, ValueError):
        return module, attribute
    given = [
        (statement, alias)
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if (alias.asname or alias.name) == attribute
    ]
    if len(given) != 1 or is_used(tree, attribute):
        return module, attribute
    statement, alias = given[0]
    try:
        name = importlib.util.resolve_name("." * statement.level + (statement.module or ""), module.__package__)
    except ImportError:
        return module, attribute
    origin = sys.modules.get(name)
    if not isinstance(origin, ModuleType) or vars(origin).get(alias.name) is not app:
        return module, attribute
    return origin, alias.name


def is_used(tree: ast.Module, name: str) -> bool:
    """Return whether code that runs when a module is imported does anything with this name, except to serve it."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, ast.Call) and called_name(node) in SERVING_CALLS:
            # Its first argument is the application.
            waiting += [*node.args[1:], *node.keywords]
        elif isinstance(node, ast.Name) and node.id == name:
            return True
        else:
            waiting += ast.iter_child_nodes(node)
    return False


def called_name(call: ast.Call) -> str | None:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else None


def attribute_of(module: ModuleType, app: Any) -> str | None:
    values = dict(vars(module))
    found = [name for name, value in values.items() if value is app and name.isidentifier()]
    found.sort(key=lambda name: (name not in USUAL_NAMES, name.startswith("_")))
    return found[0] if found else None


def place_of(module: ModuleType, attribute: str) -> str:
    """Return the module's name if another process can import it by name, else its file."""
    file = getattr(module, "__file__", None)
    if not file:
        raise ValueError(f"{attribute!r} was not created in a file, so a server can't load it: write it into a file")
    file = os.path.abspath(file)
    name = name_to_import(module, file)
    if name is not None:
        return name
    if not file.endswith(".py"):
        raise ValueError(f"{attribute!r} is in {file!r}, which can't be imported by name: {ADVICE}")
    return file


def name_to_import(module: ModuleType, file: str) -> str | None:
    name = module.__name__
    if name == "__main__":
        spec = module.__spec__
        # `python -m shop.main` knows its name. A script has the name of its file, unless an import of that name finds another
        # module.
        is_script = spec is None or spec.name == "__main__"
        name = os.path.splitext(os.path.basename(file))[0] if is_script else spec.name
    if name == "__main__" or not all(part.isidentifier() for part in name.split(".")):
        return None
    if "." in name:
        return name if is_found(name.partition(".")[0]) else None
    return name if is_found(name, file) else None


def is_found(name: str, file: str | None = None) -> bool:
    """Return whether an import in another process finds a module of this name, in this file if one is given."""
    try:
        spec = importlib.machinery.PathFinder.find_spec(name, None)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    return file is None or (spec.origin is not None and os.path.realpath(spec.origin) == os.path.realpath(file))


def directories_in_front() -> list[str]:
    """Return the directories that precede Python's own in sys.path: another process does not have them by default."""
    own = os.path.realpath(os.path.dirname(os.__file__))
    directories = []
    for entry in sys.path:
        is_own_archive = os.path.basename(entry).startswith("python3") and entry.endswith(".zip")
        if is_own_archive or os.path.realpath(entry or ".") == own:
            break
        directory = os.path.abspath(entry or ".")
        if os.path.isdir(directory) and directory not in directories:
            directories.append(directory)
    return directories
