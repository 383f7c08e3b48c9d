"""Executes a ``gunicorn.conf.py`` as gunicorn does, and prints its settings as JSON.

A child of the process that reads the configuration runs it: the configured Python, which may not have Bolide installed, is given
the text of this file. So it must not import anything of Bolide, and must run with Python 3.9. The prototype executes the
configuration once more, for its hooks (``bolide.gunicorn.hooks``).
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

#: Longest repr of a value that JSON can't express, in characters.
MAX_SHOWN = 200


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
    """Return the line of each name that the file sets outside of functions and classes: the last one that sets it."""
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
    """Return a kind (``value``, ``function``, ``class`` or ``other``) and a value that JSON can express."""
    if isinstance(value, type):
        return "class", f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        return "function", None
    try:
        # JSON turns tuples into lists and enumerations of numbers into numbers, as the options need them.
        return "value", json.loads(json.dumps(value, default=str if isinstance(value, os.PathLike) else None))
    except (TypeError, ValueError):
        return "other", repr(value)[:MAX_SHOWN]


def settings(path):
    """Return the file's settings: a list of name, kind, value and line, without modules and private names."""
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
    """Return where in the file an exception was raised, and its message."""
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
    """Have the kernel kill this process when its parent has ended.

    Standard input is a pipe whose other end the parent holds; the file itself reads /dev/null.
    """
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_blocking(pipe, False)
    # A signal needs neither a thread nor the interpreter. A kernel without F_SETSIG reads the file all the same.
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # The parent may have ended before the signal was set up.
    with contextlib.suppress(BlockingIOError):
        os.read(pipe, 1)
        os._exit(1)


def main(path):
    end_with_parent()
    # The file's output goes to standard error with the warnings, and not into the report.
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        told = {"settings": settings(path)}
    except BaseException as error:
        # Also SystemExit: a configuration that exits is invalid.
        told = {"error": mistake(error, path)}
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        json.dump(told, out)
    # Skips the file's threads and atexit functions, which could delay the exit.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
