"""Alarms: what raises them, what they do, and that neither the master nor a request waits for them."""

import http.server
import os
import signal
import socket
import socketserver
import threading

import pytest
from support.waiting import wait_until
from support_processes import is_alive

SHOP = """\
import os, sys, time, uwsgi
def application(environ, start_response):
    start_response("200 OK", [])
    what = environ["PATH_INFO"][1:]
    if what == "crash":
        os.kill(os.getpid(), 11)
    elif what == "print":
        print(environ["QUERY_STRING"], flush=True)
    elif what == "sleep":
        time.sleep(0.3)
    elif what == "count":
        uwsgi.metric_inc("orders", int(environ["QUERY_STRING"]))
    elif what == "alarm":
        name, _, text = environ["QUERY_STRING"].partition("=")
        uwsgi.alarm(name, text)
    return [b"hello"]
"""


@pytest.fixture
def shop(serve, tmp_path):
    """Starts the shop with alarms. `written` of the server has the lines that the command of the alarm `note` has written."""

    def start(*options, source="", **further):
        (tmp_path / "shop.py").write_text(SHOP + source)
        notes = tmp_path / "notes"
        common = [f"chdir = {tmp_path}", "module = shop", "master = true", f"alarm = note cmd:cat >> {notes}"]
        instance = serve("\n".join([*common, *options]), **further)
        instance.written = lambda: notes.read_text().splitlines() if notes.exists() else []
        return instance

    return start


def wait_for_note(instance, text):
    wait_until(lambda: any(text in line for line in instance.written()), lambda: f"{text}: {instance.written()} {instance.log}")


def test_a_command_reads_the_message_and_its_output_is_in_the_log(shop):
    instance = shop("alarm = shout cmd:read line; echo heard $line; echo again; exit 3")
    instance.expects_alarms = True
    instance.get("/alarm?shout=fire")
    # The log line of the request may come between the two.
    instance.wait_for_log(r"^\[alarm shout\] heard fire\n(\[pid: .*\n)?\[alarm shout\] again$")
    instance.wait_for_log(r"^bolide: alarm shout: its command exited with status 3$")
    assert instance.get("/")


def test_an_alarm_logs_its_message_with_its_text(shop):
    instance = shop("alarm = bare log:", "alarm = named log:look here:")
    instance.get("/alarm?bare=fire")
    instance.wait_for_log("^bolide: ALARM: fire$")
    instance.get("/alarm?named=fire")
    instance.wait_for_log("^bolide: ALARM: look here: fire$")


@pytest.mark.parametrize("option", ["log-alarm", "alarm-log"])
def test_lines_of_the_server_and_of_the_application_and_requests_raise_alarms(shop, option):
    instance = shop(f"{option} = note,second (wood|ready: |/search)", "alarm = second log:second")
    wait_for_note(instance, "bolide: ready: 1 worker")
    instance.get("/print?wood")
    wait_for_note(instance, "wood")
    instance.get("/search")
    wait_for_note(instance, "GET /search")
    instance.wait_for_log("^bolide: ALARM: second .*GET /search")
    # Commands run beside each other, so their order may differ.
    wait_until(lambda: "wood" in instance.written(), lambda: f"{instance.written()}")


def test_a_line_that_is_excluded_raises_none_of_the_later_alarms(shop):
    rules = ["alarm-log = note tree", "not-log-alarm = note harmless", "alarm-log = note wood"]
    instance = shop("disable-logging = true", *rules)
    for line in ("wood-1", "wood-harmless", "wood-harmless-tree", "wood-2"):
        instance.get(f"/print?{line}")
    # Commands run beside each other, so their order may differ.
    for line in ("wood-1", "wood-2", "wood-harmless-tree"):
        wait_for_note(instance, line)
    assert sorted(line for line in instance.written() if line.startswith("wood")) == ["wood-1", "wood-2", "wood-harmless-tree"]


