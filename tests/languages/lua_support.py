"""Lua for tests: the adapter, which `bolide plugin build lua` makes once, and servers with Lua applications."""

import subprocess
from pathlib import Path

from support.server import program

#: What each test's application begins with: a table of pages by path.
BEGINNING = """
local pages = {}
local plain = {["Content-Type"] = "text/plain"}
local function parts(list)
    local at = 0
    return function() at = at + 1 return list[at] end
end
"""
END = """
return function(env)
    local page = pages[env.PATH_INFO]
    if not page then return 404, plain, "there is no page " .. env.PATH_INFO end
    return page(env)
end
"""


def bolide(*arguments, **options):
    """Runs a command of Bolide; returns it with its output."""
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([*program(), *map(str, arguments)], **options)


def built(directory):
    """Builds the adapter of Lua into this directory, and returns the path of the library."""
    done = bolide("plugin", "build", "lua", "--into", directory)
    assert done.returncode == 0, f"{done.stdout}{done.stderr} (needs apt-get install gcc pkg-config liblua5.4-dev)"
    return Path(directory) / "bolide_lua.so"


class Lua:
    """Starts servers whose application is a Lua file in their directory."""

    def __init__(self, serve, library):
        self._serve = serve
        self.library = library

    def prepare(self, pages, configuration="", **options):
        """A server that has not been started, with these pages."""
        lines = f"plugin = {self.library}\nlua = app.lua\n{configuration}"
        server = self._serve.prepare(lines, **options)
        self.write(server, pages)
        return server

    def __call__(self, pages, configuration="", **options):
        return self.prepare(pages, configuration, **options).start()

    @staticmethod
    def write(server, pages, file="app.lua"):
        (server.directory / file).write_text(BEGINNING + pages + END)
