"""A ``gunicorn.conf.py``: executed as gunicorn does it, and told as JSON.

A process of its own runs it where the configuration is read: the text of this file is given to the configured Python, which need
not have Bolide installed. So it must not import anything of Bolide, and needs no more than Python 3.9. The prototype executes the
file once more, for its hooks (``gunicorn_hooks``).
"""

import ast
import contextlib
import fcntl
import json
import os
import signal
import sys
import traceback
import types

#: Longest text by which a value is shown that is no plain one, in characters.
SHOWN_MOST = 200


def run(path):
    """Execute the file as the module ``__config__``, as gunicorn does, and return the module."""
    with open(path, "rb") as file:
        source = file.read()
    module = types.ModuleType("__config__")
    module.__file__ = path
    sys.modules["__config__"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def lines_of(path):
    """Return the line of each name that the file sets outside of functions and classes: the last one."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    lines = {}
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            note(lines, node.name, node)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                note(lines, alias.asname or alias.name.split(".")[0], node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            note(lines, node.id, node)
        waiting.extend(ast.iter_child_nodes(node))
    return lines


def note(lines, name, node):
    lines[name] = max(node.lineno, lines.get(name, 0))


def described(value):
    """Return a kind and something that JSON has: ``value``, ``function``, ``class`` or ``other``."""
    if isinstance(value, type):
        return "class", f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        return "function", None
    try:
        # What JSON makes of a tuple or of an enumeration of numbers is what the options need.
        return "value", json.loads(json.dumps(value, default=str if isinstance(value, os.PathLike) else None))
    except (TypeError, ValueError):
        return "other", repr(value)[:SHOWN_MOST]


def settings(path):
    """Return what the file sets: a list of name, kind, value and line. Names of modules are left out, and private ones."""
    module = run(path)
    lines = lines_of(path)
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        kind, told = described(value)
        found.append({"name": name, "kind": kind, "value": told, "line": lines.get(name, 0)})
    return found


def mistake(error, path):
    """Return where in the file an exception was raised, and what it says."""
    line = 0
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno or 0
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == path:
                line = frame.lineno
    said = traceback.format_exception_only(type(error), error)[-1].strip()
    return {"line": line, "message": said}


def end_with_parent():
    """Have the kernel kill this process when the one that has started it has ended.

    Standard input is a pipe whose other end that process holds, and is none for the file.
    """
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_blocking(pipe, False)
    # A signal needs neither a thread nor a turn of Python's. A kernel that has none of this reads the file all the same.
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have ended before the kernel was asked.
    with contextlib.suppress(BlockingIOError):
        os.read(pipe, 1)
        os._exit(1)


def main(path):
    end_with_parent()
    # What the file prints goes where warnings go, and not into the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        told = {"settings": settings(path)}
    except BaseException as error:
        # Also SystemExit: a configuration that exits is none.
        told = {"error": mistake(error, path)}
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        json.dump(told, out)
    # Threads and functions for the end that the file has started keep nobody waiting.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
