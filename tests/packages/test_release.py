"""A release: what must be there before it, and how the files of changes/ become the changelog and the notes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "release_check.py"
CHANGES = ROOT / "scripts" / "changes.py"
#: The limit of GitHub for the body of a release, in characters.
MAX_NOTES_CHARACTERS = 125_000
#: The longest page for the first release, in lines.
MAX_FIRST_LINES = 40
NAMES = """
repository = "https://forge.example/owner/bolide"
site = "https://docs.example/bolide"
security = "security@bolide.example"
image = "registry.example/owner/bolide"
maintainers = ["A. Name"]
"""


def run(*command, cwd=ROOT):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd)


def version():
    with open(ROOT / "Cargo.toml", "rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


@pytest.fixture
def checkout(tmp_path):
    """A repository with the files that a release needs, where nothing is missing."""
    root = tmp_path / "bolide"
    for name in ("scripts", "changes", ".github", "packaging"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Cargo.toml", "pyproject.toml", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "MAINTAINERS.md"):
        shutil.copy(ROOT / name, root)
    (root / "README.md").write_text("# Bolide\n")
    (root / "packaging" / "publisher.toml").write_text(f"[publisher]{NAMES}")
    for command in (
        ["git", "init", "--quiet"],
        [sys.executable, "scripts/publisher.py"],
        [sys.executable, "scripts/pypi-readme"],
    ):
        assert run(*command, cwd=root).returncode == 0
    if "(not released)" in (root / "CHANGELOG.md").read_text():
        assert run(sys.executable, "scripts/changes.py", "collect", version(), "--date", "2031-05-01", cwd=root).returncode == 0
    assert run("git", "add", "--all", cwd=root).returncode == 0
    return root


def check(root, tag=None):
    return run(sys.executable, root / "scripts" / "release_check.py", tag or f"v{version()}")


def test_a_release_with_all_that_it_needs_passes(checkout):
    done = check(checkout)
    assert done.returncode == 0, done.stdout


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def empty_name(root):
    replace(root / "packaging" / "publisher.toml", 'site = "https://docs.example/bolide"', 'site = ""')


def other_name(root):
    replace(root / "packaging" / "publisher.toml", "owner/bolide", "another/bolide")


def unreleased_sentence(root):
    (root / "README.md").write_text("# Bolide\n\nIt is not on\nPyPI yet.\n")


def action_by_its_tag(root):
    path = root / ".github" / "workflows" / "ci.yml"
    path.write_text(re.sub(r"actions/checkout@\w+ # v[\d.]+", "actions/checkout@v5", path.read_text(), count=1))


def image_by_its_tag(root):
    path = root / ".github" / "workflows" / "ci.yml"
    path.write_text(re.sub(r"(actionlint:[\d.]+)@sha256:\w+", r"\1", path.read_text(), count=1))


def action_without_its_version(root):
    path = root / ".github" / "workflows" / "ci.yml"
    path.write_text(re.sub(r"(actions/checkout@\w+) # v[\d.]+", r"\1", path.read_text(), count=1))


def other_readme(root):
    (root / "README.md").write_text("# Bolide\n\nAnother sentence.\n")


def change_that_is_not_collected(root):
    (root / "changes" / "wait.added.md").write_text("`bolide reload --wait` waits.\n")


def notes_that_are_too_long(root):
    path = root / "CHANGELOG.md"
    path.write_text(f"{path.read_text()}\n{'x' * MAX_NOTES_CHARACTERS}\n")


def no_date(root):
    replace(root / "CHANGELOG.md", f"## {version()} (2031-05-01)", f"## {version()} (not released)")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (empty_name, '"site" is empty'),
        (other_name, "run scripts/publisher.py"),
        (other_readme, "run scripts/pypi-readme"),
        (unreleased_sentence, "README.md:3: remove the sentence"),
        (action_by_its_tag, "actions/checkout@v5 is not pinned"),
        (image_by_its_tag, "has no digest"),
        (action_without_its_version, "has no comment with the version"),
        (change_that_is_not_collected, "changes/wait.added.md is not collected"),
        (notes_that_are_too_long, "a release has at most 125000"),
        (no_date, "has no date"),
    ],
)
def test_a_release_fails_while_something_is_missing(checkout, broken, told):
    broken(checkout)
    run("git", "add", "--all", cwd=checkout)
    done = check(checkout)
    assert done.returncode == 1
    assert told in done.stdout
    assert len(done.stdout.splitlines()) <= 3, done.stdout


def test_a_tag_that_is_not_the_version_fails(checkout):
    done = check(checkout, "v99.0.0")
    assert done.returncode == 1
    assert "Cargo.toml: the version is not 99.0.0" in done.stdout


def test_the_check_reports_all_problems_of_this_repository_in_one_line_each():
    """Before the first release something is missing here; afterwards nothing is."""
    done = check(ROOT)
    assert all(line.startswith("bolide: ") for line in done.stdout.splitlines() if done.returncode)
    assert "Traceback" not in done.stdout


def test_the_changes_of_this_repository_can_be_collected():
    done = run(sys.executable, CHANGES, "check")
    assert done.returncode == 0, done.stdout


def test_the_changelog_has_one_page_for_the_first_version():
    log = (ROOT / "CHANGELOG.md").read_text()
    assert len(log[log.index("## 0.1.0 (") :].splitlines()) <= MAX_FIRST_LINES


@pytest.fixture
def log(tmp_path):
    """An empty changelog with two changes."""
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("# Changes\n")
    (tmp_path / "changes" / "queue.log.md").write_text("`queue of socket … is full` is now\n`listen queue of socket … full`.\n")
    (tmp_path / "changes" / "wait.added.md").write_text("`bolide reload --wait` waits.\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nAll versions.\n\n## 0.1.0 (2031-01-01)\n\nThe first release.\n")
    return tmp_path


def changes(root, *arguments):
    return run(sys.executable, CHANGES, "--root", root, *arguments)


SECTION = """\
### Added

