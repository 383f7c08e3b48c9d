"""A person's folder and terminal."""

import textwrap

import pytest
from support.client import Client
from support.terminal import Terminal

#: What a start says last: where to look.
OPEN = r"open http://127\.0\.0\.1:(\d+)"


class Desk:
    """A folder with files, and terminals in it."""

    def __init__(self, folder):
        self.folder = folder
        self._terminals = []

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def type(self, *words, **environment):
        """Start a program of these words; it is ``bolide`` without its first."""
        assert words[0] == "bolide"
        self._terminals.append(Terminal(self.folder, *words[1:], environment=environment))
        return self._terminals[-1]

    def ended(self, *words, **environment):
        """``(exit status, what was shown)`` of a program that ends by itself."""
        shown = self.type(*words, **environment)
        return shown.wait_for_end(), shown.words

    def close(self):
        for terminal in self._terminals:
            terminal.close()


class Browser:
    """Asks a server that says where it serves."""

    def __init__(self, shown):
        self.port = int(shown.wait_for(OPEN)[1])

    def get(self, path="/", headers=()):
        with Client(("127.0.0.1", self.port)) as client:
            return client.request("GET", path, [("Connection", "close"), *headers])


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    yield desk
    desk.close()


@pytest.fixture
def browse():
    return Browser
