"""CGI: a request reaches the right program with the right variables, and the program's answer reaches the client.

The programs are shell scripts. Bodies are compared byte by byte in both directions.
"""

import os
import random
import shutil
import socket
import threading

import pytest
from support import fastcgi, uwsgi
from support.http2 import Http2
from support.nginx import PARAMETERS, Nginx

#: Sizes of bodies in bytes: within one part, within several, and far beyond all buffers.
SIZES = (1, 200_000, 20_000_000)


def variables(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture
def environment(programs):
    """A program that prints its variables."""
    return programs.shell("env.sh", "env")


def test_a_shell_script_answers_with_its_variables(programs, environment):
    server = programs.start("env = COLOR=red\nenv = SECRET=x\nunenv = SECRET\ncgi-unset = HTTP_X_HIDDEN")
    answer = server.get("/env.sh/a%20b/c?x=1&y", headers=[("X-Shown", "1"), ("X-Hidden", "2")])
    assert (answer.status, answer.get("content-type")) == (200, "text/plain")
    seen = variables(answer.text)
    path = str(programs.directory)
    for name, value in {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "/env.sh",
        "SCRIPT_FILENAME": f"{path}/env.sh",
        "PATH_INFO": "/a b/c",
        "PATH_TRANSLATED": f"{path}/a b/c",
        "DOCUMENT_ROOT": path,
        "QUERY_STRING": "x=1&y",
        "REQUEST_URI": "/env.sh/a%20b/c?x=1&y",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_PORT": str(server.port),
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_X_SHOWN": "1",
        "COLOR": "red",
        "PWD": path,
    }.items():
        assert seen.get(name) == value, name
    assert seen["SERVER_SOFTWARE"].startswith("bolide/")
    assert not {"HTTP_X_HIDDEN", "SECRET", "CONTENT_LENGTH", "HTTPS"} & set(seen)


def test_a_program_gets_nothing_of_the_server(programs, environment):
    programs.shell("open.sh", "ls /proc/self/fd; cat /proc/self/status")
    server = programs.start(environment={"SERVER_SECRET": "x", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
    seen = variables(server.get("/env.sh", headers=[("Proxy", "http://attacker.example")]).text)
    assert "HTTP_PROXY" not in seen
    kept = ("HTTP_", "SERVER_", "REQUEST_", "SCRIPT_", "REMOTE_")
    other = {name for name in seen if not name.startswith(kept)}
    usual = {"GATEWAY_INTERFACE", "QUERY_STRING", "DOCUMENT_ROOT", "REDIRECT_STATUS", "PATH", "PWD", "SHLVL", "_", "OLDPWD"}
    assert "SERVER_SECRET" not in seen
    assert other <= usual, other
    text = server.get("/open.sh").text
    # `ls` itself opens the directory as 3.
    opened, _, rest = text.partition("Name:")
    assert opened.split() == ["0", "1", "2", "3"]
    assert rest
    signals = dict(line.split(":\t") for line in text.splitlines() if line.startswith("Sig"))
    assert (signals["SigBlk"], signals["SigIgn"]) == ("0" * 16, "0" * 16)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_body_comes_back_byte_for_byte(programs, size, is_chunked):
    programs.shell("cat.sh", 'printf "X-Length: $CONTENT_LENGTH\\n\\n"\nexec cat', head=None)
    server = programs.start()
    body = random.Random(size).randbytes(size)
    client = server.connect()
    head = b"POST /cat.sh HTTP/1.1\r\nHost: localhost\r\n"
    if is_chunked:
        pieces = [body[at : at + 50_000] for at in range(0, size, 50_000)]
        sent = head + b"Transfer-Encoding: chunked\r\n\r\n"
        sent += b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        sent = head + b"Content-Length: %d\r\n\r\n" % size + body
    # The program writes while it reads, so the client must do both at the same time.
    sender = threading.Thread(target=client.send, args=(sent,))
    sender.start()
    answer = client.read_response("POST")
    sender.join()
    assert (answer.status, answer.get("x-length"), answer.body == body) == (200, str(size), True)
    assert client.request("POST", "/cat.sh", body=b"again").body == b"again"


def test_a_client_that_waits_for_100_continue_gets_it(programs):
    programs.shell("cat.sh", "exec cat")
    client = programs.start().connect()
    client.send(b"POST /cat.sh HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert client.read_exactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"hello")
    assert client.read_response("POST").body == b"hello"


def test_statuses_redirects_and_fields_of_a_program_reach_the_client(programs):
    programs.shell("status.sh", "echo gone", head="Status: 410 Really Gone\\r\\nX-A: 1\\r")
    programs.shell("there.sh", "", head="Location: https://example.com/x")
    programs.shell("here.sh", "", head="Location: /local?x")
    programs.shell("moved.sh", "", head="Location: /y\\nStatus: 301 Moved Permanently")
    server = programs.start()
    answer = server.get("/status.sh")
    assert (answer.status, answer.reason, answer.get("x-a"), answer.text) == (410, "Really Gone", "1", "gone\n")
    for name, status, location in [
        ("there", 302, "https://example.com/x"),
        ("here", 302, "/local?x"),
        ("moved", 301, "/y"),
    ]:
        answer = server.get(f"/{name}.sh")
        assert (answer.status, answer.get("location")) == (status, location)


def test_head_gets_the_head_and_the_program_runs_to_its_end(programs, marks):
    programs.shell("long.sh", f"head -c 1000000 /dev/zero\ntouch {marks}/ended")
    server = programs.start()
    client = server.connect()
    answer = client.request("HEAD", "/long.sh")
    assert (answer.status, answer.body) == (200, b"")
    assert client.request("HEAD", "/long.sh").status == 200
    server.wait_for((marks / "ended").exists, "the program has written all of its output")


def test_a_mount_an_index_and_a_helper_choose_the_program(programs):
    programs.shell("sub/index.cgi", "echo index $SCRIPT_NAME")
    programs.write("page.txt.sh", 'printf "\\n"; echo helped $SCRIPT_NAME $PATH_INFO', mode=0o644)
    single = programs.shell("single", "echo single [$SCRIPT_NAME] [$PATH_INFO]")
    server = programs.start(
        f"cgi = /mounted={programs.directory}\ncgi = /one/={single}\ncgi-index = index.cgi\ncgi-helper = .txt.sh=sh"
    )
    for target, text in {
        "/sub/": "index /sub/index.cgi\n",
        "/mounted/sub/": "index /mounted/sub/index.cgi\n",
        "/page.txt.sh/rest": "helped /page.txt.sh /rest\n",
        "/one": "single [/one] []\n",
        "/one/two/three": "single [/one] [/two/three]\n",
    }.items():
        assert server.get(target).text == text, target
    answer = server.get("//sub?x=1")
    assert (answer.status, answer.get("location")) == (301, "/sub/?x=1")


def test_a_path_never_leaves_the_directory(programs, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret.sh"
    secret.write_text('#!/bin/sh\nprintf "\\n"; echo secret\n')
    secret.chmod(0o755)
    os.symlink(secret, programs.directory / "link.sh")
    os.symlink(outside, programs.directory / "linked")
    server = programs.start()
    for target in [
        "/../outside/secret.sh",
        "/%2e%2e/outside/secret.sh",
        "/..%2foutside%2fsecret.sh",
        "/x/../../outside/secret.sh",
        "/inside.sh%00.txt",
        "//../outside/secret.sh",
    ]:
        client = server.connect()
        client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = client.read_response()
        assert answer.status in (400, 404), target
        assert b"secret" not in answer.body, target
    for target in ["/link.sh", "/linked/secret.sh"]:
        assert server.get(target).status == 403, target
    server.wait_for_text("cgi-safe")
    server.stop()
    allowed = programs.start(f"cgi-safe = {outside}")
    assert [allowed.get(target).text for target in ("/link.sh", "/linked/secret.sh")] == ["secret\n", "secret\n"]


def test_a_file_that_is_no_program_is_refused_with_a_reason(programs):
    programs.write("text.sh", "#!/bin/sh\n", mode=0o644)
    programs.write("lost.sh", "#!/no/such/interpreter\n")
    programs.shell("other.py", "echo never")
    programs.write("plain.sh", 'printf "\\n"; echo plain\n')
    server = programs.start("cgi-allowed-ext = .sh")
    assert [server.get(f"/{name}").status for name in ("text.sh", "lost.sh", "other.py", "none.sh", "")] == [
        403,
        502,
        403,
        404,
        404,
    ]
    server.wait_for_text("text.sh may not be executed: it needs the mode of a program (chmod +x)")
    server.wait_for_text("cgi-allowed-ext does not allow")
    server.wait_for_text("can't be executed")
    # A script without its first line is one of the shell, as execvp(3) has it.
    assert server.get("/plain.sh").text == "plain\n"


def test_http2_carries_programs_at_the_same_time(programs):
    programs.shell("cat.sh", "exec cat")
    server = programs.start("http2 = h2c")
    with Http2(server.connect()) as connection:
        connection.read_settings()
        answers = [connection.begin("POST", "/cat.sh", ends=False) for _ in range(4)]
        for number, answer in enumerate(reversed(answers)):
            connection.send_body(answer, b"%d" % number * 100_000)
        connection.finish(*answers)
        bodies = [(answer.status, answer.body) for answer in reversed(answers)]
    assert bodies == [(200, b"%d" % number * 100_000) for number in range(4)]


def test_a_packet_with_the_number_of_cgi_is_served_and_others_are_not(programs, environment):
    server = programs.start(listen=["http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", "http-socket-modifier1 = 9"])
    address = server.address("uwsgi")
    for number, is_served in [(0, True), (9, True), (5, False)]:
        client = server.connect(address)
        client.send(uwsgi.packet(uwsgi.request_variables(target="/env.sh"), modifier1=number))
        answer = uwsgi.Answer(client.read_to_end())
        assert (answer.status == 200) == is_served, number
    hostile = [("HTTP_PROXY", "x"), ("LD_PRELOAD", "/x.so"), ("PATH", "/x"), ("UWSGI_X", "1"), ("GIT_PROJECT_ROOT", "/srv")]
    seen = variables(uwsgi.ask(address, target="/env.sh", extra=hostile).body.decode())
    assert not {"HTTP_PROXY", "LD_PRELOAD", "UWSGI_X"} & set(seen)
    assert seen["PATH"] != "/x"
    assert seen["GIT_PROJECT_ROOT"] == "/srv"


def test_fastcgi_without_a_path_uses_the_name_of_the_script(programs, environment):
    server = programs.start(listen=["http-socket = 127.0.0.1:0", "fastcgi-socket = 127.0.0.1:0"])
    pairs = [("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/env.sh/x"), ("SCRIPT_NAME", "/env.sh/x"), ("SCRIPT_FILENAME", "/etc/x")]
    client = server.connect(server.address("fastcgi"))
    client.send(fastcgi.opened(pairs) + fastcgi.stream(5, 1, b""))
    seen = variables(fastcgi.read_answer(client).body.decode())
    assert (seen["SCRIPT_NAME"], seen["PATH_INFO"]) == ("/env.sh", "/x")
    assert seen["SCRIPT_FILENAME"] == str(environment)


def test_nginx_in_front_sends_the_number_of_cgi(programs, environment, tmp_path):
    server = programs.start(listen=["http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"])
    host, port = server.address("uwsgi")
    parameters = tmp_path / "parameters"
    parameters.write_text(PARAMETERS)
    location = f"location / {{ include {parameters}; uwsgi_modifier1 9; uwsgi_pass {host}:{port}; }}"
    nginx = Nginx(tmp_path, f"server {{ listen 127.0.0.1:{{port}}; {location} }}")
    try:
        with nginx.connect() as client:
            seen = variables(client.request("GET", "/env.sh/x?y").text)
        assert (seen["SCRIPT_NAME"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("/env.sh", "/x", "y")
    finally:
        nginx.finish()


def test_a_user_of_a_route_is_the_remote_user(programs, environment):
    server = programs.start("route = ^/env basicauth:Site,alice:secret")
    assert server.get("/env.sh").status == 401
    seen = variables(server.get("/env.sh", headers=[("Authorization", "Basic YWxpY2U6c2VjcmV0")]).text)
    assert (seen["REMOTE_USER"], seen["AUTH_TYPE"]) == ("alice", "Basic")


def test_perl_runs_as_a_program_and_by_its_helper(programs):
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("perl is not installed")
    text = 'print "Content-Type: text/plain\\n\\n$ENV{REQUEST_METHOD} " . <STDIN>;\n'
    programs.write("own.pl", f"#!{perl}\n{text}")
    programs.write("helped.pl", text, mode=0o644)
    server = programs.start("cgi-helper = .pl=perl")
    for name in ("own", "helped"):
        assert server.get(f"/{name}.pl", method="POST", body=b"hi").text == "POST hi"


def test_static_files_and_metrics_work_beside_programs(programs, tmp_path):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "a.txt").write_text("static\n")
    programs.shell("hello.sh", "echo hello")
    server = programs.start(f"static-map = /static={tmp_path}/static\nmetrics-path = /metrics")
    assert (server.get("/static/a.txt").text, server.get("/hello.sh").text) == ("static\n", "hello\n")


def test_a_unix_socket_serves_programs(programs, environment):
    server = programs.start(listen=["http-socket = {directory}/app.sock", "http-socket = 127.0.0.1:0"])
    with server.connect(str(server.directory / "app.sock")) as client:
        assert client.socket.family == socket.AF_UNIX
        assert variables(client.request("GET", "/env.sh").text)["SCRIPT_NAME"] == "/env.sh"
