"""The program of the master: a master has no interpreter, however a user starts the server, and users notice no difference."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import bolide
import pytest
from support.server import Server
from support.waiting import wait_until
from support_processes import children_of
from support_users import python_for_everybody

PROGRAM = Path(bolide.__file__).parent / "bin" / "bolide"
#: `CAP_NET_BIND_SERVICE` (linux/capability.h), and a file's attribute that gives it (VFS_CAP_REVISION_2, effective).
BIND_SERVICE = 1 << 10
ATTRIBUTE = struct.pack("<5I", 0x02000001, BIND_SERVICE, 0, 0, 0)

SHOP = """\
import os


def app(environ, start_response):
    start_response("200 OK", [])
    return [os.environ.get("SHOP_COLOR", "").encode(), b" ", ",".join(sorted(os.environ)).encode()]
"""
CALL = """
if __name__ == "__main__":
    bolide.run("shop:app", port=0, processes=1)
"""
SERVE = """
with bolide.testing.serve("shop:app") as server:
    print(server.log, flush=True)
    signal.pause()
"""
#: What every Python of this environment executes, like the agent of `opentelemetry-instrument`.
AGENT = """\
import atexit
import os
import threading

os.environ["SHOP_COLOR"] = "green"
kept = bytearray(os.urandom(1)) * (64 << 20)
threading.Thread(target=threading.Event().wait, daemon=True).start()
if os.environ.get("SHOP_LAST_WORDS"):
    atexit.register(lambda: open(os.environ.pop("SHOP_LAST_WORDS"), "w").close())
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def serve(shop):
    started = []

    def serve(command, *arguments, ready=True, **more):
        server = Server(shop, command=command and list(command), arguments=list(arguments), **more)
        started.append(server)
        return server.start() if ready else server.launch()

    yield serve
    for server in started:
        server.finish()


def executable(pid):
    return Path(os.readlink(f"/proc/{pid}/exe"))


