"""Fixtures of the tests of languages other than Python: servers of the plain program, and directories of CGI programs."""

import functools
import os
import sys
from pathlib import Path

import pytest
from plugin_support import LUA, PERL, RUBY, Applications, built
from support.server import program

# Helpers that the tests of processes share.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "process"))

#: Mode of a program's file.
PROGRAM_MODE = 0o755


class Programs:
    """A directory of CGI programs, and servers that execute them."""

    def __init__(self, directory, serve):
        self.directory = directory / "programs"
        self.directory.mkdir()
        self.serve = serve

    def write(self, name, text, mode=PROGRAM_MODE):
        """Writes a file. Returns its path."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def shell(self, name, body, head="Content-Type: text/plain"):
        """Writes a shell script that begins its answer with this head."""
        begin = f'printf "{head}\\n\\n"\n' if head else ""
        return self.write(name, f"#!/bin/sh\n{begin}{body}\n")

    def prepare(self, options="", **more):
        """A server of this directory that has not been started."""
        command = [os.environ["BOLIDE_BINARY"]] if os.environ.get("BOLIDE_BINARY") else program()
        text = f"master = true\ncgi = {self.directory}\n{options}"
        return self.serve.prepare(text, command=command, **more)

    def start(self, options="", **more):
        return self.prepare(options, **more).start()


@pytest.fixture
def programs(tmp_path, serve):
    """A directory of programs: ``programs.shell("hello.sh", "echo hello")``, and ``programs.start()``."""
    return Programs(tmp_path, serve)


@pytest.fixture
def marks(tmp_path):
    """A directory in which programs leave files for the test."""
    directory = Path(tmp_path / "marks")
    directory.mkdir()
    return directory


@pytest.fixture(scope="session")
def adapters(tmp_path_factory):
    """`adapters(PERL)` is the library of Perl's adapter, which `bolide plugin build` makes once."""
    return functools.cache(lambda language: built(language, tmp_path_factory.mktemp("plugins")))


@pytest.fixture(scope="session")
def library(adapters):
    """The library of Lua's adapter."""
    return adapters(LUA)


@pytest.fixture(scope="session")
def perl_library(adapters):
    """The library of Perl's adapter."""
    return adapters(PERL)


@pytest.fixture(scope="session")
def ruby_library(adapters):
    """The library of Ruby's adapter."""
    return adapters(RUBY)


@pytest.fixture
def lua(serve, library):
    """Servers of Lua applications."""
    return Applications(serve, library, LUA)


@pytest.fixture
def perl(serve, perl_library):
    """Servers of Perl applications."""
    return Applications(serve, perl_library, PERL)


@pytest.fixture
def ruby(serve, ruby_library):
    """Servers of Rack applications."""
    return Applications(serve, ruby_library, RUBY)


@pytest.fixture(params=[LUA, PERL, RUBY], ids=lambda language: language.name)
def applications(request, serve, adapters):
    """Servers of applications of each language in turn."""
    return Applications(serve, adapters(request.param), request.param)
