"""Bolide: an application server for WSGI and ASGI applications that runs uwsgi.ini files as they are.

This package is the entry point: the console script ``bolide`` and ``python -m bolide`` call :func:`main`. A Python program calls
:func:`run`, a test of an application calls ``bolide.testing.serve``, an application on several machines :func:`lease`, and one in
several processes :func:`publish` and :func:`subscribe`.
"""

import os.path
import sys

try:
    from bolide._native import __version__
except ImportError as error:
    from bolide.unsupported import explained

    raise explained(error) from None

# Read by type checkers and not by the interpreter: startup must not pay for importing `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from bolide._run import run
    from bolide.leases import Lease, lease
    from bolide.log_handler import LogHandler
    from bolide.publishing import Message, Missed, Subscription, publish, subscribe

__all__ = [
    "Lease",
    "LogHandler",
    "Message",
    "Missed",
    "Subscription",
    "__version__",
    "lease",
    "main",
    "publish",
    "run",
    "subscribe",
]


def main():
    """Run the master with the arguments of the command line.

    The master runs when this interpreter has ended, and the process exits with the master's status: call this last. Startup
    passes through here, so it imports only modules that the interpreter has loaded already.
    """
    if "bolide.application_process" in sys.modules:
        sys.modules["bolide.application_process"].refuse_to_nest("bolide.main()")
    if "pydevd" in sys.modules:
        from bolide import _run

        raise SystemExit(_run.launch(sys.argv[1:]))
    become_master()


def become_master():
    """Run the master in this process, whatever debugger it may have."""
    from bolide import _native

    if "LC_CTYPE" in os.environ:
        from bolide import coerced_locale

        coerced_locale.drop()
    directory = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    imports = [entry for entry in [*sys.path, directory, sys.argv[0]] if isinstance(entry, str)]
    _native.main(sys.argv[1:], sys.executable or None, directory, imports)


def __getattr__(name):
    """Import functions on first use: the console script does not need them."""
    if name == "run":
        from bolide._run import run

        return run
    if name in ("Lease", "lease"):
        from bolide import leases

        return getattr(leases, name)
    if name in ("Message", "Missed", "Subscription", "publish", "subscribe"):
        from bolide import publishing

        return getattr(publishing, name)
    if name == "LogHandler":
        from bolide.log_handler import LogHandler

        return LogHandler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
