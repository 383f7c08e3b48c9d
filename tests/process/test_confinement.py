"""Privileges that an instance drops for good: root in the master itself, files outside a directory, capabilities, namespaces."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import APPLICATIONS, START_FAILED
from support_processes import status_field
from support_users import NOBODY, may, python_for_everybody

SERVE = ("--http-socket", "127.0.0.1:0", "--module", "probe")
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root has something to give up")
#: Preparation of the tests of namespaces and jails.
mounts_only = pytest.mark.skipif(
    not may("unshare", "--mount", "--ipc", "--uts", "--net", "sh", "-c", "mount -t tmpfs none /mnt && hostname tried"),
    reason="no name spaces may be made here, or nothing mounted in one (unshare --mount)",
)


@pytest.fixture
def everybody(open_directory):
    """The Python that other users may run, with the probe application beside it."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    return ["env", "-C", str(open_directory), python, "-m", "bolide"]


@root_only
@pytest.mark.parametrize(
    ("options", "user", "group"),
    [
        (("--immediate-uid", "nobody"), NOBODY.pw_uid, NOBODY.pw_gid),
        (("--immediate-uid", str(NOBODY.pw_uid), "--immediate-gid", "12345"), NOBODY.pw_uid, 12345),
        (("--immediate-gid", "12345"), 0, 12345),
    ],
    ids=["user", "numbers", "group"],
)
def test_the_master_itself_drops_root_before_it_creates_anything(options, user, group, start, open_directory, everybody):
    shared = open_directory / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    instance = start(
        *options, "--socket", shared / "app.sock", "--pidfile", shared / "pid",
        "--chdir", open_directory, "--hook-asap", f"exec:touch {shared}/hook", "--processes", "2",
        command=everybody,
    )  # fmt: skip
    wait_until(lambda: len(instance.workers()) == 2, "two workers")
    for pid in [instance.pid, instance.prototype(), *instance.workers()]:
        assert status_field(pid, "Uid").split() == [str(user)] * 4
        assert status_field(pid, "Gid").split() == [str(group)] * 4
    for name in ("app.sock", "pid", "hook"):
        found = (shared / name).stat()
        assert (found.st_uid, found.st_gid) == (user, group), name
    facts = json.loads(instance.body("/facts"))
    assert facts["user"] == [user, group]
    assert 0 not in facts["groups"]
    instance.reload(2)
    assert json.loads(instance.body("/facts"))["user"] == [user, group]


@root_only
def test_a_configuration_that_no_reload_could_read_is_reported_at_the_start(start, open_directory, everybody):
    configuration = open_directory / "secret.ini"
    configuration.write_text(
        f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nchdir = {open_directory}\nmodule = probe\nimmediate-uid = nobody\n"
    )
    configuration.chmod(0o600)
    options = {"socket": None, "module": None, "command": everybody}
    instance = start(configuration, **options)
    instance.wait_for_text("WARNING: reloads will fail: the user of immediate-uid can't read the whole configuration: ")
    instance.wait_for_text(f"{configuration}")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 1 keeps serving")
    assert instance.body()


@root_only
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--immediate-uid", "root"), "immediate-uid = root does not drop privileges"),
        (("--immediate-gid", "0"), "immediate-gid = root does not drop privileges"),
        (("--immediate-uid", "no-such-user"), "no user is called `no-such-user` (immediate-uid)"),
        (("--immediate-gid", "no-such-group"), "no group is called `no-such-group` (immediate-gid)"),
        (("--immediate-uid", "54321"), "set immediate-gid too"),
        (("--immediate-uid", "nobody", "--uid", "12345"), "uid = 12345 needs root, and Bolide was started as nobody"),
        (("--immediate-uid", "nobody", "--pidfile", "/etc/app.pid"), "/etc/app.pid"),
    ],
)
def test_what_can_not_be_given_up_ends_the_start(options, words, fail):
    status, lines = fail(*SERVE, "--chdir", "/", *options)
    assert status == START_FAILED
    assert words in lines[-1], lines


# A jail.