def test_an_alarm_never_raises_itself(shop):
    instance = shop("disable-logging = true", "alarm = loop cmd:sed s/^/more-/", "alarm = echo log:", "alarm-log = loop,echo .")
    instance.get("/print?wood")
    instance.wait_for_log(r"^\[alarm loop\] more-wood$")
    instance.wait_for_log("^bolide: ALARM: wood$")
    instance.get("/print?tree")
    instance.wait_for_log(r"^\[alarm loop\] more-tree$")
    assert "more-more" not in instance.log
    assert "more-[" not in instance.log
    assert "ALARM: bolide: ALARM" not in instance.log


def test_a_message_is_not_repeated_within_the_time(shop):
    instance = shop("alarm-freq = 3600")
    for text in ("one", "one", "two", "one"):
        instance.get(f"/alarm?note={text};")
    wait_until(lambda: "".join(instance.written()).count(";") == 3, lambda: f"{instance.written()}")
    # Commands run beside each other, so their order may differ.
    assert sorted("".join(instance.written()).split(";")[:-1]) == ["one", "one", "two"]


def test_without_the_time_each_message_is_an_alarm(shop):
    instance = shop("alarm-freq = 0")
    for _ in range(3):
        instance.get("/alarm?note=one;")
    wait_until(lambda: "".join(instance.written()) == "one;" * 3, lambda: f"{instance.written()}")


def test_a_long_message_is_cut(shop):
    instance = shop("alarm-msg-size = 10")
    instance.get(f"/alarm?note={'x' * 5000}")
    wait_until(lambda: instance.written() == ["x" * 10], lambda: f"{instance.written()}")


def test_the_master_waits_for_no_command(shop, tmp_path, call):
    pids = tmp_path / "pids"
    instance = shop(f"alarm = hang cmd:echo $$ >> {pids}; exec sleep 1000")
    for number in range(6):
        instance.get(f"/alarm?hang={number}")
    # Four of an alarm run at a time, and the others wait without holding up other alarms.
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 4, "four commands")
    instance.get("/alarm?note=fire")
    wait_for_note(instance, "fire")
    status, said = call("status", str(instance.process.pid))
    assert status == 0, said
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: .* of generation 2 in")
    hanging = [int(pid) for pid in pids.read_text().split()]
    assert len(hanging) == 4
    assert instance.stop() == 0
    assert not [pid for pid in hanging if is_alive(pid)]
    assert instance.log.count("did not exit with the instance: killing it") == 4


def test_a_killed_master_takes_the_commands_of_its_alarms_with_it(shop, tmp_path):
    pids = tmp_path / "pids"
    instance = shop(f"alarm = hang cmd:sleep 1000 & echo $! >> {pids}; wait")
    instance.get("/alarm?hang=now")
    pid = int(wait_until(lambda: pids.exists() and pids.read_text(), "a command"))
    instance.send_signal(signal.SIGKILL)
    instance.wait_for_exit()
    wait_until(lambda: not is_alive(pid), f"the end of {pid}")


def test_a_message_of_the_last_moment_is_delivered(shop):
    instance = shop("log-alarm = note stop: ")
    assert instance.stop() == 0
    assert any("stop: completing requests in flight" in line for line in instance.written()), instance.written()


def test_a_worker_that_crashes_raises_alarms_with_its_request(shop):
    instance = shop("alarm-segfault = note", "alarm = shout log:", "segfault-alarm = shout", "processes = 2")
    instance.expects_alarms = True
    with instance.connect() as client:
        client.send(b"GET /crash HTTP/1.1\r\nHost: x\r\n\r\n")
        client.read_to_end()
    wait_for_note(instance, "was killed by SIGSEGV while it served GET /crash")
    assert instance.written()[0].startswith("worker ")
    instance.wait_for_log(r"^bolide: ALARM: worker \d \(pid \d+\) was killed by SIGSEGV while it served GET /crash")


