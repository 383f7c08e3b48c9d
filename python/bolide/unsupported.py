"""Why this Python has no native module: the package is for another version, or this is a free-threaded build or not CPython.

It is imported when the import of the native module has failed, and by the build. It must not import anything of Bolide. Any
process runs it.
"""

import os
import re
import sys
import sysconfig


class Unsupported(ImportError):
    """Bolide does not support this Python, and can't be installed into it."""


def explained(error):
    """Return the ImportError to raise after the native module's import has failed with this error."""
    refused = refusal()
    if refused:
        return Unsupported(refused, name="bolide._native")
    return ImportError(mismatch(os.path.dirname(os.path.abspath(__file__))) or str(error), name="bolide._native")


def refusal():
    """Return why this Python is not supported; None if it is."""
    version = ".".join(map(str, sys.version_info[:2]))
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return (
            f"Python {version}t ({sys.executable}) is free-threaded, which Bolide does not support yet: "
            f"install it into the standard build (python{version}), which has the GIL"
        )
    if sys.implementation.name != "cpython":
        return f"Bolide runs on CPython, and {sys.executable} is {sys.implementation.name}: install it into CPython"
    return None


def mismatch(directory):
    """Return the Python for which this directory's native module was built; None if it is this one, or if there is no module."""
    present = sorted(name for name in os.listdir(directory) if name.startswith("_native."))
    if f"_native{sysconfig.get_config_var('EXT_SUFFIX')}" in present:
        return None
    made_for = [".".join(match.groups()) for match in map(re.compile(r"\.cpython-(\d)(\d+)").search, present) if match]
    if not made_for:
        return None
    version = ".".join(map(str, sys.version_info[:2]))
    return f"the Bolide in {directory} is for Python {', '.join(made_for)}, and {sys.executable} is {version}"
