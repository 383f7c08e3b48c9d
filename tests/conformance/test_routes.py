"""Internal routing: rules of uWSGI's manual, each compared with uWSGI 2.0.31 under the same configuration.

If `ROUTING_UWSGI` names a `uwsgi` that was built with PCRE, the cases run against it too, so that the expectations are verified.
"""

import base64
import json
import os
import signal
import socket
import subprocess

import pytest
from support import uwsgi
from support.client import Client, Closed
from support.ports import reserve
from support.server import APPS
from support.waiting import TIMEOUT_SECONDS, assert_once_below, wait_until

RULES = r"""
route = ^/plain/(\w+)/(\w+)$ addvar:TAIL=$2-$1
route = ^/old/(.*)$ redirect:/new/$1
route = ^/moved/(.*)$ redirect-permanent:https://${HTTP_HOST}/new/$1?${QUERY_STRING}
route = ^/rewritten/(.*)$ rewrite:/target/$1?added=1
route = ^/kept$ rewrite:/target/kept
route = ^/escaped$ rewrite:/a%%20b
route = ^/gone$ return:410
route = ^/forbidden$ break:403 Not For You
route = ^/with-status$ break-with-status:404
route = ^/jump goto:landed
route-run = addvar:BEFORE_LABEL=1
route-label = landed
route-uri = ^/uri\?x=(\d+)$ addvar:FROM_URI=$1
route-qs = ^only=this$ addvar:FROM_QUERY=yes
route-host = ^second\.example$ addvar:FROM_HOST=yes
route-user-agent = (?i)badbot return:403
route-referer = ^https://(\w+)\.example/ addvar:FROM_REFERER=$1
route-remote-addr = ^127\. addvar:FROM_ADDRESS=yes
route-if = equal:${HTTP_X_FORWARDED_PROTO};http redirect-permanent:https://${HTTP_HOST}${REQUEST_URI}
route-if = startswith:${PATH_INFO};/starts/ addvar:STARTS=1
route-if = endswith:${PATH_INFO};.txt addvar:ENDS=1
route-if = contains:${PATH_INFO};middle addvar:CONTAINS=1
route-if = regexp:${HTTP_X_VALUE};^(\d+)-(\d+)$ addvar:GROUPS=$2/$1
route-if = empty:${QUERY_STRING} addvar:NO_QUERY=1
route-if-not = empty:${QUERY_STRING} addvar:HAS_QUERY=1
route-if = ishigher:${HTTP_X_NUMBER};10 addvar:HIGHER=1
route-if = islowerequal:${HTTP_X_NUMBER};10 addvar:LOWER_OR_EQUAL=1
route-if = ipv4in:${REMOTE_ADDR};127.0.0.0/8 addvar:LOCAL=1
route-if = exists:%d${PATH_INFO} addvar:EXISTS=1
route-if = isdir:%d addvar:IS_DIRECTORY=1
route-if = isfile:%d addvar:IS_FILE=1
route = ^/cookie addvar:COOKIE_ID=${cookie[id]}
route = ^/parameter addvar:PARAMETER=${qs[a]}
route = ^/coded addvar:CODED=${base64[HTTP_HOST]}
route = ^/coded addvar:HEX=${hex[REQUEST_METHOD]}
route = ^/dollar addvar:DOLLAR=a$$b
route = ^/method setmethod:PUT
route = ^/path setpathinfo:/other
route = ^/uri$ seturi:/other?y
route = ^/script setscriptname:/mounted
route = ^/address setremoteaddr:10.9.8.7
route = ^/user setuser:ann:ignored
route = ^/scheme setscheme:https
route = ^/header addheader:X-Added: ${PATH_INFO}
route = ^/no-type delheader:Content-Type
route = ^/staff basicauth:Staff "only",ann:secret
route = ^/both basicauth-next:Both,ann:secret
route = ^/both basicauth:Both,bob:other
route = ^/last last:
route = ^/last addvar:TOO_LATE=1
route-run = addvar:END=1
"""


