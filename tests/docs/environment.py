"""The Python of a reader who installs Bolide: virtual environments without it, and a pip that has the wheel in place of an index.

`pip install bolide` really installs the wheel that was just built (build/wheels, or dist). All other packages are those of the
tests: each environment reads them from there by a .pth file, and pip checks that a package of the page is among them. Without a
wheel, as in a checkout whose Bolide was installed in another way, it is one of those packages, and a line reports it.

This is a program too: `environment.py python ARGUMENT…` is python3 before there is an environment, `environment.py pip PYTHON
ARGUMENT…` is its pip.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Programs of the packages, beside python, which venv makes itself.
TOOLS = {
    "pip": 'exec "{python}" "{environment}" pip "{place}/python" "$@"',
    "django-admin": 'exec "{place}/python" -m django "$@"',
    "pytest": 'exec "{place}/python" -m pytest -p no:cacheprovider "$@"',
}


def tool(path, text):
    """Writes a shell script, in which {python}, {environment} and {place} are filled in."""
    text = text.format(python=sys.executable, environment=__file__, place=path.parent)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def create(directory):
    venv.create(directory, symlinks=True)
    (site,) = Path(directory).resolve().glob("lib/python*/site-packages")
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name, text in TOOLS.items():
        tool(site.parents[2] / "bin" / name, text)


def wheel():
    """Returns the newest wheel for this Python, or None."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = [path for place in ("build/wheels", "dist") for path in (ROOT / place).glob(f"bolide-*-{tag}-*.whl")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def install(python, words):
    names = [re.split(r"[\[<>=!~;]", word)[0] for word in words if not word.startswith("-") and not word.endswith(".txt")]
    for name in names:
        if name != "bolide" or wheel() is None:
            importlib.metadata.version(name)
    if "bolide" not in names or Path(python).parent == Path(sys.executable).parent:
        return 0
    if wheel() is None:
        print("no wheel of Bolide in build/wheels or dist: the one of the tests is used")
        tool(Path(python).with_name("bolide"), f'exec "{python}" -m bolide "$@"')
        return 0
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--ignore-installed",
    ]
    return subprocess.run([*command, "--disable-pip-version-check", str(wheel())]).returncode


def main(what, *words):
    if what == "python" and words[:2] == ("-m", "venv"):
        create(words[2])
        return 0
    if what == "python":
        os.execv(sys.executable, [sys.executable, *words])
    assert (what, words[1]) == ("pip", "install"), f"{words}: only `pip install` is known here"
    return install(words[0], words[2:])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
