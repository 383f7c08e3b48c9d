#!/usr/bin/env python3
"""Writes what the publisher's names make: `[project.urls]`, the contact of SECURITY.md and others, the links of new issues.

packaging/publisher.toml has the names. An empty name leaves out the link or the sentence that needs it. `--check` writes nothing,
and fails if a file is not what would be written.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
NAMES = "packaging/publisher.toml"

#: A generated block of a page: its marker says what it contains.
BLOCK = re.compile(r"(?P<open><!-- publisher: (?P<kind>[a-z]+) -->\n).*?(?P<close><!-- end of publisher -->)", re.DOTALL)
URLS = re.compile(r"^# Made by scripts/publisher\.py.*\n\[project\.urls\]\n(?:.+\n)*\n", re.MULTILINE)
PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md", "MAINTAINERS.md")
ISSUES = ".github/ISSUE_TEMPLATE/config.yml"


def names(root=ROOT):
    """Returns the publisher's names, with addresses that do not end in a slash."""
    with open(root / NAMES, "rb") as file:
        read = tomllib.load(file)["publisher"]
    return {name: value.rstrip("/") if isinstance(value, str) else value for name, value in read.items()}


def missing(known):
    return [name for name, value in known.items() if not value]


def urls(known):
    """Returns the project's links in the order in which PyPI shows them."""
    repository, site = known["repository"], known["site"]
    links = {"Homepage": site or repository, "Documentation": site}
    if repository:
        links["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
        links["Issues"] = f"{repository}/issues"
        links["Repository"] = repository
    return {name: url for name, url in links.items() if url}


def with_urls(project, known):
    """Replaces `[project.urls]` of pyproject.toml."""
    links = urls(known)
    table = "".join(f"{name} = {json.dumps(url)}\n" for name, url in links.items())
    made = f"# Made by scripts/publisher.py from {NAMES}.\n[project.urls]\n{table}\n" if links else ""
    return URLS.sub("", project).replace("[project.scripts]\n", f"{made}[project.scripts]\n", 1)


def reporting(known):
    ways = []
    if known["repository"]:
        ways.append(f"[a private security advisory]({known['repository']}/security/advisories/new)")
    if known["security"]:
        ways.append(f"a mail to <{known['security']}>")
    if not ways:
        return (
            "The address for reports is part of the first release. Until then, open an issue that says only that you have a\n"
            "vulnerability to report. A maintainer answers with a private address.\n"
        )
    return f"Send your report as {' or as '.join(ways)}. Only the maintainers can read it.\n"


def conduct(known):
    if not known["security"]:
        return "Report a violation in the way that [SECURITY.md](SECURITY.md) describes for vulnerabilities.\n"
    return f"Report a violation to <{known['security']}>.\n"


def people(known):
    if not known["maintainers"]:
        return f"`{NAMES}` lists the maintainers. The list is empty before the first release.\n"
    return "".join(f"* {name}\n" for name in known["maintainers"])


BLOCKS = {"reporting": reporting, "conduct": conduct, "maintainers": people}


def with_blocks(page, known):
    return BLOCK.sub(lambda block: f"{block['open']}{BLOCKS[block['kind']](known)}{block['close']}", page)


def new_issues(known):
    """Returns the choices beside the issue forms. GitHub accepts absolute addresses only."""
    text = f"# Made by scripts/publisher.py from {NAMES}.\nblank_issues_enabled: false\n"
    contacts = []
    if known["repository"]:
        url = known["repository"]
        contacts += [
            ("A question", f"{url}/discussions", "Ask how to configure or operate Bolide."),
            ("A vulnerability", f"{url}/security/policy", "Do not open a public issue. SECURITY.md says how to report it."),
        ]
    if known["site"]:
        contacts.append(("The documentation", known["site"], "Errors and what to do, log lines, all options."))
    if contacts:
        text += "contact_links:\n"
    for name, url, about in contacts:
        text += f"  - name: {name}\n    url: {url}\n    about: {about}\n"
    return text


def made(root=ROOT):
    """Returns each generated file with its text."""
    known = names(root)

    def read(name):
        return (root / name).read_text(encoding="utf-8")

    texts = {"pyproject.toml": with_urls(read("pyproject.toml"), known), ISSUES: new_issues(known)}
    texts.update((name, with_blocks(read(name), known)) for name in PAGES)
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--get", metavar="NAME", help="print this name")
    chosen = parser.parse_args()
    if chosen.get:
        print(names()[chosen.get])
        return 0
    stale = []
    for name, text in made().items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not chosen.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if chosen.check and stale:
        print(f"bolide: {', '.join(stale)}: not made from {NAMES}: run scripts/publisher.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