def test_a_full_listen_queue_raises_alarms(shop):
    names = ["alarm-backlog", "backlog-alarm", "alarm-lq", "lq-alarm", "alarm-listen-queue", "listen-queue-alarm"]
    alarms = [f"alarm = {name} log:{name}" for name in names]
    instance = shop(*alarms, *[f"{name} = {name}" for name in names], "alarm-backlog = note", "listen = 1")
    host, port = instance.address()
    waiting = []
    worker = instance.worker()
    os.kill(worker, signal.SIGSTOP)
    try:
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex((host, port))
        wait_for_note(instance, f'listen queue of socket "{host}:{port}" (fd: ')
        # The master may have looked between the first connection and the second.
        wait_for_note(instance, ") full !!! (2/1)")
        for name in names:
            instance.wait_for_log(f'^bolide: ALARM: {name} listen queue of socket "{host}:{port}" ')
    finally:
        os.kill(worker, signal.SIGCONT)
        for one in waiting:
            one.close()


def test_a_signal_is_raised_for_its_handler(shop, tmp_path):
    source = """
import uwsgi
uwsgi.register_signal(17, "worker", lambda number: open("heard", "a").write(f"{number};"))
"""
    instance = shop("alarm = ring signal:17", source=source)
    instance.get("/alarm?ring=fire")
    wait_until(lambda: (tmp_path / "heard").exists() and (tmp_path / "heard").read_text() == "17;", lambda: instance.log)


def test_a_metric_that_reaches_a_value_raises_an_alarm(shop):
    for option, message in (("metric-threshold", ",msg=much"), ("metric-alarm", ""), ("alarm-metric", "")):
        instance = shop("metric = orders", f"{option} = key=orders,value=3,alarm=note,reset=0{message}")
        instance.get("/count?2")
        instance.get("/count?1")
        wait_for_note(instance, "much" if message else "orders")
        assert instance.stop() == 0


def test_a_mule_gets_the_messages_that_are_for_it(shop, tmp_path):
    source = """\
import uwsgi
while True:
    message = uwsgi.mule_get_msg()
    with open("heard", "a") as file:
        file.write(f"{uwsgi.mule_id()} {message.decode()};")
"""
    (tmp_path / "listener.py").write_text(source)
    alarms = ["alarm = two mule:2", "alarm = any mule:0", "alarm = also mule:"]
    instance = shop("mule = listener.py", "mule = listener.py", *alarms)
    heard = tmp_path / "heard"
    for name in ("two", "any", "also"):
        instance.get(f"/alarm?{name}={name}")
        wait_until(lambda name=name: heard.exists() and f"{name};" in heard.read_text(), lambda: f"{instance.log}")
    assert heard.read_text().startswith("2 two;")


def test_a_descriptor_raises_an_alarm_for_each_number_of_its_bytes(shop):
    event = os.eventfd(0)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        options = [f"alarm-fd = note {event}:8 out of memory;", f"alarm-fd = note {reader}:3 three bytes;", "alarm-freq = 0"]
        instance = shop(*options, kept=(event, reader))
        os.eventfd_write(event, 5)
        wait_for_note(instance, "out of memory;")
        stream.write(b"ab")
        stream.write(b"cabc")
        wait_until(lambda: "".join(instance.written()).count("three bytes;") == 2, lambda: f"{instance.written()}")
        assert "".join(instance.written()).count("out of memory;") == 1
    instance.wait_for_log(f"^bolide: descriptor {reader} of alarm-fd is no longer watched: end of file$")
    os.close(event)
    os.close(reader)


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.command, self.path, self.headers["Authorization"], body))
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def hook():
    """An HTTP server that remembers requests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.received = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_curl_sends_the_message_and_its_failure_is_logged(shop, hook):
    address = f"http://127.0.0.1:{hook.server_port}"
    alarms = [
        f"alarm = web curl:{address}/hook",
        f'alarm = named curl:{address}/hook;subject=the shop;method=PUT;auth_user=ops;auth_pass=se\\cret"',
        f"alarm = broken curl:{address}/broken;timeout=30;conn_timeout=10",
        "alarm-cheap = true",
    ]
    instance = shop(*alarms)
    instance.expects_alarms = True
    instance.get("/alarm?web=fire")
    wait_until(lambda: len(hook.received) == 1, lambda: f"a request: {instance.log}")
    assert hook.received[0] == ("POST", "/hook", None, b"fire")
    instance.get("/alarm?named=fire")
    wait_until(lambda: len(hook.received) == 2, lambda: f"a request: {instance.log}")
    assert hook.received[1] == ("PUT", "/hook", "Basic b3BzOnNlXGNyZXQi", b"Subject: the shop\r\n\r\nfire")
    instance.get("/alarm?broken=fire")
    instance.wait_for_log(r"^bolide: alarm broken: curl exited with status 22$")
    # The end of a program and its last words come by different ways.
    instance.wait_for_text("error: 500")
    assert "cret" not in instance.log


class Mail(socketserver.StreamRequestHandler):
    """A mail server for one mail: its lines, without the reader's dots."""

    def handle(self):
        self.say("220 test")
        while line := self.rfile.readline().decode().strip():
            self.server.received.append(line)
            if line == "DATA":
                self.say("354 go on")
                while (text := self.rfile.readline()) != b".\r\n":
                    self.server.received.append(text.decode().rstrip("\r\n"))
            self.say("250 yes")

    def say(self, text):
        self.wfile.write(f"{text}\r\n".encode())


