"""A Python that the tests can't get is named, with the reason: scripts/python-3.14, and the summary of scripts/test."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The exit status of scripts/python-3.14 if there is no such Python.
UNAVAILABLE = 3
MVN_OFFLINE = "#!/bin/sh\necho '[ERROR] the artifact is not there'\nexit 1\n"


@pytest.fixture
def asked(tmp_path):
    """Runs the script in a checkout of its own. ``mvn`` is the text of that program, or None."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "python-3.14", tmp_path / "scripts")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "uname", "mkdir", "mktemp", "rm", "timeout", "grep", "cut", "mv", "tail", "env", "cat"):
        (programs / name).symlink_to(shutil.which(name))

    def asked(mvn=None, versions=()):
        if mvn is not None:
            (programs / "mvn").write_text(mvn)
            (programs / "mvn").chmod(0o755)
        for version in versions:
            python = tmp_path / "pyenv" / "versions" / version / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("#!/bin/sh\n")
            python.chmod(0o755)
        environment = {**os.environ, "PATH": str(programs), "PYENV_ROOT": str(tmp_path / "pyenv")}
        command = [tmp_path / "scripts" / "python-3.14"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return asked


def test_the_interpreter_of_pyenv_is_used(asked, tmp_path):
    done = asked(versions=["3.14.3"])
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/pyenv/versions/3.14.3/bin/python\n")


def test_without_maven_the_script_says_what_is_missing(asked):
    done = asked()
    assert (done.returncode, done.stdout) == (UNAVAILABLE, "")
    assert re.match(r"bolide: Python 3\.14 is not available here: .*\b(mvn|x86_64)\b", done.stderr)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the build of Maven Central is for x86_64")
def test_a_build_that_can_t_be_fetched_is_named_with_the_reason(asked, tmp_path):
    done = asked(mvn=MVN_OFFLINE)
    assert done.returncode == UNAVAILABLE
    assert "Maven Central does not provide org.bytedeco:cpython" in done.stderr
    assert "the artifact is not there" in done.stderr
    assert list((tmp_path / "build").iterdir()) == []


def test_the_summary_of_a_run_names_each_python_without_tests(tmp_path):
    script = (ROOT / "scripts" / "test").read_text()
    functions = script[script.index("other_interpreters() {") : script.index("prepare_other_interpreters() {")]
    program = f'version_of() {{ echo 3.11; }}\n{functions}\ncd "$1" && find_other_interpreters'
    for directory in ("scripts", "build"):
        (tmp_path / directory).mkdir()
    missing = tmp_path / "scripts" / "python-3.14"
    missing.write_text("#!/bin/sh\necho 'bolide: Python 3.14 is not available here: a reason' >&2\nexit 3\n")
    missing.chmod(0o755)
    environment = {**os.environ, "PYENV_ROOT": str(tmp_path), "PYTHONS": "3.11 3.13 3.14"}
    done = subprocess.run(["sh", "-eu", "-c", program, "sh", tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = ["bolide: NOT TESTED on Python 3.13: pyenv has none", "bolide: NOT TESTED on Python 3.14: a reason"]
    assert done.stdout.splitlines() == told
    assert (tmp_path / "build" / "not-tested.txt").read_text().splitlines() == told