#: Reports what the application sees, and provides the data that the tests check.
JAILED = """
import json
import os
import subprocess

def application(environ, start_response):
    start_response("200 OK", [])
    if environ["PATH_INFO"] == "/program":
        return [subprocess.run(["cat", "/proc/self/status"], capture_output=True, check=True).stdout]
    if environ["PATH_INFO"] == "/body":
        return [str(len(environ["wsgi.input"].read())).encode()]
    return [json.dumps([sorted(os.listdir("/")), os.getcwd(), os.getuid(), __file__]).encode()]
"""
#: Mounts the files that a Python needs into the jail, in a mount namespace that no other process sees.
MOUNT = """
set -e
jail=$1; shift
for directory in usr bin lib lib64; do
    test -e /$directory || continue
    mkdir -p $jail/$directory
    mount --bind /$directory $jail/$directory
done
mkdir $jail/dev
touch $jail/dev/null
mount --bind /dev/null $jail/dev/null
exec "$@"
"""


@pytest.fixture
def jail(open_directory):
    """A directory with an application and a Python."""
    jail = open_directory / "jail"
    for name in ("app", "tmp", "run"):
        (jail / name).mkdir(parents=True)
        os.chmod(jail / name, 0o777)
    if python_for_everybody(jail) is None:
        pytest.skip("no Python here may be run by another user")
    (jail / "app" / "shop.py").write_text(JAILED)
    return jail


def into(jail):
    """Returns the command of an instance in a jail that contains the system's libraries."""
    python = jail / "everybody" / "bin" / "python"
    return ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(jail), str(python), "-m", "bolide"]


@root_only
@mounts_only
def test_the_application_sees_nothing_but_its_jail_and_a_reload_reads_the_configuration_outside(start, tmp_path, jail):
    configuration = tmp_path / "app.ini"
    text = f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nchroot = {jail}\nchdir = /app\nmodule = shop\nuid = nobody\nmaster = true\n"
    text += f"hook-as-root = appendn:/run/steps root\nhook-master-start = appendn:/tmp/steps begin\npidfile = {tmp_path}/pid\n"
    text += f"hook-as-user-atexit = appendn:/tmp/steps end\nhook-pre-jail = appendn:{tmp_path}/steps outside\n"
    configuration.write_text(text)
    instance = start(configuration, socket=None, module=None, command=into(jail))
    seen, directory, user, file = json.loads(instance.body("/"))
    assert set(seen) >= {"app", "everybody", "usr"}
    assert "root" not in seen
    assert (directory, user, file) == ("/app", NOBODY.pw_uid, "/app/shop.py")
    for pid in [instance.prototype(), instance.worker()]:
        assert os.readlink(f"/proc/{pid}/root") == str(jail)
    assert os.readlink(f"/proc/{instance.pid}/root") == "/"
    assert (tmp_path / "pid").read_text().strip() == str(instance.pid)
    assert (jail / "run" / "steps").read_text() == "root\n"
    assert (tmp_path / "steps").read_text() == "outside\n"
    assert (jail / "tmp" / "steps").read_text() == "begin\n"
    # A body of this size exceeds the memory limit and goes to a temporary file.
    assert instance.get("/body", method="POST", body=b"x" * 3_000_000).text == "3000000"

    (jail / "app" / "other.py").write_text(JAILED)
    configuration.write_text(text.replace("module = shop", "module = other"))
    instance.reload(2)
    assert json.loads(instance.body("/"))[3] == "/app/other.py"
    assert instance.stop() == 0
    assert (jail / "tmp" / "steps").read_text() == "begin\nend\n"


@root_only
@mounts_only
def test_daemons_are_in_the_jail_too(start, jail):
    daemon = "pwd > /run/daemon; exec sleep 1000"
    instance = start("--chroot", jail, "--attach-daemon", daemon, module="app.shop", command=into(jail))
    wait_until(lambda: (jail / "run" / "daemon").is_file() and (jail / "run" / "daemon").read_text() == "/\n", "the daemon")
    assert instance.body("/")


@root_only
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--chroot", "{jail}", "--virtualenv", "/nowhere"), "does not contain a Python: /nowhere/bin/python does not exist"),
        (("--chroot", "{jail}", "--chdir", "/nowhere"), "does not contain the directory /nowhere: create it, or correct chdir"),
        (("--chroot", "{jail}/nowhere"), "make that directory, or correct the option"),
        (("--cap", "net_bind_servce"), "did you mean `net_bind_service`?"),
        (("--unshare", "pid"), "its first process has to be the master"),
        (("--unshare", "tea"), "separate `fs`, `ipc`, `uts` and `net` namespaces"),
    ],
)
def test_a_jail_that_can_not_be_had_ends_the_start(options, words, fail, jail):
    status, lines = fail(*SERVE, *(option.format(jail=jail) for option in options))
    assert status == START_FAILED
    assert words in lines[-1], lines


