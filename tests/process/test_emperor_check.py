"""``bolide check`` of an emperor's configuration, which checks its vassals too."""

import json
import os
import pwd
import subprocess

import pytest
from support.server import REMOVED_PREFIXES
from support_users import NOBODY, python_for_everybody

#: As the description of `bolide check` says.
WELL, WARNED, FAILED = 0, 1, 2

FINE = "[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = shop:application\npythonpath = {directory}\n"


@pytest.fixture
def vassals(tmp_path):
    directory = tmp_path / "vassals"
    directory.mkdir()
    (tmp_path / "shop.py").write_text("def application(environ, start_response):\n    return []\n")
    for name in ("one.ini", "two.ini"):
        (directory / name).write_text(FINE.format(directory=tmp_path))
    (directory / "notes.txt").write_text("not a configuration")
    return directory


def test_sound_vassals_are_counted(call, vassals, tmp_path):
    status, said = call("check", "--emperor", "vassals")
    assert (status, "note: 2 vassals checked" in said) == (WELL, True), said
    (tmp_path / "emperor.ini").write_text("[uwsgi]\nemperor = vassals/*.ini\n")
    status, said = call("check", "emperor.ini")
    assert (status, "note: 2 vassals checked" in said) == (WELL, True), said


def test_what_is_wrong_with_a_vassal_has_the_place_in_its_file(call, vassals):
    (vassals / "two.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nprocesses = many\n")
    status, said = call("check", "--emperor", "vassals", "--format", "lines")
    assert status == FAILED
    assert f"{vassals}/two.ini:3:1: error: `processes = many`" in said, said
    assert f"{vassals}/one.ini" not in said, said


def test_an_option_of_all_vassals_is_checked_with_each(call, vassals):
    status, said = call("check", "--emperor", "vassals", "--vassal-set", "processes=many", "--json")
    found = [one["message"] for one in json.loads(said) if one["severity"] == "error"]
    assert status == FAILED
    assert [message.split(": ")[0] for message in found] == ["vassal one.ini", "vassal two.ini"], said


def test_the_applications_are_loaded_on_request(call, vassals, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (vassals / "two.ini").write_text(FINE.format(directory=tmp_path).replace("shop:", "broken:"))
    assert call("check", "--emperor", "vassals")[0] == WELL
    status, said = call("check", "--load", "--emperor", "vassals")
    assert status == FAILED
    assert "broken.py:1: error: " in said, said
    assert "no_such_module_at_all" in said


def test_a_user_of_another_machine_does_not_count_without_paths(call, tmp_path, vassals):
    (vassals / "two.ini").write_text(FINE.format(directory=tmp_path) + "uid = no-such-user-here\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
    assert call("check", "--strict", "--emperor", "vassals", env=environment)[0] == WARNED
    status, said = call("check", "--strict", "--emperor", "vassals", "--no-paths", env=environment)
    assert (status, "no-such-user-here" in said) == (WELL, True), said


def test_vassals_of_another_program_are_not_checked(call, vassals):
    (vassals / "two.ini").write_text("[uwsgi]\nprocesses = many\n")
    status, said = call("check", "--emperor", "vassals", "--emperor-wrapper", "/usr/bin/uwsgi")
    assert status == WELL
    assert "the vassals are not checked, because emperor-wrapper executes /usr/bin/uwsgi for them" in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root reads a vassal as another user")
def test_a_file_is_read_as_its_owner_under_a_tyrant(open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    games = pwd.getpwnam("games")
    secret = open_directory / "secret.ini"
    secret.write_text("[uwsgi]\nroots-secret = 1\n")
    secret.chmod(0o600)
    vassals = open_directory / "vassals"
    vassals.mkdir()
    one = vassals / "one.ini"
    one.write_text(FINE.format(directory=open_directory) + f"ini = {secret}\n")
    os.chown(one, NOBODY.pw_uid, NOBODY.pw_gid)
    link = vassals / "two.ini"
    link.symlink_to(secret)
    os.chown(link, games.pw_uid, games.pw_gid, follow_symlinks=False)
    command = [python, "-m", "bolide", "check", "--emperor", str(vassals), "--emperor-tyrant", "--format", "lines"]
    done = subprocess.run(command, cwd=open_directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == FAILED
    assert "Permission denied" in done.stdout, done.stdout
    assert "vassal two.ini is not started: it is a link" in done.stdout
    assert "roots-secret" not in done.stdout


def test_the_files_that_init_writes_are_sound(call, tmp_path):
    status, said = call("init", "--emperor", "--user", "www-data")
    assert status == WELL, said
    assert "uid = www-data\n" in (tmp_path / "emperor.ini").read_text()
    assert "emperor.ini\n" in (tmp_path / "bolide-emperor.service").read_text()
    (tmp_path / "shop.py").write_text("def application(environ, start_response):\n    return []\n")
    (tmp_path / "vassals" / "one.ini").write_text(FINE.format(directory=tmp_path))
    before = (tmp_path / "emperor.ini").read_text()
    # That user can't enter this directory.
    (tmp_path / "own.ini").write_text(before.replace("uid =", "# uid =").replace("gid =", "# gid ="))
    status, said = call("check", "own.ini")
    assert (status, "1 vassal checked" in said) == (WELL, True), said
    status, said = call("init", "--emperor")
    assert (status, "emperor.ini already exists" in said) == (1, True), said
    assert (tmp_path / "emperor.ini").read_text() == before
    for unit in ("emperor.ini", "bolide-emperor.service"):
        (tmp_path / unit).unlink()
    assert call("init", "--emperor")[0] == WELL
    assert "emperor-tyrant = true" in (tmp_path / "emperor.ini").read_text()
    for words in (["shop"], ["--user", "root"], ["--user"], ["--systemd"]):
        assert call("init", "--emperor", *words)[0] == FAILED
