"""A person's directory and terminal."""

import textwrap

import pytest
from support.client import Client
from support.terminal import Terminal

#: The last line of startup: the address to open.
OPEN = r"open http://127\.0\.0\.1:(\d+)"


class Desk:
    """A directory with files, and terminals in it."""

    def __init__(self, directory):
        self.directory = directory
        self._terminals = []

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def type(self, *words, **environment):
        """Starts ``bolide``: the first word is its name, the rest are its arguments."""
        assert words[0] == "bolide"
        self._terminals.append(Terminal(self.directory, *words[1:], **environment))
        return self._terminals[-1]

    def ended(self, *words, **environment):
        """Returns ``(exit status, output)`` of a program that exits by itself."""
        shown = self.type(*words, **environment)
        return shown.wait_for_end(), shown.words

    def close(self):
        for terminal in self._terminals:
            terminal.close()


class Browser:
    """Sends a request to a server that prints its address."""

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
