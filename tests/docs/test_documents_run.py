"""The documentation is correct: each command of a page is run, and each configuration is checked by its program."""

import re
import subprocess
import sys

import pages
import pytest
from checking import check, configurations, is_configuration
from session import Session, missing

#: First words of commands. A block with one of them must be marked as commands, or it would not be run.
COMMAND = re.compile(
    r"^(\$ )?(bolide|pip|python3?|curl|kill|systemctl|docker|kubectl|make|apt(-get)?|npm|cargo|useradd|gunicorn|uvicorn|uwsgi) "
)
#: A page whose reader has not installed Bolide yet.
INSTALL = re.compile(r"^(\$ )?pip install (?!--upgrade).*\bbolide\b", re.MULTILINE)
#: Languages of blocks that are only shown: output, logs, screen contents. The page's commands check files in other languages.
SHOWN = (
    *("", "text", "diff", "javascript", "html", "http", "css", "dockerfile", "jinja", "xml", "json", "caddy", "apache"),
    *("c", "lua", "perl", "ruby"),
)


@pytest.fixture(scope="module")
def words():
    """Returns the subcommands of `bolide`: any other argument is something to serve."""
    helped = subprocess.run([sys.executable, "-m", "bolide", "--help"], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"^  ([a-z][a-z-]+)\b.*  \S", helped, re.MULTILINE))
    assert {"check", "reload", "init"} <= found
    return found | {"help", "version"}


@pytest.mark.parametrize("page", pages.names())
def test_the_commands_of_a_page_do_what_it_shows(page, words, tmp_path):
    steps = pages.steps(page)
    if not any(step.kind == "run" or (step.is_commands and not step.not_run) for step in steps):
        return
    session = Session(tmp_path, words, installs=any(INSTALL.search(step.text) for step in steps if step.is_commands))
    try:
        for step in steps:
            if step.kind == "file" or (step.kind == "block" and step.name and not step.not_run):
                session.write(step.name, step.text)
            elif step.kind == "run" or (step.is_commands and not step.not_run):
                for command, shown in step.commands():
                    session.type(command, shown, step.status, step.place)
    finally:
        session.finish()


@pytest.mark.parametrize("page", pages.names())
def test_the_configurations_of_a_page_are_right(page, tmp_path):
    shown = [step for step in pages.steps(page) if step.kind == "block" and not step.is_commands and not step.not_run]
    configurations([step for step in shown if is_configuration(step)], tmp_path)
    for number, step in enumerate(shown):
        if not is_configuration(step):
            directory = tmp_path / str(number)
            directory.mkdir()
            assert check(step, directory) or step.language in SHOWN, f"{step.place}: nobody checks `{step.language}`"


@pytest.mark.parametrize("page", pages.names())
def test_blocks_that_are_not_run_say_why_and_commands_are_marked(page):
    for step in pages.steps(page):
        if step.not_run:
            assert len(step.not_run) > 8, f"{step.place}: say why it is not run"
        if step.kind == "block" and step.language in ("", "text"):
            first = step.text.lstrip().splitlines()[0] if step.text.strip() else ""
            assert not COMMAND.match(first), f"{step.place}: commands are `sh` or `console`, so that they are run"


def test_fixtures_belong_to_pages_and_no_page_has_hidden_files():
    of_pages = {page.removeprefix("docs/").removesuffix(".md") for page in pages.names()}
    listed = set()
    for path in pages.FIXTURES.rglob("*"):
        own = path.relative_to(pages.FIXTURES).as_posix()
        if path.is_file():
            assert any(own.startswith(f"{page}/") for page in (*of_pages, "shared")), f"{own}: there is no such page"
        if path.name == pages.SHARED:
            listed |= set(path.read_text(encoding="utf-8").split())
    assert listed == {path.name for path in (pages.FIXTURES / "shared").iterdir()}
    for page in pages.names():
        assert "<!-- file:" not in (pages.ROOT / page).read_text(encoding="utf-8"), f"{page}: files belong in tests/docs/fixtures"


def test_a_page_that_is_wrong_is_noticed(tmp_path, words):
    """Checks the test helpers themselves: a failing command, missing output, and an unknown option."""
    session = Session(tmp_path, words)
    try:
        session.type("echo one two", ["one … two".replace(" …", "")], 0, "here")
        with pytest.raises(AssertionError, match="ended with 1"):
            session.type("false", [], 0, "here")
        with pytest.raises(AssertionError, match="does not print"):
            session.type("echo one", ["two"], 0, "here")
        session.write("shop.ini", "[uwsgi]\nmodule = nothing\nhttp = 127.0.0.1:8000\n")
        with pytest.raises(AssertionError, match="ended with 22"):
            session.type("bolide shop.ini", [], 0, "here")
    finally:
        session.finish()
    wrong = "```ini\nproccesses = 4\n```\n```nginx\nuwsgi_pas shop;\n```\n```haproxy\nbackend a\n    wrong\n```\n"
    for step in pages.steps(
        "here", wrong + "```logrotate\n/var/log/x {\n    dayly\n```\n```ini\n[Unit]\n[Service]\nExcStart=/x\n```\n"
    ):
        directory = tmp_path / step.language
        directory.mkdir(exist_ok=True)
        with pytest.raises(AssertionError):
            check(step, directory)


def test_shown_output_is_compared_in_order_and_without_digits():
    assert missing(["a 12", "…", "c"], "a 7\nb\nc\n") is None
    assert missing(["c", "a"], "a\nb\nc\n") == "a"
    assert missing(["worker … serves"], "worker 1 (pid 7) serves\n") is None
    assert missing(["ab"], "abc\n") == "ab"
