"""Counts the lines of Rust code of each crate: without tests, blank lines and comments. Lines of text in literals count.

python3 scripts/count_code.py           # the crates and their sum
python3 scripts/count_code.py --files   # each file, the longest first
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Comments, literals in which a comment could seem to begin, lifetimes, and everything else a character at a time.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)
    |(?P<literal>b?r(?P<fence>\#*)".*?"(?P=fence)|[bc]?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\\n]|\\[^u\n]|\\x..|\\u\{[^}]*\})')
    |.""",
    re.DOTALL | re.VERBOSE,
)
TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test,[^\]]*)\)\]")
ENDS_WITH_SEMICOLON = re.compile(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?(?:use|static|type|const(?! fn)) ")
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[path = \"(?P<path>[^\"]+)\"\]\s*)?(?:pub(?:\(\w+\))? )?mod (?P<name>\w+);")


def blanked(text):
    """The text without comments, and with literals of the same number of lines without braces."""

    def shown(token):
        if token["comment"]:
            return "\n" * token["comment"].count("\n")
        if token["literal"]:
            return "\n".join('"x"' for _ in token["literal"].split("\n"))
        return token[0]

    return TOKEN.sub(shown, text)


def without_tests(code):
    """Code without the items that only tests compile."""
    kept, place = [], 0
    for attribute in TEST_ITEM.finditer(code):
        if attribute.start() < place:
            continue
        kept.append(code[place : attribute.start()])
        place, depth = attribute.end(), 0
        ends = ";" if ENDS_WITH_SEMICOLON.match(code, place) else ";}"
        while place < len(code):
            character = code[place]
            depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(character, 0)
            place += 1
            if depth == 0 and character in ends:
                break
    return "".join([*kept, code[place:]])


def lines_of(text):
    """The number of lines of code."""
    return sum(bool(line.strip()) for line in without_tests(blanked(text)).split("\n"))


def test_files(path, text):
    """The files that this one declares for tests alone."""
    directory = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
    for module in TEST_MODULE.finditer(text):
        if module["path"]:
            yield path.parent / module["path"]
        else:
            yield from (directory / f"{module['name']}.rs", directory / module["name"] / "mod.rs")


def counted():
    """The lines of code of each file below ``crates`` and ``adapters`` that is not a test."""
    command = ["git", "ls-files", "-z", "crates/*.rs", "adapters/*.rs"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    texts = {Path(name): (ROOT / name).read_text(encoding="utf-8") for name in listed.split("\0") if name}
    tests = {file for path, text in texts.items() for file in test_files(path, text)}
    directories = {file.parent for file in tests if file.name == "mod.rs" and file in texts} | {
        file.with_suffix("") for file in tests
    }

    def is_test(path):
        return path in tests or path.parts[2] in ("tests", "benches") or any(parent in directories for parent in path.parents)

    return {path: lines_of(text) for path, text in texts.items() if not is_test(path)}


def main():
    files = counted()
    if "--files" in sys.argv[1:]:
        for path, lines in sorted(files.items(), key=lambda item: -item[1]):
            print(f"{lines:6} {path}")
        return
    crates = Counter()
    for path, lines in files.items():
        crates["/".join(path.parts[:2])] += lines
    for name, lines in crates.most_common():
        print(f"{lines:6} {name}")
    print(f"{sum(crates.values()):6} in {len(files)} files")


if __name__ == "__main__":
    main()
