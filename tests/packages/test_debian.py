"""The Debian package: built from the wheel under test, installed by dpkg in a scratch root, serving from there."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("BOLIDE_BINARY", ROOT / "target" / "quick" / "bolide"))
#: The base interpreter of the tests' virtual environment, in which Bolide is not installed.
PYTHON = Path(sys.base_prefix) / "bin" / "python{}.{}".format(*sys.version_info)

APPLICATION = """
import sys

def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{sys.prefix} {sys.modules['bolide'].__file__}".encode()]
"""

#: The plugins with packages: the package of the language's library, the file of an application, and the application.
PLUGINS = {
    "lua": (r"liblua5\.4-0", "app.lua", "return function() return 200, {}, 'hello' end"),
    "psgi": (r"libperl5\.\d+", "app.psgi", "sub { [200, [], ['hello']] };"),
    "rack": (r"libruby3\.\d+", "config.ru", "run ->(env) { [200, {}, ['hello']] }"),
}

#: The most that the program has, in bytes: it only loads the native module.
MAX_PROGRAM_BYTES = 64 * 1024
#: The most that the package has beside the native module, in KiB.
MAX_OTHER_KIB = 2048

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="this is not a Debian: there is no dpkg-deb")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    directory = tmp_path_factory.mktemp("deb")
    wheels = list((ROOT / "build" / "wheels").glob("bolide-*.whl"))
    assert len(wheels) == 1, f"scripts/test builds one wheel into build/wheels before its tests; there are {wheels}"
    asked = [word for plugin in PLUGINS for word in ("--plugin", plugin)]
    made = run(ROOT / "scripts" / "deb", "--fast", "--wheel", wheels[0], "--out", directory, *asked)
    return Path(made.splitlines()[-1])


@pytest.fixture(params=PLUGINS)
def plugin_package(request, package):
    """The package of a plugin, built for the system's version of the language; and its name."""
    return package.with_name(package.name.replace("bolide_", f"bolide-{request.param}_")), request.param


def dpkg(system, *arguments):
    """Runs dpkg on another system's root; DPKG_ROOT tells its scripts."""
    forced = "--force-depends,script-chrootless,not-root,bad-path"
    return run("dpkg", f"--root={system}", f"--log={system}/dpkg.log", forced, *arguments, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def system(tmp_path_factory, package):
    """A directory that is another system's root, with the package installed."""
    directory = tmp_path_factory.mktemp("system")
    for name in ("updates", "info", "triggers"):
        (directory / "var/lib/dpkg" / name).mkdir(parents=True)
    (directory / "var/lib/dpkg/status").touch()
    (directory / "etc").mkdir()
    (directory / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (directory / "etc/group").write_text("root:x:0:\n")
    dpkg(directory, "--install", package)
    return directory


def fields(package):
    return dict(re.findall(r"^(\S+): (.*)$", run("dpkg-deb", "--field", package), re.MULTILINE))


def test_the_package_depends_on_the_python_that_its_module_is_for(package):
    told = fields(package)
    major, minor = sys.version_info[:2]
    assert f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}~)" in told["Depends"]
    assert re.search(r"libc6 \(>= 2\.\d+\)", told["Depends"])
    assert told["Version"] == run(PROGRAM, "--version").split()[1].rstrip(",")


