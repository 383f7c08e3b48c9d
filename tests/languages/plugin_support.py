"""Languages that are plugins, for tests: the adapter, which `bolide plugin build` makes once, and servers of applications."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.server import program


@dataclass(frozen=True)
class Language:
    """How tests write an application of a language: each adds pages to a table by path, between `beginning` and `end`."""

    name: str
    file: str
    beginning: str
    end: str
    #: The page /said of an application, with a text in place of TEXT.
    said: str
    packages: str
    #: uWSGI's number of the language.
    modifier: int

    def saying(self, text):
        """Returns the pages of an application that says a text at /said."""
        return self.said.replace("TEXT", text)


LUA = Language(
    name="lua",
    file="app.lua",
    beginning="""
local pages = {}
local plain = {["Content-Type"] = "text/plain"}
local function parts(list)
    local at = 0
    return function() at = at + 1 return list[at] end
end
""",
    end="""
return function(env)
    local page = pages[env.PATH_INFO]
    if not page then return 404, plain, "there is no page " .. env.PATH_INFO end
    return page(env)
end
""",
    said='pages["/said"] = function(env) return 200, plain, "TEXT" end',
    packages="gcc pkg-config liblua5.4-dev",
    modifier=6,
)

PERL = Language(
    name="psgi",
    file="app.psgi",
    beginning="""use strict; use warnings;
my (%pages, $plain);
$plain = ['Content-Type' => 'text/plain'];
sub text { [200, ['Content-Type' => 'text/plain'], [@_]] }
""",
    end="""
sub {
    my $env = shift;
    my $page = $pages{$env->{PATH_INFO}} or return [404, $plain, ["there is no page $env->{PATH_INFO}"]];
    return $page->($env);
};
""",
    said="$pages{'/said'} = sub { text('TEXT') };",
    packages="gcc libperl-dev",
    modifier=5,
)

RUBY = Language(
    name="rack",
    file="config.ru",
    beginning="""
require 'rack/lint'
PAGES = {}
PLAIN = {'content-type' => 'text/plain'}.freeze
# A page behind Rack::Lint, which raises an error if the server or the page breaks a rule of Rack.
def page(path, &block) PAGES[path] = Rack::Lint.new(block) end
# A page that breaks a rule, or depends on the class of its body.
def raw(path, &block) PAGES[path] = block end
def plain(text) [200, PLAIN.dup, [text.to_s]] end
page('/') { |env| plain('Hello from Ruby') }
""",
    end="""
run lambda { |env| (PAGES[env['PATH_INFO']] || proc { [404, PLAIN.dup, ["there is no page"]] }).call(env) }
""",
    said="page('/said') { |env| plain('TEXT') }",
    packages="gcc ruby-dev ruby-rack",
    modifier=7,
)


def bolide(*arguments, **options):
    """Runs a command of Bolide; returns it with its output."""
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([*program(), *map(str, arguments)], **options)


def built(language, directory):
    """Builds the adapter of a language into this directory, and returns the path of the library."""
    done = bolide("plugin", "build", language.name, "--into", directory)
    assert done.returncode == 0, f"{done.stdout}{done.stderr} (needs apt-get install {language.packages})"
    return Path(directory) / f"bolide_{language.name}.so"


class Applications:
    """Starts servers whose application is a file of a language in their directory."""

    def __init__(self, serve, library, language):
        self._serve = serve
        self.library = library
        self.language = language

    def prepare(self, pages, configuration="", **options):
        """A server that has not been started, with these pages."""
        lines = f"plugin = {self.library}\n{self.language.name} = {self.language.file}\n{configuration}"
        server = self._serve.prepare(lines, **options)
        self.write(server, pages)
        return server

    def __call__(self, pages, configuration="", **options):
        return self.prepare(pages, configuration, **options).start()

    def write(self, server, pages, file=None):
        """Writes an application with these pages."""
        (server.directory / (file or self.language.file)).write_text(self.language.beginning + pages + self.language.end)
