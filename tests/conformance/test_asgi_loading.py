"""`asgi`, `interface`, `factory` and `mount`: which applications are served as ASGI, which as WSGI, and both in one worker."""

import json

import pytest
from support import uwsgi
from support.server import APPS

#: Name in the module -> the interface it reports without any other option.
RECOGNIZED = {
    "async_function": "async function",
    "object_with_async_call": "object",
    "method": "object",
    "partial_of_object": "object",
    "wrapped": "wrapped",
    "Double": "ASGI 2",
    "factory()": "factory",
    "wsgi": "WSGI",
    "WsgiClass": "WSGI",
    "wsgi_object": "WSGI",
    "wsgi_partial": "WSGI",
}


def get(server, target="/a"):
    response = server.get(target)
    assert response.status == 200, response
    return json.loads(response.body)


def test_auto_tells_the_interface_from_the_callable(serve):
    mounts = [f"mount = /{number}=asgi_scope:{name}" for number, name in enumerate(RECOGNIZED)]
    server = serve("\n".join(["pythonpath = {apps}", "manage-script-name = true", *mounts]))
    found = {name: get(server, f"/{number}/a")["way"] for number, name in enumerate(RECOGNIZED)}
    assert found == RECOGNIZED


@pytest.mark.parametrize(("name", "way"), [("async_function", "async function"), ("wsgi", "WSGI")])
def test_module_and_wsgi_file_serve_both_interfaces(serve, name, way):
    server = serve(f"wsgi-file = {{apps}}/asgi_scope.py\ncallable = {name}")
    assert get(server) == {"way": way, "root_path": "", "path": "/a"}


def test_auto_recognises_a_partial_of_an_async_function(serve, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import functools, asgi_scope\napplication = functools.partial(asgi_scope.with_a_word, 'partial')\n"
    )
    server = serve(f"pythonpath = {APPS}\npythonpath = {tmp_path}\nmodule = shop")
    assert get(server)["way"] == "partial"


@pytest.mark.parametrize("name", ["plain_function", "awaitable"])
def test_interface_asgi_serves_what_auto_can_not_tell(serve, name):
    server = serve(f"wsgi-file = {{apps}}/asgi_scope.py\ncallable = {name}\ninterface = asgi")
    assert get(server)["way"] == name.replace("_", " ")


@pytest.mark.parametrize("name", ["async_function", "plain_function", "awaitable", "Double"])
def test_the_option_asgi_says_that_it_is_asgi(serve, name):
    server = serve(f"asgi = {{apps}}/asgi_scope.py:{name}")
    assert get(server)["path"] == "/a"


def test_asgi_on_the_command_line_names_a_module(serve):
    server = serve(arguments=["--http-socket", "127.0.0.1:0", "--pythonpath", "{apps}", "--asgi", "asgi_scope:async_function"])
    assert get(server)["way"] == "async function"


@pytest.mark.parametrize(("name", "way"), [("factory", "factory"), ("factory_of_object", "object")])
def test_a_factory_is_called_for_the_application(serve, name, way):
    assert get(serve(f"asgi = {{apps}}/asgi_scope.py:{name}\nfactory = true"))["way"] == way


def test_a_factory_of_a_wsgi_application_stays_wsgi(serve, tmp_path):
    (tmp_path / "shop.py").write_text("import asgi_scope\ndef make():\n    return asgi_scope.wsgi\n")
    server = serve(f"pythonpath = {APPS}\npythonpath = {tmp_path}\nmodule = shop:make\nfactory = true")
    assert get(server)["way"] == "WSGI"


def test_a_factory_that_returns_no_application_fails_the_start_and_says_so(serve, tmp_path):
    (tmp_path / "shop.py").write_text("def make():\n    return 42\n")
    server = serve.prepare(f"pythonpath = {tmp_path}\nasgi = shop:make\nfactory = true").launch()
    server.expects_alarms = True
    assert server.wait_for_exit() == 22
    server.wait_for_text("the factory 'make' returned a int, which can't be called")


def test_interface_wsgi_serves_a_callable_that_looks_like_asgi_by_wsgi(serve):
    server = serve("wsgi-file = {apps}/asgi_scope.py\ncallable = async_function\ninterface = wsgi")
    assert server.get("/").status == 500


def test_a_wsgi_application_under_asgi_is_a_500_with_a_hint(serve):
    server = serve("asgi = {apps}/asgi_scope.py:wsgi_object")
    assert server.get("/").status == 500
    server.wait_for_log("TypeError: ")


MOUNTS = """
pythonpath = {apps}
mount = /api=asgi_scope:application
mount = /api/inner=asgi_scope:async_function
mount = /old=asgi_scope:wsgi
asgi = asgi_scope:object_with_async_call
manage-script-name = true
"""


@pytest.fixture(scope="module")
def mounted(serve_module):
    return serve_module(MOUNTS, listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"))


@pytest.mark.parametrize(
    ("target", "root_path", "path", "way"),
    [
        ("/", "", "/", "object"),
        ("/apix", "", "/apix", "object"),
        ("/elsewhere/a", "", "/elsewhere/a", "object"),
        ("/api/inner/a%20b", "/api/inner", "/api/inner/a b", "async function"),
        ("/api/inner", "/api/inner", "/api/inner", "async function"),
        ("/old/a/b", "/old", "/a/b", "WSGI"),
        ("/old", "/old", "", "WSGI"),
    ],
)
def test_each_mount_has_its_root_path_and_the_path_has_it_at_its_start(mounted, target, root_path, path, way):
    assert get(mounted, target) == {"way": way, "root_path": root_path, "path": path}


def test_raw_path_of_a_mount_is_the_whole_path(mounted):
    scope = get(mounted, "/api/a%20b?c")
    assert (scope["root_path"], scope["path"]) == ("/api", "/api/a b")
    assert scope["raw_path"]["bytes"] == "/api/a%20b"


@pytest.mark.parametrize(
    ("target", "root_path", "path", "way"),
    [
        ("/api/inner/a", "/api/inner", "/api/inner/a", "async function"),
        ("/old/a", "/old", "/a", "WSGI"),
        ("/x", "", "/x", "object"),
    ],
)
def test_mounts_are_found_over_the_uwsgi_protocol_too(mounted, target, root_path, path, way):
    answer = uwsgi.ask(mounted.address("uwsgi"), target=target)
    assert json.loads(answer.body) == {"way": way, "root_path": root_path, "path": path}


def test_mounts_of_both_interfaces_answer_on_one_connection_in_order(mounted):
    with mounted.connect() as client:
        targets = ["/old/1", "/2", "/api/inner/3", "/old/4"] * 5
        client.send(b"".join(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for target in targets))
        for target in targets:
            told = json.loads(client.read_response().body)
            assert told["path"] == (target[len("/old") :] if target.startswith("/old") else target)


def test_where_nothing_is_mounted_the_answer_is_an_error_and_the_worker_serves_on(serve):
    server = serve(
        "pythonpath = {apps}\nmount = /api=asgi_scope:async_function\nmanage-script-name = true\nno-default-app = true"
    )
    assert server.get("/elsewhere").status >= 400
    assert get(server, "/api/a")["path"] == "/api/a"
