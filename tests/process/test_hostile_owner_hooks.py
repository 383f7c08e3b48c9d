"""Hooks that root runs on a path: the application's user, who owns the directory, cannot redirect them to another file."""

import os
import stat

import pytest
from support_hostile import Ground, identity_options
from support_users import NOBODY

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

#: Steps that root runs, and the options that they need.
STEPS = {"asap": (), "pre-jail": (), "as-root": (), "as-root in a jail": ("--chroot", "/")}


@pytest.fixture
def ground(open_directory):
    return Ground(open_directory)


@pytest.fixture
def begin(start, ground):
    def begin(*hooks, step="as-root", ready=False):
        identity, command = identity_options(ground.directory)
        options = [word for hook in hooks for word in (f"--hook-{step.split()[0]}", hook)]
        return start(*identity, *STEPS[step], *options, ready=ready, command=command, logging=True)

    return begin


#: The action -> the file that the user has placed.
LED_ELSEWHERE = {
    "write:{theirs}/file text": "ln -s $OUTSIDE/secret file",
    "create:{theirs}/file": "ln -s $OUTSIDE/open/new file",
    "append:{theirs}/file text": "ln -s $OUTSIDE/secret file",
    "appendn:{theirs}/file text": "mkfifo file",
    "writefifo:{theirs}/file text": "ln -s $OUTSIDE/secret file",
    "mkdir:{theirs}/directory/new": "ln -s $OUTSIDE/open directory",
    "rmdir:{theirs}/directory/closed": "ln -s $OUTSIDE directory",
    "unlink:{theirs}/directory/secret": "ln -s $OUTSIDE directory",
    "rename:{theirs}/directory/secret {theirs}/mine": "ln -s $OUTSIDE directory",
    "rename:{theirs}/mine {theirs}/directory/secret": "echo mine >mine; ln -s $OUTSIDE directory",
    "chmod:{theirs}/file 666": "ln -s $OUTSIDE/secret file",
    "chmod:{theirs}/directory/secret 666": "ln -s $OUTSIDE directory",
    "chown:{theirs}/file nobody 0": "ln -s $OUTSIDE/secret file",
    "chown:{theirs}/file 65534 65534": "ln -s $OUTSIDE/closed file",
    "sticky:{theirs}/directory": "ln -s $OUTSIDE/open directory",
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("hook", LED_ELSEWHERE)
def test_a_hook_of_root_is_led_to_no_other_file(step, hook, begin, ground):
    ground.act(LED_ELSEWHERE[hook])
    instance = begin(hook.format(theirs=ground.theirs), step=step)
    assert instance.wait_for_exit() == 1
    ground.is_untouched()
    assert f"({step.split()[0]}): {ground.theirs}/" in instance.log.splitlines()[-1]


@pytest.mark.parametrize("action", ["write:{} text", "append:{} text", "chmod:{} 666", "chown:{} nobody 0"])
def test_a_hook_of_root_changes_no_file_that_has_a_second_name(action, begin, ground):
    os.link(ground.secret, ground.theirs / "file")
    before = ground.look()
    instance = begin(action.format(ground.theirs / "file"))
    assert instance.wait_for_exit() == 1
    assert ground.look() == before
    assert "hard links" in instance.log.splitlines()[-1]


@pytest.mark.parametrize("step", STEPS)
def test_a_hook_of_root_does_what_it_says_in_a_directory_of_the_user(step, begin, ground):
    ground.act("echo mine >mine; chmod 600 mine")
    acts = [
        "mkdir:{0}/made", "chown:{0}/made nobody 0", "chmod:{0}/made 750", "sticky:{0}/made",
        "write:{0}/new one", "appendn:{0}/new two", "chown:{0}/new nobody 0", "chmod:{0}/new 640",
        "rename:{0}/mine {0}/made/moved", "create:{0}/short", "unlink:{0}/short", "mkdir:{0}/empty", "rmdir:{0}/empty",
    ]  # fmt: skip
    instance = begin(*(act.format(ground.theirs) for act in acts), step=step, ready=True)
    assert instance.stop() == 0
    made, new = ground.theirs / "made", ground.theirs / "new"
    assert new.read_text() == "onetwo\n"
    found = new.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY.pw_uid, 0, 0o640)
    found = made.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY.pw_uid, 0, 0o1750)
    assert (made / "moved").read_text() == "mine\n"
    assert sorted(path.name for path in ground.theirs.iterdir()) == ["made", "new"]


def test_a_hook_of_root_follows_a_link_that_root_has_laid(begin, ground):
    releases = ground.directory / "releases"
    releases.mkdir()
    (ground.directory / "current").symlink_to(releases)
    (releases / "flag").symlink_to(ground.secret)
    instance = begin(f"write:{ground.directory}/current/flag text", ready=True)
    assert instance.stop() == 0
    assert ground.secret.read_text() == "text"
    assert stat.S_IMODE(ground.secret.stat().st_mode) == 0o600


def test_a_hook_of_root_writes_to_a_file_of_the_kernel(begin, ground):
    path = "/proc/sys/kernel/domainname"
    if not os.access(path, os.W_OK):
        pytest.skip(f"{path} can't be written to here")
    with open(path) as file:
        before = file.read().strip()
    instance = begin(f"write:{path} {before}", ready=True)
    assert instance.stop() == 0
