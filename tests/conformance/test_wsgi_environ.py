"""The environ of a WSGI application: the keys of PEP 3333, CGI and uWSGI; mounts; correct values about threads."""

import importlib.metadata
import json
import socket

import pytest
from support import uwsgi


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/echo.py",
        listen=("http-socket = 127.0.0.1:0", "http-socket = {directory}/http.sock", "socket = {directory}/uwsgi.sock"),
    )


#: Keys of every request, with any protocol, and the types of their values.
TYPES = {
    "wsgi.version": "tuple",
    "wsgi.url_scheme": "str",
    "wsgi.errors": "Errors",
    "wsgi.multithread": "bool",
    "wsgi.multiprocess": "bool",
    "wsgi.run_once": "bool",
    "wsgi.file_wrapper": "type",
    "wsgi.input_terminated": "bool",
    "uwsgi.version": "bytes",
    "uwsgi.node": "bytes",
    "uwsgi.core": "int",
    "REQUEST_METHOD": "str",
    "REQUEST_URI": "str",
    "RAW_URI": "str",
    "SCRIPT_NAME": "str",
    "PATH_INFO": "str",
    "QUERY_STRING": "str",
    "SERVER_NAME": "str",
    "SERVER_PORT": "str",
    "SERVER_PROTOCOL": "str",
    "REMOTE_ADDR": "str",
    "REMOTE_PORT": "str",
    "DOCUMENT_ROOT": "str",
    "SERVER_SOFTWARE": "str",
}


def told_over_http(server, address=None, **options):
    return json.loads(server.connect(address).request(target="/a%20b?c=d", **options).body)


def test_environ_has_every_key_with_its_type(server):
    for told in (
        told_over_http(server),
        told_over_http(server, str(server.directory / "http.sock")),
        json.loads(uwsgi.ask(str(server.directory / "uwsgi.sock")).body),
    ):
        assert {key: told["types"].get(key) for key in TYPES} == TYPES
        # PEP 3333: CGI variables are native strings, and the dictionary contains nothing else of a request.
        assert all(kind == "str" for key, kind in told["types"].items() if "." not in key)


