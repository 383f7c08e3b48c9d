#!/usr/bin/env python3
"""Collects the files in changes/ into CHANGELOG.md, and prints the notes of a release.

`collect VERSION` adds a section with today's date, or `--date`, and removes the collected files. If the section exists without a
date ("not released"), it gets the date. `notes VERSION` prints the section of a version for the release on the host. `check`
reports files that `collect` would refuse. changes/README.md describes the files.
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Kinds of changes in the order of the changelog, with their headings.
KINDS = {
    "breaking": "Breaking changes",
    "security": "Security",
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "log": "Changed log lines",
}
NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.(?P<kind>{'|'.join(KINDS)})\.md")
#: A longer entry is documentation: the page about the topic has it, and the entry links to that page.
MAX_ENTRY_CHARACTERS = 500
#: GitHub refuses a longer body of a release.
MAX_NOTES_CHARACTERS = 125_000
SECTION = re.compile(r"^## (?P<version>\d+\.\d+\.\d+) \((?P<date>[^)]+)\)$", re.MULTILINE)


class Refused(Exception):
    """An error for the person who makes the release."""


def files(root):
    return sorted(path for path in (root / "changes").glob("*") if path.name != "README.md")


def mistakes(root):
    """Returns what is wrong with the files in changes/."""
    found = []
    for path in files(root):
        text = path.read_text(encoding="utf-8").strip()
        if not NAME.fullmatch(path.name):
            found.append(f"changes/{path.name}: the name is not TOPIC.KIND.md with a KIND of {', '.join(KINDS)}")
        elif not text:
            found.append(f"changes/{path.name}: the file is empty")
        elif len(text) > MAX_ENTRY_CHARACTERS:
            found.append(f"changes/{path.name}: the entry is longer than {MAX_ENTRY_CHARACTERS} characters: link to the page")
        elif re.search(r"^(?:#|\* )|\n\n", text, re.MULTILINE):
            found.append(f"changes/{path.name}: an entry is one paragraph, without a heading or a bullet")
    return found


def entries(root):
    """Returns the sections of the collected files as Markdown."""
    by_kind = {}
    for path in files(root):
        text = " ".join(path.read_text(encoding="utf-8").split())
        by_kind.setdefault(NAME.fullmatch(path.name)["kind"], []).append(f"* {text}\n")
    return "\n".join(f"### {KINDS[kind]}\n\n{''.join(by_kind[kind])}" for kind in KINDS if kind in by_kind)


def parts(log):
    """Splits the changelog into its head and its sections, each with version, date and text."""
    found = list(SECTION.finditer(log))
    ends = [one.start() for one in found[1:]] + [len(log)]
    sections = [(one["version"], one["date"], log[one.end() : end].strip("\n")) for one, end in zip(found, ends)]
    return log[: found[0].start() if found else len(log)].rstrip(), sections


def is_date(text):
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None


def collect(root, version, date):
    wrong = mistakes(root)
    if wrong:
        raise Refused("\n".join(wrong))
    path = root / "CHANGELOG.md"
    head, sections = parts(path.read_text(encoding="utf-8"))
    prepared, new = "", entries(root)
    for known, when, text in sections:
        if known == version and is_date(when):
            raise Refused(f"CHANGELOG.md: version {version} is already released ({when})")
        prepared = text if known == version else prepared
    if not prepared and not new:
        raise Refused(f"changes/ has no entry for version {version}")
    text = "\n\n".join(part.strip("\n") for part in (prepared, new) if part)
    sections = [(version, date, text), *(one for one in sections if one[0] != version)]
    path.write_text("\n\n".join([head, *(f"## {v} ({d})\n\n{t}" for v, d, t in sections)]) + "\n", encoding="utf-8")
    for file in files(root):
        file.unlink()


def notes(root, version):
    _, sections = parts((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    for known, date, text in sections:
        if known != version:
            continue
        if not is_date(date):
            raise Refused(f"CHANGELOG.md: version {version} has no date: run scripts/changes.py collect {version}")
        if len(text) > MAX_NOTES_CHARACTERS:
            raise Refused(
                f"CHANGELOG.md: version {version} has {len(text)} characters; a release has at most {MAX_NOTES_CHARACTERS}"
            )
        return text
    raise Refused(f"CHANGELOG.md has no section for version {version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("version")
    collecting.add_argument("--date", default=datetime.date.today().isoformat())
    commands.add_parser("notes").add_argument("version")
    commands.add_parser("check")
    chosen = parser.parse_args()
    try:
        if chosen.command == "collect":
            collect(chosen.root, chosen.version, chosen.date)
        elif chosen.command == "notes":
            print(notes(chosen.root, chosen.version))
        elif mistakes(chosen.root):
            raise Refused("\n".join(mistakes(chosen.root)))
    except Refused as refused:
        print(f"bolide: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
