"""Why this Python has no native module: another version than the package is for, a free-threaded build, or no CPython.

It is imported only when the native module could not be, and by what builds it. It must not import anything of Bolide. Any
process runs it.
"""

import os
import re
import sys
import sysconfig


class Unsupported(ImportError):
    """There is no Bolide for this Python: none that could be installed into it, either."""


def explained(error):
    """Return the ImportError to raise for one that the native module's import has raised."""
    refused = refusal()
    if refused:
        return Unsupported(refused, name="bolide._native")
    return ImportError(mismatch(os.path.dirname(os.path.abspath(__file__))) or str(error), name="bolide._native")


def refusal():
    """Why this Python can't have Bolide; None where it can."""
    version = ".".join(map(str, sys.version_info[:2]))
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return (
            f"Python {version}t ({sys.executable}) is free-threaded, which Bolide does not support yet: "
            f"install it into the ordinary build (python{version}), which has the GIL"
        )
    if sys.implementation.name != "cpython":
        return f"Bolide runs on CPython, and {sys.executable} is {sys.implementation.name}: install it into CPython"
    return None


def mismatch(folder):
    """For which Python the native module in this folder of the package is; None where it is this one's, or there is none."""
    present = sorted(name for name in os.listdir(folder) if name.startswith("_native."))
    if f"_native{sysconfig.get_config_var('EXT_SUFFIX')}" in present:
        return None
    made_for = [".".join(match.groups()) for match in map(re.compile(r"\.cpython-(\d)(\d+)").search, present) if match]
    if not made_for:
        return None
    version = ".".join(map(str, sys.version_info[:2]))
    return f"the Bolide in {folder} is for Python {', '.join(made_for)}, and {sys.executable} is {version}"
