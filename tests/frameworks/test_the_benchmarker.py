"""The entries for the-benchmarker/web-frameworks (bench/the-benchmarker): each answers its three routes as that project's
contract wants, started by the command line of the engine.
"""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

DIRECTORY = Path(__file__).resolve().parents[2] / "bench" / "the-benchmarker"
ENTRIES = sorted(path.name for path in (DIRECTORY / "python").iterdir())
#: The routes, and what each answers.
ROUTES = [
    ("GET", "/", ""),
    ("GET", "/user/0", "0"),
    ("GET", "/user/alice", "alice"),
    ("POST", "/user", ""),
]


def engine():
    return yaml.safe_load((DIRECTORY / "engine.yaml").read_text())["language"]["engines"]["bolide"]


def command_line():
    """Returns the engine's command as that project's tasks make it: one line, in place of the shell.

    One worker and a free port of 127.0.0.1 stand in for those of a container.
    """
    line = " ".join(engine()["command"].replace("\\\n", " ").split())
    for words, instead in (("--host 0.0.0.0", "--host 127.0.0.1"), ("--port 3000", "--port 0"), ("$(nproc)", "1")):
        assert words in line
        line = line.replace(words, instead)
    return ["sh", "-c", f"exec {line}"]


@pytest.fixture(scope="module", params=ENTRIES)
def site(request, serve_module):
    programs = Path(sys.executable).parent
    environment = {**engine()["environment"], "PATH": f"{programs}:/usr/bin:/bin"}
    server = serve_module.prepare(command=command_line(), arguments=[], environment=environment)
    shutil.copy(DIRECTORY / "python" / request.param / "server.py", server.directory)
    return server.start()


def test_an_entry_answers_the_routes_of_the_contract(site):
    client = site.connect()
    for method, target, body in ROUTES:
        answer = client.request(method, target, [("Content-Type", "text/plain")] if method == "POST" else [])
        assert (answer.status, answer.text) == (200, body)
    assert client.request("GET", "/nowhere").status == 404


def test_an_entry_serves_without_a_log_line_a_request(site):
    assert site.get("/user/0").status == 200
    # The state that is logged at our request may contain a request in flight.
    assert "GET /user/0 =>" not in site.log_until_now()
