"""A reload enters the directory of the application by its path: a link that has been switched since leads to the new release."""

import os

import pytest
from support.server import program

VERSION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""


@pytest.fixture
def releases(tmp_path):
    """Two releases with an options file in each, and the link `current` to the first."""
    for number in (1, 2):
        release = tmp_path / "releases" / str(number)
        release.mkdir(parents=True)
        version = f"release-{number}"
        (release / "shop.py").write_text(VERSION.format(version=version, length=len(version)))
    (tmp_path / "current").symlink_to("releases/1")
    return tmp_path


def deploy(releases, number):
    (releases / "next").symlink_to(f"releases/{number}")
    (releases / "next").rename(releases / "current")


@pytest.mark.parametrize(
    "options",
    [
        ("--chdir", "{directory}/current", "--module", "shop"),
        ("--chdir", "current", "--module", "shop"),
        ("--wsgi-file", "current/shop.py"),
        ("--pythonpath", "current", "--module", "shop"),
    ],
    ids=["absolute", "relative", "file", "pythonpath"],
)
@pytest.mark.parametrize("master", [(), ("--master",)], ids=["alone", "master"])
def test_a_reload_follows_a_link_that_has_moved(options, master, releases, start):
    instance = start(*options, *master, module=None)
    assert instance.body() == "release-1"
    deploy(releases, 2)
    instance.reload(2)
    assert instance.body() == "release-2"


@pytest.mark.parametrize("line", ["chdir = %d", ""], ids=["placeholder", "directory-of-the-start"])
def test_a_reload_follows_a_link_through_which_bolide_was_started(line, releases, start):
    for number in (1, 2):
        (releases / "releases" / str(number) / "app.ini").write_text(f"[uwsgi]\nmodule = shop\n{line}\n")
    # As in a shell: the process is in releases/1, and PWD contains the path with the link.
    through_link = ["sh", "-c", f'cd "{releases}/current" && exec "$@"', "sh", *program()]
    instance = start("app.ini", module=None, command=through_link)
    assert instance.body() == "release-1"
    deploy(releases, 2)
    instance.reload(2)
    assert instance.body() == "release-2"


def test_a_directory_that_is_gone_leaves_the_old_generation_serving(releases, start):
    instance = start("--chdir", "current", module="shop")
    os.remove(releases / "current")
    instance.send_signal(1)
    instance.wait_for_log(r"^bolide: reload: .*can't change to `.*/current`: there is no such directory$")
    instance.wait_for_log(r"^bolide: reload: the configuration can't be used, see above: generation 1 keeps serving")
    assert instance.body() == "release-1"
    (releases / "current").symlink_to("releases/2")
    instance.reload(2)
    assert instance.body() == "release-2"


def test_a_false_pwd_is_not_believed(start, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "shop.py").write_text(VERSION.format(version="true", length=4))
    instance = start(module="shop", environment={"PWD": str(tmp_path / "other")})
    assert instance.body() == "true"
