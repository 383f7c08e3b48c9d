"""The structure of the code: dependencies between crates, directories, and where `unsafe` may be used.

The table of crates in ARCHITECTURE.md says the same in words, and docs/internals/invariants.md says why a crate has `unsafe`.
A new arrow or crate needs a line there and here.
"""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Crate -> the crates it may depend on. "never: engine <-> master, engine -> options, protocol -> anything".
ARROWS = {
    "bolide-abi": set(),
    "bolide-contract": set(),
    "bolide-scoreboard": {"bolide-contract"},
    "bolide-log": {"bolide-contract", "bolide-scoreboard"},
    "bolide-memory": {"bolide-contract", "bolide-scoreboard"},
    "bolide-protocol": set(),
    "bolide-routes": {"bolide-contract"},
    "bolide-comments": set(),
    "bolide-configuration": {"bolide-contract", "bolide-tls"},
    "bolide-options": {
        "bolide-comments",
        "bolide-configuration",
        "bolide-contract",
        "bolide-distributed",
        "bolide-routes",
        "bolide-tls",
    },
    "bolide-other-servers": {"bolide-comments", "bolide-configuration", "bolide-options"},
    "bolide-command-line": {
        "bolide-configuration",
        "bolide-contract",
        "bolide-options",
        "bolide-other-servers",
        "bolide-routes",
        "bolide-spool",
    },
    "bolide-files": {"bolide-contract"},
    "bolide-distributed": {"bolide-contract", "bolide-tls"},
    "bolide-spool": set(),
    "bolide-services": {"bolide-comments", "bolide-contract", "bolide-scoreboard"},
    "bolide-hooks": {"bolide-contract", "bolide-log"},
    "bolide-tls": {"bolide-contract", "bolide-scoreboard"},
    "bolide-engine": {
        "bolide-contract",
        "bolide-files",
        "bolide-log",
        "bolide-memory",
        "bolide-protocol",
        "bolide-routes",
        "bolide-scoreboard",
        "bolide-services",
        "bolide-tls",
    },
    "bolide-prototype": {
        "bolide-contract",
        "bolide-engine",
        "bolide-hooks",
        "bolide-log",
        "bolide-scoreboard",
        "bolide-supervision",
    },
    "bolide-supervision": {"bolide-contract", "bolide-hooks", "bolide-log", "bolide-scoreboard", "bolide-services"},
    "bolide-inspection": set(),
    "bolide-observing": {
        "bolide-command-line",
        "bolide-configuration",
        "bolide-contract",
        "bolide-inspection",
        "bolide-log",
        "bolide-scoreboard",
        "bolide-services",
        "bolide-supervision",
    },
    "bolide-emperor": {
        "bolide-configuration",
        "bolide-contract",
        "bolide-log",
        "bolide-services",
        "bolide-supervision",
    },
    "bolide-master": {
        "bolide-command-line",
        "bolide-configuration",
        "bolide-contract",
        "bolide-emperor",
        "bolide-hooks",
        "bolide-log",
        "bolide-memory",
        "bolide-observing",
        "bolide-options",
        "bolide-other-servers",
        "bolide-scoreboard",
        "bolide-services",
        "bolide-supervision",
        "bolide-tls",
    },
    "bolide-cpython": {
        "bolide-contract",
        "bolide-distributed",
        "bolide-engine",
        "bolide-files",
        "bolide-inspection",
        "bolide-log",
        "bolide-master",
        "bolide-memory",
        "bolide-program",
        "bolide-prototype",
        "bolide-scoreboard",
        "bolide-spool",
    },
    "bolide-cgi": {"bolide-contract", "bolide-engine", "bolide-files", "bolide-log", "bolide-prototype"},
    "bolide-plugin": {
        "bolide-abi",
        "bolide-contract",
        "bolide-engine",
        "bolide-log",
        "bolide-prototype",
        "bolide-scoreboard",
    },
    "bolide-program": {"bolide-cgi", "bolide-log", "bolide-master", "bolide-plugin", "bolide-scoreboard"},
    "bolide-testing": {
        "bolide-command-line",
        "bolide-configuration",
        "bolide-contract",
        "bolide-engine",
        "bolide-log",
        "bolide-master",
        "bolide-prototype",
        "bolide-scoreboard",
        "bolide-tls",
    },
}

#: Crates that may contain `unsafe`, each block with its SAFETY line.
UNSAFE_CRATES = (
    "crates/contract/",
    "crates/engine/",
    "crates/log/",
    "crates/master/",
    "crates/memory/",
    "crates/prototype/",
    "crates/scoreboard/",
    "crates/supervision/",
    "adapters/cgi/",
    "adapters/cpython/",
    "adapters/plugin/",
)

