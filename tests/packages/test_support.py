"""The supported Pythons and systems: docs/compatibility.md has the table, made from pyproject.toml, and no other page differs."""

import os
import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
TABLE = re.compile(r"(<!-- made from pyproject\.toml -->\n).*?(<!-- end of table -->)", re.DOTALL)

#: If this variable is set, the table is written and not compared.
WRITE = "BOLIDE_WRITE_REFERENCE"


def read(name):
    with open(ROOT / name, "rb") as file:
        return tomllib.load(file)


def pythons():
    classifiers = read("pyproject.toml")["project"]["classifiers"]
    return [found[1] for found in (re.search(r":: (3\.\d+)$", one) for one in classifiers) if found]


def systems():
    return read("pyproject.toml")["tool"]["bolide"]["support"]


def table():
    known, support = pythons(), systems()
    rust = read("Cargo.toml")["workspace"]["package"]["rust-version"]
    rows = [
        ("Python", f"CPython {', '.join(known[:-1])} and {known[-1]}, with the GIL"),
        ("system", f"Linux {support['kernel']} or newer (in a container, the host's kernel counts)"),
        ("wheels", f"{' and '.join(support['machines'])}, with glibc {support['glibc']} or musl {support['musl']}, or newer"),
        ("elsewhere", f"`pip` builds Bolide, which needs Rust {rust} or newer, a C compiler and Python's headers"),
        ("not supported", "free-threaded builds of CPython, PyPy, GraalPy"),
    ]
    return "| | |\n| --- | --- |\n" + "".join(f"| {name} | {text} |\n" for name, text in rows)


def test_the_table_of_pythons_and_systems_is_made_from_the_package_s_metadata():
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda found: found[1] + table() + found[2], text)
    if WRITE in os.environ:
        PAGE.write_text(made, encoding="utf-8")
    assert text == made or WRITE in os.environ, f"run {WRITE}=1 python3 -m pytest tests/packages/test_support.py"


def test_wheels_are_built_for_the_systems_of_the_table():
    script, support = (ROOT / "scripts" / "wheels").read_text(), systems()
    (machines,) = re.findall(r"\$\{MACHINES:-([^}]*)\}", script)[:1]
    assert machines.split() == support["machines"]
    assert f"glibc {support['glibc']} (2014), musl {support['musl']} (" in script
    assert f"musllinux_{support['musl'].replace('.', '_')} ;;" in script


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_no_page_has_another_range_of_pythons_or_another_kernel():
    first, *_, last = pythons()
    found = []
    for page in pages():
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            ranges = re.findall(r"\b3\.(\d+)(?:\*\*)? (?:to|through|–|-) (?:3\.)?(\d+)\b", line)
            ranges = [one for one in ranges if "ython" in line]
            wrong = [one for one in ranges if (f"3.{one[0]}", f"3.{one[1]}") != (first, last)]
            wrong += [one for one in re.findall(r"Python (3\.\d+) or newer", line) if one != first]
            wrong += [one for one in re.findall(r"(?:Linux|kernel) (\d\.\d+) or newer", line) if one != systems()["kernel"]]
            found += [f"{page.relative_to(ROOT)}:{number}: {one}" for one in wrong]
    assert found == []