class Uwsgi:
    """Real uWSGI, with the same rules."""

    def __init__(self, program, directory):
        self._held = reserve()
        self.port = self._held.getsockname()[1]
        ini = directory / "uwsgi.ini"
        lines = ["[uwsgi]", f"http-socket = 127.0.0.1:{self.port}", f"wsgi-file = {APPS}/echo.py", "buffer-size = 32768"]
        ini.write_text("\n".join(lines) + RULES)
        self.log = (directory / "log").open("w")
        self.process = subprocess.Popen([program, str(ini)], stdout=self.log, stderr=self.log, cwd=directory)
        wait_until(self.answers, "uWSGI serves")

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            assert self.process.poll() is None, "uWSGI has ended"
            return False
        return True

    def finish(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(TIMEOUT_SECONDS)
        self.log.close()
        self._held.close()


@pytest.fixture(scope="module", params=["bolide", *(["uwsgi"] if "ROUTING_UWSGI" in os.environ else [])])
def address(request, serve_module, tmp_path_factory):
    if request.param == "bolide":
        server = serve_module("wsgi-file = {apps}/echo.py\n" + RULES)
        yield server.address()
        return
    real = Uwsgi(os.environ["ROUTING_UWSGI"], tmp_path_factory.mktemp("uwsgi"))
    yield ("127.0.0.1", real.port)
    real.finish()


def ask(address, target="/", headers=(), method="GET", host="shop.example"):
    """Sends one request on a new connection; the response ends with the connection."""
    fields = [("Host", host), ("Connection", "close"), *headers]
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
    with Client(address) as client:
        client.send(head.encode("latin-1"))
        response = client.read_head()
        response.body = client.read_to_end()
    return response


#: Target, headers, and variables that the application must see; None means that the variable is missing.
VARIABLES = [
    ("/plain/one/two", {}, {"TAIL": "two-one"}),
    ("/plain/one", {}, {"TAIL": None, "END": "1", "BEFORE_LABEL": "1"}),
    ("/rewritten/x%20y", {}, {"PATH_INFO": "/target/x y", "QUERY_STRING": "added=1", "REQUEST_URI": "/rewritten/x%20y"}),
    ("/rewritten/x?own=2", {}, {"PATH_INFO": "/target/x", "QUERY_STRING": "added=1&own=2"}),
    ("/kept?own=2", {}, {"PATH_INFO": "/target/kept", "QUERY_STRING": "own=2"}),
    ("/escaped", {}, {"PATH_INFO": "/a b"}),
    ("/jump", {}, {"BEFORE_LABEL": None, "END": "1"}),
    ("/uri?x=15", {}, {"FROM_URI": "15", "HAS_QUERY": "1", "NO_QUERY": None}),
    ("/x?only=this", {}, {"FROM_QUERY": "yes"}),
    ("/x?not=only=this", {}, {"FROM_QUERY": None}),
    ("/", {"Referer": "https://news.example/item"}, {"FROM_REFERER": "news"}),
    ("/", {}, {"FROM_ADDRESS": "yes", "LOCAL": "1", "NO_QUERY": "1", "HAS_QUERY": None, "FROM_HOST": None}),
    ("/starts/middle/ends.txt", {}, {"STARTS": "1", "ENDS": "1", "CONTAINS": "1"}),
    ("/", {}, {"STARTS": None, "ENDS": None, "CONTAINS": None}),
    ("/", {"X-Value": "12-34"}, {"GROUPS": "34/12"}),
    ("/", {"X-Value": "12"}, {"GROUPS": None}),
    ("/", {"X-Number": "11"}, {"HIGHER": "1", "LOWER_OR_EQUAL": None}),
    ("/", {"X-Number": "10"}, {"HIGHER": None, "LOWER_OR_EQUAL": "1"}),
    ("/", {}, {"HIGHER": None, "LOWER_OR_EQUAL": "1"}),
    ("/uwsgi.ini", {}, {"EXISTS": "1", "IS_DIRECTORY": "1", "IS_FILE": None}),
    ("/nothing-here", {}, {"EXISTS": None}),
    ("/cookie", {"Cookie": "theme=dark; id=42"}, {"COOKIE_ID": "42"}),
    ("/cookie", {}, {"COOKIE_ID": ""}),
    ("/parameter?b=2&a=1", {}, {"PARAMETER": "1"}),
    ("/coded", {}, {"CODED": "c2hvcC5leGFtcGxl", "HEX": "474554"}),
    ("/dollar", {}, {"DOLLAR": "a$$b"}),
    ("/method", {}, {"REQUEST_METHOD": "PUT"}),
    ("/path", {}, {"PATH_INFO": "/other", "REQUEST_URI": "/path"}),
    ("/starts/../x", {}, {"PATH_INFO": "/x", "REQUEST_URI": "/starts/../x", "STARTS": None}),
    ("/uri", {}, {"REQUEST_URI": "/other?y", "PATH_INFO": "/uri"}),
    ("/script", {}, {"SCRIPT_NAME": "/mounted", "PATH_INFO": "/script"}),
    ("/address", {}, {"REMOTE_ADDR": "10.9.8.7"}),
    ("/user", {}, {"REMOTE_USER": "ann"}),
    ("/scheme", {}, {"wsgi.url_scheme": "https"}),
    ("/last", {}, {"TOO_LATE": None, "END": None}),
]


@pytest.mark.parametrize(("target", "headers", "expected"), VARIABLES, ids=lambda value: value if isinstance(value, str) else "")
def test_what_routes_change_reaches_the_application(address, target, headers, expected):
    response = ask(address, target, headers.items())
    assert response.status == 200, response
    environ = json.loads(response.body)["environ"]
    assert {name: environ.get(name) for name in expected} == expected


def test_a_host_is_matched(address):
    assert json.loads(ask(address, host="second.example").body)["environ"]["FROM_HOST"] == "yes"


#: Target, headers, status, Location, body.
ANSWERS = [
    ("/old/a/b", {}, 302, "/new/a/b", b"Moved"),
    ("/moved/a?x=1", {}, 301, "https://shop.example/new/a?x=1", b"Moved Permanently"),
    ("/gone", {}, 410, None, b"Gone"),
    ("/forbidden", {}, 403, None, b""),
    # Rules apply to the path that selects the application.
    ("/x/../forbidden", {}, 403, None, b""),
    ("/./forbidden", {}, 403, None, b""),
    ("/../a/.././forbidden?x", {}, 403, None, b""),
    ("/with-status", {}, 404, None, b"Not Found"),
    ("/x", {"User-Agent": "a BadBot/1.0"}, 403, None, b"Forbidden"),
    ("/x?y=1", {"X-Forwarded-Proto": "http"}, 301, "https://shop.example/x?y=1", b"Moved Permanently"),
    ("/staff", {}, 401, None, b"Unauthorized"),
]


@pytest.mark.parametrize(
    ("target", "headers", "status", "location", "body"), ANSWERS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_routes_answer_without_the_application(address, target, headers, status, location, body):
    response = ask(address, target, headers.items())
    assert (response.status, response.get("location"), response.body) == (status, location, body)


def test_break_has_its_own_reason(address):
    assert ask(address, "/forbidden").reason == "Not For You"


def authorization(text):
    return [("Authorization", "Basic " + base64.b64encode(text.encode()).decode())]


def test_basicauth_accepts_clients_with_the_password(address):
    environ = json.loads(ask(address, "/staff", authorization("ann:secret")).body)["environ"]
    assert environ["REMOTE_USER"] == "ann"
    for wrong in ("ann:Secret", "ann:", "bob:secret", ":", "ann"):
        response = ask(address, "/staff", authorization(wrong))
        assert response.status == 401, wrong
        assert response.get("www-authenticate").startswith("Basic realm="), wrong


def test_basicauth_next_leaves_others_their_turn(address):
    for user in ("ann:secret", "bob:other"):
        assert json.loads(ask(address, "/both", authorization(user)).body)["environ"]["REMOTE_USER"] == user[:3]
    assert ask(address, "/both", authorization("eve:x")).status == 401
    assert ask(address, "/both").status == 401


def test_fields_are_added_and_removed(address):
    assert ask(address, "/header").get("x-added") == "/header"
    assert ask(address, "/no-type").get("content-type") is None
    assert ask(address, "/").get("content-type") == "application/json"


# Differences from uWSGI, and extensions.


def serve_echo(serve, rules, **options):
    return serve("wsgi-file = {apps}/echo.py\n" + rules, **options)


def test_a_connection_goes_on_after_a_routes_answer(serve):
    client = serve_echo(serve, "route = ^/gone$ return:410\nroute = ^/away$ redirect:/x").connect()
    for target, status in (("/gone", 410), ("/", 200), ("/away", 302), ("/gone", 410)):
        assert client.request("GET", target).status == status
    head = client.request("HEAD", "/gone")
    assert (head.status, head.get("content-length")) == (410, "4")
    assert client.request("POST", "/gone", body=b"x" * 100_000).status == 410


def test_headers_are_matched_when_they_are_the_same_again(serve):
    """A kept-alive connection's repeated header block is not parsed again; routes must see it nevertheless."""
    client = serve_echo(serve, "route-host = ^localhost$ addvar:SEEN=${HTTP_X_A}\nroute = ^/set addvar:SET=1").connect()
    for target, expected in (("/", None), ("/set", "1"), ("/", None)):
        environ = json.loads(client.request("GET", target, [("X-A", "b, c")]).body)["environ"]
        assert (environ["SEEN"], environ.get("SET")) == ("b, c", expected)


def test_a_client_can_not_write_templates_or_headers(serve):
    rules = "route = ^/go/([^?]*) redirect:/to/$1\nroute = ^/add/([^?]*) addheader:X-Path: $1\nroute = ^/var/(.*)$ addvar:V=$1"
    client = serve_echo(serve, rules).connect()
    secret = [("Cookie", "secret")]
    assert client.request("GET", "/go/${HTTP_COOKIE}", secret).get("location") == "/to/$%7BHTTP_COOKIE%7D"
    assert client.request("GET", "/go/a%0d%0aSet-Cookie:%20x", secret).get("location") == "/to/a%0D%0ASet-Cookie:%20x"
    response = client.request("GET", "/add/a%0d%0aSet-Cookie:%20x")
    assert (response.status, response.get("x-path"), response.get("set-cookie")) == (200, None, None)
    assert json.loads(client.request("GET", "/var/${HTTP_COOKIE}", secret).body)["environ"]["V"] == "${HTTP_COOKIE}"


def test_break_without_a_status_ends_the_connection(serve):
    client = serve_echo(serve, "route = ^/drop break:").connect()
    with pytest.raises(Closed) as closed:
        client.request("GET", "/drop")
    assert closed.value.data == b""


def test_donotlog_and_log(serve):
    server = serve_echo(serve, "route = ^/quiet donotlog:\nroute = ^/told log:seen ${REMOTE_ADDR} at ${PATH_INFO}")
    client = server.connect()
    for target in ("/quiet", "/told/a%0ab", "/quiet", "/loud"):
        assert client.request("GET", target).status == 200
    server.wait_for_log(r"GET /loud => ")
    assert "/quiet" not in server.log
    server.wait_for_text("\nseen 127.0.0.1 at /told/a?b\n")


def test_the_log_has_what_routes_say(serve):
    server = serve_echo(serve, "route-run = setremoteaddr:10.1.1.1\nroute-run = basicauth:R,ann:secret")
    server.connect().request("GET", "/x", authorization("ann:secret"))
    server.wait_for_log(r"\] 10\.1\.1\.1 \(ann\) \{.*GET /x => ")


#: A bcrypt hash that deliberately takes about two seconds, and the minimum progress of another thread in the meantime.
SLOW_HASH = "$2b$15$" + "abcdefghijklmnopqrstuu" + "A" * 31
MIN_TICKS = 100


def test_a_hash_keeps_no_thread_of_the_application_waiting(serve):
    server = serve.prepare("wsgi-file = {apps}/ticking.py\nroute = ^/staff basicauth:R,{directory}/htpasswd")
    (server.directory / "htpasswd").write_text(f"ann:{SLOW_HASH}\n")
    client = server.start().connect()
    client.request("GET", "/begin")

    def ticks_meanwhile():
        before = int(client.request("GET", "/").body)
        assert client.request("GET", "/staff", authorization("ann:wrong")).status == 401
        return int(client.request("GET", "/").body) - before

    # On a busy machine the thread may have run rarely for other reasons.
    assert_once_below(lambda: -ticks_meanwhile(), 1 - MIN_TICKS, tries=5)


def test_a_password_file_is_read_and_followed(serve):
    server = serve("wsgi-file = {apps}/echo.py\nroute-run = basicauth:R,{directory}/htpasswd")
    file = server.directory / "htpasswd"
    client = server.connect()
    assert client.request("GET", "/", authorization("ann:secret")).status == 500
    server.wait_for_log(r"uwsgi\.ini:\d+: the password file .*htpasswd can't be read")
    file.write_text(
        "# staff\nann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\ncid:abNANd1rDfiNc\nodd:?\n"
    )
    for user in ("ann", "bob", "cid"):
        assert client.request("GET", "/", authorization(f"{user}:secret")).status == 200, user
        assert client.request("GET", "/", authorization(f"{user}:other")).status == 401, user
    assert client.request("GET", "/", authorization("odd:secret")).status == 500
    server.wait_for_log(r"has a hash for `odd` of an unknown kind")
    file.write_text("bob:abNANd1rDfiNc\n")
    assert client.request("GET", "/", authorization("ann:secret")).status == 401
    assert client.request("GET", "/", authorization("bob:secret")).status == 200


def test_routes_hold_for_the_uwsgi_protocol(serve):
    rules = r"""
        route = ^/gone$ return:410
        route = ^/re/(.*) rewrite:/new/$1?q=1
        route-if = equal:${HTTP_X};y setmethod:PUT
        route-run = fixpathinfo:
        route-if-not = empty:${REMOTE_USER} addheader:X-User: ${REMOTE_USER}
    """
    server = serve_echo(serve, rules, listen=("socket = 127.0.0.1:0",))
    address = server.address("uwsgi")
    assert uwsgi.ask(address, "GET", "/gone").status == 410
    environ = json.loads(uwsgi.ask(address, "GET", "/re/a?b=c").body)["environ"]
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == ("/new/a", "q=1&b=c")
    assert json.loads(uwsgi.ask(address, extra=[("HTTP_X", "y")]).body)["environ"]["REQUEST_METHOD"] == "PUT"
    server.wait_for_log(r"\] PUT / => ")
    script = [("SCRIPT_NAME", "/app"), ("PATH_INFO", "/app/x"), ("REMOTE_USER", "ann")]
    answer = uwsgi.ask(address, extra=script)
    assert json.loads(answer.body)["environ"]["PATH_INFO"] == "/x"
    assert ("X-User", "ann") in answer.headers or answer.get("x-user") == "ann"


def test_harakiri_of_a_route_limits_its_requests_only(serve):
    server = serve.prepare("wsgi-file = {directory}/slow.py\nroute = ^/short harakiri:1\nharakiri = 300")
    (server.directory / "slow.py").write_text(
        "import time\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    if environ['PATH_INFO'] == '/short': time.sleep(60)\n"
        "    return [b'fine']\n"
    )
    server.start().expects_alarms = True
    client = server.connect()
    assert client.request("GET", "/long").body == b"fine"
    with pytest.raises(Closed):
        client.request("GET", "/short")
    server.wait_for_log(r"harakiri: worker 1 .* serves GET /short.*the limit is 1 s")


def test_errors_in_rules_are_reported_at_the_start(serve):
    server = serve.prepare(
        "wsgi-file = {apps}/echo.py\nroute = ^/.*(?!a) log:x\nroute-run = memcached:key=x\n"
        "route-run = goto:nowhere\nroute-run = setprocname:a b"
    ).launch()
    assert server.wait_for_exit() != 0
    for said in (
        r"uwsgi\.ini:4: error: .*negative lookahead.*route-if-not",
        r"uwsgi\.ini:5: error: the action `memcached` is known, but not supported yet",
        r"uwsgi\.ini:6: error: there is no label `nowhere`",
        r"uwsgi\.ini:7: warning: the action `setprocname` is known, but not supported yet: it has no effect",
    ):
        server.wait_for_log(said)


SCOPE_APP = """
import json

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        raise NotImplementedError
    told = {name: scope[name] for name in ("method", "path", "root_path", "scheme", "client")}
    told["query"] = scope["query_string"].decode()
    told["headers"] = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    body = json.dumps(told).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""


def test_routes_hold_for_asgi(serve):
    server = serve.prepare(
        r"""
        wsgi-file = {directory}/scope.py
        route = ^/re/(.*) rewrite:/new/$1?q=1
        route = ^/set setmethod:PUT
        route = ^/set setremoteaddr:10.1.1.1
        route = ^/set setscriptname:/app
        route = ^/set setscheme:https
        route = ^/set addvar:HTTP_X_ROUTED=yes
        route = ^/gone return:410
        route = ^/drop break:
        route = ^/quiet donotlog:
        response-route-run = addheader:X-Status: ${uwsgi[status]}
        """
    )
    (server.directory / "scope.py").write_text(SCOPE_APP)
    client = server.start().connect()
    told = json.loads(client.request("GET", "/re/a?b=c").body)
    assert (told["method"], told["path"], told["query"], told["root_path"]) == ("GET", "/new/a", "q=1&b=c", "")
    response = client.request("GET", "/set")
    told = json.loads(response.body)
    assert (told["method"], told["path"], told["root_path"], told["scheme"]) == ("PUT", "/app/set", "/app", "https")
    assert told["client"][0] == "10.1.1.1"
    assert ["x-routed", "yes"] in told["headers"]
    assert response.get("x-status") == "200"
    # The connection's cached header block contains none of it.
    told = json.loads(client.request("GET", "/plain").body)
    assert (told["method"], told["scheme"], told["client"][0]) == ("GET", "http", "127.0.0.1")
    assert ["x-routed", "yes"] not in told["headers"]
    assert client.request("POST", "/gone", body=b"x" * 300_000).status == 410
    assert client.request("GET", "/x/../gone").status == 410
    assert client.request("GET", "/quiet").status == 200
    client.request("GET", "/loud")
    server.wait_for_log(r"GET /loud => ")
    assert "/quiet" not in server.log
    with pytest.raises(Closed) as closed:
        client.request("GET", "/drop")
    assert closed.value.data == b""


def test_harakiri_of_a_route_cancels_an_asynchronous_request(serve):
    server = serve.prepare("wsgi-file = {directory}/slow.py\nroute = ^/short harakiri:1\nharakiri = 300")
    (server.directory / "slow.py").write_text(
        "import asyncio\n"
        "async def application(scope, receive, send):\n"
        "    if scope['type'] != 'http': raise NotImplementedError\n"
        "    try:\n"
        "        if scope['path'] == '/short': await asyncio.sleep(60)\n"
        "    except asyncio.CancelledError:\n"
        "        print('cancelled', flush=True)\n"
        "        raise\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'fine'})\n"
    )
    client = server.start().connect()
    assert client.request("GET", "/short").status == 504
    server.wait_for_log("^cancelled$")
    # The worker survives.
    assert server.connect().request("GET", "/long").body == b"fine"


# Answers.


def test_response_routes_change_fields_and_status(serve):
    rules = r"""
        collect-header = Content-Type TYPE
        pull-header = X-Secret SECRET
        response-route-status = 200 addheader:X-Status: ${uwsgi[status]}
        response-route-if = equal:${TYPE};application/json addheader:X-Json: yes
        response-route-if-not = empty:${SECRET} addheader:X-Had-Secret: ${SECRET}
        response-route = ^/hide delheader:content-type
        response-route-uri = \?gone clearheaders:410 Not any more
        response-route-qs = ^a=(.*)$ addheader:X-A: $1
        response-route-host = ^nobody$ addheader:X-Never: 1
        response-route = ^/jump goto:end
        response-route-run = addheader:X-Passed: ${REQUEST_METHOD} ${SET}
        response-route-label = end
        response-route = ^/quiet donotlog:
        route = ^/set addvar:SET=by a route
        route = ^/own return:200
    """
    server = serve_echo(serve, rules)
    client = server.connect()
    response = client.request("GET", "/?a=b")
    found = [response.get(name) for name in ("x-status", "x-json", "x-had-secret", "x-a", "x-never", "x-passed")]
    assert found == ["200", "yes", None, "b", None, "GET"]
    assert client.request("GET", "/set").get("x-passed") == "GET by a route"
    assert client.request("GET", "/hide").get("content-type") is None
    assert client.request("GET", "/jump").get("x-passed") is None
    gone = client.request("GET", "/?gone")
    assert (gone.status, gone.reason, gone.get("content-type")) == (410, "Not any more", None)
    assert json.loads(gone.body)["environ"]["QUERY_STRING"] == "gone"
    assert client.request("GET", "/own").get("x-status") == "200"
    assert client.request("GET", "/quiet").status == 200
    client.request("GET", "/loud")
    server.wait_for_log(r"GET /loud => ")
    assert "/quiet" not in server.log


def test_rules_on_user_and_client_apply_before_the_call_and_at_the_answer(serve):
    rules = r"""
        wsgi-file = {apps}/echo.py
        route-remote-user = ^guest$ return:403
        response-route-remote-user = ^(ann)$ addheader:X-User: $1
        response-route-remote-addr = ^192\.0\.2\. addheader:X-Net: documentation
        response-route-user-agent = (?i)^curl/(\d) addheader:X-Curl: $1
        response-route-referer = ^https://(\w+)\.example/ addheader:X-From: $1
    """
    server = serve(rules, listen=("socket = 127.0.0.1:0",))
    added = ("x-user", "x-net", "x-curl", "x-from")

    def ask_as(user, agent, referer):
        extra = [("REMOTE_USER", user), ("HTTP_USER_AGENT", agent), ("HTTP_REFERER", referer)]
        answer = uwsgi.ask(server.address("uwsgi"), extra=extra)
        return answer.status, [answer.all(name) for name in added]

    assert ask_as("ann", "Curl/8", "https://shop.example/x") == (200, [["ann"], ["documentation"], ["8"], ["shop"]])
    assert ask_as("bob", "wget", "https://example/x") == (200, [[], ["documentation"], [], []])
    assert ask_as("guest", "wget", "")[0] == 403


@pytest.mark.parametrize(
    ("action", "status", "reason", "body"),
    [
        ("return:200 OK", 200, "OK", "OK"),
        ("return:410 Left Town", 410, "Left Town", "Gone"),
        ("break-with-status:404 Not here", 404, "Not here", "Not Found"),
    ],
)
def test_words_behind_the_status_of_return_are_its_reason(action, status, reason, body, serve):
    server = serve(f"wsgi-file = {{apps}}/echo.py\nroute = ^/live$ {action}")
    answer = server.get("/live")
    assert (answer.status, answer.reason, answer.text) == (status, reason, body)
    assert f"warning: `{action}` answers `{status} {reason}` with the body `{body}`" in server.log
