"""`bolide plugin` builds the library of an adapter, or says what is missing. It never leaves half of one."""

import re
import signal
import subprocess
from pathlib import Path

import pytest
from plugin_support import LUA, bolide, built


def test_the_library_is_built_from_the_package_and_the_command_is_shown(tmp_path):
    done = bolide("plugin", "build", "lua", "--into", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.match(r"cc -O2 .*-shared .*bolide_lua\.c .*lua", lines[0])
    assert lines[1] == f"{tmp_path}/bolide_lua.so is built: Lua 5.4"
    assert [file.name for file in tmp_path.iterdir()] == ["bolide_lua.so"]


def test_the_header_is_in_the_directory_that_is_printed():
    directory = bolide("plugin", "header").stdout.strip()
    assert "bolide_adapter_v1" in Path(directory, "bolide_app.h").read_text()


def with_path(tmp_path, *programs):
    """Returns an environment whose PATH has only these programs."""
    (tmp_path / "bin").mkdir()
    for name in programs:
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / "bin" / name).symlink_to(found)
    return {"PATH": str(tmp_path / "bin")}


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        (["pkg-config"], "there is no C compiler `cc`: apt install gcc, or set CC"),
        ([], "there is no program `pkg-config`: apt install pkg-config"),
    ],
    ids=["compiler", "pkg-config"],
)
def test_a_missing_program_is_named_with_its_package(tmp_path, programs, expected):
    done = bolide("plugin", "build", "lua", "--into", tmp_path, env=with_path(tmp_path, *programs))
    assert (done.returncode, expected in done.stderr) == (1, True), done.stderr


def test_missing_headers_are_named_with_their_package(tmp_path):
    done = bolide("plugin", "build", "lua", "--into", tmp_path, env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert done.returncode == 1
    assert "pkg-config finds none of lua5.4, " in done.stderr
    assert "apt install liblua5.4-dev" in done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("int main(void) { return missing; }\n", "mine.c can't be compiled: the compiler says why above"),
        ("int nothing;\n", "is not an adapter of Bolide: it does not export `bolide_adapter_v1`"),
        ("void *missing(void); void *bolide_adapter_v1(void) { return missing(); }\n", "can't be loaded: "),
        ("// bolide-build: cmake .\n", "mine.c: line 1: `cmake` is none of pkg-config, flags and debian"),
        ("// bolide-build: flags $(false)\n", "a program in them fails"),
    ],
    ids=["compile", "symbol", "load", "recipe", "flags"],
)
def test_a_file_that_is_no_adapter_is_refused_with_the_reason(tmp_path, content, expected):
    source = tmp_path / "mine.c"
    source.write_text(content)
    done = bolide("plugin", "build", source, "--into", tmp_path)
    assert (done.returncode, expected in done.stderr) == (1, True), done.stderr
    assert not list(tmp_path.glob("*.so*"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["build", "perl"], "this package has no plugin `perl`, only lua, psgi, rack: write the path of a C file"),
        (["build", "Mine.c"], "lowercase letters"),
        (["build", "lua", "--into", "/nonexistent"], "/nonexistent can't be written"),
        (["build", "mine.c", "--into", "/tmp"], "mine.c can't be read"),
        (["make"], "there is no action `make`"),
    ],
)
def test_a_command_that_can_not_work_says_what_to_write(tmp_path, words, expected):
    done = bolide("plugin", *words, cwd=tmp_path)
    assert done.returncode != 0
    assert expected in done.stdout + done.stderr


def test_a_library_that_is_missing_is_an_error_of_startup_with_the_command(serve):
    server = serve.prepare("plugin-dir = {directory}/plugins\nlua = app.lua")
    assert server.launch().wait_for_exit() != 0
    assert "`bolide plugin build lua` builds it" in server.log


def test_a_running_instance_keeps_its_library_while_another_is_built(lua, library):
    server = lua('pages["/"] = function(env) return 200, plain, "fine" end')
    before = library.stat().st_ino
    built(LUA, library.parent)
    assert library.stat().st_ino != before
    assert server.get("/").text == "fine"
    server.send_signal(signal.SIGHUP)
    server.wait_for_log("reload", 1)
    assert server.get("/").text == "fine"