def maps(pid):
    return {line.split(None, 5)[5].strip() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/" in line}


def code_bytes(pid):
    """The memory of a process that holds the code of the native module."""
    mapped, found = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0] and len(fields) > 5:
            mapped = fields[5] if fields[1].startswith("r-x") else ""
        elif fields[0] == "Rss:" and "_native" in mapped:
            found += int(fields[1]) * 1024
    return found


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def memory_bytes(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


ARGUMENTS = ("shop:app", "--http-socket", "127.0.0.1:0", "--pythonpath", "{directory}")


@pytest.mark.parametrize(
    ("command", "name"),
    [(None, str(Path(sys.executable).parent / "bolide")), ((sys.executable, "-m", "bolide"), "bolide")],
    ids=["console script", "module"],
)
def test_the_master_has_no_interpreter_and_is_the_process_that_was_started(serve, command, name):
    server = serve(command, *ARGUMENTS, environment={"SHOP_Z": "1", "SHOP_A": "2", "SHOP_M": "3"})
    master = server.process.pid
    assert executable(master) == PROGRAM
    assert not [path for path in maps(master) if "python3" in Path(path).name and "_native" not in path]
    assert command_line(master)[:2] == [name, "shop:app"]
    # Options of the environment count in its order.
    variables = Path(f"/proc/{master}/environ").read_text().split("\0")
    assert [variable for variable in variables if variable.startswith("SHOP_")] == ["SHOP_Z=1", "SHOP_A=2", "SHOP_M=3"]
    assert Path(f"/proc/{master}/comm").read_text() == "bolide\n"
    (prototype,) = children_of(master)
    assert executable(prototype) == Path(sys.executable).resolve()


@pytest.mark.parametrize(("call", "module"), [(CALL, "bolide"), (SERVE, "bolide.testing")], ids=["run", "serve"])
def test_the_server_of_a_python_program_has_a_master_without_interpreter(serve, shop, call, module):
    (shop / "main.py").write_text(f"import signal\nimport {module}\n{call}")
    server = serve([sys.executable], str(shop / "main.py"))
    (master,) = children_of(server.process.pid)
    assert executable(master) == PROGRAM
    assert command_line(master)[0] == "bolide"
    # Its end comes with that of the program, whatever the reason.
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{master}"), "the end of the server")


def test_what_an_agent_has_loaded_leaves_with_the_interpreter_after_its_last_words(serve, shop):
    agent = shop / "agent"
    agent.mkdir()
    (agent / "sitecustomize.py").write_text(AGENT)
    words = shop / "last words"
    server = serve(None, *ARGUMENTS, environment={"PYTHONPATH": str(agent), "SHOP_LAST_WORDS": str(words)})
    master = server.process.pid
    assert words.exists()
    assert memory_bytes(master) < 32 << 20
    assert len(list(Path(f"/proc/{master}/task").iterdir())) == 1
    # The application's Python has loaded it from the same place, and has the variables of the console script.
    color, names = server.get("/").text.split()
    assert color == "green"
    assert [name for name in names.split(",") if "BOLIDE" in name] == []
    assert {"PYTHONPATH", "SHOP_COLOR"} <= set(names.split(","))
    (prototype,) = children_of(master)
    assert memory_bytes(prototype) > 64 << 20


WAITING = """\
import os
import time

while not os.path.exists("go"):
    time.sleep(0.01)

"""


def test_the_master_gives_the_code_back_that_only_its_start_needs(serve, shop):
    (shop / "shop.py").write_text(WAITING + SHOP)
    server = serve(None, *ARGUMENTS, ready=False)
    master = server.process.pid
    wait_until(lambda: children_of(master), "the prototype")
    at_start = code_bytes(master)
    (shop / "go").touch()
    server.wait_for_log("^bolide: ready: 1 worker")
    wait_until(lambda: code_bytes(master) < at_start * 0.7, lambda: f"{code_bytes(master)} of {at_start} bytes are left")


def test_an_upgrade_executes_the_console_script_again(serve):
    server = serve(None, *ARGUMENTS)
    before = server.process.pid
    subprocess.run([PROGRAM, "upgrade", str(before)], check=True, stdout=subprocess.DEVNULL)
    server.wait_for_log(r"the new master \(pid \d+\) is ready")
    new = int(server.log.partition("the new master (pid ")[2].partition(")")[0])
    try:
        assert executable(new) == PROGRAM
        assert command_line(new) == [str(Path(sys.executable).parent / "bolide"), *server.arguments]
        assert server.process.wait() == 0
        assert server.get("/").status == 200
    finally:
        os.kill(new, 15)
        wait_until(lambda: not os.path.exists(f"/proc/{new}"), "the end of the new master")


@pytest.fixture
def without_program(tmp_path):
    """The directory of a package as an editable installation has it."""
    directory = tmp_path / "packages"
    shutil.copytree(PROGRAM.parents[1], directory / "bolide", ignore=shutil.ignore_patterns("bin", "__pycache__"))
    return directory


def test_a_package_without_the_program_serves_from_the_interpreters_process(serve, without_program):
    server = serve([sys.executable, "-m", "bolide"], *ARGUMENTS, environment={"PYTHONPATH": str(without_program)})
    master = server.process.pid
    assert executable(master) == Path(sys.executable).resolve()
    assert command_line(master)[:3] == [sys.executable, "-m", "bolide"]
    assert server.get("/").status == 200


def test_rights_that_the_interpreters_file_gives_are_kept(serve, open_directory):
    """`setcap cap_net_bind_service=ep` on a Python: its master listens on port 80."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file rights")
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    own = Path(python).with_name("python-with-rights")
    shutil.copy(Path(python).resolve(), own)
    try:
        os.setxattr(own, "security.capability", ATTRIBUTE)
        subprocess.run([own, "-c", ""], user="nobody", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"files have no rights here: {error}")
    (open_directory / "shop.py").write_text(SHOP)
    command = ["setpriv", "--reuid=nobody", "--clear-groups", "env", "-C", str(open_directory), str(own), "-m", "bolide"]
    server = serve(command, "shop:app", "--http-socket", "127.0.0.1:0")
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (effective,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    assert effective & BIND_SERVICE
    assert executable(server.process.pid) == own


def test_a_program_without_its_module_says_what_to_do(tmp_path):
    (tmp_path / "bolide" / "bin").mkdir(parents=True)
    program = shutil.copy(PROGRAM, tmp_path / "bolide" / "bin")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{tmp_path}/bolide/_native" in done.stderr
    assert "install bolide again" in done.stderr


def test_the_program_alone_knows_its_python_by_the_package_that_it_is_in():
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("bolide ")
    assert "CPython {}.{}".format(*sys.version_info) in done.stdout
