"""The examples for Docker, Compose, Kubernetes and Procfiles: linters accept them; the command serves, answers probes
and stops.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import yaml
from support.waiting import TIMEOUT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "packaging" / "container"
SCRIPTS = Path(sys.executable).parent
#: Docker's default time between SIGTERM and SIGKILL.
DOCKER_GRACE_SECONDS = 10


def linted(*command, text, tmp_path, name):
    """Returns the status and the output of a linter for a text in a file of this name."""
    (tmp_path / name).write_text(text)
    done = subprocess.run([*command, name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


LINTERS = {
    "Dockerfile": ([str(SCRIPTS / "hadolint")], ("RUN useradd", "RUN cd /srv && useradd")),
    "compose.yaml": (
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"],
        ("stop_grace_period", "stop_grace_perod"),
    ),
    "kubernetes.yaml": ([sys.executable, "-m", "kubernetes_validate", "--strict"], ("readinessProbe", "readynessProbe")),
}


@pytest.mark.parametrize("name", LINTERS)
def test_a_linter_accepts_the_example_and_finds_a_mistake_in_it(name, tmp_path):
    command, (right, wrong) = LINTERS[name]
    text = (EXAMPLE / name).read_text()
    assert right in text
    status, said = linted(*command, text=text, tmp_path=tmp_path, name=name)
    assert status == 0, said
    status, said = linted(*command, text=text.replace(right, wrong), tmp_path=tmp_path, name=name)
    assert status != 0, said


def option(name):
    return re.search(rf"^{name} = (\S+)$", (EXAMPLE / "bolide.ini").read_text(), re.MULTILINE)[1]


def test_each_runtime_waits_longer_than_requests_may_take_at_a_stop():
    mercy = int(option("reload-mercy"))
    assert mercy < DOCKER_GRACE_SECONDS
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
    assert mercy < int(compose["services"]["shop"]["stop_grace_period"].removesuffix("s"))
    deployment = next(yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text()))
    pod = deployment["spec"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert mercy + int(variables["UWSGI_DRAIN_DELAY"]) < pod["terminationGracePeriodSeconds"]


@pytest.fixture
def example(tmp_path):
    """The example's directory as in the image: without the files that .dockerignore names."""
    left_out = (EXAMPLE / ".dockerignore").read_text().split()
    return Path(shutil.copytree(EXAMPLE, tmp_path / "shop", ignore=shutil.ignore_patterns(*left_out, "__pycache__")))


def dockerfile(instruction):
    """Returns the command of CMD or HEALTHCHECK, which is a list: no shell is involved."""
    found = re.search(rf"^{instruction}\b(?:[^\[]|\\\n)*(\[.*\])$", (EXAMPLE / "Dockerfile").read_text(), re.MULTILINE)
    return json.loads(found[1])


@pytest.fixture
def run_for(free_port):
    """Runs a command with PORT in its environment until the test ends. Returns the process and the port."""
    running = []

    def run_for(command, directory):
        port = free_port()
        environment = {**os.environ, "PORT": str(port), "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        log = open(directory / "log", "wb")  # noqa: SIM115
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=subprocess.STDOUT)
        log.close()
        running.append(process)
        return process, port

    yield run_for
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)


def answers(port):
    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=TIMEOUT_SECONDS).status_code == 200
    except requests.ConnectionError:
        return False


def log_of(directory):
    return lambda: f"an answer: {(directory / 'log').read_text()}"


def healthcheck(port):
    python, *rest = dockerfile("HEALTHCHECK")
    assert python == "python"
    # A proxy of the environment is not used.
    environment = {"PORT": str(port), "http_proxy": "http://127.0.0.1:1", "PATH": os.environ["PATH"]}
    return subprocess.run([sys.executable, *rest], env=environment, capture_output=True).returncode


def test_the_image_serves_is_called_healthy_and_ends_at_sigterm(example, run_for, free_port):
    assert healthcheck(free_port()) != 0
    process, port = run_for(dockerfile("CMD"), example)
    wait_until(lambda: answers(port), log_of(example))
    assert healthcheck(port) == 0
    requests.get(f"http://127.0.0.1:{port}/page", timeout=TIMEOUT_SECONDS)
    # The request of the liveness probe, to PID 1 there.
    status = subprocess.run([SCRIPTS / "bolide", "status", str(process.pid)], capture_output=True, text=True)
    assert (status.returncode, "serving" in status.stdout) == (0, True), status
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_SECONDS) == 0
    lines = [json.loads(line) for line in (example / "log").read_text().splitlines() if line.startswith("{")]
    told = [str(line) for line in lines]
    assert [line for line in told if "/page" in line]
    assert not [line for line in told if "/health" in line]


def test_the_image_has_the_application_and_its_configuration_alone(example):
    assert sorted(path.name for path in example.iterdir()) == ["bolide.ini", "requirements.txt", "shop.py"]


def test_the_procfile_is_run_by_a_program_for_procfiles(example, run_for):
    shutil.copy(EXAMPLE / "Procfile", example)
    process, port = run_for([sys.executable, "-m", "honcho", "start"], example)
    wait_until(lambda: answers(port), log_of(example))
    process.send_signal(signal.SIGTERM)
    process.wait(TIMEOUT_SECONDS)
    wait_until(lambda: not answers(port), "the end of what honcho has started")


def test_the_guides_show_each_file_of_the_example_as_it_is():
    shown = {}
    for page in ("containers.md", "kubernetes.md"):
        text = (ROOT / "docs" / page).read_text()
        shown.update(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL))
    assert set(shown) == {path.name for path in EXAMPLE.iterdir() if path.is_file()}
    assert {name: text for name, text in shown.items() if text != (EXAMPLE / name).read_text()} == {}
