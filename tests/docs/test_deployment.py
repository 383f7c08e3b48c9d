"""The steps of a tutorial that make a service are typed to the letter: as root, on a private machine, with the real nginx."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from session import Session, missing

MACHINE = Path(__file__).with_name("machine.py")
TYPE_SECONDS = 300
#: After the last step of a page: a request, and a part of its response.
BEYOND = {
    "docs/tutorial-django.md": {
        "https://shop.example/?name=Ada": "Hello, Ada",
        "https://shop.example/static/admin/css/base.css": "--primary",
        "https://shop.example/admin/login/": 'name="csrfmiddlewaretoken"',
        "http://shop.example/": "301 Moved Permanently",
    },
    "docs/tutorial-flask.md": {"http://127.0.0.1:8000/": '"bread"'},
}
FIRST = {"docs/tutorial-django.md": "## On a server", "docs/tutorial-flask.md": "## A service"}


@pytest.mark.timeout(2 * TYPE_SECONDS)
@pytest.mark.parametrize("page", FIRST)
def test_the_service_of_a_tutorial_answers_behind_nginx(page, tmp_path):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("the steps of this page need root")
    lines = (pages.ROOT / page).read_text(encoding="utf-8").splitlines()
    first = lines.index(FIRST[page]) + 1
    last = next(number for number, line in enumerate(lines, 1) if number > first and line.startswith("## "))
    steps = pages.steps(page)
    project = typed_as_a_developer([step for step in steps if step.line < first], tmp_path)
    (tmp_path / "steps.sh").write_text("\n".join(script([step for step in steps if first < step.line < last], page)))
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*command, sys.executable, str(MACHINE), str(tmp_path / "steps.sh")],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TYPE_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    for address, part in BEYOND[page].items():
        assert part in done.stdout.partition(f"== {address}\n")[2].partition("\n== ")[0], f"{address}:\n{done.stdout}"
    shown = [line for step in steps if first < step.line < last for _, output in shown_of(step) for line in output]
    assert missing(shown, done.stdout) is None, done.stdout


def typed_as_a_developer(steps, tmp_path):
    """Writes the files of the page, and returns the directory in which its reader works. Ports and paths stay as they are."""
    session = Session(tmp_path, set(), installs=True)
    session.here = lambda text: text
    try:
        for step in steps:
            if step.kind == "file" or (step.kind == "block" and step.name):
                session.write(step.name, step.text)
            elif step.kind == "run" or step.language == "sh":
                for command, _ in step.commands():
                    if not re.match(r"pytest|rm ", command):
                        session.type(command, [], 0, step.place)
        return session.at
    finally:
        session.finish()


def shown_of(step):
    return step.commands() if step.language == "console" else []


def script(steps, page):
    """The steps as one script. What a page does not run at all is outside of this machine: a certificate of Let's Encrypt."""
    for step in steps:
        if step.language == "console":
            yield from (command for command, _ in step.commands())
        elif step.is_commands and "Let's Encrypt" not in step.not_run:
            yield step.text
        elif step.name:
            yield f"cat >{step.name} <<'END OF FILE'\n{step.text}END OF FILE"
    for address in BEYOND[page]:
        yield f"echo '== {address}'"
        places = " ".join(f"--resolve shop.example:{port}:127.0.0.1" for port in (80, 443))
        yield f"curl --silent --show-error --insecure {places} '{address}'"
    yield "echo; echo '== end'"
