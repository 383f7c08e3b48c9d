"""Whom a vassal runs as, and what another user can't make of its emperor."""

import os
import pwd
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from support.emperor import Emperor
from support.waiting import wait_until
from support_processes import children_of
from support_users import NOBODY, python_for_everybody

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root starts a vassal as another user")

#: Another user that every Debian has.
GAMES = pwd.getpwnam("games")
SECRET = "[uwsgi]\nroots-secret = 1\n"


@pytest.fixture
def emperor(open_directory):
    """Makes an emperor of root with these lines."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    made = []

    def emperor(*lines, **options):
        command = ["env", "-C", str(open_directory), python, "-m", "bolide"]
        made.append(Emperor(command, open_directory, "emperor = {directory}/vassals", "emperor-freq = 1", *lines, **options))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def give(path, owner=NOBODY):
    os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
    return path


def numbers(owner):
    return [str(owner.pw_uid), str(owner.pw_gid)]


def test_the_user_of_the_emperor_is_that_of_all_vassals(emperor, free_port):
    port = free_port()
    emperor = emperor("uid = nobody")
    emperor.write("one.ini", *site(port, "one", "uid = root"))
    emperor.start()
    assert emperor.answer(port)[3:] == numbers(NOBODY)
    assert os.stat(f"/proc/{emperor.process.pid}").st_uid == NOBODY.pw_uid


def test_without_one_a_vassal_has_its_own(emperor, free_port):
    port = free_port()
    emperor = emperor()
    emperor.write("one.ini", *site(port, "one", "uid = nobody"))
    emperor.start()
    assert emperor.answer(port)[3:] == numbers(NOBODY)


def test_a_tyrant_starts_a_vassal_as_the_owner_of_its_file_with_all_its_groups(emperor, free_port):
    one, two = free_port(), free_port()
    emperor = emperor("emperor-tyrant = true")
    give(emperor.write("one.ini", *site(one, "one")))
    give(emperor.write("two.ini", *site(two, "two")), GAMES)
    emperor.start()
    assert emperor.answer(one)[3:] == numbers(NOBODY)
    assert emperor.answer(two)[3:] == numbers(GAMES)
    for pid in children_of(emperor.process.pid):
        status = Path(f"/proc/{pid}/status").read_text()
        owner = NOBODY if os.stat(f"/proc/{pid}").st_uid == NOBODY.pw_uid else GAMES
        groups = next(line.split()[1:] for line in status.splitlines() if line.startswith("Groups:"))
        assert set(map(int, groups)) == set(os.getgrouplist(owner.pw_name, owner.pw_gid))


def test_a_file_with_another_owner_ends_its_vassal_and_starts_one_of_that_user(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-tyrant = true")
    path = give(emperor.write("one.ini", *site(port, "one")))
    emperor.start()
    emperor.answer(port)
    give(path, GAMES)
    wait_until(lambda: emperor.answer(port)[3:] == numbers(GAMES), lambda: emperor.log)
    assert "stops: its file belongs to another user now" in emperor.log


def link(emperor, path):
    (emperor.directory / "roots.ini").write_text(SECRET)
    path.symlink_to(emperor.directory / "roots.ini")
    give(path)


def hard_link(emperor, path):
    other = emperor.directory / "other.ini"
    other.write_text(SECRET)
    give(other)
    os.link(other, path)


def pipe(emperor, path):
    os.mkfifo(path)
    give(path)


def device(emperor, path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this root may not make devices")
    give(path)


def directory(emperor, path):
    path.mkdir()
    give(path)


def socket_file(emperor, path):
    os.mknod(path, stat.S_IFSOCK | 0o600)
    give(path)


def of_root(emperor, path):
    path.write_text(SECRET)


def of_roots_group(emperor, path):
    path.write_text(SECRET)
    os.chown(path, NOBODY.pw_uid, 0)


def of_a_group(emperor, path):
    path.write_text(SECRET)
    give(path).chmod(0o664)


def of_everybody(emperor, path):
    path.write_text(SECRET)
    give(path).chmod(0o646)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (link, "it is a link"),
        (hard_link, "it has several names"),
        (pipe, None),
        (device, None),
        (directory, None),
        (socket_file, None),
        (of_root, "it belongs to root's user or group"),
        (of_roots_group, "it belongs to root's user or group"),
        (of_a_group, "its group or others may write it"),
        (of_everybody, "its group or others may write it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_tyrant_starts_nothing_for_what_is_no_file_of_its_owner_alone(make, words, emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-tyrant = true")
    make(emperor, emperor.vassals / "bad.ini")
    give(emperor.write("good.ini", *site(port, "good")))
    emperor.start()
    emperor.answer(port)
    assert "vassal bad.ini started" not in emperor.log
    assert "roots-secret" not in emperor.log
    if words:
        emperor.wait_for_log(f"vassal bad.ini is not started: {words}")
        # Once, although it is looked at again.
        emperor.touch("good.ini")
        emperor.wait_for_log("reloads: its file has changed")
        assert emperor.log.count("vassal bad.ini is not started") == 1


def test_a_tyrant_that_follows_no_link_starts_its_vassal_as_the_owner_of_the_link(emperor, free_port):
    port = free_port()
    emperor = emperor("emperor-tyrant = true", "emperor-tyrant-nofollow = true")
    target = emperor.write("one.ini", *site(port, "one")).rename(emperor.directory / "one.ini")
    (emperor.vassals / "site.ini").symlink_to(target)
    give(emperor.vassals / "site.ini")
    # The user may not read it.
    target.chmod(0o600)
    (emperor.vassals / "other.ini").symlink_to(target)
    emperor.start()
    emperor.wait_for_log("vassal other.ini is not started: it belongs to root's user or group")
    emperor.wait_for_log("Permission denied")
    target.chmod(0o644)
    emperor.process.send_signal(signal.SIGURG)
    assert emperor.answer(port)[3:] == numbers(NOBODY)


def test_what_a_users_vassal_asks_of_root_is_not_done(emperor, free_port, open_directory):
    port = free_port()
    emperor = emperor("emperor-tyrant = true")
    outside = open_directory / "outside"
    outside.mkdir()
    lines = (
        "uid = root",
        "gid = root",
        f"exec-as-root = touch {outside}/executed",
        f"exec-asap = touch {outside}/asap",
        f"pidfile = {outside}/pid",
        f"logto = {outside}/log",
        f"stats = {outside}/stats",
    )
    path = give(emperor.write("one.ini", *site(port, "one", *lines)))
    emperor.start()
    wait_until(lambda: "exited with status" in emperor.log, lambda: emperor.log)
    assert list(outside.iterdir()) == []
    # Without what it may not do, it serves as its user.
    path.unlink()
    give(emperor.write("one.ini", *site(port, "one", "uid = root")))
    assert emperor.answer(port)[3:] == numbers(NOBODY)
    emperor.wait_for_log("`uid = root` has no effect: the emperor has started this vassal as nobody")


def test_a_tyrant_that_is_not_root_is_refused(open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    (open_directory / "vassals").mkdir()
    command = [python, "-m", "bolide", "--emperor", "vassals", "--emperor-tyrant"]
    done = subprocess.run(command, cwd=open_directory, user="nobody", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "`emperor-tyrant` needs root" in done.stderr


def owned_by(path):
    give(path)


def writable_by_all(path):
    path.chmod(0o666)


def behind_a_users_link(path):
    real = path.rename(path.parent / "real")
    path.symlink_to(real)
    give(path)


def behind_a_users_directory(path):
    below = path.parent.parent / "users"
    below.mkdir()
    path.rename(below / path.name)
    give(below)
    path.symlink_to(below / path.name)


@pytest.mark.parametrize("which", ["the file", "an include"])
@pytest.mark.parametrize(
    "spoil", [owned_by, writable_by_all, behind_a_users_link, behind_a_users_directory], ids=lambda one: one.__name__
)
def test_root_reads_no_file_of_a_vassal_that_another_user_may_change(spoil, which, emperor, free_port):
    port = free_port()
    emperor = emperor()
    include = emperor.directory / "include.cfg"
    include.write_text("[uwsgi]\nroots-secret = 1\n")
    path = emperor.write("one.ini", *site(port, "one", f"ini = {include}", "uid = nobody"))
    spoil(path if which == "the file" else include)
    emperor.start()
    emperor.wait_for_log("is not read with root's rights: another user may change")
    emperor.wait_for_log("vassal one.ini (pid")
    assert "ready: " not in emperor.log
