"""Files that root reads for the application's user: a link gives the user no access to keys of others, and special files do not
hang the master.
"""

import os
import shutil
import signal
import socket

import pytest
from support.tls import Authority, context_of
from support_hostile import Ground, identity_options
from support_instance import START_FAILED
from support_users import NOBODY

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def ground(open_directory):
    return Ground(open_directory)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


@pytest.fixture
def begin(start, ground):
    def begin(*options, ready=True):
        identity, command = identity_options(ground.directory)
        return start(*identity, *options, ready=ready, command=command, logging=True)

    return begin


class Certificates:
    """The user's own pair in ``theirs``, and another site's in ``outside``, whose key only root may read."""

    def __init__(self, ground, authority):
        self.ground, self.authority = ground, authority
        self.chain, self.key = ground.theirs / "app.pem", ground.theirs / "app.key"
        own, other = authority.server(file="own"), authority.server(file="other")
        for source, target in ((own.chain, self.chain), (own.key, self.key)):
            shutil.copy(source, target)
            os.chown(target, NOBODY.pw_uid, NOBODY.pw_gid)
            target.chmod(0o600)
        for name, source in (("other.pem", other.chain), ("other.key", other.key)):
            shutil.copy(source, ground.outside / name)
            (ground.outside / name).chmod(0o600 if name == "other.key" else 0o644)
        ground.before = ground.look()
        self.options = ("--https", f"127.0.0.1:0,{self.chain},{self.key}")

    def shown(self, instance):
        with (
            socket.create_connection(instance.address("https"), timeout=60) as plain,
            context_of(self.authority).wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            return connection.getpeercert(binary_form=True)


@pytest.fixture
def certificates(ground, authority):
    return Certificates(ground, authority)


#: Another site's pair instead of the user's own: with links to its files, and to its directory.
LAID = {
    "links": "ln -sf $OUTSIDE/other.pem app.pem; ln -sf $OUTSIDE/other.key app.key",
    "a key alone": "cp $OUTSIDE/other.pem app.pem; ln -sf $OUTSIDE/other.key app.key",
    "a chain of links": "ln -s $OUTSIDE up; ln -sf up/other.pem app.pem; ln -sf up/other.key app.key",
}


@pytest.mark.parametrize("laid", LAID)
def test_a_reload_reads_no_key_for_the_user_that_the_user_may_not_read(laid, begin, ground, certificates):
    instance = begin(*certificates.options)
    before = certificates.shown(instance)
    ground.act(LAID[laid])
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("ready: 1 worker of generation 2")
    assert certificates.shown(instance) == before
    assert f"the key {certificates.key} is not read for the user of uid" in instance.log
    assert instance.stop() == 0


@pytest.mark.parametrize("laid", LAID)
def test_a_start_reads_no_key_for_the_user_that_the_user_may_not_read(laid, begin, ground, certificates):
    ground.act(LAID[laid])
    instance = begin(*certificates.options, ready=False)
    assert instance.wait_for_exit() == START_FAILED
    assert f"the key {certificates.key} is not read for the user of uid" in instance.log


def test_a_second_name_of_a_key_is_not_read_for_the_user(begin, ground, certificates):
    os.link(ground.outside / "other.key", ground.theirs / "second.key")
    option = f"127.0.0.1:0,{ground.outside}/other.pem,{ground.theirs}/second.key"
    instance = begin("--https", option, ready=False)
    assert instance.wait_for_exit() == START_FAILED
    assert "second.key is not read for the user of uid" in instance.log


def test_keys_of_roots_are_read_where_the_user_could_not_have_laid_them(begin, ground, certificates):
    live = ground.directory / "live"
    live.mkdir(mode=0o700)
    for name in ("other.pem", "other.key"):
        (live / name).symlink_to(ground.outside / name)
    instance = begin("--https", f"127.0.0.1:0,{live}/other.pem,{live}/other.key")
    assert instance.stop() == 0


def test_a_key_of_roots_in_a_directory_of_the_user_is_read(begin, certificates):
    os.chown(certificates.key, 0, 0)
    assert begin(*certificates.options).stop() == 0


def test_a_key_of_the_user_behind_a_link_of_the_user_is_read(begin, ground, certificates):
    ground.act("mkdir 5; mv app.pem app.key 5; ln -s 5/app.pem .; ln -s 5/app.key .")
    assert begin(*certificates.options).stop() == 0


def test_a_fifo_instead_of_a_file_of_mime_types_hangs_no_reload(begin, ground):
    ground.act("echo 'text/x-own own' >types")
    instance = begin("--mimefile", ground.theirs / "types", "--static-map", f"/s={ground.theirs}")
    ground.act("rm types; mkfifo types")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("types.*is not a file")
    assert instance.stop() == 0
