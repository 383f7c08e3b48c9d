"""Bolide: an application server for WSGI and ASGI applications that runs uwsgi.ini files as they are.

This package is the door: the console script ``bolide`` and ``python -m bolide`` both call :func:`main`; a program of Python's
calls :func:`run`, and a test of an application ``bolide.testing.serve``.
"""

import os.path
import sys

try:
    from bolide._native import __version__
except ImportError as error:
    from bolide.unsupported import explained

    raise explained(error) from None

# What a type checker reads and the interpreter does not: the module `typing` is no part of a start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from bolide._run import run

__all__ = ["__version__", "main", "run"]

#: This process is a prototype, or was forked from one.
is_application_process = False


def main():
    """Run the master with the arguments of the command line.

    It runs when this interpreter has ended, and the process ends with its status: call it last. Nothing is imported
    here that the interpreter does not have anyway, because the way to the master is part of every start.
    """
    from bolide import _native

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    imports = [entry for entry in [*sys.path, folder, sys.argv[0]] if isinstance(entry, str)]
    _native.main(sys.argv[1:], sys.executable or None, folder, imports)


def __getattr__(name):
    """Import :func:`run` when somebody asks for it: the console script does not."""
    if name == "run":
        from bolide._run import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
