"""Other users, and privileged operations: they are tried to find out whether this user may do them."""

import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import bolide

NOBODY = pwd.getpwnam("nobody")


def python_for_everybody(directory):
    """Returns the Python of a new environment with Bolide that any user may run, of this Python's version, or None."""
    version = "python{}.{}".format(*sys.version_info)
    for candidate in [sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"]:
        try:
            subprocess.run([candidate, "-c", ""], user="nobody", check=True, stderr=subprocess.DEVNULL)
            subprocess.run([candidate, "-m", "venv", "--without-pip", str(directory / "everybody")], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        (packages,) = directory.glob("everybody/lib/python*/site-packages")
        shutil.copytree(Path(bolide.__file__).parent, packages / "bolide")
        return str(directory / "everybody" / "bin" / "python")
    return None


def may(*command):
    """Returns whether this user may do what a command does: in a container root often lacks a capability, or the kernel a
    feature.
    """
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
