"""A configuration that the application's user may write gives that user no root privileges: reported at startup, enforced at
reloads.
"""

import os
import shutil
from pathlib import Path

import pytest
from support_instance import APPLICATIONS
from support_users import NOBODY, python_for_everybody

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root has rights to give away")

#: The log line at a reload.
READ_AS_USER = r"^bolide: reload: the user `nobody` \(uid\) may .*: it is read as that user"


@pytest.fixture
def site(start, open_directory):
    """A site of root with a directory of the user `nobody`, whose configuration can be written and reloaded."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    return Site(start, open_directory, python)


class Site:
    def __init__(self, start, directory, python):
        self.start_instance, self.directory, self.python = start, directory, python
        self.own = directory / "own"
        self.own.mkdir()
        os.chown(self.own, NOBODY.pw_uid, NOBODY.pw_gid)
        self.file = self.own / "uwsgi.ini"
        self.fifo = self.own / "fifo"

    def write(self, lines, file=None):
        """Writes the configuration, as its owner would."""
        file = file or self.file
        file.write_text(
            f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nchdir = {self.directory}\nmodule = probe\nuid = nobody\n"
            f"master = true\nmaster-fifo = {self.fifo}\n{lines}"
        )

    def start(self, lines="", file=None, owner=NOBODY.pw_uid, **options):
        file = file or self.file
        self.write(lines, file)
        os.chown(file, owner, owner)
        command = ["env", "-C", str(self.directory), self.python, "-m", "bolide"]
        return self.start_instance("--ini", file, module=None, socket=None, master=False, command=command, **options)

    def ask(self, letter):
        """As the user `nobody`."""
        pipe = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, letter)
        os.close(pipe)


def test_a_daemon_of_roots_is_not_started_by_a_reload_and_the_rest_of_the_file_counts(site):
    instance = site.start("processes = 1\n")
    instance.wait_for_log(r"^bolide: WARNING: the user `nobody` \(uid\) may .*uwsgi\.ini, which root reads at startup")
    made = site.directory / "made-by-root"
    site.write(
        f"processes = 3\nharakiri = 77\nattach-daemon2 = cmd=id > {made},uid=0,gid=0\n"
        "attach-daemon2 = cmd=echo own=`id -u`; exec sleep 1000\n"
    )
    site.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(READ_AS_USER)
    instance.wait_for_log(r"^bolide: reload: .*uwsgi\.ini:10: `attach-daemon2`: keeps its value until a restart")
    # The next daemon of the file belongs to the user, and runs: the one before it would have run as well by then.
    instance.wait_for_log(r"^\[daemon echo\] own=65534")
    assert len(instance.workers()) == 3
    assert not made.exists()
    instance.read_log()
    assert "uid=0(root)" not in instance.log
    assert "uwsgi.ini:11" not in instance.log


def test_sockets_identity_logs_and_hooks_stay_and_are_named_with_their_lines(site):
    instance = site.start()
    site.write(
        "uid = root\nlogto2 = /etc/bolide-test-never\nhttp-socket = 127.0.0.1:1\nhook-as-root = exec:id\n"
        "pidfile = /etc/bolide-test-never.pid\nchroot = /\nenv = KEPT=no\nprio = -5\n"
    )
    site.ask(b"r")
    instance.wait_for_generation(2)
    for line, option in enumerate(["uid", "logto2", "http-socket", "hook-as-root", "pidfile", "chroot"], 8):
        instance.wait_for_log(rf"^bolide: reload: .*uwsgi\.ini:{line}: `{option}`: keeps its value until a restart")
    instance.wait_for_log(r"^bolide: reload: .*uwsgi\.ini:15: `prio`: keeps its value until a restart")
    assert "uwsgi.ini:14" not in instance.log
    assert instance.body("/facts")
    assert not list(Path("/etc").glob("bolide-test-never*"))


def test_a_variable_stays_where_a_daemon_of_another_user_would_have_it(site):
    instance = site.start("attach-daemon2 = cmd=echo has=$LATER; exec sleep 1000,uid=0\nthreads = 1\n", alarms=True)
    instance.wait_for_log(r"^\[daemon echo\] has=$")
    site.write("attach-daemon2 = cmd=echo has=$LATER; exec sleep 1000,uid=0\nthreads = 2\nenv = LATER=root\n")
    site.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(r"^bolide: reload: .*uwsgi\.ini:10: `env`: keeps its value until a restart")
    instance.wait_for_log(r"^\[daemon echo\] has=$", count=2)


def test_a_file_that_only_root_may_read_is_not_read_for_the_user(site):
    secret = site.directory / "secret"
    secret.write_text("not for nobody\n")
    secret.chmod(0o600)
    instance = site.start()
    site.write(f"env = SEEN=@({secret})\n")
    site.ask(b"r")
    instance.wait_for_log(rf"^bolide: reload: .*uwsgi\.ini:8: error: can't read `{secret}`: Permission denied")
    instance.wait_for_log(r"^bolide: reload: the configuration can't be used, see above: generation 1 keeps serving")
    instance.read_log()
    assert "not for nobody" not in instance.log


def test_a_gunicorn_file_of_the_users_is_executed_by_that_user(site):
    program = site.own / "gunicorn.conf.py"
    who = site.own / "who"
    program.write_text("workers = 1\n")
    os.chown(program, NOBODY.pw_uid, NOBODY.pw_gid)
    site.file.unlink(missing_ok=True)
    configuration = site.directory / "uwsgi.ini"
    instance = site.start(f"config = {program}\n", file=configuration, owner=0)
    instance.wait_for_log(r"^bolide: WARNING: the user `nobody` \(uid\) may .*gunicorn\.conf\.py")
    program.write_text(f"import os\nopen({str(who)!r}, 'w').write(f'{{os.getuid()}} {{os.getgroups()}}')\nworkers = 2\n")
    site.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(READ_AS_USER)
    assert who.read_text() == f"{NOBODY.pw_uid} [{NOBODY.pw_gid}]"
    assert len(instance.workers()) == 2


def test_a_file_that_lies_in_a_directory_of_the_users_later_is_not_trusted_either(site):
    configuration = site.directory / "uwsgi.ini"
    local = site.own / "local.ini"
    lines = f"if-exists = {local}\ninclude = {local}\nendif =\n"
    instance = site.start(lines, file=configuration, owner=0)
    assert "WARNING: the user" not in instance.log
    local.write_text("[uwsgi]\nattach-daemon2 = cmd=id,uid=0\nthreads = 3\n")
    os.chown(local, NOBODY.pw_uid, NOBODY.pw_gid)
    site.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(READ_AS_USER)
    instance.wait_for_log(r"^bolide: reload: .*local\.ini:2: `attach-daemon2`: keeps its value until a restart")


def test_a_configuration_of_roots_own_is_read_by_root_as_ever(site):
    configuration = site.directory / "uwsgi.ini"
    instance = site.start(file=configuration, owner=0, alarms=True)
    site.write("attach-daemon2 = cmd=echo own=`id -u`; exec sleep 1000,uid=0,gid=0\nenv = A=b\n", file=configuration)
    site.ask(b"r")
    instance.wait_for_generation(2)
    instance.wait_for_log(r"^\[daemon echo\] own=0")
    instance.read_log()
    assert "(uid) may" not in instance.log


def test_no_warning_if_the_user_is_root_or_the_masters_own(site):
    root = site.start("immediate-uid = nobody\n")
    assert "(uid) may" not in root.whole_log()


def test_an_untrusted_python_of_root_is_reported(site):
    packages = next(site.directory.glob("everybody/lib/python*/site-packages"))
    os.chown(packages, NOBODY.pw_uid, NOBODY.pw_gid)
    instance = site.start(file=site.directory / "uwsgi.ini", owner=0)
    instance.wait_for_log(
        rf"^bolide: WARNING: the user `nobody` \(uid\) may .*{packages}.*, which root runs at startup: .*"
        "install Bolide where only root may write"
    )


def test_an_upgrade_is_refused_if_the_user_of_uid_can_write_to_the_fifo(site):
    instance = site.start()
    site.ask(b"f")
    instance.wait_for_log(r"^bolide: master-fifo .*: upgrade refused: the user of uid can write to this FIFO")
    site.ask(b"r")
    instance.wait_for_generation(2)


def test_check_warns_at_the_line_of_uid(site, call):
    site.file.write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\n\nuid = nobody\n")
    os.chown(site.file, NOBODY.pw_uid, NOBODY.pw_gid)
    status, said = call("check", site.file)
    assert f"{site.file}:5:" in said
    assert "the user `nobody` (uid) may write to" in said
    assert "which root reads at startup" in said
    assert status == 0
    # It is about files of this machine. The variables of the tests are not options of Bolide.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOLIDE_")}
    assert call("check", "--strict", site.file, env=environment)[0] != 0
    assert call("check", "--strict", "--no-paths", site.file, env=environment)[0] == 0
    assert "which root reads" not in call("check", "--immediate-uid", "nobody", site.file)[1]
    site.file.write_text(site.file.read_text().replace("uid = nobody", "uid = root"))
    assert "which root reads" not in call("check", site.file)[1]
