"""Request lines: the same format and requests, and the same lines of real uWSGI and of Bolide."""

import re
import socket
import subprocess

import pytest
from support.client import TIMEOUT_SECONDS, Client
from support.server import Server

APPLICATION = """\
def application(environ, start_response):
    environ['wsgi.input'].read()
    status = environ['PATH_INFO'].strip('/').split('/')[-1] or '200'
    body = b'' if status == '204' else b'x' * 37
    start_response(status + ' Said', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])
    return [body]
"""
LISTEN = ("http-socket = {directory}/http.sock",)
#: Formats whose lines are equal, byte for byte.
EQUAL = (
    "%(method) %(uri) %(proto) %(status)",
    "[%(host)] [%(user)] [%(uagent)] [%(referer)]",
    "%(rsize) cl=%(cl) %(var.PATH_INFO)?%(var.QUERY_STRING) %(var.HTTP_X_ONE) %(var.NOTHING) %(var.CONTENT_TYPE)",
    "%(nothing) 5% of %(status) (%(wid)) %(core) %(modifier1) %(modifier2) %(werr) %(rerr) %(ioerr)",
    "plain text",
)
#: Formats with values that differ between runs or processes: only their shapes are equal.
SHAPES = {
    "%(micros) %(msecs) %(secs)": r"\d+ \d+ \d+\.\d{6}",
    "%(time) %(tmsecs) %(tmicros) %(epoch)": r"\d{10} \d{13} \d{16} \d{10}",
    "%(ctime)|%(ltime)|%(ftime)": r"(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})(\|\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}){2}",
    "%(pid) %(size) %(hsize) %(headers) %(vars) %(pktsize)": r"(\d+ ?){6}",
    "%(vsz) %(rss) %(vszM) %(rssM)": r"(\d+ ?){4}",
    # On a busy machine uWSGI sometimes has some more for the same request.
    "%(switches)": r"[1-9]",
}
#: The requests: path, status, body.
ASKED = (("/", b""), ("/a/404?q=%20", b""), ("/204", b""), ("/503", b"a body"), ("//x//200?", b""))


def lines_of(server, is_ready):
    """Returns the lines of the requests, each with a mark that identifies it."""
    (server.directory / "app.py").write_text(APPLICATION)
    server.launch()
    server.wait_for(lambda: is_ready() or server.process.poll() is not None, "it is ready")
    for path, body in ASKED:
        with Client(str(server.directory / "http.sock")) as client:
            method = "POST" if body else "GET"
            length = f"Content-Length: {len(body)}\r\nContent-Type: text/x\r\n" if body else ""
            fields = f"Host: www.example.com\r\nUser-Agent: one\r\nX-One: a\r\n{length}Connection: close\r\n\r\n"
            client.send(f"{method} {path} HTTP/1.1\r\n{fields}".encode() + body)
            client.read_to_end()
    server.wait_for(lambda: server.log.count("<line>") >= len(ASKED), "all lines are there")
    return re.findall(r"<line>(.*)</line>", server.log)


def both(serve, uwsgi, directory, options):
    real = Server(directory / "real", f"wsgi-file = app.py\nmaster = true\n{options}", listen=LISTEN, command=[uwsgi])
    try:
        expected = lines_of(real, lambda: "spawned uWSGI worker 1 " in real.log)
    finally:
        real.finish()
    server = serve.prepare(f"wsgi-file = app.py\nmaster = true\n{options}", listen=LISTEN)
    return expected, lines_of(server, lambda: "bolide: ready" in server.log)


def test_a_format_gives_the_lines_of_uwsgi(serve, uwsgi, tmp_path):
    expected, made = both(serve, uwsgi, tmp_path, f"log-format = <line>{'|'.join(EQUAL)}</line>")
    assert len(expected) == len(ASKED)
    assert made == expected


