"""The PEP 517 build backend: wraps maturin's hooks, checks the target Python, and adds the program of the master to a wheel.

An unsupported Python is refused immediately, before Rust is required. Only pip and other build frontends run it.
"""

import importlib.util
import os
import subprocess
import sys

import maturin
from maturin import build_editable, build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

#: The package's own file contains the text.
PACKAGE = os.path.join(os.path.dirname(__file__), "..", "..", "python", "bolide")

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings=None):
    """The first hook that pip calls."""
    refuse()
    return maturin.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    """Like the hook above, for an editable installation."""
    refuse()
    return maturin.get_requires_for_build_editable(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    program = module_of(os.path.join(os.path.dirname(__file__), "program.py"))
    try:
        program.add_to(os.path.join(wheel_directory, name))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        # The master then runs in the interpreter's process, which takes more memory.
        print(f"warning: the master will run without its own program, which can't be built: {error}", file=sys.stderr)
    return name


def module_of(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[: -len(".py")], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse():
    refused = module_of(os.path.join(PACKAGE, "unsupported.py")).refusal()
    if refused:
        raise SystemExit(f"error: {refused}")
