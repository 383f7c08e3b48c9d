"""Bolide: an application server for WSGI applications that runs uwsgi.ini files as they are.

This package is the door: the console script ``bolide`` and ``python -m bolide`` both call :func:`main`.
"""

import os.path
import sys

try:
    from bolide._native import __version__
except ImportError as error:
    from bolide.unsupported import explained

    raise explained(error) from None

__all__ = ["__version__", "main"]


def main():
    """Run the master with the arguments of the command line.

    It runs when this interpreter has ended, and the process ends with its status: call it last. Nothing is imported
    here that the interpreter does not have anyway, because the way to the master is part of every start.
    """
    from bolide import _native

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _native.main(sys.argv[1:], sys.executable or None, folder)
