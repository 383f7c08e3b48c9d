"""Words that serve a directory (`bolide start`, `run`), and those that people type instead of an application: each leads to the
line to write."""

import pytest
from support.commands import completed
from support.server import program

APPLICATION = """
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"served"]
"""
MANAGE = """import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
WSGI = """import os
from django.core.wsgi import get_wsgi_application
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
application = get_wsgi_application()
"""


@pytest.fixture
def bolide(tmp_path):
    """Runs a command that does not serve to its end. Returns what it said."""

    def run(*arguments, **variables):
        done = completed([*program(), *arguments], tmp_path, variables)
        return done.stdout + done.stderr

    return run


@pytest.fixture
def configured(tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "bolide.ini").write_text("[uwsgi]\nhttp = 127.0.0.1:8000\nmodule = app:app\nharakiri = 27\n")


def test_start_uses_the_configuration_of_the_directory_and_says_so(bolide, configured):
    said = bolide("config", "start")
    assert "harakiri = 27" in said
    assert "`start` uses bolide.ini of this directory" in bolide("check", "start")


@pytest.mark.parametrize("word", ["run", "serve", "dev", "."])
def test_words_that_serve_the_application_say_that_the_configuration_is_not_used(bolide, configured, word):
    assert "harakiri = 27" not in bolide("config", word)
    assert "bolide.ini of this directory is not used: `bolide bolide.ini`" in bolide("check", word)


def test_the_words_that_serve_a_directory_are_in_help_and_completions(bolide):
    assert "bolide start " in bolide("-h")
    for word in ("start", "run", "serve", "dev"):
        assert f" {word} " in bolide("completions", "bash").replace("'", " ")
    assert "`bolide start` alone uses the directory's bolide.ini" in " ".join(bolide("explain", "start").split())


@pytest.mark.parametrize("word", ["main:app", "shop.app"])
def test_a_wrong_module_gets_the_only_application_of_the_directory(bolide, tmp_path, word):
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "notes").mkdir()
    assert "`bolide app:app`" in bolide(word, "--http", "127.0.0.1:0")


@pytest.mark.parametrize("typed", [["manage.py"], ["manage.py", "runserver"], ["runserver"], ["runserver", "8001"]])
def test_commands_of_django_get_the_line_that_serves_its_project(bolide, tmp_path, typed):
    (tmp_path / "manage.py").write_text(MANAGE)
    (tmp_path / "mysite").mkdir()
    (tmp_path / "mysite" / "__init__.py").touch()
    (tmp_path / "mysite" / "settings.py").write_text("WSGI_APPLICATION = 'mysite.wsgi.application'\n")
    (tmp_path / "mysite" / "wsgi.py").write_text(WSGI)
    said = bolide(*typed)
    port = " --port 8001" if "8001" in typed else ""
    assert f"write `bolide mysite.wsgi --reload{port}`" in said


@pytest.mark.parametrize(
    ("address", "option"), [("9000", "--port 9000"), (":9000", "--port 9000"), ("127.0.0.1:9000", "--http 127.0.0.1:9000")]
)
def test_an_address_without_an_option_gets_its_option(bolide, tmp_path, address, option):
    (tmp_path / "app.py").write_text(APPLICATION)
    assert f"write `{option}`" in bolide("app:app", address)


@pytest.mark.parametrize("typed", [["--reload"], ["--port", "9000"]])
def test_options_without_an_application_name_that_of_the_directory(bolide, tmp_path, typed):
    (tmp_path / "app.py").write_text(APPLICATION)
    said = bolide(*typed)
    assert (
        "there is no application to serve (this directory has the WSGI application in app.py: write `bolide app:app` before"
        in said
    )
    assert "there is no socket" not in said


def test_check_and_doctor_without_a_file_take_that_of_the_directory(bolide, configured):
    for command in ("check", "doctor"):
        said = bolide(command)
        assert "bolide.ini of this directory:\n" in said
        assert "no file is given" not in said


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("bolde.ini", "did you mean `bolide bolide.ini`?"),
        ("nosuch.toml", "this directory has bolide.ini: `bolide bolide.ini`"),
    ],
)
def test_a_configuration_that_does_not_exist_gets_one_that_does(bolide, configured, written, advice):
    said = bolide(written)
    assert f"can't read `{written}`: No such file or directory" in said
    assert advice in said


def test_a_missing_configuration_in_a_directory_without_any_names_init(bolide):
    assert "`bolide init` writes a bolide.ini" in bolide("nosuch.ini")


def test_variables_that_are_no_options_get_the_one_to_write(bolide, configured):
    assert "write `BOLIDE_HTTP=127.0.0.1:9321`" in bolide("check", "app:app", BOLIDE_PORT="9321")
    assert "write `BOLIDE_HARAKIRI`" in bolide("check", "app:app", BOLIDE_TIMEOUT="30")
    said = bolide("check", "run", FLASK_DEBUG="1")
    assert "FLASK_DEBUG turns on Flask's debug mode, and nothing is reloaded" in said
    assert "FLASK_DEBUG" not in bolide("check", "dev", FLASK_DEBUG="1")
    assert "FLASK_DEBUG" not in bolide("check", "run", FLASK_DEBUG="0")


def test_one_mistake_in_a_configuration_is_one_error(bolide, tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    mistakes = {
        'http = "127.0.0.1:25004"': "leave the quotes out",
        'http = 127.0.0.1:8000\nprocesses = "2"': "leave the quotes out: `processes = 2`",
        "http = 127.0.0.1:8000 # port": "write `http = 127.0.0.1:8000`; a comment needs a line of its own",
    }
    for number, (lines, advice) in enumerate(mistakes.items()):
        name = f"{number}.ini"
        (tmp_path / name).write_text(f"[uwsgi]\nmodule = app:app\n{lines}\n")
        said = bolide("check", name)
        assert advice in said
        assert said.count("error: ") + said.count("warning: ") == 1, said


def test_the_log_of_an_instance_is_no_command_and_its_place_is_told(bolide):
    for word in ("log", "logs"):
        assert "`bolide top` shows the requests" in bolide(word)
