"""What pip calls to build Bolide: maturin's functions, behind a look at the Python that is to have it.

A Python that is not supported is told so at once, before it is asked for Rust. pip runs it, and nothing else does.
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

#: The package's own file has the words.
PACKAGE = os.path.join(os.path.dirname(__file__), "..", "..", "python", "bolide")

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings=None):
    """The first that pip asks."""
    refuse()
    return maturin.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    """The same for an editable installation."""
    refuse()
    return maturin.get_requires_for_build_editable(config_settings)


def refuse():
    spec = importlib.util.spec_from_file_location("unsupported", os.path.join(PACKAGE, "unsupported.py"))
    unsupported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unsupported)
    refused = unsupported.refusal()
    if refused:
        raise SystemExit(f"error: {refused}")
