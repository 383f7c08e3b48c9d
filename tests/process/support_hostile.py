"""A directory of another user, that user's actions in it, and files beside it that must not change."""

import os
import shutil
import stat
import subprocess

import pytest
from support_instance import APPLICATIONS
from support_users import NOBODY, python_for_everybody

#: Timeout of an action of the user, in seconds.
ACT_SECONDS = 60


class Ground:
    """``theirs`` is a directory of the user `nobody`; ``outside`` contains files and directories of root, which are monitored."""

    def __init__(self, directory):
        self.directory = directory
        self.theirs = directory / "theirs"
        self.outside = directory / "outside"
        self.outside.mkdir(mode=0o755)
        self.secret = self.outside / "secret"
        self.secret.write_text("secret\n")
        self.secret.chmod(0o600)
        # Files that any member of root's group could write.
        self.shared = self.outside / "shared"
        self.shared.write_text("shared\n")
        self.shared.chmod(0o660)
        (self.outside / "closed").mkdir(mode=0o700)
        (self.outside / "closed" / "app.log").write_text("a log of root's\n")
        (self.outside / "open").mkdir(mode=0o755)
        shutil.copy(APPLICATIONS / "probe.py", directory)
        self.make(self.theirs)
        self.before = self.look()

    def make(self, path):
        """Creates a directory that belongs to the user `nobody`."""
        path.mkdir()
        path.chmod(0o755)
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        return path

    def act(self, command):
        """Returns a command line that runs as the user `nobody` in the directory."""
        identity = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "OUTSIDE": str(self.outside)}
        subprocess.run(["/bin/sh", "-ec", command], cwd=self.theirs, env=environment, check=True, timeout=ACT_SECONDS, **identity)

    def look(self, names=True):
        """Returns the state of everything outside: contents, owner, mode, inode, link count, entries."""
        return {
            str(path.relative_to(self.outside)): facts(path, names) for path in [self.outside, *sorted(self.outside.rglob("*"))]
        }

    def is_untouched(self):
        assert self.look() == self.before


def facts(path, names):
    found = path.lstat()
    contents = path.read_bytes() if stat.S_ISREG(found.st_mode) else None
    return contents, found.st_uid, found.st_gid, found.st_mode, found.st_ino, found.st_nlink if names else None


def identity_options(directory):
    """Returns the options and the Python of an instance whose application runs as the user `nobody`."""
    python = python_for_everybody(directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    options = ("--chdir", directory, "--uid", "nobody", "--gid", str(NOBODY.pw_gid))
    return options, [python, "-m", "bolide"]
