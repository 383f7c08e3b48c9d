"""`bolide check` as people, editors and workflows use it: its findings, output formats and exit statuses."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.commands import completed
from support.server import program
from support.waiting import TIMEOUT_SECONDS
from support_users import NOBODY

#: Exit statuses of `check`.
CLEAN, WARNED, FAILED = 0, 1, 2

FORMATS = {
    "ini": "[uwsgi]\nmodule = shop\nhttp = 127.0.0.1:8000\n{key} = {value}\n",
    "toml": '[uwsgi]\nmodule = "shop"\nhttp = "127.0.0.1:8000"\n{key} = "{value}"\n',
    "yaml": "uwsgi:\n  module: shop\n  http: 127.0.0.1:8000\n  {key}: {value}\n",
    "json": '{{"uwsgi": {{\n"module": "shop", "http": "127.0.0.1:8000",\n\n"{key}": "{value}"}}}}\n',
    "xml": "<uwsgi>\n<module>shop</module><http>127.0.0.1:8000</http>\n\n<{key}>{value}</{key}>\n</uwsgi>\n",
}


@pytest.fixture
def check(tmp_path):
    """Runs `bolide check`. Returns its status, its standard output and its standard error."""

    def check(*arguments, **variables):
        command = [*program(), "check", *map(str, arguments)]
        done = completed(command, tmp_path, variables)
        return done.returncode, done.stdout, done.stderr

    return check


def configure(directory, lines="", module="shop:app"):
    (directory / "shop.ini").write_text(f"[uwsgi]\nhttp = 127.0.0.1:8000\nmodule = {module}\n{lines}")


def application(directory, before=""):
    (directory / "shop.py").write_text(before + "\n\ndef app(environ, start_response):\n    raise AssertionError('served')\n")


@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("vaccum", "true", "did you mean `vacuum`?"),
        ("uid", "nosuchuser", "there is no user `nosuchuser` here"),
        ("pidfile", "/nowhere/shop.pid", "there is no directory /nowhere"),
        ("socket", "/nowhere/shop.sock", "there is no directory /nowhere"),
        ("touch-reload", "/nowhere/touched", "there is no file /nowhere/touched"),
    ],
)
def test_odd_values_are_found_in_every_format(form, key, value, words, check, tmp_path):
    (tmp_path / f"shop.{form}").write_text(FORMATS[form].format(key=key, value=value))
    status, said, _ = check(f"shop.{form}")
    assert status == CLEAN
    assert words in said
    # Some formats do not keep line numbers for their values, and findings name only the file.
    assert said.startswith(f"shop.{form}:")


def test_an_unclosed_section_header_is_reported_before_its_consequences(check, tmp_path):
    (tmp_path / "shop.ini").write_text("[uwsgi\nmodule = shop:app\nhttp = 127.0.0.1:8000\n")
    status, said, _ = check("shop.ini")
    assert status == FAILED
    lines = said.splitlines()
    assert lines[0].startswith("shop.ini:1: warning: `[uwsgi` does not end with `]`")
    assert "there is no application to serve" in said


def test_what_init_has_written_gets_no_note(check, tmp_path, call):
    (tmp_path / "app.py").write_text("from flask import Flask\n\napp = Flask(__name__)\n")
    status, _ = call("init")
    assert status == 0
    assert check("--strict", "bolide.ini") == (CLEAN, "nothing to report\n", "")


def test_a_load_of_an_application_that_is_right_serves_nothing(check, tmp_path):
    application(tmp_path, before="import os\nprint('loading')\nopen('loaded', 'w').write(str(os.getpid()))\n")
    configure(tmp_path, f"pidfile = {tmp_path}/shop.pid\n")
    status, said, log = check("--load", "shop.ini")
    assert (status, said) == (CLEAN, "nothing to report\n"), log
    assert "loading" in log
    assert not (tmp_path / "shop.pid").exists()
    assert not Path(f"/proc/{(tmp_path / 'loaded').read_text()}").exists()


@pytest.mark.parametrize(
    ("before", "line", "words"),
    [
        ("import os\nimport nosuchmodule\n", 2, "No module named 'nosuchmodule'"),
        ("\n\nraise RuntimeError('no database')\n", 3, "RuntimeError: no database"),
        ("def broken(:\n", 1, "SyntaxError"),
        ("import sys\nsys.exit('not today')\n", 2, "SystemExit: not today"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
    ],
    ids=["import", "raise", "syntax", "exit", "library"],
)
def test_a_load_that_fails_is_an_error_at_the_users_own_line(before, line, words, check, tmp_path):
    application(tmp_path, before)
    configure(tmp_path)
    status, said, log = check("--load", "--json", "shop.ini")
    assert status == FAILED
    (found,) = json.loads(said)
    assert (found["file"], found["line"], found["severity"]) == ("shop.py", line, "error")
    assert words in found["message"]
    frames = [row for row in log.splitlines() if row.lstrip().startswith("File ")]
    assert "shop.py" in frames[0]
    assert "bolide" not in frames[0]


def test_a_load_of_a_callable_that_is_not_there_says_what_there_is(check, tmp_path):
    application(tmp_path)
    configure(tmp_path, module="shop:wrong")
    status, said, _ = check("--load", "shop.ini")
    assert status == FAILED
    assert "the application can't be loaded" in said
    assert "`wrong`" in said or "wrong" in said


def test_a_load_that_takes_too_long_is_ended_and_shows_where(check, tmp_path):
    application(tmp_path, before="import threading\nthreading.Event().wait()\n")
    # Python itself has to start within this time.
    configure(tmp_path, "load-timeout = 6\n")
    status, said, log = check("--load", "shop.ini")
    assert status == FAILED
    assert "it was not loaded within 6 s" in said
    assert 'shop.py", line 2' in log


def test_a_load_whose_process_ends_is_an_error(check, tmp_path):
    application(tmp_path, before="import os\nos._exit(3)\n")
    configure(tmp_path)
    status, said, _ = check("--load", "shop.ini")
    assert status == FAILED
    assert "its process exited while it was loaded: exit status: 3" in said


def test_a_load_takes_the_directory_the_paths_and_the_variables_of_the_configuration(check, tmp_path):
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "lib" / "helper.py").write_text("import os\n\nassert os.environ['SHOP'] == 'open'\n")
    application(project, before=f"import helper, os\nassert os.getcwd() == {str(project)!r}\n")
    configure(tmp_path, f"chdir = {project}\npythonpath = lib\nenv = SHOP=open\n")
    status, said, log = check("--load", "shop.ini")
    assert (status, said) == (CLEAN, "nothing to report\n"), log


def test_each_file_is_loaded_by_itself(check, tmp_path):
    application(tmp_path)
    configure(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "broken.ini").write_text("[uwsgi]\nhttp = 127.0.0.1:8001\nmodule = broken\n")
    status, said, _ = check("--load", "--format", "lines", "shop.ini", "broken.ini")
    assert status == FAILED
    (line,) = said.splitlines()
    assert line == "broken.py:1:1: error: the application can't be loaded: ZeroDivisionError: division by zero"


def test_a_configuration_with_errors_is_not_loaded(check, tmp_path):
    (tmp_path / "shop.py").write_text("open('loaded', 'w')\n")
    configure(tmp_path, "processes = 0\n")
    assert check("--load", "shop.ini")[0] == FAILED
    assert not (tmp_path / "loaded").exists()


def test_json_is_one_list_and_the_flag_is_its_format(check, tmp_path):
    configure(tmp_path, "vaccum = true\n")
    status, said, _ = check("--json", "shop.ini")
    assert status == CLEAN
    assert check("--format", "json", "shop.ini")[1] == said
    (found,) = json.loads(said)
    assert (found["file"], found["line"], found["column"], found["severity"]) == ("shop.ini", 4, 1, "warning")
    assert found["advice"] == "did you mean `vacuum`?"


def test_github_marks_lines_and_escapes_what_ends_them(check, tmp_path):
    configure(tmp_path, "vaccum = 100%\n")
    (tmp_path / "a,b.ini").write_text((tmp_path / "shop.ini").read_text())
    status, said, _ = check("--format", "github", "a,b.ini")
    assert status == CLEAN
    assert said.startswith("::warning file=a%2Cb.ini,line=4,col=1::unknown option `vaccum`")
    assert check("--format", "github", "gone.ini")[1].startswith("::error file=command line::")


def test_the_statuses_are_those_of_the_manual(check, tmp_path):
    configure(tmp_path, "vaccum = true\n")
    assert check("shop.ini")[0] == CLEAN
    assert check("--strict", "shop.ini")[0] == WARNED
    assert check("--format", "yaml", "shop.ini")[0] == FAILED
    assert check("gone.ini")[0] == FAILED


def test_color_is_for_terminals_unless_it_is_asked_for(check, tmp_path):
    configure(tmp_path, "vaccum = true\n")
    assert "\x1b[" not in check("shop.ini")[1]
    assert "\x1b[1;33mwarning:\x1b[0m" in check("shop.ini", FORCE_COLOR="1", NO_COLOR="")[1]
    assert "\x1b[" not in check("shop.ini", FORCE_COLOR="1", NO_COLOR="1")[1]
    assert "\x1b[" not in check("--json", "shop.ini", FORCE_COLOR="1", NO_COLOR="")[1]


def test_sarif_is_version_2_1_0_with_a_place_for_each_result(check, tmp_path):
    name = "my shop.ini"
    configure(tmp_path, "vaccum = true\nprocesses = 0\n")
    (tmp_path / "shop.ini").rename(tmp_path / name)
    status, said, _ = check("--format", "sarif", name, UWSGI_VACCUM="1")
    assert status == FAILED
    log = json.loads(said)
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "bolide check"
    rules = [rule["id"] for rule in driver["rules"]]
    places = []
    for result in run["results"]:
        assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations"}
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        for location in result.get("locations", []):
            if "physicalLocation" in location:
                physical = location["physicalLocation"]
                region = physical.get("region", {"startLine": 1})
                assert region["startLine"] >= 1
                assert region.get("startColumn", 1) >= 1
                places.append((physical["artifactLocation"]["uri"], region["startLine"], result["level"]))
            else:
                places.append((location["logicalLocations"][0]["name"], 0, result["level"]))
    assert ("my%20shop.ini", 4, "warning") in places
    assert ("my%20shop.ini", 5, "error") in places
    assert ("environment variable UWSGI_VACCUM", 0, "warning") in places


def test_the_interpreter_of_a_virtualenv_is_the_one_that_loads(check, tmp_path):
    # A wrapper script is enough to be found as a virtual environment's interpreter, and it prints a line when it is chosen.
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    wrapper = tmp_path / "venv" / "bin" / "python"
    wrapper.write_text(f'#!/bin/sh\necho chosen >&2\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    application(tmp_path)
    configure(tmp_path, f"virtualenv = {tmp_path}/venv\n")
    status, said, log = check("--load", "shop.ini")
    assert status == CLEAN, (said, log)
    assert "chosen" in log


def test_a_comma_too_many_in_json_is_named_at_its_place(check, tmp_path):
    (tmp_path / "shop.json").write_text('{"uwsgi": {"http": "127.0.0.1:8000",\n "processes": 2, "module": "shop",\n}}\n')
    status, said, _ = check("shop.json")
    assert status == FAILED
    first, source, marks, *_ = said.splitlines()
    assert first.startswith('shop.json:2: error: `"shop",` ends with a comma, and `}` follows'), said
    assert source[marks.index("^") : marks.rindex("^") + 1] == '"shop",'
    assert check("--format", "lines", "shop.json")[1].startswith("shop.json:2:28: error: ")


def test_marks_are_below_the_whole_value_at_fault_and_findings_are_apart(check, tmp_path):
    configure(tmp_path, 'processes = "2"\nvaccum = true\n')
    _, said, _ = check("shop.ini")
    findings = said.split("\n\n")
    assert len(findings) == 3, said
    for finding, marked in zip(findings, ['"2"', "vaccum"], strict=False):
        _, source, marks, *_ = finding.splitlines()
        assert source[marks.index("^") : marks.rindex("^") + 1] == marked, finding


def test_an_application_that_is_not_executed_is_said_to_be_so(check, tmp_path):
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "settings.py").write_text('worker_class = "gthread"\nbind = "127.0.0.1:8000"\n')
    application(tmp_path)
    for file, severity, advice in (
        ("broken.py", "note", "`bolide check --load broken.py` imports it"),
        ("shop.py", "note", "`bolide check --load shop.py` imports it"),
        ("settings.py", "warning", "`bolide check -c settings.py` reads it"),
    ):
        status, said, _ = check(file)
        assert status == CLEAN
        assert f"{severity}: `{file}` is taken for an application, and not executed" in said
        assert advice in said
    assert check("--load", "shop.py")[:2] == (CLEAN, "nothing to report\n")
    assert check("--load", "broken.py")[0] == FAILED


def test_a_file_whose_command_names_the_address_is_checked_with_it(check, tmp_path):
    application(tmp_path)
    (tmp_path / "shop.ini").write_text("[uwsgi]\nmodule = shop:app\n")
    status, said, _ = check("shop.ini")
    assert status == FAILED
    assert "`bolide check --http 127.0.0.1:8000 shop.ini`" in said
    assert check("--http", "127.0.0.1:8000", "shop.ini")[:2] == (CLEAN, "nothing to report\n")


def test_what_only_root_may_do_is_told_to_others():
    become = f"os.setgroups([]); os.setgid({NOBODY.pw_gid}); os.setuid({NOBODY.pw_uid}); " if os.getuid() == 0 else ""
    directory = Path(tempfile.mkdtemp())
    try:
        directory.chmod(0o755)
        (directory / "shop.ini").write_text("[uwsgi]\nhttp = 127.0.0.1:80\nmodule = shop:app\nuid = 12345\ngid = 12345\n")
        done = subprocess.run(
            [sys.executable, "-c", f"import os, bolide; {become}bolide.main()", "check", "shop.ini"],
            cwd=directory,
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    finally:
        shutil.rmtree(directory)
    assert done.returncode == CLEAN, done
    lowest = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    assert ("this user may not listen on port 80" in done.stdout) == (lowest > 80), done
    for option in ("uid", "gid"):
        assert f"warning: `{option} = 12345` needs root, and this is " in done.stdout, done


def test_init_writes_a_file_for_the_application_that_is_named(check, tmp_path, call):
    application(tmp_path)
    status, said = call("init", "shop:application")
    assert status == 0, said
    assert "module = shop:application\n" in (tmp_path / "bolide.ini").read_text()
    assert check("bolide.ini")[0] == CLEAN
    (tmp_path / "bolide.ini").unlink()
    assert call("init", "shop.py")[0] == 0
    assert "module = shop:app\n" in (tmp_path / "bolide.ini").read_text()
    (tmp_path / "bolide.ini").unlink()
    assert call("init", "nosuch.txt")[0] != 0
    assert not (tmp_path / "bolide.ini").exists()


def test_what_the_command_line_of_the_start_adds_may_be_absent(check, tmp_path):
    (tmp_path / "shop.ini").write_text("[uwsgi]\nmaster = true\n")
    assert check("shop.ini")[0] == FAILED
    status, said, _ = check("--partial", "--strict", "shop.ini")
    assert status == CLEAN, said
    assert "note: there is no socket to serve on" in said
    (tmp_path / "shop.ini").write_text("[uwsgi]\nhttp = 127.0.0.1:8000\n")
    assert "warning: no application is named" in check("shop.ini")[1]
    status, said, _ = check("--partial", "--strict", "shop.ini")
    assert (status, "note: no application is named" in said) == (CLEAN, True)
    (tmp_path / "shop.ini").write_text("[uwsgi]\nprocesses = 0\n")
    assert check("--partial", "shop.ini")[0] == FAILED


def test_values_from_commands_are_an_error_that_says_so(check, tmp_path):
    configure(tmp_path, "procname-prefix = @(exec://hostname)\n")
    status, said, _ = check("shop.ini")
    assert status == FAILED
    assert "`@(exec://hostname)`: only files are read here, and `exec` is not supported" in said


def test_init_writes_a_unit_of_systemd_that_starts_the_configuration(tmp_path, call):
    directory = tmp_path / "shop"
    directory.mkdir()
    application(directory)
    status, said = call("init", "--systemd", "shop:application", directory=directory)
    assert status == 0, said
    assert "sudo systemctl enable --now shop" in said
    unit = (directory / "shop.service").read_text()
    assert f"\nExecStart={program()[0]} {directory}/bolide.ini\n" in unit
    assert "module = shop:application\n" in (directory / "bolide.ini").read_text()
    # The unit of a configuration that is there already; no file is overwritten.
    status, said = call("init", "--systemd", directory=directory)
    assert (status, "shop.service already exists" in said) == (1, True), said
    (directory / "shop.service").unlink()
    assert call("init", "--systemd", directory=directory)[0] == 0
    assert (directory / "shop.service").read_text() == unit


def test_a_variable_of_the_line_is_no_flag_of_check(check):
    line = ("--http-socket", "127.0.0.1:8001", "--module", "app", "--env", "DJANGO_SETTINGS_MODULE=shop.settings")
    status, told, _ = check(*line)
    assert status == CLEAN, told
    assert check("--env", UWSGI_MODULE="app", UWSGI_HTTP_SOCKET="127.0.0.1:8001")[0] == CLEAN


@pytest.mark.parametrize("end", [".j2", ".template", ".jinja2", ".example"])
def test_a_template_is_read_by_the_ending_before(end, check, tmp_path):
    for form, text in FORMATS.items():
        (tmp_path / f"shop.{form}{end}").write_text(text.format(key="processes", value="many"))
        status, told, _ = check(f"shop.{form}{end}")
        assert status == FAILED, told
        assert "`many` is not a number" in told


def test_a_typing_error_of_three_letters_has_its_proposal(check, tmp_path):
    (tmp_path / "shop.ini").write_text("[uwsgi]\nmodule = shop\nhttp = 127.0.0.1:8000\ngud = shop\n")
    assert "did you mean `gid`?" in check("shop.ini")[1]


def test_files_that_include_each_other_are_named_in_their_ring(check, tmp_path):
    for name, other in (("first", "a"), ("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.ini").write_text(f"[uwsgi]\nini = {other}.ini\n")
    status, told, _ = check("first.ini")
    assert status == FAILED, told
    assert "a.ini → b.ini → a.ini" in told or "b.ini → a.ini → b.ini" in told


@pytest.mark.parametrize(
    ("value", "is_warned"), [("x HARAKIRI", True), ("x DAMN", True), ("x (?i)harakiri", False), ("x uwsgi-cron", False)]
)
def test_an_expression_of_uwsgis_words_that_matches_no_line_is_named(value, is_warned, check, tmp_path):
    (tmp_path / "shop.ini").write_text(
        f"[uwsgi]\nmodule = shop\nhttp = 127.0.0.1:8000\nlogger = x file:x.log\nlogger = file:y.log\nlog-route = {value}\n"
    )
    assert ("matches no line of the server" in check("shop.ini")[1]) == is_warned


@pytest.mark.parametrize("words", [("explain", "http", "--json"), ("options", "--json"), ("help", "--json")])
def test_a_command_that_prints_text_refuses_json(words, call):
    status, text = call(*words)
    assert status == 2
    assert "it prints text only" in text


def test_a_missing_directory_beside_the_configuration_is_named_with_the_start_that_finds_it(check, tmp_path):
    (tmp_path / "shop" / "static").mkdir(parents=True)
    (tmp_path / "shop" / "shop.py").write_text("def app(environ, start_response):\n    pass\n")
    configure(tmp_path / "shop", "static-map = /static=static\nstatic-map = /media=media\n")
    _, found, _ = check("shop/shop.ini")
    assert f"Bolide finds it when started in {tmp_path}/shop, or from any directory with `chdir = %d`" in found
    assert found.count("it is served as soon as it exists") == 1
    configure(tmp_path / "shop", "chdir = %d\nstatic-map = /static=static\n")
    assert "nothing is served" not in check("shop/shop.ini")[1]


def test_config_shows_every_value_of_an_option_that_may_be_given_several_times(tmp_path):
    for name in ["one", "two"]:
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.py").write_text("")
    pairs = {
        "static-map": ("/a=one", "/b=two"),
        "static-map2": ("/c=one", "/d=two"),
        "check-static": ("one", "two"),
        "mule": ("one.py", "two.py"),
        "farm": ("x:1", "y:2"),
        "spooler": ("one", "two"),
        "mime-file": ("one.py", "two.py"),
        "add-cache-item": ("a=1", "b=2"),
        "warmup": ("/one", "/two"),
        "envdir": ("one", "two"),
    }
    lines = [f"{name} = {value}" for name, values in pairs.items() for value in values]
    configure(tmp_path, "cache2 = name=default,items=9\n" + "\n".join(lines) + "\n")
    application(tmp_path)
    shown = completed([*program(), "config", "shop.ini"], tmp_path, {}).stdout
    assert [line for line in lines if line not in shown] == []
    # So none of them is called overridden either.
    assert "has no effect" not in completed([*program(), "check", "shop.ini"], tmp_path, {}).stdout
    (tmp_path / "shop.json").write_text(completed([*program(), "config", "--json", "shop.ini"], tmp_path, {}).stdout)
    told = json.loads((tmp_path / "shop.json").read_text())
    assert [value for values in pairs.values() for value in values if f'"{value}"' not in json.dumps(told)] == []


UNITS = {
    # Another directory has one of the same name, and a drop-in changes it.
    "first/shop.service": "[Unit]\nTimeoutStopSec=1h\n[Service]\nExecStart=/bin/bolide \\\n  {file}\nTimeoutStopSec=1min\n",
    "first/shop.service.d/more.conf": "[Service]\nTimeoutStopSec=30\n",
    "second/shop.service": "[Service]\nExecStart=/bin/bolide {file}\nTimeoutStopSec=5\n",
    "second/site@.service": "[Service]\nType=exec\nExecStart=/bin/bolide --ini={directory}/%i.ini\nTimeoutStopSec=10s\n",
    "second/own.service": '[Service]\nWorkingDirectory={directory}\nExecStart=-bolide "shop.ini"\nTimeoutStopSec=70\n',
    # These allow enough, can be told, or start something else.
    "second/long.service": "[Service]\nExecStart=/bin/bolide {file}\nTimeoutStopSec=71\n",
    "second/forever.service": "[Service]\nExecStart=/bin/bolide {file}\nTimeoutStopSec=infinity\n",
    "second/notified.service": "[Service]\nType=notify\nExecStart=/bin/bolide {file}\nTimeoutStopSec=5\n",
    "second/other.service": "[Service]\nExecStart=/bin/bolide /srv/shop.ini\n# ExecStart={file}\nTimeoutStopSec=5\n",
}


def test_a_unit_that_kills_the_instance_before_its_shutdown_is_over_is_reported(check, tmp_path):
    configure(tmp_path, "drain-delay = 10\nreload-mercy = 60\n")
    application(tmp_path)
    for place, text in UNITS.items():
        unit = tmp_path / place
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(text.format(file=tmp_path / "shop.ini", directory=tmp_path))
    status, said, _ = check("--strict", "shop.ini", SYSTEMD_UNIT_PATH=f"{tmp_path}/first:{tmp_path}/second")
    assert status == WARNED
    found = [line for line in said.splitlines() if "kills the instance" in line]
    assert [(line.split("warning: ")[1].split(" kills")[0], line.split("after ")[1].split(" s")[0]) for line in found] == [
        ("shop.service", "30"),
        ("own.service", "70"),
        ("site@.service", "10"),
    ], said
    assert "before the end of `drain-delay` and `reload-mercy` (10 + 60 s)" in said
    assert "set `TimeoutStopSec=80` in the unit, or `Type=notify`" in said
    assert check("--strict", "shop.ini", SYSTEMD_UNIT_PATH=str(tmp_path / "none"))[0] == CLEAN


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("drain-quiet = 3\n", "`drain-quiet` has no effect without `drain-delay`"),
        ("drain-delay = 3\ndrain-quiet = 3\n", "`drain-quiet` is not shorter than `drain-delay`"),
    ],
)
def test_a_drain_quiet_without_effect_is_reported(lines, words, check, tmp_path):
    configure(tmp_path, lines)
    application(tmp_path)
    status, said, _ = check("--strict", "shop.ini")
    assert (status, words in said) == (WARNED, True), said
