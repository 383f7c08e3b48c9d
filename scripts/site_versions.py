#!/usr/bin/env python3
"""Adds a built site to a directory with the sites of all versions: scripts/site_versions.py VERSION SITE DIRECTORY

VERSION is that of a release (0.2.1, whose site is 0.2) or `dev`. The newest release is in `latest` as well, and the first page
leads there. versions.json has the versions in the format of mike, which the theme reads.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

DEV = "dev"
LATEST = "latest"
RELEASE = re.compile(r"(\d+)\.(\d+)\.\d+")
FIRST_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<title>Bolide</title>
<meta http-equiv="refresh" content="0; url={target}/index.html">
<link rel="canonical" href="{target}/index.html">
<a href="{target}/index.html">The documentation of Bolide</a>
"""


def order(name):
    """Sorts `dev` above all releases, and releases by their numbers."""
    return (1,) if name == DEV else (0, *map(int, name.split(".")))


def add(version, site, directory):
    name = version if version == DEV else ".".join(RELEASE.fullmatch(version).groups())
    directory.mkdir(parents=True, exist_ok=True)
    listing = directory / "versions.json"
    known = {one["version"]: one for one in (json.loads(listing.read_text()) if listing.exists() else [])}
    known[name] = {"version": name, "title": version, "aliases": []}
    releases = sorted((one for one in known if one != DEV), key=order)
    for one in known:
        known[one]["aliases"] = [LATEST] if releases and one == releases[-1] else []
    replace(site, directory / name)
    if releases and releases[-1] == name:
        replace(site, directory / LATEST)
    listing.write_text(json.dumps([known[one] for one in sorted(known, key=order, reverse=True)], indent=2) + "\n")
    (directory / "index.html").write_text(FIRST_PAGE.format(target=LATEST if releases else DEV))
    # Without this file GitHub Pages leaves out files whose names begin with an underscore.
    (directory / ".nojekyll").touch()


def replace(site, target):
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(site, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("site", type=Path)
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args()
    version = chosen.version.removeprefix("v")
    if version != DEV and not RELEASE.fullmatch(version):
        print(f"bolide: {chosen.version} is neither a version such as 0.1.0 nor {DEV}", file=sys.stderr)
        return 2
    if not (chosen.site / "index.html").is_file():
        print(f"bolide: {chosen.site} has no index.html: run make docs", file=sys.stderr)
        return 1
    add(version, chosen.site, chosen.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