def test_curl_sends_a_mail(shop):
    with socketserver.TCPServer(("127.0.0.1", 0), Mail) as server:
        server.received = []
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        mail = f"curl:smtp://127.0.0.1:{server.server_address[1]};mail_from=shop@a.example;subject=the shop"
        instance = shop(f"alarm = mail {mail};mail_to=one@b.example,two@b.example")
        instance.get("/alarm?mail=fire")
        wait_until(lambda: "fire" in server.received, lambda: f"a mail: {server.received} {instance.log}")
        thread.join()
    envelope = [line.partition(" SIZE=")[0] for line in server.received if line.startswith(("MAIL", "RCPT"))]
    assert envelope == ["MAIL FROM:<shop@a.example>", "RCPT TO:<one@b.example>", "RCPT TO:<two@b.example>"]
    mail = server.received[server.received.index("DATA") + 1 :]
    assert mail[:4] == ["To: one@b.example,two@b.example", "Subject: the shop", "", "fire"]


def test_hooks_raise_alarms_in_the_master_its_children_and_workers(shop, tmp_path):
    touched = tmp_path / "touched"
    touched.write_text("")
    hooks = ["hook-asap = alarm:note asap", "hook-master-start = alarm:note master;", "hook-pre-app = alarm:note app;"]
    instance = shop(*hooks, "hook-accepting = alarm:note accepting;", f"hook-touch = {touched} alarm:note touch;")
    for step in ("asap", "master;", "app;", "accepting;"):
        wait_for_note(instance, step)
    touched.write_text("again")
    wait_for_note(instance, "touch;")


def test_a_name_that_is_not_configured_is_logged(shop):
    instance = shop()
    instance.get("/alarm?none=fire")
    instance.wait_for_log("^bolide: an alarm `none` was raised, but no alarm of this name is configured$")


