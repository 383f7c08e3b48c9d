"""The site of all versions: each version has a directory, and a branch of the repository has them all."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADD = ROOT / "scripts" / "site_versions.py"


def run(*command, cwd=None):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd)


@pytest.fixture
def site(tmp_path):
    """A built site whose first page contains the given text."""

    def site(text):
        built = tmp_path / "built"
        shutil.rmtree(built, ignore_errors=True)
        built.mkdir()
        (built / "index.html").write_text(text)
        return built

    return site


@pytest.fixture
def sites(site, tmp_path):
    """Adds the site of a version. Returns the directory of all sites."""

    def sites(version):
        done = run(sys.executable, ADD, version, site(f"This is {version}."), tmp_path / "sites")
        assert done.returncode == 0, done.stdout
        return tmp_path / "sites"

    return sites


def listed(directory):
    return [(one["version"], one["title"], one["aliases"]) for one in json.loads((directory / "versions.json").read_text())]


def page(directory, version):
    return (directory / version / "index.html").read_text()


def test_each_minor_version_has_a_directory_and_the_newest_one_is_latest(sites):
    for version in ("0.9.0", "v0.10.0", "0.9.1", "dev"):
        directory = sites(version)
    assert listed(directory) == [("dev", "dev", []), ("0.10", "0.10.0", ["latest"]), ("0.9", "0.9.1", [])]
    assert page(directory, "0.9") == "This is 0.9.1."
    # A correction of an old version does not become the newest one.
    assert page(directory, "latest") == "This is v0.10.0."
    assert "url=latest/index.html" in (directory / "index.html").read_text()


def test_before_the_first_release_the_first_page_leads_to_the_development_version(sites):
    directory = sites("dev")
    assert "url=dev/index.html" in (directory / "index.html").read_text()
    assert listed(directory) == [("dev", "dev", [])]


def test_a_page_that_a_version_no_longer_has_is_removed(sites, tmp_path):
    directory = sites("0.1.0")
    (directory / "0.1" / "old.html").write_text("old")
    sites("0.1.1")
    assert sorted(path.name for path in (directory / "0.1").iterdir()) == ["index.html"]


@pytest.mark.parametrize(("version", "told"), [("main", "neither a version"), ("0.1", "neither a version")])
def test_another_word_is_no_version(site, tmp_path, version, told):
    done = run(sys.executable, ADD, version, site("text"), tmp_path / "sites")
    assert done.returncode == 2
    assert told in done.stdout


@pytest.fixture
def checkout(tmp_path):
    """A clone with the script, whose origin is a bare repository on this machine."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    assert run("git", "init", "--quiet", "--bare", origin).returncode == 0
    (clone / "scripts").mkdir(parents=True)
    for name in ("publish-site", "site_versions.py"):
        shutil.copy(ROOT / "scripts" / name, clone / "scripts")
    run("git", "init", "--quiet", cwd=clone)
    run("git", "remote", "add", "origin", origin, cwd=clone)
    return clone


def publish(clone, version, site):
    shutil.rmtree(clone / "build", ignore_errors=True)
    shutil.copytree(site, clone / "build" / "site")
    done = run(clone / "scripts" / "publish-site", version)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_branch_of_the_site_keeps_the_versions_that_it_has(checkout, site, tmp_path):
    publish(checkout, "v0.1.0", site("the first"))
    publish(checkout, "dev", site("in development"))
    assert "published already" in publish(checkout, "dev", site("in development"))
    pages = tmp_path / "pages"
    assert run("git", "clone", "--quiet", "--branch", "gh-pages", tmp_path / "origin.git", pages).returncode == 0
    assert (page(pages, "0.1"), page(pages, "latest"), page(pages, "dev")) == ("the first", "the first", "in development")
    assert (pages / ".nojekyll").exists()
    assert run("git", "rev-list", "--count", "HEAD", cwd=pages).stdout.strip() == "2"


def test_the_site_of_a_version_shows_a_choice_of_versions(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import docs_site

    class Config:
        extra = {}  # noqa: RUF012
        site_name = "Bolide"
        repo_url = None

    monkeypatch.delenv("BOLIDE_SITE_VERSION", raising=False)
    assert docs_site.on_config(Config()).extra == {}
    monkeypatch.setenv("BOLIDE_SITE_VERSION", "v0.1.0")
    assert docs_site.on_config(Config()).extra["version"]["provider"] == "mike"
