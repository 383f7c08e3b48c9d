"""gevent's own tests of its server (``gevent.tests.test__pywsgi``): those about bytes on the wire pass in greenlets of a worker.

Tests that look into the server's process are left out, and those of requests that are refused here (a bare LF, an obsolete fold).
"""

import json
import subprocess
import sys

from support.server import APPS

#: The classes; with names, only these of its tests.
CASES = {
    "TestChunkedPost": [
        "test_014_chunked_post",
        "test_229_correct_chunk_quoted_ext",
        "test_229_correct_chunk_token_ext",
        "test_229_incorrect_chunk_no_newline",
        "test_229_incorrect_chunk_non_hex",
        "test_229_incorrect_chunk_token_ext_too_long",
    ],
    "TestNoChunks": ["test_connection_close", "test_pipeline"],
    "TestNoChunks10": ["test_connection_close", "test_pipeline"],
    "TestExplicitContentLength": ["test_connection_close", "test_pipeline"],
    "TestYield": [],
    "TestGetArg": [],
    "TestChunkedApp": [],
    "TestBigChunks": [],
    "TestNegativeRead": [],
    "TestNegativeReadline": [],
    "TestUseWrite": [],
    "TestInternational": [],
    "TestInputReadline": [],
    "TestInputIter": [],
    "TestInputReadlines": [],
    "TestInputN": [],
    "TestFirstEmptyYield": [],
    "TestEmptyYield304": [],
    "BadRequestTests": [],
    "TestInvalidEnviron": [],
    "TestInvalidHeadersDropped": [],
    "Test414": [],
}

#: Runs the tests against ports of another process, and prints how many there were and which have failed.
RUNNER = """\
import json, os, sys, types, unittest
from gevent.tests import test__pywsgi as cases
ports, wanted = json.loads(sys.argv[1]), json.loads(sys.argv[2])
def init_server(self, application):
    nothing = lambda *arguments: None
    self.server = types.SimpleNamespace(server_port=ports[type(self).__name__], start=nothing, stop=nothing)
cases.TestCase.init_server = init_server
cases.TestCase.connect_addr = "127.0.0.1"
suite = unittest.TestSuite()
for name, tests in wanted.items():
    kind = getattr(cases, name)
    suite.addTests(map(kind, tests or unittest.defaultTestLoader.getTestCaseNames(kind)))
result = unittest.TextTestRunner(stream=sys.stderr).run(suite)
print(json.dumps([result.testsRun, {test.id(): text for test, text in result.failures + result.errors}]))
"""


def test_gevents_own_tests_of_its_server_pass(serve):
    sockets = "\n".join(["http-socket = 127.0.0.1:0"] * (len(CASES) - 1))
    application = f"wsgi-file = {APPS}/gevent_pywsgi.py\nenv = CASES={{directory}}/cases.json"
    server = serve.prepare(f"{application}\ngevent = 100\ngevent-monkey-patch = true\n{sockets}")
    server.start()
    places = server.places()
    assert len(places) == len(CASES)
    ports = {name: place[2] for name, place in zip(CASES, places)}
    (server.directory / "cases.json").write_text(json.dumps({str(port): name for name, port in ports.items()}))
    line = [sys.executable, "-c", RUNNER, json.dumps(ports), json.dumps(CASES)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    count, failed = json.loads(done.stdout.splitlines()[-1])
    assert count >= 30
    assert failed == {}