def test_without_alarms_the_function_says_so_and_no_socket_is_open(serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    instance = serve(f"chdir = {tmp_path}\nmodule = shop\nmaster = true")
    for _ in range(2):
        instance.get("/alarm?note=fire")
    instance.wait_for_log("^bolide: uwsgi.alarm: `note` has no effect: no `alarm` is configured$")
    assert instance.log.count("has no effect: no `alarm`") == 1


def test_a_reload_brings_alarms_and_takes_others_away(shop, tmp_path):
    instance = shop()
    text = instance.ini.read_text()
    instance.ini.write_text(text.replace("alarm = note ", "alarm = other log:\nalarm-list = true\nalarm = note2 "))
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: .* of generation 2 in")
    # A worker of generation 1 may take a connection until it has read the order to drain.
    wait_until(lambda: instance.get("/alarm?other=fire") and "\nbolide: ALARM: fire\n" in instance.log, "the alarm is raised")
    wait_until(lambda: instance.get("/alarm?note=fire") and "an alarm `note` was raised" in instance.log, "the alarm is missing")


def test_a_reload_that_brings_the_first_alarm_gives_it_to_the_application_but_not_its_output(serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    instance = serve(f"chdir = {tmp_path}\nmodule = shop\nmaster = true")
    instance.ini.write_text(instance.ini.read_text() + "alarm = shout log:\nlog-alarm = shout wood\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: .* of generation 2 in")
    instance.wait_for_log("log-alarm")
    # A worker of generation 1 may take a connection until it has read the order to drain.
    wait_until(lambda: instance.get("/alarm?shout=fire") and "\nbolide: ALARM: fire\n" in instance.log, "the alarm is raised")


def test_the_alarms_are_listed_at_the_start(shop):
    for option in ("alarm-list", "alarms-list"):
        instance = shop(f"{option} = true", "alarm = shout log:")
        instance.wait_for_log(r"^bolide: alarm note \(.*uwsgi.ini:\d+\): cmd$")
        instance.wait_for_log(r"^bolide: alarm shout \(.*uwsgi.ini:\d+\): log$")
        assert instance.stop() == 0


MISTAKES = {
    "alarm-log = none wood": "uwsgi.ini:4: error: no alarm is called `none` (write `alarm = none ACTION:ARGUMENT`)",
    "alarm-backlog = none": "uwsgi.ini:4: error: no alarm is called `none`",
    "alarm-segfault = none": "uwsgi.ini:4: error: no alarm is called `none`",
    "alarm-fd = none 0 text": "uwsgi.ini:4: error: no alarm is called `none`",
    "alarm = mail": "uwsgi.ini:4: error: `alarm = mail` has no action",
    "alarm = mail cmd": "uwsgi.ini:4: error: `alarm = mail cmd` has no `:` after its action",
    "alarm = mail post:x": "uwsgi.ini:4: error: `alarm = mail post` has `post`, which is not an action (the actions are ",
    "alarm = chat xmpp:x": "uwsgi.ini:4: error: `alarm = chat xmpp` has `xmpp`, which is not an action (write `cmd:` with a ",
    "alarm = web curl:ftp://x": "has `ftp://x`, which is not an address of http, https, smtp, smtps",
    "alarm = web curl:http://x;color=red": "has `color`, which is not an option of `curl`",
    "alarm = a log:\nalarm-log = a (?=x)": "uwsgi.ini:5: error: `alarm-log = a (?=x)` is invalid: `(?=x)` has a lookahead",
    "metric = m\nmetric-threshold = key=m,value=1,alarm=none": "uwsgi.ini:5: error: no alarm is called `none`",
    "alarm = m mule:1": "uwsgi.ini:4: error: the alarm `m` needs a mule: add `mule` or `mules` (write `mule = true`)",
    "alarm = m signal:256": "uwsgi.ini:4: error: `alarm = m signal` has no number of a signal",
    "alarm = m mule:x": "uwsgi.ini:4: error: `alarm = m mule` has no number of a mule",
    "hook-touch = x alarm:none text": "uwsgi.ini:4: error: no alarm is called `none`",
    "alarm = a log:\nhook-as-user-atexit = alarm:a text": "has `alarm`, but no process executes alarms at that time",
    "alarm = a log:\nalarm-fd = a 99 text": "uwsgi.ini:5: descriptor 99 of alarm-fd: ",
}


@pytest.mark.parametrize("lines", MISTAKES)
def test_a_mistake_is_an_error_with_its_line(fail, tmp_path, lines):
    (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = shop\n{lines}\n")
    (tmp_path / "shop.py").write_text(SHOP)
    status, said = fail("uwsgi.ini")
    assert status != 0
    assert any(MISTAKES[lines] in line for line in said), said