* `bolide reload --wait` waits.

### Changed log lines

* `queue of socket … is full` is now `listen queue of socket … full`.
"""


def test_the_files_of_changes_become_a_section_and_are_removed(log):
    done = changes(log, "collect", "0.2.0", "--date", "2031-06-01")
    assert done.returncode == 0, done.stdout
    assert (log / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\nAll versions.\n\n## 0.2.0 (2031-06-01)\n\n{SECTION}\n## 0.1.0 (2031-01-01)\n\nThe first release.\n"
    )
    assert [path.name for path in (log / "changes").iterdir()] == ["README.md"]
    assert changes(log, "notes", "0.2.0").stdout == SECTION
    assert changes(log, "notes", "0.1.0").stdout == "The first release.\n"


def test_a_prepared_section_gets_its_date_and_keeps_its_text(log):
    replace(log / "CHANGELOG.md", "2031-01-01", "not released")
    assert "has no date" in changes(log, "notes", "0.1.0").stdout
    assert changes(log, "collect", "0.1.0", "--date", "2031-01-02").returncode == 0
    assert changes(log, "notes", "0.1.0").stdout == f"The first release.\n\n{SECTION}"


def test_a_released_version_is_not_collected_twice(log):
    done = changes(log, "collect", "0.1.0")
    assert done.returncode == 1
    assert "already released" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("wait.new.md", "Something.", "the name is not"),
        ("wait.md", "Something.", "the name is not"),
        ("wait.fixed.md", " \n", "is empty"),
        ("wait.fixed.md", "x" * 501, "longer than 500"),
        ("wait.fixed.md", "# A heading\n", "one paragraph"),
        ("wait.fixed.md", "One.\n\nTwo.\n", "one paragraph"),
    ],
)
def test_a_file_that_can_t_be_collected_is_named(log, name, text, told):
    (log / "changes" / name).write_text(text)
    for command in (["check"], ["collect", "0.2.0"]):
        done = changes(log, *command)
        assert done.returncode == 1
        assert f"changes/{name}: " in done.stdout
        assert told in done.stdout
    assert (log / "changes" / "queue.log.md").exists()