#: Crates whose code runs in master, prototype or worker: their output goes through the crate `log`. `println!` and similar macros
#: block until the reader reads, and panic when it has gone.
LOGGING_CRATES = (
    "contract",
    "distributed",
    "protocol",
    "routes",
    "files",
    "engine",
    "log",
    "master",
    "memory",
    "prototype",
    "scoreboard",
    "services",
    "supervision",
    "tls",
)

MAX_DIRECTORY_FILES = 25


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True).stdout
    return [path for path in listed.decode().split("\0") if path and (ROOT / path).exists()]


@pytest.fixture(scope="module")
def packages():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    described = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {package["name"]: package for package in json.loads(described)["packages"]}


def test_every_crate_knows_only_the_crates_below_it(packages):
    assert set(packages) == set(ARROWS), "a crate was added or removed: say so here and in ARCHITECTURE.md"
    for name, package in packages.items():
        known = {dependency["name"] for dependency in package["dependencies"] if dependency["name"].startswith("bolide-")}
        assert known <= ARROWS[name], f"{name} has arrows that the house does not have"


def test_no_line_of_rust_is_wider_than_the_formatter_makes_it():
    """The formatter leaves comments, long texts and tables in macros as they are."""
    width = int(re.search(r"(?m)^max_width = (\d+)$", (ROOT / "rustfmt.toml").read_text(encoding="utf-8"))[1])
    wide = []
    for path in tracked("*.rs"):
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").split("\n"), 1):
            if len(line) > width:
                wide.append(f"{path}:{number}: {len(line)} characters")
    assert not wide, f"more than {width} characters:\n" + "\n".join(wide)


def test_a_directory_shows_its_parts_at_a_glance():
    directories = Counter(Path(path).parent.as_posix() for path in tracked("*.rs"))
    crowded = sorted(name for name, files in directories.items() if files > MAX_DIRECTORY_FILES)
    assert crowded == [], "lay the files of these into directories that say what they are about"


def test_every_source_file_says_what_it_is():
    silent = []
    # Files of the readers of pages are as short as the pages show them.
    for path in tracked("*.rs", "python/*.py", "tests/*.py", "bench/*.py", ":!tests/docs/fixtures"):
        text = (ROOT / path).read_text(encoding="utf-8")
        start = "//" if path.endswith(".rs") else ('"""', "'''", "#", 'r"""')
        if text.strip() and not text.lstrip().startswith(start):
            silent.append(path)
    assert not silent, "these files do not open with what they are:\n" + "\n".join(silent)


def test_unsafe_stands_only_in_its_crates_and_says_why():
    misplaced, unexplained = [], []
    for path in tracked("*.rs"):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            code = line.split("//")[0]
            if not re.search(r"\bunsafe\s*(\{|impl|fn|extern)", code) or re.search(r"unsafe extern \"C\" fn\(", code):
                continue
            if not path.startswith(UNSAFE_CRATES):
                misplaced.append(f"{path}:{number + 1}")
            before = "\n".join(lines[max(0, number - 6) : number])
            is_callback = re.search(r"unsafe extern \"C\" fn", code)
            if not is_callback and "SAFETY" not in before and "# Safety" not in before:
                unexplained.append(f"{path}:{number + 1}")
    assert not misplaced, "unsafe outside its crates:\n" + "\n".join(misplaced)
    assert not unexplained, "unsafe without a SAFETY line:\n" + "\n".join(unexplained)


def test_only_the_writer_of_the_log_writes_to_it():
    printing = []
    for path in tracked(*(f"crates/{crate}/src/*.rs" for crate in LOGGING_CRATES), "adapters/*/src/*.rs"):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        places = (number for number, line in enumerate(lines, 1) if re.search(r"\b(e?print(ln)?|dbg)!", line.split("//")[0]))
        printing.extend(f"{path}:{number}" for number in places)
    assert not printing, "say it with bolide_log:\n" + "\n".join(printing)


def test_no_file_names_a_machine():
    own = Path(__file__).relative_to(ROOT).as_posix()
    named = []
    for path in tracked():
        if path in (own, "Cargo.lock", "fuzz/Cargo.lock", "models/Cargo.lock"):
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if re.search(r"(^|[^A-Za-z0-9_.])/(work|root)/", text, re.MULTILINE):
            named.append(path)
    assert not named, "paths of one machine in:\n" + "\n".join(named)


def test_no_two_test_files_have_one_name():
    """pytest imports test files by their base names; a duplicate name would abort the whole run."""
    names = [path.rsplit("/", 1)[-1] for path in tracked("tests/**/test_*.py")]
    assert len(names) > 20
    assert sorted({name for name in names if names.count(name) > 1}) == []
