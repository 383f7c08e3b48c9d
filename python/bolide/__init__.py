"""Bolide: an application server for WSGI applications that runs uwsgi.ini files as they are.

This package is the door: the console script ``bolide`` and ``python -m bolide`` both call :func:`main`.
"""

import sys
from pathlib import Path

from bolide._native import __version__

__all__ = ["__version__", "main"]


def main() -> None:
    """Run the master with the arguments of the command line, and exit with its status."""
    from bolide import _native

    folder = str(Path(__file__).resolve().parent.parent)
    sys.exit(_native.main(sys.argv[1:], sys.executable or None, folder))