def test_the_native_code_is_in_the_package_once(package, tmp_path):
    run("dpkg-deb", "--extract", package, tmp_path)
    native = {path for path in tmp_path.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"}
    program = (tmp_path / "usr/bin/bolide").resolve()
    (module,) = native - {program, tmp_path / "usr/bin/bolide"}
    assert module.parent == program.parents[1] == tmp_path / "usr/lib/python3/dist-packages/bolide"
    assert program.stat().st_size <= MAX_PROGRAM_BYTES
    installed = int(fields(package)["Installed-Size"])
    assert installed <= module.stat().st_size // 1024 + MAX_OTHER_KIB


def lint(package):
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed (Debian: lintian)")
    # The output depends on the user: as root there is an additional message.
    done = subprocess.run(["lintian", "--fail-on", "error,warning", str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_lintian_finds_no_error(package):
    lint(package)


def test_lintian_finds_no_error_in_the_package_of_a_plugin(plugin_package):
    lint(plugin_package[0])


def test_the_package_of_a_plugin_depends_on_its_language_and_on_this_version(plugin_package, package):
    made, name = plugin_package
    told, depends = fields(made), fields(made)["Depends"].split(", ")
    assert told["Package"] == f"bolide-{name}"
    assert f"bolide (= {fields(package)['Version']})" in depends
    others = [one for one in depends if not re.fullmatch(rf"{PLUGINS[name][0]}|bolide \(.*|libc6 \(.*|ruby", one)]
    assert any(re.fullmatch(PLUGINS[name][0], one) for one in depends), depends
    assert others == []
    listed = run("dpkg-deb", "--contents", made)
    assert f"./usr/lib/bolide/bolide_{name}.so" in listed


def test_an_installed_plugin_serves(serve, system, plugin_package):
    made, name = plugin_package
    dpkg(system, "--install", made)
    _, file, text = PLUGINS[name]
    command = [str(system / "usr/bin/bolide")]
    library = system / f"usr/lib/bolide/bolide_{name}.so"
    server = serve.prepare(f"plugin = {library}\n{name} = {file}", command=command)
    (server.directory / file).write_text(text)
    assert server.start().get("/").text == "hello"
    dpkg(system, "--remove", f"bolide-{name}")
    assert not library.exists()


def test_everything_is_root_s_and_in_its_place(package):
    listed = [line.split(None, 5) for line in run("dpkg-deb", "--contents", package).splitlines()]
    assert {line[1] for line in listed} == {"root/root"}
    assert {line[0] for line in listed} <= {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}
    paths = {line[5].removeprefix(".") for line in listed}
    assert {
        "/usr/bin/bolide -> ../lib/python3/dist-packages/bolide/bin/bolide",
        "/usr/lib/python3/dist-packages/bolide/bin/bolide",
        "/usr/lib/python3/dist-packages/bolide/prototype.py",
        "/usr/share/man/man1/bolide.1.gz",
        "/usr/share/bash-completion/completions/bolide",
        "/usr/share/zsh/vendor-completions/_bolide",
        "/usr/share/fish/vendor_completions.d/bolide.fish",
        "/etc/bolide/README",
        "/etc/logrotate.d/bolide",
    } <= paths
    assert {f"/usr/lib/systemd/system/{unit.name}" for unit in (ROOT / "packaging/systemd").iterdir()} <= paths
    assert not [path for path in paths if "__pycache__" in path]


def test_the_configuration_to_begin_with_has_nothing_odd(system, tmp_path):
    text = (system / "usr/share/doc/bolide/examples/shop.ini").read_text()
    assert "/etc/bolide/shop.ini" in text
    # The files that it lists exist.
    run(PYTHON, "-m", "venv", "--without-pip", tmp_path / "srv/shop/venv")
    (tmp_path / "srv/shop/shop").mkdir()
    (tmp_path / "srv/shop/shop/wsgi.py").write_text(APPLICATION)
    (tmp_path / "var/log/bolide-shop").mkdir(parents=True)
    example = tmp_path / "shop.ini"
    example.write_text(re.sub(r"(?<= )/(?=srv|var)", f"{tmp_path}/", text))
    environment = {"PATH": os.environ["PATH"]}
    assert "nothing to report" in run(system / "usr/bin/bolide", "check", "--strict", example, env=environment)


def serve_installed(serve, system, configuration=""):
    command = [str(system / "usr/bin/bolide")]
    environment = {"PATH": f"{system}/path:/usr/bin:/bin"}
    (system / "path").mkdir(exist_ok=True)
    python = system / "path/python3"
    if not python.exists():
        python.symlink_to(PYTHON)
    server = serve.prepare(f"wsgi-file = {{directory}}/app.py\n{configuration}", command=command, environment=environment)
    (server.directory / "app.py").write_text(APPLICATION)
    return server.start()


def test_the_installed_program_serves_with_the_installed_module(serve, system):
    server = serve_installed(serve, system)
    prefix, module = server.get("/").body.decode().split()
    assert Path(module) == system / "usr/lib/python3/dist-packages/bolide/__init__.py"
    assert Path(prefix) == Path(sys.base_prefix)


def test_the_master_of_the_installed_program_has_the_module_and_no_python(serve, system):
    server = serve_installed(serve, system, "master = true")
    master = Path(f"/proc/{server.process.pid}")
    mapped = (master / "maps").read_text()
    assert "bolide/_native.cpython-3" in mapped
    assert not re.search(r"libpython3|bin/python", mapped)
    assert (master / "comm").read_text() == "bolide\n"
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    assert server.get("/").status == 200


def test_the_installed_program_and_the_plain_one_answer_alike(system, tmp_path):
    (tmp_path / "odd.ini").write_text("[uwsgi]\nmodul = shop\n")
    for words in (["explain", "harakiri"], ["check", "odd.ini"], ["no-such-command"], []):
        answers = [
            subprocess.run([program, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True)
            for program in (PROGRAM, system / "usr/bin/bolide")
        ]
        plain, installed = [(done.returncode, done.stdout, done.stderr) for done in answers]
        assert installed == plain


def test_the_installed_program_names_the_python_of_its_module(system, tmp_path):
    python = "CPython {}.{}".format(*sys.version_info)
    assert run(system / "usr/bin/bolide", "--version") == run(PROGRAM, "--version").replace(", Linux", f", {python}, Linux")
    machine = json.loads(run(system / "usr/bin/bolide", "doctor", "--json", cwd=tmp_path))["machine"]
    assert machine["python"].startswith(python)


def test_a_reader_that_goes_away_ends_the_installed_program_quietly(system):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([system / "usr/bin/bolide", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode >= 0
    assert "panicked" not in done.stderr


def test_the_installed_module_is_started_by_python_too(system):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(system / "usr/lib/python3/dist-packages")}
    assert run(PYTHON, "-m", "bolide", "--version", env=environment).startswith("bolide ")


def test_a_virtual_environment_without_bolide_is_served_with_the_installed_module(serve, system, tmp_path):
    run(PYTHON, "-m", "venv", "--without-pip", tmp_path / "venv")
    server = serve_installed(serve, system, f"virtualenv = {tmp_path}/venv")
    prefix, module = server.get("/").body.decode().split()
    assert Path(module) == system / "usr/lib/python3/dist-packages/bolide/__init__.py"
    assert Path(prefix) == tmp_path / "venv"


def test_the_user_of_the_units_is_made_once(system, package):
    if os.geteuid() != 0:
        pytest.skip("only root makes users")
    dpkg(system, "--install", package)
    (line,) = [line for line in (system / "etc/passwd").read_text().splitlines() if line.startswith("bolide:")]
    assert line.endswith(":/var/lib/bolide:/usr/sbin/nologin")


def test_changed_files_in_etc_survive_a_reinstallation_and_purge_removes_everything(package, tmp_path_factory, system):
    (system / "etc/bolide/shop.ini").write_text("[uwsgi]\n")
    (system / "etc/logrotate.d/bolide").write_text("# ours\n")
    dpkg(system, "--force-confold", "--install", package)
    assert (system / "etc/logrotate.d/bolide").read_text() == "# ours\n"
    (system / "var/log/bolide-shop").mkdir(parents=True)
    dpkg(system, "--remove", "bolide")
    assert not (system / "usr/bin/bolide").exists()
    assert (system / "var/log/bolide-shop").is_dir()
    dpkg(system, "--purge", "bolide")
    assert not (system / "var/log/bolide-shop").exists()
    # Files that the administrator has put beside the package's files are kept.
    assert [path.name for path in (system / "etc/bolide").iterdir()] == ["shop.ini"]
    assert not (system / "usr/lib/python3/dist-packages/bolide").exists()