def test_variables_that_routes_set_for_the_log_are_those_of_uwsgi(serve, uwsgi, tmp_path):
    routes = (
        'route = ^/(.*) logvar:path=1$1 ${REQUEST_METHOD} "q\n'
        "route = ^/204 logvar:again=one\nroute = ^/2 logvar:again=two=2\nroute-run = logvar:none=\n"
        "route = ^/503 logvar:stopped=yes\nroute = ^/503 return:418\nroute-run = addvar:added=x\n"
        "response-route-run = logvar:status=${uwsgi[status]}\nresponse-route-status = 404 logvar:path=lost\n"
    )
    expected, made = both(
        serve,
        uwsgi,
        tmp_path,
        f"{routes}log-format = <line>[%(uri)|%(path)|%(again)|%(none)|%(stopped)|%(added)|%(status)]</line>",
    )
    assert len(expected) == len(ASKED)
    assert made == expected


#: RFC 3164, section 4: priority, time, and the tag.
SYSLOG = rb"<(\d{1,3})>(\w{3} [ \d]\d \d\d:\d\d:\d\d) ([\w.-]+ )?(\w{1,32}): (.*)"
#: A private /dev in which the syslog socket is the test's own, for a program and its children only.
OWN_DEVICES = (
    'mkdir "$0/dev" && mount --rbind /dev "$0/dev" && mount -t tmpfs none /dev && ln -s "$0"/dev/* /dev/ '
    '&& ln -s "$0/log.sock" /dev/log && exec "$@"'
)


def said_to_syslog(listener, command, directory, options):
    """Returns the datagram about one request, without its time."""
    options = f"wsgi-file = app.py\nmaster = true\n{options}log-format = <line>%(method) %(uri)</line>"
    server = Server(directory, options, listen=LISTEN, command=command)
    try:
        (server.directory / "app.py").write_text(APPLICATION)
        server.launch()
        path = str(server.directory / "http.sock")
        server.wait_for(lambda: answers(path) or server.process.poll() is not None, "it serves")
        while True:
            datagram = listener.recv(65536)
            found = re.fullmatch(SYSLOG, datagram.removesuffix(b"\n"))
            assert found, datagram
            if found[5].startswith(b"<line>"):
                return found[1], found[3], found[4], found[5]
    finally:
        server.finish()


def answers(path):
    try:
        with Client(path) as client:
            client.send(b"GET /one HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return client.read_to_end().startswith(b"HTTP/1.1 ")
    except OSError:
        return False


@pytest.mark.parametrize("text", ["", ",shop", ",box shop"])
def test_lines_for_a_remote_syslog_are_those_of_uwsgi(uwsgi, bolide, tmp_path, text):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(TIMEOUT_SECONDS)
        options = f"logger = rsyslog:127.0.0.1:{listener.getsockname()[1]}{text}\n"
        said = [
            said_to_syslog(listener, [command], tmp_path / f"{number}", options) for number, command in enumerate((uwsgi, bolide))
        ]
    assert said[0] == said[1]
    assert said[1][3] == b"<line>GET /one</line>"


@pytest.mark.parametrize("line", ["logger = syslog", "logger = syslog:shop", "logger = syslog:shop,local6", "log-syslog = shop"])
def test_lines_for_the_syslog_of_the_machine_are_those_of_uwsgi(uwsgi, bolide, tmp_path, line):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may have devices of its own")
    said = []
    for name, command in (("uwsgi", uwsgi), ("bolide", bolide)):
        directory = tmp_path / name
        directory.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(directory / "log.sock"))
            listener.settimeout(TIMEOUT_SECONDS)
            wrapped = ["unshare", "--mount", "sh", "-c", OWN_DEVICES, str(directory), command]
            said.append(said_to_syslog(listener, wrapped, directory, f"{line}\n"))
    assert said[0] == said[1]


def test_values_of_the_moment_have_the_form_that_uwsgi_gives_them(serve, uwsgi, tmp_path):
    expected, made = both(serve, uwsgi, tmp_path, f"log-format = <line>{'@'.join(SHAPES)}</line>")
    for line in (*expected, *made):
        values = line.split("@")
        assert len(values) == len(SHAPES), line
        for value, shape in zip(values, SHAPES.values(), strict=True):
            assert re.fullmatch(shape, value), (value, shape)


