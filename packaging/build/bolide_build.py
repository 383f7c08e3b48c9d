"""The PEP 517 build backend: wraps maturin's hooks and checks the target Python first.

An unsupported Python is refused immediately, before Rust is required. Only pip and other build frontends run it.
"""

import importlib.util
import os

import maturin
from maturin import build_editable, build_sdist, build_wheel, prepare_metadata_for_build_wheel

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


def refuse():
    spec = importlib.util.spec_from_file_location("unsupported", os.path.join(PACKAGE, "unsupported.py"))
    unsupported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unsupported)
    refused = unsupported.refusal()
    if refused:
        raise SystemExit(f"error: {refused}")
