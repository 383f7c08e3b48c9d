"""A file that a migration page calls equivalent to a command line sets the same options in `bolide config`."""

import json
import os
import shlex
import subprocess

import pages
import pytest
from support.server import program


def in_effect(arguments, directory):
    """Returns the options that are in effect, and which processes load the application."""
    unset = ("PORT", "WEB_CONCURRENCY", "FLASK_APP")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    command = [*program(), "config", "--json", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 0, done
    read = json.loads(done.stdout)
    loading = [step["value"] for step in read["start"] if step["what"] == "application"]
    return sorted((option["name"], option["value"]) for option in read["options"] if option["from"] != "default"), loading


@pytest.mark.parametrize("page", ["docs/migrate-from-gunicorn.md", "docs/migrate-from-uvicorn.md"])
def test_the_equivalent_file_has_the_options_of_the_command_line(page, tmp_path):
    blocks = [step for step in pages.steps(page) if step.kind == "block"]
    commands = [command for command, _ in blocks[0].commands() if command.startswith("bolide ")]
    (tmp_path / "bolide.ini").write_text(next(step.text for step in blocks if step.language == "ini"))

    assert len(commands) == 1
    typed = in_effect(shlex.split(commands[0])[1:], tmp_path)
    assert in_effect(["bolide.ini"], tmp_path) == typed
    assert "loaded in each of 4 workers" in typed[1][0]
