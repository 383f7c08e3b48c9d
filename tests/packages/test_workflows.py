"""The GitHub workflows, which are never run here: their structure, their permissions, and that the files that they call exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
IDS = [workflow.name for workflow in WORKFLOWS]
SCRIPTS = Path(sys.executable).parent
#: The jobs that may write, each with its rights. No other job may write.
WRITES = {
    ("release.yml", "publish"): {"id-token", "attestations"},
    ("release.yml", "github"): {"contents"},
    ("release.yml", "image"): {"packages"},
    ("release.yml", "site"): {"contents"},
    ("image.yml", "image"): {"packages"},
    ("image.yml", "tags"): {"packages"},
    ("site.yml", "site"): {"contents"},
}


def run(*command):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)


def schema(kind, *files):
    return run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", *files)


def test_workflows_and_dependabot_s_file_have_the_shape_that_github_reads(tmp_path):
    done = schema("github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout
    done = schema("dependabot", ROOT / ".github" / "dependabot.yml")
    assert done.returncode == 0, done.stdout
    (tmp_path / "broken.yml").write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert schema("github-workflows", tmp_path / "broken.yml").returncode != 0


def test_no_weak_place_is_found_in_them(tmp_path):
    command = [SCRIPTS / "zizmor", "--offline", "--no-progress", "--config", ROOT / ".github" / "zizmor.yml"]
    done = run(*command, ROOT / ".github")
    assert done.returncode == 0, done.stdout
    weak = tmp_path / ".github" / "workflows" / "weak.yml"
    weak.parent.mkdir(parents=True)
    weak.write_text(WORKFLOWS[0].read_text().replace("run: .ci/run", "run: echo ${{ github.head_ref }}"))
    assert run(*command, weak).returncode != 0


def test_actionlint_accepts_them():
    if shutil.which("actionlint") is None:
        pytest.skip("actionlint is not installed: a job of ci.yml runs it")
    done = run("actionlint", *WORKFLOWS)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=IDS)
def test_each_job_has_only_the_rights_that_it_names_and_ends_in_time(workflow):
    described = yaml.safe_load(workflow.read_text())
    assert described["permissions"] == {}
    for name, job in described["jobs"].items():
        assert "permissions" in job, name
        assert "timeout-minutes" in job or "uses" in job, name
        writes = {right for right, kind in job["permissions"].items() if kind == "write"}
        assert writes == WRITES.get((workflow.name, name), set()), name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=IDS)
def test_what_they_call_is_there_and_can_be_executed(workflow):
    for script in re.findall(r"(?<![\w/.])(scripts/[\w-]+(?:\.py)?|\.ci/run)(?![\w/])", workflow.read_text()):
        assert script.endswith(".py") or (ROOT / script).stat().st_mode & 0o111, script
        assert (ROOT / script).is_file(), script


def jobs_of(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]


def test_a_release_begins_with_the_check_of_what_is_missing():
    jobs = jobs_of("release.yml")
    assert any("scripts/release_check.py" in step.get("run", "") for step in jobs["version"]["steps"])

    def needed(name):
        needs = jobs[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*map(needed, direct))

    assert [name for name in jobs if name != "version" and "version" not in needed(name)] == []
    # Nothing is published before everything has been tested.
    for name in ("github", "image", "site"):
        assert {"ci", "wheels", "deb", "publish"} <= needed(name)


def test_the_image_is_tried_and_published_for_the_same_pythons_and_machines():
    tried, pushed, tagged = jobs_of("wheels.yml")["image"], jobs_of("image.yml")["image"], jobs_of("image.yml")["tags"]
    pythons = tried["strategy"]["matrix"]["python"]
    assert pythons == pushed["strategy"]["matrix"]["python"] == tagged["strategy"]["matrix"]["python"]
    assert tried["strategy"]["matrix"]["machine"] == ["x86_64", "aarch64"]
    assert pushed["strategy"]["matrix"]["machine"] == ["amd64", "arm64"]
    default = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "packaging" / "image" / "Dockerfile").read_text(), re.MULTILINE)[1]
    assert default in pythons
    assert run(ROOT / "scripts" / "image", "tags", "0.1.2", default).stdout.split()[-1] == "latest"
