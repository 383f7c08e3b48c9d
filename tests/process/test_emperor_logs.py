"""The log of an emperor, which its vassals share unless they have one of their own."""

import subprocess

import pytest
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_instance import COMMAND_SECONDS

#: A site that repeats what it is asked, on standard output.
TALKING = """\
def application(environ, start_response):
    print("told", environ["QUERY_STRING"], flush=True)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


@pytest.fixture
def emperor(tmp_path):
    """Makes an emperor with these lines, whose log is the file `common`."""
    made = []

    def emperor(*lines):
        (tmp_path / "talking.py").write_text(TALKING)
        lines = ("emperor = {directory}/vassals", "logto = {directory}/common", *lines)
        made.append(Emperor(program(), tmp_path, *lines))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def talk(port, words):
    with Client(("127.0.0.1", port)) as client:
        assert client.request(target=f"/?{words}").status == 200


def site(port, *lines):
    return [f"http-socket = 127.0.0.1:{port}", "module = talking", "processes = 2", *lines]


def command(emperor, *words):
    words = [*program(), *words, str(emperor.directory / "emperor.ini")]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout


def wait_until_told(file, *all_words):
    """Waits until the application's line and that of the request are there."""
    for words in all_words:
        wait_until(
            lambda words=words: f"told {words}\n" in file.read_text() and f"GET /?{words} =>" in file.read_text(),
            lambda words=words: f"{words} in {file}:\n{file.read_text()}",
        )


def follows(emperor, port, common):
    """Whether both workers write to the file that is there now. The master tells them in its own time."""

    def has_told():
        talk(port, "again")
        return "told again" in common.read_text()

    wait_until(has_told, "a line in the new file")


def test_vassals_follow_the_log_of_their_emperor_when_it_is_rotated(emperor, free_port):
    one, own = free_port(), free_port()
    emperor = emperor()
    common, alone = emperor.directory / "common", emperor.directory / "alone"
    emperor.write("one.ini", *site(one))
    emperor.write("own.ini", *site(own, f"logto = {alone}"))
    emperor.start()
    emperor.answer(one)
    emperor.answer(own)
    talk(one, "before")
    wait_until_told(common, "before")
    command(emperor, "log-rotate")
    (aside,) = emperor.directory.glob("common.*")
    follows(emperor, one, common)
    talk(own, "alone")
    wait_until_told(alone, "alone")
    # The new file may be moved too, by a program that then has it opened again.
    common.rename(emperor.directory / "moved")
    command(emperor, "log-reopen")
    follows(emperor, one, common)
    assert "told alone" not in aside.read_text() + common.read_text() + (emperor.directory / "moved").read_text()
    # One that starts now has it from its start.
    late = free_port()
    emperor.write("late.ini", *site(late))
    emperor.answer(late)
    talk(late, "late")
    wait_until_told(common, "late")


def test_a_log_that_grows_beyond_its_limit_is_rotated_with_its_vassals(emperor, free_port):
    port = free_port()
    emperor = emperor("log-maxsize = 3000")
    common = emperor.directory / "common"
    emperor.write("one.ini", *site(port))
    emperor.start()
    emperor.answer(port)

    def is_rotated():
        talk(port, "filling" * 20)
        return list(emperor.directory.glob("common.*"))

    wait_until(is_rotated, "the rotation")
    follows(emperor, port, common)
