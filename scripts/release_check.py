#!/usr/bin/env python3
"""Fails while something that a release needs is missing: scripts/release_check.py VERSION

It checks the publisher's names and what is made from them, the version and the changelog, sentences that a release makes untrue,
and that workflows name each action by its commit. Each problem is one line that says what to do. RELEASING.md has the steps.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import publisher

import changes

ROOT = Path(__file__).resolve().parents[1]

#: A sentence of the time before the first release, with any space between its words. (It is not written here as it is there.)
UNRELEASED = re.compile(r"\s+".join(["not", "on", "PyPI", "yet"]), re.IGNORECASE)
USES = re.compile(r"^\s*(?:- )?uses:\s*(?P<action>\S+?)(?:@(?P<ref>\S+))?(?:\s+#\s*(?P<comment>.*))?$", re.MULTILINE)
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
VERSION = re.compile(r"v\d+(?:\.\d+)+")


def missing_names(root):
    return [f'{publisher.NAMES}: "{name}" is empty' for name in publisher.missing(publisher.names(root))]


def stale_files(root):
    def current(name):
        path = root / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    found = [
        f"{name} is not made from {publisher.NAMES}: run scripts/publisher.py"
        for name, text in publisher.made(root).items()
        if current(name) != text
    ]
    readme = subprocess.run([sys.executable, root / "scripts" / "pypi-readme", "--check"], capture_output=True, text=True)
    return found + [line.removeprefix("bolide: ") for line in readme.stderr.splitlines() if readme.returncode]


def tracked(root):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (root / name).is_file()]


def untrue_sentences(root):
    """Finds the sentence in tracked text, except in the files that look for it."""
    found = []
    for name in tracked(root):
        if name in ("scripts/release_check.py", "tests/packages/test_release.py"):
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in UNRELEASED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: remove the sentence that says {' '.join(match[0].split())!r}")
    return found


def unpinned_actions(root):
    """Finds actions that a workflow names by a tag or a branch, which their owner can move."""
    found = []
    for workflow in sorted((root / ".github" / "workflows").glob("*.yml")):
        text = workflow.read_text(encoding="utf-8")
        for match in USES.finditer(text):
            if match["action"].startswith("./"):
                continue
            place = f".github/workflows/{workflow.name}:{text.count(chr(10), 0, match.start('action')) + 1}"
            ref = match["ref"] or ""
            if match["action"].startswith("docker://"):
                if not DIGEST.fullmatch(ref):
                    found.append(f"{place}: {match['action']} has no digest: write {match['action']}@sha256:…")
            elif not COMMIT.fullmatch(ref):
                found.append(f"{place}: {match['action']}@{ref} is not pinned: write the commit, and the version as a comment")
            elif not VERSION.fullmatch(match["comment"] or ""):
                found.append(f"{place}: {match['action']} has no comment with the version of the commit")
    return found


def versions(root, version):
    found = []
    if f'\nversion = "{version}"\n' not in (root / "Cargo.toml").read_text(encoding="utf-8"):
        found.append(f"Cargo.toml: the version is not {version}")
    found += [f"changes/{path.name} is not collected: run scripts/changes.py collect {version}" for path in changes.files(root)]
    try:
        changes.notes(root, version)
    except changes.Refused as refused:
        found.append(str(refused))
    return found


def problems(root, version):
    return [
        *versions(root, version),
        *missing_names(root),
        *stale_files(root),
        *untrue_sentences(root),
        *unpinned_actions(root),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    found = problems(chosen.root, chosen.version.removeprefix("v"))
    for problem in found:
        print(f"bolide: {problem}", file=sys.stderr)
    if not found:
        print(f"release {chosen.version}: nothing is missing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