def test_the_form_of_a_time_is_that_of_log_date(serve, uwsgi, tmp_path):
    options = "log-date = %%Y of %%m\nlogformat-strftime = true\nlog-format = <line>%(ftime)</line>"
    expected, made = both(serve, uwsgi, tmp_path, options)
    assert made == expected
    assert re.fullmatch(r"\d{4} of \d\d", made[0])


@pytest.mark.parametrize("condition", ["log-4xx = true", "log-5xx = true", "log-zero = true", "log-big = 37"])
def test_requests_that_are_named_have_a_line_where_others_have_none(condition, serve, uwsgi, tmp_path):
    marker = "log-format = <line>%(uri)</line>\ndisable-logging = true\n"
    wanted = {"log-4xx = true": ["/a/404?q=%20"], "log-5xx = true": ["/503"], "log-zero = true": ["/204"]}
    wanted = wanted.get(condition, ["/", "/a/404?q=%20", "/503", "//x//200?"])
    for kind, command in (("real", [uwsgi]), ("own", None)):
        text = f"wsgi-file = app.py\nmaster = true\n{marker}{condition}"
        server = Server(tmp_path / kind, text, listen=LISTEN, command=command) if command else serve.prepare(text, listen=LISTEN)
        (server.directory / "app.py").write_text(APPLICATION)
        server.launch()
        server.wait_for(lambda s=server: "spawned uWSGI worker 1 " in s.log or "bolide: ready" in s.log, "it is ready")
        for path, body in ASKED:
            with Client(str(server.directory / "http.sock")) as client:
                length = f"Content-Length: {len(body)}\r\n" if body else ""
                client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n{length}Connection: close\r\n\r\n".encode() + body)
                client.read_to_end()
        server.wait_for(lambda s=server: s.log.count("<line>") >= len(wanted), "the lines are there")
        server.finish()
        assert re.findall(r"<line>(.*)</line>", server.log) == wanted, kind


SAYING = """\
import os
def application(environ, start_response):
    os.write(2, environ['QUERY_STRING'].encode() + b'\\n')
    start_response('200 OK', [('Content-Length', '2')])
    return [b'ok']
"""
LOGGERS = """\
logger = a file:{directory}/alpha
logger = file:{directory}/rest
log-route = a ^alpha
log-drain = gam+a
req-logger = file:{directory}/requests
log-encoder = prefix one:
log-encoder = format:a ${msg}=${msg}
log-encoder = nl:a
log-req-encoder = json {"line":"${msg}"}
log-req-encoder = nl
log-format = <%(uri)>
"""


def test_lines_go_where_uwsgi_sends_them(serve, uwsgi, tmp_path):
    files = {}
    text = f"wsgi-file = app.py\nmaster = true\n{LOGGERS}"
    for kind, command in (("real", [uwsgi]), ("own", None)):
        server = Server(tmp_path / kind, text, listen=LISTEN, command=command) if command else serve.prepare(text, listen=LISTEN)
        (server.directory / "app.py").write_text(SAYING)
        server.launch()
        written = {name: server.directory / name for name in ("alpha", "rest", "requests")}

        def all_of(name, written=written):
            return written[name].read_text() if written[name].exists() else ""

        server.wait_for(lambda read=all_of: re.search("spawned uWSGI worker 1 |bolide: ready", read("rest")), "it is ready")
        for query in ("alpha", "beta", "gamma", "alphabet", "omega"):
            with Client(str(server.directory / "http.sock")) as client:
                client.send(f"GET /?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                client.read_to_end()
        server.wait_for(lambda read=all_of: "omega" in read("rest") and "omega" in read("requests"), "all lines are there")
        server.finish()
        said = [line for line in all_of("rest").splitlines() if re.search("alpha|beta|gamma|omega", line)]
        files[kind] = (all_of("alpha"), said, all_of("requests"))
    assert files["own"] == files["real"]
    assert files["own"][0] == "one:alpha=one:alpha\none:alphabet=one:alphabet\n"