@pytest.mark.parametrize("option", [("--chroot", "/"), ("--cap", "kill"), ("--unshare", "ipc")])
def test_an_ordinary_user_can_not_give_up_what_only_root_has(option, fail):
    # Root becomes an ordinary user after all imports, because that user may not be allowed to read the modules.
    become = f"os.setgroups([]); os.setgid({NOBODY.pw_gid}); os.setuid({NOBODY.pw_uid}); " if os.getuid() == 0 else ""
    done = subprocess.run(
        [sys.executable, "-c", f"import os, bolide; {become}bolide.main()", *SERVE, *option],
        cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == START_FAILED
    assert f"{option[0][2:]} needs root" in done.stdout.decode().splitlines()[-1]


# Capabilities and namespaces.


def capabilities(status):
    """Returns the capability sets of a process, from the text of its status."""
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Cap"))
    return {name: int(value, 16) for name, value in lines.items()}


@root_only
@pytest.mark.parametrize("user", [("--uid", "nobody"), ()], ids=["nobody", "root"])
def test_the_application_keeps_the_capabilities_that_are_named_and_no_others(user, start, open_directory, everybody):
    (open_directory / "shop.py").write_text(JAILED)
    options = (*user, "--cap", "net_bind_service,CAP_KILL", "--chdir", open_directory)
    instance = start(*options, module="shop", command=everybody)
    kept = 1 << 10 | 1 << 5
    for pid in [instance.prototype(), instance.worker()]:
        found = capabilities(Path(f"/proc/{pid}/status").read_text())
        assert found == {"CapInh": kept, "CapPrm": kept, "CapEff": kept, "CapBnd": kept, "CapAmb": 0}
    of_program = capabilities(instance.body("/program"))
    assert of_program["CapPrm"] == (0 if user else kept)
    instance.reload(2)
    assert capabilities(Path(f"/proc/{instance.worker()}/status").read_text())["CapEff"] == kept


@root_only
@mounts_only
def test_an_instance_has_private_namespaces_and_its_sockets_are_the_systems(start, tmp_path):
    hooks = ("--hook-as-root", "exec:hostname jailed", "--hook-as-root", f"exec:mount -t tmpfs none {tmp_path / 'mounted'}")
    (tmp_path / "mounted").mkdir()
    before = os.uname().nodename
    instance = start("--unshare", "fs,ipc", "--unshare", "uts,net", *hooks)
    assert instance.body()
    for kind in ("mnt", "ipc", "uts", "net"):
        own = os.readlink(f"/proc/self/ns/{kind}")
        of_instance = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in [instance.pid, instance.prototype(), instance.worker()]}
        assert len(of_instance) == 1, kind
        assert own not in of_instance, kind
    assert os.uname().nodename == before
    assert str(tmp_path / "mounted") not in Path("/proc/self/mounts").read_text()
    assert str(tmp_path / "mounted") in Path(f"/proc/{instance.worker()}/mounts").read_text()
    instance.reload(2)
    assert instance.body()


@root_only
@mounts_only
def test_an_upgrade_keeps_the_namespaces_and_is_refused_if_the_new_master_were_unreachable(start):
    instance = start("--unshare", "fs,uts")
    before = os.readlink(f"/proc/{instance.pid}/ns/uts")
    instance.send_signal(signal.SIGRTMIN + 2)
    instance.wait_for_log("bolide: ready: ", count=2)
    wait_until(lambda: instance.process.poll() == 0, "the end of the master before")
    master = int(instance.wait_for_log(r"master pid (\d+)", count=2).group(1))
    assert os.readlink(f"/proc/{master}/ns/uts") == before
    os.kill(master, signal.SIGTERM)

    alone = start("--unshare", "net")
    alone.send_signal(signal.SIGRTMIN + 2)
    alone.wait_for_log("upgrade .*unshare = net.*this master stays")
    assert alone.body()
