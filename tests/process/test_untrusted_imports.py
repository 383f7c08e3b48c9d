"""Modules that root's Python imports and programs that an upgrade executes give the application's user no root privileges."""

import os
import shutil
import subprocess

import pytest
from support.waiting import TIMEOUT_SECONDS
from support_instance import APPLICATIONS
from support_users import NOBODY, python_for_everybody

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root has rights to give away")

#: The message at startup.
RUN_BY_ROOT = r"^bolide: WARNING: the user `nobody` \(uid\) may .*{}.*, which root runs at startup"
READ_AS_USER = r"^bolide: reload: the user `nobody` \(uid\) may .*: it is read as that user"


@pytest.fixture
def place(start, open_directory):
    """A Python of root, and a directory of the user `nobody`."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    return Place(start, open_directory, python)


class Place:
    def __init__(self, start, directory, python):
        self.start_instance, self.directory, self.python = start, directory, python
        self.own = directory / "own"
        self.own.mkdir()
        os.chown(self.own, NOBODY.pw_uid, NOBODY.pw_gid)
        (self.packages,) = directory.glob("everybody/lib/python*/site-packages")
        self.fifo = self.own / "fifo"

    def start(self, *more, cwd=None, environment=(), user="nobody", **options):
        command = ["env", "-C", str(cwd or self.directory), *environment, self.python, "-m", "bolide"]
        line = ["--http-socket", "127.0.0.1:0", "--chdir", self.directory, "--module", "probe", "--master", "--uid", user]
        line += ["--master-fifo", self.fifo, *more]
        return self.start_instance(*line, module=None, socket=None, master=False, command=command, **options)

    def ask(self, letter):
        """As the user `nobody`."""
        pipe = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, letter)
        os.close(pipe)


@pytest.mark.parametrize("way", ["directory of startup", "PYTHONPATH", "a directory that is not there yet", "pth", "binary-path"])
def test_untrusted_imports_and_programs_of_root_are_reported_once_at_the_start(place, way):
    more, options = [], {}
    if way == "directory of startup":
        options["cwd"] = place.own
    elif way == "PYTHONPATH":
        options["environment"] = [f"PYTHONPATH={place.own}"]
    elif way == "a directory that is not there yet":
        options["environment"] = [f"PYTHONPATH=/usr/share:{place.own}/later"]
    elif way == "pth":
        (place.packages / "further.pth").write_text(f"{place.own}\n")
    else:
        more = ["--binary-path", place.own / "bolide"]
        (place.own / "bolide").write_text("#!/bin/sh\n")
    instance = place.start(*more, **options)
    instance.wait_for_log(RUN_BY_ROOT.format(place.own))
    assert instance.log.count("WARNING: the user `nobody`") == 1


@pytest.mark.parametrize("file", ["__init__.py", "bin/bolide"])
def test_a_package_in_a_directory_of_another_name_is_reported(place, file):
    """Debian's system Python has `dist-packages`. The program in the package runs the master."""
    other = place.directory / "dist-packages"
    other.mkdir()
    shutil.move(place.packages / "bolide", other)
    os.chown(other / "bolide" / file, NOBODY.pw_uid, NOBODY.pw_gid)
    (place.packages / "further.pth").write_text(f"{other}\n")
    instance = place.start()
    instance.wait_for_log(RUN_BY_ROOT.format(other / "bolide" / file))


def test_no_warning_if_only_root_may_write_or_the_application_runs_as_root(place):
    assert "(uid) may" not in place.start(environment=[f"PYTHONPATH={place.directory}/later"]).log
    assert "(uid) may" not in place.start(cwd=place.own, user="root", environment=[f"PYTHONPATH={place.own}"]).log


def test_check_tells_it_too(place):
    file = place.directory / "uwsgi.ini"
    file.write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\nuid = nobody\n")
    command, environment = [place.python, "-m", "bolide", "check", file], {"PYTHONPATH": str(place.own)}
    said = subprocess.check_output(command, cwd=place.directory, env=environment, timeout=TIMEOUT_SECONDS, text=True)
    assert f"{file}:4:" in said
    assert f"{place.own}, which root runs at startup" in said


def test_the_users_pipe_orders_no_upgrade_of_roots_master(place):
    instance = place.start(alarms=True)
    pid = instance.pid
    place.ask(b"f")
    instance.wait_for_log(r"^bolide: master-fifo .*: upgrade refused: the user of uid can write to this FIFO.*`bolide upgrade`")
    place.ask(b"r")
    instance.wait_for_generation(2)
    assert instance.pid == pid
    instance.read_log()
    assert "starting a new master" not in instance.log


def test_a_module_of_the_users_is_not_imported_by_root_for_gunicorns_file(place):
    program = place.directory / "gunicorn.conf.py"
    who = place.own / "who"
    program.write_text("import plistlib\nworkers = 1\n")
    instance = place.start("-c", program, environment=[f"PYTHONPATH={place.own}"])
    instance.wait_for_log(RUN_BY_ROOT.format(place.own))
    (place.own / "plistlib.py").write_text(f"import os\nopen({str(who)!r}, 'w').write(str(os.getuid()))\n")
    place.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(READ_AS_USER)
    assert who.read_text() == str(NOBODY.pw_uid)
