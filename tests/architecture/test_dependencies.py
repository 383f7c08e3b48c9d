"""The dependencies of the server: licenses, sources and versions of every crate, checked against deny.toml.

`make deny` checks the same and more with cargo-deny. These tests only need Cargo, so they also run without network access.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def listed(name):
    """Returns a list of strings in deny.toml. (The oldest supported Python has no TOML parser.)"""
    found = re.search(rf"^{name} = \[(.*)\]$", (ROOT / "deny.toml").read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r'"([^"]+)"', found[1]))


def is_allowed(expression, allowed):
    """Returns whether allowed licenses satisfy an SPDX expression. A slash, as older crates write it, means OR."""
    names = re.findall(r"[()]|[\w.+-]+(?: WITH [\w.+-]+)?", expression.replace("/", " OR "))

    def either():
        met = both()
        while names and names[0] == "OR":
            names.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while names and names[0] == "AND":
            names.pop(0)
            met = one() and met
        return met

    def one():
        name = names.pop(0) if names else ""
        if name != "(":
            return name in allowed
        met = either()
        assert names.pop(0) == ")"
        return met

    met = either()
    assert names == [], expression
    return met


@pytest.fixture(scope="module")
def packages():
    # For this platform only: crates of other platforms may never have been downloaded.
    told = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (.+)$", told, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    described = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads(described)["packages"]
    assert len(found) > 50
    return found


def test_every_crate_has_a_license_that_the_list_allows(packages):
    allowed = listed("allow")
    rules = (ROOT / "deny.toml").read_text(encoding="utf-8")
    excepted = dict(re.findall(r'\{ crate = "([\w-]+)", allow = \["([\w.-]+)"\] \}', rules))
    refused = [
        f"{one['name']} {one['version']}: {one['license']}"
        for one in packages
        if not is_allowed(one["license"] or "", allowed) and excepted.get(one["name"]) != one["license"]
    ]
    assert refused == []


def test_every_crate_comes_from_this_repository_or_the_registry_and_none_is_banned(packages):
    own = [one["name"] for one in packages if one["source"] is None]
    assert all(name.startswith("bolide-") for name in own), own
    assert {one["source"] for one in packages} == {None, CRATES_IO}
    assert {one["name"] for one in packages} & listed("deny") == set()


def test_a_library_without_a_first_release_is_pinned(packages):
    """Every release may contain breaking changes: the version is pinned, and upgrades are tested by hand."""
    unreleased = {one["name"] for one in packages if re.match(r"0\.0\.|[^+]*-", one["version"])}
    asked = [dependency for one in packages if one["source"] is None for dependency in one["dependencies"]]
    loose = [(one["name"], one["req"]) for one in asked if one["name"] in unreleased and not one["req"].startswith("=")]
    assert loose == []


def test_expressions_of_licenses_are_read_as_spdx_has_them():
    allowed = {"MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"}
    for expression, met in [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only/MIT", True),
        ("(MIT OR GPL-2.0+) AND Zlib", True),
        ("(MIT OR Zlib) AND GPL-2.0+", False),
        ("GPL-2.0+ OR MIT AND Zlib", True),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", True),
        ("Apache-2.0", False),
        ("", False),
    ]:
        assert is_allowed(expression, allowed) is met, expression
