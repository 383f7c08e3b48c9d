"""The JSON schema of the options, as an editor applies it: real configurations pass, and a key that is misspelled does not."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from support.server import program
from support.waiting import TIMEOUT_SECONDS

#: A real configuration in uWSGI's syntax, which is converted to every format.
REAL = Path(__file__).resolve().parents[2] / "crates" / "command_line" / "fixtures" / "real"

#: A number and a switch followed by a comment, and a single value that occurs twice.
FOUND_BY_CHECK_TOO = {
    ("own__logic__uwsgi.ini", "processes"),
    ("own__traps__uwsgi.ini", "harakiri"),
    ("own__traps__uwsgi.ini", "lazy-apps"),
}

SHOP = {
    "module": "shop.wsgi:application",
    "http": [":8080", "127.0.0.1:8081"],
    "processes": "auto",
    "threads": 4,
    "master": True,
    "vacuum": "true",
    "harakiri": "%(limit)",
    "chmod-socket": 660,
    "interface": "wsgi",
    "env": ["A=1", "B=2"],
    "log-slow": 500,
    "websocket-ping-interval": 20,
    "home": "/srv/venv",
}


#: A file of each format as people write it, with unrelated content.
FILES = {
    "shop.toml": """\
# The shop.
[uwsgi]
module = "shop.wsgi:application"
http = [":8080", "127.0.0.1:8081"]
processes = 4
master = true
vacuum = true
env = ["A=1", "B=2"]

[tool.other]
vaccum = 1
""",
    "shop.yaml": """\
# The shop.
other: {vaccum: 1}
uwsgi:
  module: shop.wsgi:application
  http:
    - :8080
    - 127.0.0.1:8081
  processes: 4
  master: true
  vacuum: true
  env: [A=1, B=2]
""",
    "shop.json": """\
{
  "other": {"vaccum": 1},
  "uwsgi": {
    "module": "shop.wsgi:application",
    "http": [":8080", "127.0.0.1:8081"],
    "processes": 4,
    "master": true,
    "vacuum": true,
    "env": ["A=1", "B=2"]
  }
}
""",
}


def parsed(path):
    """Parses a file like an editor."""
    text = path.read_text()
    if path.suffix == ".toml":
        return pytest.importorskip("tomllib").loads(text)
    return (yaml.safe_load if path.suffix == ".yaml" else json.loads)(text)


@pytest.fixture(scope="module")
def validator():
    done = subprocess.run([*program(), "schema"], capture_output=True, check=True, timeout=TIMEOUT_SECONDS)
    schema = json.loads(done.stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def faults(validator, configuration):
    return [error.message for error in validator.iter_errors(configuration)]


def real_configurations():
    """Returns the name and the options of each real file, as TOML, YAML and JSON represent them: unique keys, and lists."""
    found = []
    for path in sorted(REAL.iterdir()):
        text = path.read_text(errors="replace")
        if path.suffix == ".ini" and (options := ini_options(text)):
            found.append((path.name, options))
    return found


def ini_options(text):
    """Returns the options of the section uwsgi; repeated ones are a list."""
    options, inside = {}, False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == "[uwsgi]"
        elif inside and "=" in line and line[0] not in "#;":
            key, value = (part.strip() for part in line.split("=", 1))
            options.setdefault(key, []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in options.items()}


def test_a_configuration_that_is_right_passes(validator):
    assert faults(validator, {"uwsgi": SHOP}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vaccum", True),
        ("threads", "many"),
        ("threads", -1),
        ("master", 7),
        ("interface", "cgi"),
        ("processes", []),
        ("env", {"A": "1"}),
    ],
)
def test_misspelled_options_and_invalid_values_do_not_pass(key, value, validator):
    assert faults(validator, {"uwsgi": {**SHOP, key: value}}) != []


@pytest.mark.parametrize("name", FILES)
def test_a_file_passes_and_one_with_a_misspelled_key_does_not_as_check_has_it(name, validator, tmp_path):
    path = tmp_path / name
    path.write_text(FILES[name])
    assert faults(validator, parsed(path)) == []
    assert check(path) == "nothing to report\n"
    # Every key once, of the section that is used.
    for key in ("module", "http", "processes", "master", "vacuum", "env"):
        before, after = FILES[name].split(key, 1)
        path.write_text(f"{before}{key}x{after}")
        (fault,) = faults(validator, parsed(path))
        assert f"'{key}x' was unexpected" in fault
        assert f"`{key}x`: it has no effect" in check(path)


def check(path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
    command = [*program(), "check", path.name]
    streams = {"capture_output": True, "text": True, "timeout": TIMEOUT_SECONDS}
    return subprocess.run(command, cwd=path.parent, env=environment, **streams).stdout


def test_unsupported_options_are_marked_with_their_replacement(validator):
    options = validator.schema["definitions"]["options"]["properties"]
    assert "planned" in options["hook-as-vassal"]["deprecationMessage"]
    assert "deprecated" not in options["harakiri"]
    assert options["harakiri"]["description"].startswith("Kill a worker")


def test_real_configurations_pass_but_for_what_check_finds_too(validator, tmp_path):
    known = validator.schema["definitions"]["options"]["properties"]
    looked_at, wrong = 0, set()
    for name, options in real_configurations():
        # Custom names of a file are not options.
        options = {key: value for key, value in options.items() if key in known}
        looked_at += len(options)
        wrong |= {(name, error.path[1]) for error in validator.iter_errors({"uwsgi": options})}
    assert looked_at, "no configuration was looked at"
    assert wrong == FOUND_BY_CHECK_TOO
