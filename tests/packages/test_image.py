"""The published image: the steps of its Dockerfile run in a root directory of their own, and its entry point is PID 1 there.

An overlay on this machine's root directory stands for the base image, with this Python as `python` and `pip`. Docker is not
needed.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from support.waiting import TIMEOUT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "packaging" / "image" / "Dockerfile"
SCRIPT = ROOT / "scripts" / "image"
#: The exit status if startup can't load the application.
NO_APPLICATION = 22
APPLICATION = """
import subprocess

def application(environ, start_response):
    if environ["PATH_INFO"] == "/orphan":
        # The shell exits, and leaves a process behind that exits a moment later.
        subprocess.run(["sh", "-c", "sleep 0.05 & echo $!"], check=True, stdout=subprocess.DEVNULL)
    start_response("200 OK", [("Content-Type", "text/plain")])
    with open("/proc/self/status") as status:
        return [next(line for line in status if line.startswith("Uid:")).encode()]
"""
OVERLAY = """
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" &&
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" &&
mount --bind /dev "$1/root/dev" && echo ready && exec cat
"""


def instructions():
    """Returns the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


class Image:
    """A root directory in a mount namespace, which a process holds, and what the instructions say of the container."""

    def __init__(self, directory):
        self.mount = directory
        self.environment = {"PATH": "/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.arguments = {}
        self.user, self.directory, self.entrypoint, self.healthcheck = "0", "/", [], []
        holder = ["unshare", "--mount", "sh", "-c", OVERLAY, "sh", directory]
        self.holder = subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.is_made = self.holder.stdout.readline() == "ready\n"

    def close(self):
        self.holder.communicate()

    def path(self, name):
        """Returns a path of the image as this process can open it."""
        return Path(f"/proc/{self.holder.pid}/root{self.mount}/root{name}")

    def command(self, words, user="0", directory="/", mounts=(), environment=None):
        """Returns the command line that executes these words as PID 1 of a namespace, in the root directory."""
        root = f"{self.mount}/root"
        steps = [f"mount -t proc proc {root}/proc"]
        steps += [f"mkdir -p {root}{target} && mount --bind {source} {root}{target}" for source, target in mounts]
        inside = f"cd {shlex.quote(directory)} && exec {shlex.join(words)}"
        variables = [f"{name}={value}" for name, value in (environment or self.environment).items()]
        chroot = ["chroot", f"--userspec={user}:{user}", root, "env", "-i", *variables, "sh", "-c", inside]
        namespace = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
        enter = ["nsenter", f"--target={self.holder.pid}", "--mount", "--wd=/"]
        return [*enter, *namespace, f"{' && '.join(steps)} && exec {shlex.join(chroot)}"]

    def run(self, words, **options):
        done = subprocess.run(self.command(words, **options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout}"

    def make_base(self):
        """What the base image has: `python` and `pip`, which any user can execute."""
        base = Path(sys.base_prefix)
        readable = [str(directory) for directory in (base, *base.parents) if directory != Path("/")]
        self.run(["chmod", "o+rx", *readable])
        self.run([str(base / "bin" / Path(sys.executable).resolve().name), "-m", "venv", "/opt/python"])

    def step(self, instruction, text):
        if instruction == "FROM":
            self.make_base()
        elif instruction == "RUN":
            mounts = re.findall(r"--mount=type=bind,source=(\S+),target=(\S+)\s+", text)
            shell = re.sub(r"--mount=\S+\s+", "", text)
            self.run(
                ["sh", "-c", shell],
                mounts=[(self.arguments["context"] / source, target) for source, target in mounts],
                environment={**self.environment, "VERSION": self.arguments["VERSION"]},
            )
        elif instruction == "ENV":
            self.environment.update(word.split("=", 1) for word in shlex.split(text))
        elif instruction == "WORKDIR":
            self.directory = text
        elif instruction == "USER":
            self.user = text
        elif instruction == "ENTRYPOINT":
            self.entrypoint = json.loads(text)
        elif instruction == "HEALTHCHECK":
            self.healthcheck = json.loads(text[text.index("[") :])
        else:
            assert instruction in ("ARG", "EXPOSE"), instruction


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no namespaces can be made here (root and unshare)")
    made = Image(str(tmp_path_factory.mktemp("image")))
    try:
        if not made.is_made:
            pytest.skip(f"no overlay can be mounted here: {made.holder.stderr.read()}")
        context = tmp_path_factory.mktemp("context")
        wheels = list((ROOT / "build" / "wheels").glob("bolide-*.whl"))
        assert len(wheels) == 1, f"scripts/test builds one wheel into build/wheels before its tests; there are {wheels}"
        shutil.copytree(wheels[0].parent, context / "dist")
        made.arguments = {"context": context, "VERSION": wheels[0].name.split("-")[1]}
        for instruction in instructions():
            made.step(*instruction)
        made.path("/srv/app/shop.py").write_text(APPLICATION)
        yield made
    finally:
        made.close()


@pytest.fixture
def start(image, free_port, tmp_path):
    """Runs the entry point with these arguments until the test ends. Returns the process, its port and its log."""
    started = []

    def start(*arguments):
        port, log = free_port(), tmp_path / "log"
        words = [*image.entrypoint, *arguments]
        options = {"user": image.user, "directory": image.directory, "environment": {**image.environment, "PORT": str(port)}}
        with open(log, "wb") as file:
            process = subprocess.Popen(image.command(words, **options), stdout=file, stderr=subprocess.STDOUT)
        started.append(process)
        return process, port, log

    yield start
    for process in started:
        # PID 1 has changed its user since `--kill-child`, which clears the signal that it would get (PR_SET_PDEATHSIG). The whole
        # namespace ends with it, and then `unshare`.
        inside = children_of(process.pid) if process.poll() is None else []
        for pid in inside:
            os.kill(pid, signal.SIGKILL)
        if not inside:
            process.kill()
        process.wait()


def get(port, path="/"):
    return requests.get(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_SECONDS)


def serves(port):
    try:
        return get(port).status_code == 200
    except requests.ConnectionError:
        return False


def children_of(pid):
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def pid_1_of(process):
    """Returns the pid, outside of the namespace, of the process that is PID 1 there: the child of `unshare`."""
    (pid,) = children_of(process.pid)
    assert re.search(r"^NSpid:.*\t1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return pid


def test_the_image_serves_without_a_configuration_as_a_user_without_rights(image, start):
    process, port, log = start("shop:application")
    wait_until(lambda: serves(port), lambda: f"an answer: {log.read_text()}")
    assert image.user == "10001"
    assert get(port).text.split() == ["Uid:", *["10001"] * 4]
    # The master does not run as root either.
    assert re.search(r"^Uid:\t10001\t", Path(f"/proc/{pid_1_of(process)}/status").read_text(), re.MULTILINE)
    assert "master pid 1" in log.read_text()


def test_pid_1_reaps_orphans_and_exits_with_0_at_sigterm(start):
    process, port, log = start("shop:application", "--processes", "2")
    wait_until(lambda: serves(port), lambda: f"an answer: {log.read_text()}")
    master = pid_1_of(process)
    for _ in range(10):
        assert get(port, "/orphan").status_code == 200
    wait_until(lambda: len(children_of(master)) == 1, "all orphans to be reaped")
    os.kill(master, signal.SIGTERM)
    assert process.wait(TIMEOUT_SECONDS) == 0


def test_the_health_check_passes_while_the_instance_serves(image, start):
    process, port, log = start("shop:application")
    wait_until(lambda: serves(port), lambda: f"an answer: {log.read_text()}")
    inside = ["nsenter", f"--target={pid_1_of(process)}", "--pid", "--mount", "--root", "--wd"]
    inside += [f"--setuid={image.user}", f"--setgid={image.user}", "env", "-i", f"PATH={image.environment['PATH']}"]
    inside += image.healthcheck
    done = subprocess.run(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode, "serving" in done.stdout) == (0, True), done.stdout


def test_the_exit_status_of_pid_1_is_that_of_a_failed_start(start):
    process, _, log = start("nothing:application")
    assert process.wait(TIMEOUT_SECONDS) == NO_APPLICATION, log.read_text()


def test_the_image_contains_no_wheel_and_no_file_that_its_user_can_replace(image):
    assert list(image.path("/wheels").iterdir()) == []
    program = image.path("/opt/python/bin/bolide")
    assert (program.stat().st_uid, program.stat().st_mode & 0o022) == (0, 0)
    assert image.path("/srv/app").stat().st_uid == 0


def test_a_linter_accepts_the_dockerfile_and_finds_a_mistake_in_it(tmp_path):
    hadolint = Path(sys.executable).with_name("hadolint")
    text = DOCKERFILE.read_text()
    for content, status in ((text, 0), (text.replace('"bolide==${VERSION}"', "bolide"), 1)):
        (tmp_path / "Dockerfile").write_text(content)
        done = subprocess.run([hadolint, "Dockerfile"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == status, done.stdout


DOCKER = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
*"id -u"*) echo 10001 ;;
*"port "*) echo 127.0.0.1:$ANSWERS ;;
*inspect*) echo "${STATUS:-0}" ;;
esac
"""


@pytest.fixture
def docker(tmp_path):
    """Runs scripts/image with a `docker` that notes its arguments. Returns the result and the noted lines."""
    (tmp_path / "bin").mkdir()
    for name, text in (("docker", DOCKER), ("curl", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    checkout = tmp_path / "bolide"
    (checkout / "scripts").mkdir(parents=True)
    (checkout / "dist").mkdir()
    shutil.copy(SCRIPT, checkout / "scripts")
    shutil.copy(ROOT / "Cargo.toml", checkout)
    (checkout / "dist" / "bolide-0.1.0-cp313-cp313-manylinux2014_x86_64.whl").touch()

    def docker(*arguments, **variables):
        calls = tmp_path / "calls"
        calls.write_text("")
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "CALLS": str(calls), "ANSWERS": "1", **variables}
        command = [checkout / "scripts" / "image", *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done, calls.read_text().splitlines()

    return docker


def test_the_script_builds_for_a_python_and_pushes_with_sbom_and_provenance(docker):
    done, (built,) = docker("build", "3.12")
    assert done.returncode == 0, done.stdout
    assert "--build-arg PYTHON=3.12 --build-arg VERSION=0." in built
    assert "--load --tag bolide:try" in built
    done, (pushed,) = docker("push", "registry.example/bolide", "0.1.0", "3.12", "arm64")
    assert done.returncode == 0, done.stdout
    assert "--sbom true --provenance mode=max" in pushed
    assert "--push --tag registry.example/bolide:0.1.0-python3.12-arm64 ." in pushed
    done, calls = docker("push", "", "0.1.0", "3.12", "arm64")
    assert (done.returncode, calls) == (1, [])
    assert '"image" is empty' in done.stdout


def test_the_script_makes_the_tags_of_both_machines(docker):
    done, (joined,) = docker("join", "registry.example/bolide", "0.1.2", "3.13", "amd64", "arm64")
    assert done.returncode == 0, done.stdout
    for tag in ("0.1.2-python3.13", "0.1-python3.13", "0.1.2", "0.1", "latest"):
        assert f"--tag registry.example/bolide:{tag} " in joined
    assert joined.endswith("registry.example/bolide:0.1.2-python3.13-amd64 registry.example/bolide:0.1.2-python3.13-arm64")
    done, (joined,) = docker("join", "registry.example/bolide", "0.1.2", "3.12", "amd64", "arm64")
    assert "latest" not in joined


def test_the_script_tries_an_image_and_fails_if_sigterm_does_not_stop_it(docker):
    done, calls = docker("try")
    assert done.returncode == 0, done.stdout
    assert any("run --detach" in call and "--read-only --cap-drop ALL" in call for call in calls)
    assert any(call.startswith("rm --force") for call in calls)
    done, calls = docker("try", STATUS="137")
    assert done.returncode == 1
    assert "SIGTERM does not stop it" in done.stdout
