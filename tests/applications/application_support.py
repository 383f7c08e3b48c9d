"""Real applications for tests: adapters that `bolide plugin build` makes, their servers, and visitors with cookies."""

import html
import json
import os
import re
import signal
import subprocess
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from support.client import Client
from support.files import pattern
from support.server import program
from support.waiting import wait_until

#: Time limit of a command that prepares an application, in seconds.
COMMAND_SECONDS = 200
#: Too large for the memory in which the server keeps a body.
LARGE = b"begin" + pattern(5 << 20) + b"ended"
#: What a page that streams sends.
PARTS = "".join(f"part {number}\n" for number in range(1, 1001))
#: Number of reloads under load.
RELOADS = 50
#: Redirects that a visitor follows.
MAX_REDIRECTS = 5
#: Between the parts of an upload.
BOUNDARY = "part-of-the-upload"

INPUT = re.compile(r"<input[^>]*>")
ATTRIBUTE = re.compile(r"""([a-z-]+)=(?:"([^"]*)"|'([^']*)')""")


def run(*command, directory=None, **environment):
    """Runs a command that must succeed; returns its output."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def built(name, directory):
    """Builds an adapter into this directory, and returns the path of the library."""
    run(*program(), "plugin", "build", name, "--into", directory)
    return directory / f"bolide_{name}.so"


def hidden(page, name):
    """Returns the value of a hidden field of a form, such as the token of its session."""
    for tag in INPUT.findall(page):
        attributes = {known: html.unescape(double or single) for known, double, single in ATTRIBUTE.findall(tag)}
        if attributes.get("name") == name:
            return attributes.get("value", "")
    raise AssertionError(f"the page does not contain a field {name!r}: {page[:1000]}")


class Visitor:
    """A browser's part that these tests need: cookies, forms, uploads and redirects. Each request is a new connection."""

    def __init__(self, server):
        self.address = server.address()
        self.origin = server.url
        self.cookies = {}
        #: The page of the last request, which the next one names.
        self._referer = None

    def ask(self, method, target, headers=(), body=None):
        """Sends one request, and keeps the cookies of its response."""
        fields = [*headers, ("Connection", "close")]
        if self._referer:
            fields.append(("Referer", self._referer))
        self._referer = f"{self.origin}{target}"
        if self.cookies:
            fields.append(("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items())))
        with Client(self.address) as client:
            response = client.request(method, target, fields, body)
            # Rails names the style sheets of a page before it answers.
            while response.status < 200:
                response = client.read_response(method)
        for cookie in response.all("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name.strip()] = value.strip()
        return response

    def follow(self, response, target):
        """Follows redirects within the site, as a browser does after a form."""
        for _ in range(MAX_REDIRECTS):
            if response.status not in (301, 302, 303):
                return response
            target = urlsplit(urljoin(f"{self.origin}{target}", response.get("location")))._replace(scheme="", netloc="").geturl()
            response = self.ask("GET", target)
        raise AssertionError(f"the redirects do not end: {response}")

    def get(self, target="/"):
        return self.follow(self.ask("GET", target), target)

    def post(self, target, fields):
        """Sends a form."""
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        return self.follow(self.ask("POST", target, headers, urlencode(fields).encode()), target)

    def upload(self, target, name, file, content):
        """Sends a file as a form does."""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        body = f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        headers = [("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")]
        return self.follow(self.ask("POST", target, headers, body), target)


def reload(server):
    """Reloads a server, and waits until only new workers are left."""
    before = set(server.workers())
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: server.workers() and not before & set(server.workers()), "the old workers have exited")


def reload_under_load(server, rename, reloads):
    """Reloads a server this many times while clients request `/`. ``rename(n)`` changes the application so that it sends n.
    Returns the load, which has counted the lost requests.
    """
    # Its directory is found only when the fixtures have been loaded.
    from support_load import Load

    with Load(server.address()) as load:
        for number in range(1, reloads + 1):
            rename(number)
            server.send_signal(signal.SIGHUP)
            load.wait(lambda number=number: load.bodies[f"code {number}"], f"the answer of reload {number}")
    return load


class Sites:
    """The applications of a module, each with its server, which its first test starts."""

    def __init__(self, start):
        self._start = start
        self._running = {}

    def __getitem__(self, name):
        if name not in self._running:
            self._running[name] = self._start(name)
        return self._running[name]


class FrameworkTests:
    """What the application of each framework does. `site` is its server."""

    def test_a_session_counts_the_visits_of_each_visitor_in_all_workers(self, site):
        first, second = Visitor(site), Visitor(site)
        assert [first.get("/visits").text for _ in range(6)] == [f"visit {number}" for number in range(1, 7)]
        assert second.get("/visits").text == "visit 1"

    @pytest.mark.parametrize("content", [b"12345-67890", LARGE], ids=["small", "5MB"])
    def test_an_upload_comes_whole(self, site, content):
        response = Visitor(site).upload("/upload", "file", "visitor.txt", content)
        assert (response.status, response.text) == (
            200,
            f"visitor.txt {len(content)} {content[:5].decode()} {content[-5:].decode()}",
        )

    def test_json_comes_and_goes_with_any_letter(self, site):
        body = json.dumps({"numbers": [1, 2, 39]}).encode()
        response = Visitor(site).ask("POST", "/sum", [("Content-Type", "application/json")], body)
        assert response.get("content-type").startswith("application/json")
        assert json.loads(response.body) == {"sum": 42, "name": "\xe9t\xe9 \u2603"}

    def test_a_streamed_body_comes_whole(self, site):
        assert Visitor(site).get("/parts").text == PARTS
