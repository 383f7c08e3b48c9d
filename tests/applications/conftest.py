"""Fixtures of the tests of Perl and Ruby applications. `make languages` installs what they need and runs them."""

import sys
from pathlib import Path

import pytest
from application_support import built

# The load of the tests of processes.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "process"))


@pytest.fixture(scope="session")
def perl(tmp_path_factory):
    """The adapter of Perl, built."""
    return built("psgi", tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="session")
def ruby(tmp_path_factory):
    """The adapter of Ruby, built."""
    return built("rack", tmp_path_factory.mktemp("plugins"))