def test_environ_has_the_values_of_an_http_request(server):
    client = server.connect()
    body = b"{}"
    headers = [("Content-Type", "application/json"), ("User-Agent", "tests"), ("X-Own-Header", "a, b")]
    seen = json.loads(client.request("PUT", "/a%20b/?c=d%20e", headers, body).body)["environ"]
    host, port = client.socket.getsockname()
    expected = {
        "REQUEST_METHOD": "PUT",
        "REQUEST_URI": "/a%20b/?c=d%20e",
        "RAW_URI": "/a%20b/?c=d%20e",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a b/",
        "QUERY_STRING": "c=d%20e",
        "SERVER_NAME": socket.gethostname(),
        "SERVER_PORT": str(server.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": host,
        "REMOTE_PORT": str(port),
        "DOCUMENT_ROOT": "",
        "SERVER_SOFTWARE": f"bolide/{importlib.metadata.version('bolide')}",
        "CONTENT_LENGTH": "2",
        "CONTENT_TYPE": "application/json",
        "HTTP_HOST": "localhost",
        "HTTP_USER_AGENT": "tests",
        "HTTP_X_OWN_HEADER": "a, b",
        "wsgi.url_scheme": "http",
    }
    assert seen == expected


@pytest.mark.parametrize(
    ("line", "uri"),
    [
        ("GET /a/b%2Fc?q=%3f", "/a/b%2Fc?q=%3f"),
        ("GET /dots/../x", "/dots/../x"),
        ("GET //double//slash", "//double//slash"),
        ("GET /?", "/?"),
        ("GET /", "/"),
        ("GET http://shop.example/a%2Fb?q", "/a%2Fb?q"),
        ("GET http://shop.example", "/"),
        ("OPTIONS *", "*"),
    ],
)
def test_raw_uri_is_the_target_exactly_as_the_client_sent_it(server, line, uri):
    with server.connect() as client:
        client.send(f"{line} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        seen = json.loads(client.read_response().body)["environ"]
    assert (seen["RAW_URI"], seen["REQUEST_URI"]) == (line.split(" ")[1], uri)


def test_bytes_beyond_ascii_are_unchanged_in_raw_uri(server):
    with server.connect() as client:
        client.send(b"GET /\xc3\xa9?\xff HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = client.read_response()
    # Such a target may be refused (RFC 9112 section 3.2); a server that accepts it must not change it.
    assert answer.status == 400 or json.loads(answer.body)["environ"]["RAW_URI"] == "/\xc3\xa9?\xff"


def test_raw_uri_is_what_a_reverse_proxy_sends_as_request_uri(server):
    address = str(server.directory / "uwsgi.sock")
    seen = json.loads(uwsgi.ask(address, target="/a%2Fb?c").body)["environ"]
    assert (seen["RAW_URI"], seen["REQUEST_URI"]) == ("/a%2Fb?c", "/a%2Fb?c")
    seen = json.loads(uwsgi.ask(address, target="/a", extra=[("RAW_URI", "/its%20own")]).body)["environ"]
    assert (seen["RAW_URI"], seen["REQUEST_URI"]) == ("/its%20own", "/a")


SAME_OBJECT = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    told = [environ[name] for name in ("RAW_URI", "REQUEST_URI", "PATH_INFO", "SCRIPT_NAME")]
    return [repr((environ["RAW_URI"] is environ["REQUEST_URI"], *told)).encode()]
"""


def test_raw_uri_is_the_object_of_request_uri_unless_they_differ(serve):
    more = "mount = /shop=told.py\nmanage-script-name = true\nroute = ^/shop/moved addvar:REQUEST_URI=/elsewhere"
    server = serve.prepare(f"wsgi-file = told.py\n{more}", listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"))
    (server.directory / "told.py").write_text(SAME_OBJECT)
    server.start()
    asks = {
        "http": lambda target: server.get(target).body,
        "uwsgi": lambda target: uwsgi.ask(server.address("uwsgi"), target=target, extra=[("SCRIPT_NAME", "")]).body,
    }
    for name, ask in asks.items():
        assert ask("/shop/x%20y?z").startswith(b"(True, '/shop/x%20y?z', '/shop/x%20y?z', "), name
        # A route changes REQUEST_URI; what the client sent stays what it was.
        assert ask("/shop/moved").startswith(b"(False, '/shop/moved', '/elsewhere', "), name
    assert asks["http"]("/shop/x%20y?z") == repr((True, "/shop/x%20y?z", "/shop/x%20y?z", "/x y", "/shop")).encode()


def test_a_client_of_a_unix_socket_has_no_address(server):
    seen = told_over_http(server, str(server.directory / "http.sock"))["environ"]
    assert (seen["REMOTE_ADDR"], seen["REMOTE_PORT"], seen["SERVER_PORT"]) == ("", "", "80")


def test_x_forwarded_proto_tells_the_scheme_and_only_for_its_own_request(server):
    client = server.connect()
    for proto in ("https", None, "https", "http", None):
        headers = [("X-Forwarded-Proto", proto)] if proto else []
        seen = json.loads(client.request(headers=headers).body)["environ"]
        assert seen["wsgi.url_scheme"] == (proto or "http")


@pytest.mark.parametrize("proto", ["javascript", "https, http", "https, gopher", "ftp", "https:", "h", "", "ws"])
def test_the_scheme_is_http_or_https_whatever_a_client_writes(server, proto):
    seen = json.loads(server.get(headers=[("X-Forwarded-Proto", proto)]).body)["environ"]
    assert (seen["wsgi.url_scheme"], seen["HTTP_X_FORWARDED_PROTO"]) == ("http", proto)


def test_the_scheme_is_written_small(server):
    seen = json.loads(server.get(headers=[("X-Forwarded-Proto", "HTTPS")]).body)["environ"]
    assert (seen["wsgi.url_scheme"], seen["HTTP_X_FORWARDED_PROTO"]) == ("https", "HTTPS")


@pytest.mark.parametrize(
    ("configuration", "multithread", "multiprocess"),
    [
        ("", False, False),
        ("threads = 1\nprocesses = 1", False, False),
        ("threads = 2", True, False),
        ("threads = auto", True, False),
        ("processes = 2", False, True),
        ("processes = 2\nthreads = 2\nlazy-apps = true", True, True),
    ],
)
def test_multithread_and_multiprocess_tell_the_truth(serve, configuration, multithread, multiprocess):
    server = serve("wsgi-file = {apps}/truth.py\n" + configuration)
    assert json.loads(server.get().body) == {
        "wsgi.multithread": multithread,
        "wsgi.multiprocess": multiprocess,
        "wsgi.run_once": False,
        "wsgi.version": [1, 0],
    }


def test_an_application_may_change_its_environ_for_itself_only(serve):
    server = serve("wsgi-file = {apps}/spoiling.py")
    client = server.connect()
    told = [client.request().body for _ in range(3)]
    assert told[0] == told[1] == told[2]


MOUNTS = """
wsgi-file = {apps}/mounted.py
pythonpath = {apps}
mount = /one=mounted:one
mount = /two={apps}/mounted.py:two
mount = /one/deep=mounted:deep
"""


@pytest.fixture(scope="module")
def mounts(serve_module):
    return serve_module(MOUNTS + "manage-script-name = true", listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"))


@pytest.mark.parametrize(
    ("target", "name", "script", "path"),
    [
        ("/", "root", "", "/"),
        ("/x", "root", "", "/x"),
        ("/one", "one", "/one", ""),
        ("/one/", "one", "/one", "/"),
        ("/one/x?y", "one", "/one", "/x"),
        ("/%6Fne/x", "one", "/one", "/x"),
        ("/onerous", "root", "", "/onerous"),
        ("/two/x", "two", "/two", "/x"),
        ("/one/deep", "deep", "/one/deep", ""),
        ("/one/deep/x", "deep", "/one/deep", "/x"),
        ("/one/deeper", "one", "/one", "/deeper"),
    ],
)
def test_a_mount_takes_its_path_into_script_name(mounts, target, name, script, path):
    assert json.loads(mounts.get(target).body) == [name, script, path, target]
    extra = [("SCRIPT_NAME", "")]
    answer = uwsgi.ask(mounts.address("uwsgi"), target=target.replace("%6F", "o"), extra=extra)
    assert json.loads(answer.body)[:3] == [name, script, path]


@pytest.mark.parametrize(
    ("target", "name", "script", "path"),
    [
        ("/one/../two/x", "two", "/two", "/x"),
        ("/x/../one/./deep/y", "deep", "/one/deep", "/y"),
        ("/one/deep/..", "one", "/one", "/"),
        ("/one/..", "root", "", "/"),
        ("/one/%2e%2e/two", "one", "/one", "/../two"),
    ],
)
def test_a_mount_is_chosen_without_dot_segments(mounts, target, name, script, path):
    assert json.loads(mounts.get(target).body) == [name, script, path, target]


def test_a_reverse_proxy_s_path_stays_as_it_is(mounts):
    """The reverse proxy decides how to resolve dots; its path is used unchanged over the uwsgi protocol."""
    answer = uwsgi.ask(mounts.address("uwsgi"), target="/x", extra=[("SCRIPT_NAME", ""), ("PATH_INFO", "/one/../two")])
    assert json.loads(answer.body)[:3] == ["one", "/one", "/../two"]


def test_the_reverse_proxy_may_choose_the_mount_by_script_name(serve):
    server = serve(MOUNTS, listen=("socket = 127.0.0.1:0",))
    for script, path, name in (
        ("/one", "/x", "one"),
        ("/two", "", "two"),
        ("/one/deep", "/", "deep"),
        ("", "/one", "root"),
    ):
        extra = [("SCRIPT_NAME", script), ("PATH_INFO", path)]
        assert json.loads(uwsgi.ask(server.address("uwsgi"), target="/any", extra=extra).body)[:3] == [
            name,
            script,
            path,
        ]


def test_with_no_default_app_a_path_without_a_mount_is_a_500_that_says_so(serve):
    server = serve("pythonpath = {apps}\nmount = /one=mounted:one\nmanage-script-name = true\nno-default-app = true")
    assert server.get("/one").status == 200
    assert server.get("/elsewhere").status == 500
    server.wait_for_log("no application is mounted at /elsewhere")
