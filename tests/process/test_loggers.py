"""Loggers: destinations of lines, rotated or moved files, and that nothing waits for a reader."""

import gzip
import os
import re
import signal
import socket
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import processes
from support.waiting import wait_until
from support_processes import is_alive

SAYS = """\
import os, sys
def application(environ, start_response):
    text = environ['QUERY_STRING']
    if text == 'jail':
        os.chroot('jail')
    if text:
        print(text, file=sys.stderr, flush=True)
    start_response('200 OK', [('Content-Length', '2')])
    return [b'ok']
"""
LINE = "line %(uri)"


@pytest.fixture
def says(start, tmp_path):
    """Starts a server that prints on request; arguments are lines of its configuration, ``where`` is its log."""
    (tmp_path / "says.py").write_text(SAYS)

    def begin(*lines, where=None, alarms=False):
        (tmp_path / "log.ini").write_text("[uwsgi]\n" + "\n".join(lines) + f"\nlog-format = {LINE}\n")
        instance = start(
            "--ini", tmp_path / "log.ini", "--pythonpath", tmp_path, module="says", logging=True, ready=False, alarms=alarms
        )
        instance.wait_for(lambda: "bolide: ready: " in (read(where) if where else instance.log), "it is ready")

        def told():
            return instance.log + (read(where) if where else "")

        place = wait_until(lambda: re.search(r"open http://127\.0\.0\.1:(\d+)", told()), told)
        instance.asked = int(place[1])
        return instance

    return begin


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def ask(instance, text="", count=1):
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", instance.asked)) as client:
            client.sendall(f"GET /?{text} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while data := client.recv(4096):
                answer += data
        assert answer.endswith(b"ok"), answer


def test_messages_and_requests_have_files_of_their_own(says, tmp_path):
    messages, requests = tmp_path / "messages", tmp_path / "requests"
    instance = says(f"logger = file:{messages}", f"req-logger = file:{requests}", where=messages)
    ask(instance, "printed")
    wait_until(lambda: "line /?printed\n" in read(requests), "the request's line")
    wait_until(lambda: "\nprinted\n" in read(messages), "what it has printed")
    assert read(requests) == "line /?printed\n"
    assert "line /" not in read(messages)
    assert instance.log == ""


def test_lines_go_where_their_routes_say_and_drained_ones_nowhere(says, tmp_path):
    alpha, rest, requests = tmp_path / "alpha", tmp_path / "rest", tmp_path / "beta-requests"
    instance = says(
        f"logger = a file:{alpha}",
        f"logger = file:{rest}",
        "log-route = a ^alpha",
        "log-drain = gam+a",
        f"req-logger = b file:{requests}",
        f"req-logger = file:{rest}",
        "log-req-route = b beta$",
        "log-encoder = prefix all:",
        "log-encoder = suffix:a :a",
        'log-req-encoder = json {"line":"${msg}"}',
        where=rest,
    )
    for text in ("alpha", "gamma", "beta"):
        ask(instance, text)
    wait_until(lambda: "all:beta\n" in read(rest) and '{"line":"line /?gamma"}\n' in read(rest), lambda: read(rest))
    wait_until(lambda: read(alpha) == "all:alpha:a\n", lambda: read(alpha))
    wait_until(lambda: read(requests) == '{"line":"line /?beta"}\n', lambda: read(requests))
    assert "all:gamma" not in read(rest)
    assert "alpha" not in read(rest).replace("/?alpha", "")


def test_the_recipe_for_logs_of_json_sorts_lines_as_with_uwsgi(says, tmp_path):
    """As in Label Studio's configuration, and in copies of the same recipe."""
    objects, words = tmp_path / "objects", tmp_path / "words"
    instance = says(
        f"logger = applogger file:{objects}",
        "log-route = applogger {",
        "log-encoder = format:applogger ${msg}",
        f"logger = default file:{words}",
        r"log-route = default ^((?!\{).)*$",
        'log-encoder = json:default {"source": "uwsgi", "message": "${msg}"}',
        "log-encoder = nl",
        where=words,
    )
    for text in ("plain", '{"level":1}', "half{open"):
        ask(instance, text)
    wait_until(lambda: "half{open\n" in read(objects), lambda: read(objects))
    wait_until(lambda: '{"source": "uwsgi", "message": "plain"}\n' in read(words), lambda: read(words))
    assert '{"level":1}\n' in read(objects)
    assert "plain" not in read(objects).replace("line /?plain", "")
    assert "level" not in read(words)
    assert "half" not in read(words)
    assert "has no effect" not in read(words)


def test_an_expression_that_can_not_be_used_costs_its_rule_and_not_the_start(says, tmp_path):
    some = tmp_path / "some"
    instance = says(f"logger = some file:{some}", "log-route = some (?=a)b", "log-drain = (", "log-filter = a(?<!b)c")
    for line, words in (
        (3, "warning: `log-route = some (?=a)b` has no effect: `(?=a)b` has a lookahead at `(?=a)b`, which is not supported"),
        (4, "warning: `log-drain = (` has no effect: `(` is not a regular expression: unclosed group"),
        (5, "warning: `log-filter = a(?<!b)c` has no effect: `a(?<!b)c` has a negative lookbehind"),
    ):
        assert f"log.ini:{line}: {words}" in instance.log, instance.log
    ask(instance, "abc")
    instance.wait_for_log("^abc$")


def test_only_lines_that_pass_the_filter_are_written(says, tmp_path):
    messages = tmp_path / "messages"
    instance = says(f"logger = file:{messages}", "log-filter = (open http|ready|wanted)", where=messages)
    ask(instance, "unwelcome")
    ask(instance, "wanted")
    wait_until(lambda: re.search("^wanted$", read(messages), re.MULTILINE), lambda: read(messages))
    assert "unwelcome" not in read(messages)


def test_datagrams_are_one_line_each(says, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix:
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(tmp_path / "lines.sock"))
        for listener in (udp, unix):
            listener.settimeout(30)
        port = udp.getsockname()[1]
        instance = says(
            f"req-logger = rsyslog:127.0.0.1:{port},box shop",
            f"req-logger = socket:{tmp_path}/lines.sock,shop says:",
        )
        ask(instance, "1")
        ask(instance, "2")
        assert [unix.recv(4096) for _ in range(2)] == [b"shop says:line /?1", b"shop says:line /?2"]
        told = udp.recv(4096).decode()
        assert re.fullmatch(r"<29>\w{3} [ \d]\d \d\d:\d\d:\d\d box shop: line /\?1", told), told


class Datagrams:
    """Returns the datagrams of a UDP socket, as a readable log."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.lines = []

    def exists(self):
        return True

    def read_text(self, errors):
        while True:
            try:
                self.lines.append(self.socket.recv(65536).decode(errors=errors))
            except BlockingIOError:
                return "".join(f"{line}\n" for line in self.lines)


def test_log_socket_sends_messages_there_as_a_logger_does(says):
    heard = Datagrams()
    with heard.socket:
        instance = says(f"log-socket = {heard.address}", "disable-logging = true", where=heard)
        ask(instance, "said")
        wait_until(lambda: "said" in read(heard).splitlines(), lambda: read(heard))
        assert "said" not in instance.log


def test_a_touch_of_touch_logrotate_puts_the_file_aside_and_a_new_one_is_begun(says, tmp_path):
    log, touched = tmp_path / "log", tmp_path / "touched"
    touched.write_text("")
    instance = says(f"logto = {log}", f"log-backupname = {tmp_path}/old", f"touch-logrotate = {touched}", where=log)
    ask(instance, "before")
    wait_until(lambda: "line /?before\n" in read(log), lambda: read(log))
    # A single change: a file that is emptied and then written may rotate the log twice.
    os.utime(touched)
    wait_until(lambda: "line /?before\n" in read(tmp_path / "old"), "the old file")

    def is_new():
        ask(instance, "after")
        return "line /?after\n" in read(log) and "before" not in read(log)

    wait_until(is_new, lambda: read(log))


def test_logto_with_an_address_sends_all_lines_there(says):
    heard = Datagrams()
    with heard.socket:
        instance = says(f"logto = {heard.address}", where=heard)
        ask(instance, "said")
        wait_until(lambda: {"said", "line /?said"} <= set(read(heard).splitlines()), lambda: read(heard))
        assert not any("\n" in line for line in heard.lines)
        assert "said" not in instance.log


def test_a_program_reads_lines(says, tmp_path):
    instance = says(f"req-logger = pipe:exec cat > {tmp_path}/piped")
    ask(instance, "1")
    wait_until(lambda: read(tmp_path / "piped") == "line /?1\n", lambda: read(tmp_path / "piped"))


def test_a_program_that_ends_is_started_again_and_reads_the_lines_that_came_meanwhile(says, tmp_path):
    piped, starts = tmp_path / "piped", tmp_path / "starts"
    reader = tmp_path / "reader"
    # Each one reads one line, which the shell does byte by byte, and exits; each one is a run.
    reader.write_text(f'#!/bin/sh\necho $$ >> {starts}\nread line; echo "$line" >> {piped}\nexit 3\n')
    reader.chmod(0o755)
    instance = says(f"req-logger = pipe:exec {reader}", "processes = 2", alarms=True)
    ask(instance, "1")
    instance.wait_for_log(rf"^bolide: the log program `exec {reader}` \(pid \d+\) exited with status 3.*; restarted \(pid \d+\)$")
    for number in range(2, 7):
        ask(instance, number)
    # Each worker writes its own lines, after its answers: their order among the workers is that of the processor's turns.
    lines = [f"line /?{number}" for number in range(1, 7)]
    wait_until(lambda: sorted(read(piped).splitlines()) == lines, lambda: read(piped))
    assert instance.stop() == 0
    assert len(read(starts).split()) >= 6


def test_a_program_that_ends_at_once_is_left_alone_for_longer_each_time(says, tmp_path):
    starts = tmp_path / "starts"
    instance = says(f"req-logger = pipe:echo x >> {starts}; exit 1", alarms=True)
    instance.wait_for_log(r"exited with status 1 soon after startup; it was not restarted for 100 ms; restarted \(pid \d+\)$")
    instance.wait_for_log(r"exited with status 1 soon after startup; it was not restarted for 400 ms; restarted \(pid \d+\)$")
    ask(instance, "1")
    assert instance.stop() == 0


def test_a_logger_without_a_reader_blocks_no_request_and_lost_lines_are_counted(says, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        instance = says(f"req-logger = file:{path}")
        # More than the FIFO and the memory for waiting lines can hold.
        ask(instance, "x" * 1800, count=800)
        text = b""

        def counted():
            nonlocal text
            try:
                text += os.read(reader, 65536)
            except BlockingIOError:
                ask(instance, "again")
            return re.search(rb"bolide: \d+ lines? of process \d+ (is|are) lost here", text)

        wait_until(counted, "the number of lost lines")
    finally:
        os.close(reader)


def test_a_file_beyond_its_limit_is_rotated_and_every_process_writes_to_the_new_one(says, tmp_path):
    log = tmp_path / "log"
    instance = says(f"logto = {log}", "log-maxsize = 5000", f"log-backupname = {tmp_path}/old", "processes = 2", where=log)
    # So few that they rotate it once, however early the master looks.
    ask(instance, "y" * 900, count=4)
    wait_until(lambda: (tmp_path / "old").exists(), "the old file")
    wait_until(lambda: "log-maxsize: " in read(tmp_path / "old") + read(log), "a line about it")

    def written_by_both():
        ask(instance, "printed")
        # The old file gets no more: neither request lines nor printed output.
        return "\nprinted\n" in read(log) and "line /?printed\n" in read(log)

    wait_until(written_by_both, lambda: read(log))
    length = (tmp_path / "old").stat().st_size
    ask(instance, "printed", count=4)
    wait_until(lambda: read(log).splitlines().count("printed") >= 5, lambda: read(log))
    assert (tmp_path / "old").stat().st_size == length


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change its root directory")
def test_a_worker_that_cannot_open_the_file_uses_the_descriptor_of_the_master(says, tmp_path):
    log, requests, touched = tmp_path / "log", tmp_path / "requests", tmp_path / "touched"
    touched.write_text("")
    (tmp_path / "jail").mkdir()
    instance = says(f"logto = {log}", f"req-logger = file:{requests}", f"touch-logreopen = {touched}", where=log)
    ask(instance, "jail")
    wait_until(lambda: "line /?jail\n" in read(requests), "its line")
    for path in (log, requests):
        path.rename(f"{path}.1")
    touched.write_text("again")
    wait_until(lambda: log.exists() and requests.exists(), "new files")

    def is_new():
        ask(instance, "after")
        return "line /?after\n" in read(requests) and "\nafter\n" in "\n" + read(log)

    wait_until(is_new, lambda: read(log) + read(requests))


class Packed:
    """A log of compressed lines, read by the usual programs of administrators."""

    def __init__(self, path):
        self.path = path

    def exists(self):
        return self.path.exists()

    def read_text(self, errors="strict"):
        # While a server writes, the last line may be incomplete.
        read = subprocess.run(["gzip", "-dc"], stdin=self.path.open("rb"), capture_output=True, check=False)
        return read.stdout.decode(errors=errors)


def test_compressed_lines_are_read_as_one_text_also_while_they_are_written_and_after_a_rotation(says, tmp_path):
    messages, requests, before = (Packed(tmp_path / name) for name in ("messages.gz", "requests.gz", "before.gz"))
    touched = tmp_path / "touched"
    touched.write_text("")
    instance = says(
        f"logger = file:{messages.path}",
        "log-encoder = prefix shop|",
        "log-encoder = gzip",
        f"req-logger = file:{requests.path}",
        'log-req-encoder = json {"line":"${msg}"}',
        "log-req-encoder = gzip",
        f"touch-logreopen = {touched}",
        "processes = 2",
        where=messages,
    )
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, instance, f"number{number}") for number in range(200)]
        wait_until(lambda: "number" in read(requests), "lines of requests")
        requests.path.rename(before.path)
        touched.write_text("again")
        for one in asking:
            one.result()
    wait_until(requests.exists, "the new file")

    def is_in_the_new_one():
        ask(instance, "after")
        return "after" in read(requests)

    wait_until(is_in_the_new_one, lambda: read(requests))
    expected = sorted(f'{{"line":"line /?number{number}"}}' for number in range(200))

    wait_until(lambda: (read(before) + read(requests)).count("number") == 200, "each line once")
    wait_until(lambda: read(messages).count("shop|number") == 200, "what was printed")
    # Python's module refuses a file whose last line is incomplete, so nothing may be written any more.
    assert instance.stop() == 0
    lines = (gzip.decompress(before.path.read_bytes()) + gzip.decompress(requests.path.read_bytes())).decode().splitlines()
    assert sorted(line for line in lines if "number" in line) == expected
    assert all(line.startswith("shop|") for line in read(messages).splitlines())


def test_a_packet_is_one_compressed_line_with_the_given_prefix_and_suffix(says):
    # uWSGI's own example.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(30)
        address = f"127.0.0.1:{udp.getsockname()[1]}"
        encoders = ("log-req-encoder = suffix !", "log-req-encoder = gzip", "log-req-encoder = prefix i am gzip encoded")
        instance = says(f"req-logger = socket:{address}", *encoders)
        ask(instance, "one")
        packet = udp.recv(4096)
    assert packet.startswith(b"i am gzip encoded\x1f\x8b")
    assert gzip.decompress(packet.removeprefix(b"i am gzip encoded")) == b"line /?one!"


def test_one_logger_compresses_and_another_does_not(says, tmp_path):
    streams, plain = tmp_path / "streams", tmp_path / "plain"
    instance = says(
        f"req-logger = a pipe:exec cat > {streams}",
        f"req-logger = b file:{plain}",
        "log-req-route = a .",
        "log-req-route = b .",
        "log-req-encoder = compress:a",
        "log-req-encoder = suffix:b !",
    )
    ask(instance, "one")
    ask(instance, "two")
    wait_until(lambda: read(plain) == "line /?one!\nline /?two!\n", lambda: read(plain))

    def streamed():
        lines, rest = [], streams.read_bytes() if streams.exists() else b""
        while rest:
            stream = zlib.decompressobj()
            lines.append(stream.decompress(rest).decode())
            rest = stream.unused_data
        return lines

    wait_until(lambda: streamed() == ["line /?one\n", "line /?two\n"], streamed)


def test_a_reload_reopens_the_log_if_configured(says, tmp_path):
    log = tmp_path / "log"
    instance = says(f"logto = {log}", "log-reopen = true", where=log)
    log.rename(tmp_path / "moved")
    instance.send_signal(signal.SIGHUP)
    wait_until(lambda: "of generation 2 in" in read(log), lambda: read(log) + read(tmp_path / "moved"))

    def is_new():
        # The old worker may still answer.
        ask(instance, "printed")
        return "line /?printed\n" in read(log) and "\nprinted\n" in read(log)

    wait_until(is_new, lambda: read(log))


def test_the_mode_of_a_log_and_its_beginning_are_as_asked(says, tmp_path):
    log = tmp_path / "log"
    log.write_text("old\n")
    says(f"logto = {log}", "log-truncate = true", "logfile-chmod = 604", where=log)
    assert log.stat().st_mode & 0o777 == 0o604
    assert "old\n" not in read(log)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("logger = redislog:127.0.0.1", "there is no logger `redislog`"),
        ("logger = nothing", "the loggers are file, fd, stdio"),
        ("log-route = nobody .*", "no logger is called `nobody`"),
        ("log-encoder = gzip", "the log itself can't be compressed"),
        ("logger = stdio\nlog-encoder = gzip", "the log itself can't be compressed"),
        ("logger = file:log\nlog-encoder = gzip\nlog-encoder = json {}", "before `gzip`"),
        ("logger = file:log\nlog-encoder = gzip\nlog-encoder = compress", "lines are compressed once"),
        ("logger = syslog:shop\nlog-encoder = gzip", "syslog and the journal take text"),
        (
            "logger = a file:log\nlogger = file:all\nlog-route = a x\nlog-encoder = gzip:a\nlog-req-route = a .",
            "only one kind",
        ),
        ("logger = file:log\nlog-encoder = bzip2", "format, json, gzip and compress"),
        ("logger = file:/nonexistent/directory/log", "create its directory"),
    ],
)
def test_a_logger_that_can_not_be_had_is_an_error_that_says_what_to_use(line, words, fail, tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = says\n{line}\n")
    status, lines = fail("--ini", tmp_path / "uwsgi.ini")
    assert status == 1
    assert words in "\n".join(lines), lines


DEAF = "trap '' TERM; sleep 1000 & echo $$ $! > {pid}.part; mv {pid}.part {pid}; wait; sleep 1000"


def deaf_program(says, tmp_path, option):
    """Returns an instance with a log program that reads nothing and ignores the request to end, and the pids of that program and
    of its child.
    """
    path, said = tmp_path / "deaf.pid", tmp_path / "said"
    lines = [f"{option} = pipe:{DEAF.format(pid=path)}", *([f"logger = file:{said}"] if option == "logger" else [])]
    instance = says(*lines, where=said if option == "logger" else None, alarms=True)
    wait_until(path.exists, "the log program")
    return instance, *map(int, path.read_text().split())


@pytest.mark.parametrize("option", ["req-logger", "logger"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_log_program_that_reads_nothing_does_not_outlive_the_instance_for_long(says, tmp_path, option, number):
    instance, program, child = deaf_program(says, tmp_path, option)
    try:
        instance.send_signal(number)
        instance.wait_for_exit()
        wait_until(lambda: not is_alive(program) and not is_alive(child), "the end of the log program")
    finally:
        processes.kill(program)
        processes.kill(child)


def test_the_program_of_a_killed_guard_goes_with_it_and_another_follows(says, tmp_path):
    instance, program, _ = deaf_program(says, tmp_path, "req-logger")
    guard = processes.look(program).parent
    assert processes.look(guard).parent == instance.pid
    processes.kill(guard)
    instance.wait_for_log(rf"^bolide: the log program .* \(pid {program}\) was killed by SIGKILL.*; restarted \(pid \d+\)$")
    # The kernel has sent the signal by then, which needs a processor to take effect.
    wait_until(lambda: not is_alive(program), "its end")
    processes.kill(instance.pid)
    instance.wait_until_gone()


def test_a_log_program_has_the_last_lines_of_a_killed_master(says, tmp_path):
    piped = tmp_path / "piped"
    # It reads slowly, and gets everything that was written all the same.
    instance = says(f"req-logger = pipe:sleep 1; exec cat > {piped}", alarms=True)
    ask(instance, "last")
    instance.send_signal(signal.SIGKILL)
    wait_until(lambda: read(piped) == "line /?last\n", lambda: read(piped))
    instance.wait_until_gone()


def test_rules_about_lines_see_uwsgis_tags_and_the_log_has_none(says, tmp_path):
    cron, daemons, rest = (tmp_path / f"{name}.log" for name in ("cron", "daemons", "rest"))
    instance = says(
        "cron = -1 -1 -1 -1 -1 echo from the job",
        "attach-daemon = sleep 1000",
        f"logger = cron file:{cron}", "log-route = cron uwsgi-cron",
        f"logger = daemons file:{daemons}", r"log-route = daemons ^\[uwsgi-daemons\]",
        f"logger = file:{rest}", "log-drain = ^((?!uwsgi-cron|bolide|from the job).)*$",
        where=rest, alarms=True,
    )  # fmt: skip
    wait_until(lambda: "cron echo (pid " in read(cron), lambda: read(rest))
    wait_until(lambda: "daemon sleep: started (pid " in read(daemons), lambda: read(rest))
    wait_until(lambda: "[cron echo] from the job" in read(rest), lambda: read(rest))
    assert instance.stop() == 0
    assert "from the job" not in read(cron)
    assert "cron echo (pid " not in read(rest)
    assert "daemon sleep: started" not in read(rest)
    assert "uwsgi-" not in read(cron) + read(daemons) + read(rest)


@pytest.mark.parametrize("order", [("logto", "logto2"), ("logto2", "logto")], ids=" ".join)
def test_logto2_is_the_log_wherever_it_is_written_beside_logto(order, says, call, tmp_path):
    logs = {name: tmp_path / f"{name}.log" for name in order}
    instance = says(*(f"{name} = {path}" for name, path in logs.items()), where=logs["logto2"])
    ask(instance, "printed")
    wait_until(lambda: "\nprinted\n" in read(logs["logto2"]), "what it has printed")
    assert read(logs["logto"]) == ""
    started_with = ("--http-socket", "127.0.0.1:0", "--pythonpath", tmp_path, "--module", "says")
    said = call("check", tmp_path / "log.ini", *started_with)[1]
    assert "note: `logto" in said
    assert "is not used: lines go to the file of `logto2`" in said
