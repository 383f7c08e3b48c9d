"""What users of a host can't do to its emperor, to the sites of others, and to the commands of its operator."""

import concurrent.futures
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_processes import children_of, is_alive, status_field
from support_users import NOBODY, python_for_everybody

only_of_root = pytest.mark.skipif(os.getuid() != 0, reason="only root starts a vassal as another user")

#: Another user that every Debian has.
GAMES = pwd.getpwnam("games")

#: Takes the terminal of this path as that of its session, and executes the other words.
AT_TERMINAL = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execvp(sys.argv[2], sys.argv[2:])"

#: Listens at this name as this user, and is root again after that: its pid seems to have been given to a process of root. It
#: sends the greeting of a vassal to each client, and keeps all signals pending.
ROOT_AGAIN = """\
import os, signal, socket, sys
name, user, greeting = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
listener = socket.socket(socket.AF_UNIX)
os.seteuid(int(user))
listener.bind("\\0" + name)
listener.listen()
os.seteuid(0)
print(flush=True)
kept = []
while True:
    kept.append(listener.accept()[0])
    kept[-1].sendall(greeting.encode() + b"\\n")
"""

#: Listens at this number of names as this user, and sends nothing.
SILENT = """\
import os, resource, signal, socket, sys
beginning, count, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
os.setgroups([])
os.setgid(user)
os.setuid(user)
kept = []
for number in range(count):
    listener = socket.socket(socket.AF_UNIX)
    # Many come before all pids, and some after them.
    listener.bind("\\0" + beginning + ("0" if number % 4 else "99") + str(number))
    listener.listen(1)
    kept.append(listener)
print(flush=True)
signal.pause()
"""


@pytest.fixture
def emperor(open_directory):
    """Makes an emperor of root with `emperor-tyrant` and these lines; `before` are the words before its command."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    made = []

    def emperor(*lines, places="{directory}/vassals", before=(), **options):
        command = [*before, "env", "-C", str(open_directory), python, "-m", "bolide"]
        own = (f"emperor = {places}", "emperor-tyrant = true", "emperor-freq = 3600")
        made.append(Emperor(command, open_directory, *own, *lines, **options))
        return made[-1]

    yield emperor
    for one in reversed(made):
        one.finish()


@pytest.fixture
def run():
    """Runs a program of Python until the test ends. Returns its pid when it is ready."""
    started = []

    def run(text, *arguments):
        command = [sys.executable, "-c", text, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True))
        assert started[-1].stdout.readline() == b"\n"
        return started[-1].pid

    yield run
    for one in started:
        one.kill()
        one.communicate()


def give(path, owner=NOBODY):
    os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
    return path


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def numbers(owner):
    return [str(owner.pw_uid), str(owner.pw_gid)]


def all_of(master):
    """Returns a master and all processes below it."""
    found = [master]
    for pid in found:
        found += children_of(pid)
    return found


def is_at_terminal(pid):
    """Returns whether a process has a controlling terminal: the field tty_nr (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[4] != "0"


def environment_of(pid):
    """Returns the variables that a process was started with."""
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(variable.split("=", 1) for variable in text.split("\0") if "=" in variable)


def name_of(vassal):
    """Returns how the abstract names of vassals begin, as a vassal has one that waits for its next emperor."""
    pattern = re.compile(rf"@(bolide/vassal/\S+/){vassal}$", re.MULTILINE)
    return wait_until(lambda: pattern.search(Path("/proc/net/unix").read_text()), "the name of the vassal")[1]


def kill(emperor):
    emperor.process.kill()
    emperor.process.wait()


@only_of_root
def test_a_vassal_of_another_user_leads_a_session_without_the_terminal_of_the_emperor(emperor, free_port):
    port = free_port()
    terminal, other_end = os.openpty()
    try:
        emperor = emperor(before=[sys.executable, "-c", AT_TERMINAL, os.ttyname(other_end)])
        give(emperor.write("one.ini", *site(port, "one")))
        emperor.start()
        emperor.answer(port)
        assert is_at_terminal(emperor.process.pid)
        (master,) = children_of(emperor.process.pid)
        found = all_of(master)
        assert len(found) > 1
        assert [pid for pid in found if is_at_terminal(pid)] == []
        assert {processes.session_of(pid) for pid in found} == {master}
        assert emperor.stop() == 0
    finally:
        os.close(terminal)
        os.close(other_end)


@only_of_root
def test_secrets_of_the_emperors_environment_do_not_reach_a_vassal_of_another_user(emperor, free_port):
    port = free_port()
    secrets = {
        "DB_PASSWORD": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "SSH_AUTH_SOCK": "/secret",
        "XDG_RUNTIME_DIR": "/secret",
    }
    emperor = emperor("env = X=1", environment={**secrets, "HOME": "/root", "USER": "root", "LOGNAME": "root"})
    give(emperor.write("one.ini", *site(port, "one")), GAMES)
    emperor.start()
    emperor.answer(port)
    assert environment_of(emperor.process.pid).keys() >= secrets.keys()
    (master,) = children_of(emperor.process.pid)
    expected = {"HOME": GAMES.pw_dir, "USER": "games", "LOGNAME": "games", "X": "1", "PATH": emperor.environment["PATH"]}
    for pid in all_of(master):
        variables = environment_of(pid)
        assert "secret" not in " ".join(variables.values()), (pid, variables)
        assert variables.keys().isdisjoint(secrets), (pid, variables)
        assert {name: variables.get(name) for name in expected} == expected, (pid, variables)


@only_of_root
def test_a_process_of_root_with_the_pid_of_a_users_listener_is_not_taken_over(emperor, run, free_port):
    port = free_port()
    first = emperor()
    path = give(first.write("one.ini", *site(port, "one")))
    first.start()
    first.answer(port)
    (vassal,) = children_of(first.process.pid)
    beginning = name_of(vassal)
    kill(first)
    os.kill(vassal, signal.SIGKILL)
    wait_until(lambda: not is_alive(vassal), "the end of the vassal")
    root = run(ROOT_AGAIN, f"{beginning}0", NOBODY.pw_uid, "0 one.ini")
    second = emperor().start()
    second.wait_for_log(f"process {root} of user {NOBODY.pw_uid} is not taken over as vassal one.ini")
    # It starts its own, and ends that one alone.
    assert second.answer(port)[3:] == numbers(NOBODY)
    path.unlink()
    second.is_gone(port)
    assert second.stop() == 0
    pending = [int(status_field(root, name), 16) for name in ("SigPnd", "ShdPnd")]
    assert (is_alive(root), pending) == (True, [0, 0])


@only_of_root
def test_control_characters_in_what_a_false_vassal_says_do_not_reach_the_log(emperor, run, free_port):
    port, new = free_port(), free_port()
    first = emperor()
    give(first.write("one.ini", *site(port, "one")))
    first.start()
    first.answer(port)
    (vassal,) = children_of(first.process.pid)
    beginning = name_of(vassal)
    kill(first)
    run(ROOT_AGAIN, f"{beginning}0", NOBODY.pw_uid, "0 forged\r\x1b[31m")
    second = emperor()
    give(second.write("two.ini", *site(new, "two")))
    second.start()
    # It starts vassals when all that wait for it have been heard.
    second.answer(new)
    second.answer(port)
    said = second.log_file.read_bytes()
    assert b"\x1b" not in said, said
    assert b"\r" not in said, said


#: A user that fills the queue of a name again and again. Its words are the name and the user.
FLOODING = """\
import itertools, os, resource, socket, sys
name, user = "\\0" + sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
os.setgroups([])
os.setresuid(user, user, user)
held = []
for turn in itertools.count():
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect(name)
        held.append(client)
    except OSError:
        client.close()
    if len(held) > 1000:
        del held[:]
    if turn == 1000:
        print(flush=True)
"""


@only_of_root
def test_a_user_who_fills_the_queue_of_a_vassal_does_not_keep_it_from_its_next_emperor(emperor, run, free_port):
    port = free_port()
    first = emperor()
    give(first.write("one.ini", *site(port, "one")), GAMES)
    first.start()
    first.answer(port)
    (vassal,) = children_of(first.process.pid)
    name = f"{name_of(vassal)}{vassal}"
    kill(first)
    run(FLOODING, name, NOBODY.pw_uid)
    second = emperor().start()
    second.wait_for_log(f"vassal one.ini (pid {vassal}) is taken over from the emperor before")
    assert second.answer(port)[3:] == numbers(GAMES)
    assert (second.log.count("vassal one.ini started"), is_alive(vassal)) == (1, True)


@only_of_root
def test_many_silent_names_of_a_user_do_not_keep_a_vassal_of_another_user_from_its_next_emperor(emperor, run, free_port):
    port, new = free_port(), free_port()
    limited = ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh"]
    first = emperor(before=limited)
    give(first.write("one.ini", *site(port, "one")), GAMES)
    first.start()
    first.answer(port)
    (vassal,) = children_of(first.process.pid)
    beginning = name_of(vassal)
    kill(first)
    run(SILENT, beginning, 1500, NOBODY.pw_uid)
    second = emperor(before=limited).start()
    second.wait_for_log(f"vassal one.ini (pid {vassal}) is taken over from the emperor before")
    # It starts others, which it sees although it does not look by time.
    give(second.write("two.ini", *site(new, "two")), GAMES)
    assert second.answer(new)[3:] == numbers(GAMES)
    assert second.answer(port)[3:] == numbers(GAMES)
    assert (second.log.count("vassal one.ini started"), is_alive(vassal)) == (1, True)
    (second.vassals / "one.ini").unlink()
    wait_until(lambda: not is_alive(vassal), lambda: second.log)


@only_of_root
def test_applications_of_one_user_that_hang_do_not_keep_a_site_of_another_user_from_starting(emperor, free_port):
    port = free_port()
    emperor = emperor()
    (emperor.directory / "hanging.py").write_text("import time\ntime.sleep(600)\n")
    names = [f"hanging{number}.ini" for number in range(8)]
    for name in names:
        give(emperor.write(name, *site(0, "hanging", "module = hanging")))
    emperor.start()
    emperor.wait_for_log("vassal hanging")
    give(emperor.write("honest.ini", *site(port, "honest")), GAMES)

    def serves():
        # A user may also write the files again and again.
        for name in names:
            emperor.touch(name)
        try:
            with Client(("127.0.0.1", port)) as client:
                return client.request("GET", "/").text.split()
        except OSError:
            return None

    answer = wait_until(serves, lambda: emperor.log, look_seconds=0.2)
    assert answer[3:] == numbers(GAMES)


@only_of_root
def test_a_users_address_on_demand_with_the_name_of_a_host_is_refused_and_does_not_hold_up_the_others(emperor):
    emperor = emperor("emperor-on-demand-ext = .socket")
    own = emperor.directory / "own"
    own.mkdir()
    give(own, GAMES)
    for name, owner, address in (("bad", NOBODY, "localhost:8000"), ("good", GAMES, f"{own}/good.sock")):
        give(emperor.write(f"{name}.ini", "protocol = http", f"env = NAME={name}"), owner)
        file = emperor.vassals / f"{name}.ini.socket"
        file.write_text(address)
        give(file, owner)
    emperor.start()
    emperor.wait_for_log("vassal bad.ini is not started: `localhost:8000` has a host name: write its IP address")
    emperor.wait_for_log("vassal good.ini waits for its first connection")
    with Client(str(own / "good.sock")) as client:
        assert client.request("GET", "/").text.split()[0] == "good"
    assert "vassal bad.ini started" not in emperor.log


@pytest.fixture
def same_stem(emperor):
    """An emperor with two files whose sockets on demand have the same address. Returns it, both files and the address."""
    emperor = emperor("emperor-on-demand-dir = {directory}/run", places="{directory}/x/*/site.ini")
    (emperor.directory / "run").mkdir()
    lines = ["[uwsgi]", f"pythonpath = {emperor.directory}", "module = hosted", "protocol = http"]

    def write(owner):
        folder = emperor.directory / "x" / owner.pw_name
        folder.mkdir(parents=True)
        give(folder, owner)
        (folder / "new").write_text("\n".join([*lines, f"env = NAME={owner.pw_name}"]) + "\n")
        return give(folder / "new", owner).rename(folder / "site.ini")

    first = write(NOBODY)
    emperor.start()
    emperor.wait_for_log(f"vassal {first} waits for its first connection at")
    # By its name the other one comes first.
    second = write(GAMES)
    emperor.wait_for_log(f"vassal {second} is not started: vassal {first} has its address")
    return emperor, first, second, str(emperor.directory / "run" / "site.socket")


def answer_at(address):
    with Client(address) as client:
        return client.request("GET", "/").text.split()


@only_of_root
def test_the_second_of_two_files_with_the_same_stem_does_not_get_the_address_of_the_first(same_stem):
    emperor, first, second, address = same_stem
    before = answer_at(address)
    assert (before[0], before[3:]) == ("nobody", numbers(NOBODY))
    # Nothing changes when they are looked at again.
    second.touch()
    first.touch()
    emperor.wait_for_log(f"vassal {first} (pid {children_of(emperor.process.pid)[0]}) reloads: its file has changed")
    wait_until(lambda: answer_at(address)[1] != before[1], lambda: emperor.log)
    assert answer_at(address)[3:] == numbers(NOBODY)
    assert emperor.log.count(f"vassal {second} is not started") == 1


@only_of_root
@pytest.mark.parametrize("has_served", [False, True], ids=["that never served", "that serves"])
def test_an_address_on_demand_of_a_vassal_that_has_ended_is_had_by_the_other_that_wants_it(has_served, same_stem):
    emperor, first, second, address = same_stem
    assert not has_served or answer_at(address)[0] == "nobody"
    first.unlink()
    emperor.wait_for_log(f"vassal {second} waits for its first connection at")
    assert answer_at(address)[3:] == numbers(GAMES)


@only_of_root
def test_a_link_with_a_second_name_does_not_start_a_vassal_where_the_owners_of_links_count(emperor, free_port):
    bad, good = free_port(), free_port()
    emperor = emperor("emperor-tyrant-nofollow = true")
    target = emperor.write("one.ini", *site(bad, "one")).rename(emperor.directory / "one.ini")
    (emperor.directory / "link").symlink_to(target)
    give(emperor.directory / "link")
    os.link(emperor.directory / "link", emperor.vassals / "bad.ini", follow_symlinks=False)
    (emperor.vassals / "good.ini").symlink_to(emperor.write("two.ini", *site(good, "two")).rename(emperor.directory / "two.ini"))
    give(emperor.vassals / "good.ini", GAMES)
    emperor.start()
    emperor.wait_for_log("vassal bad.ini is not started: it has several names")
    assert emperor.answer(good)[3:] == numbers(GAMES)
    assert "vassal bad.ini started" not in emperor.log


@only_of_root
def test_a_name_like_an_option_or_with_control_characters_is_refused_and_does_not_make_a_line_of_the_log(emperor, free_port):
    port = free_port()
    emperor = emperor("vassal-set = single-interpreter=true")
    for name in ("-c.ini", "--emperor.ini", "one\nforged by a user.ini", "two\rforged by a user.ini", "three\x1b[31m.ini"):
        give(emperor.write(name, *site(0, "bad")))
    give(emperor.write("good.ini", *site(port, "good")))
    emperor.start()
    emperor.answer(port)
    why = "is not started: its name begins with `-`, or has control characters: rename it"
    for shown in ("-c.ini", "--emperor.ini", "one", "two", "three"):
        assert re.search(rf"^.* bolide: vassal \S?{re.escape(shown)}.*{re.escape(why)}$", emperor.log, re.MULTILINE), emperor.log
    assert emperor.log.count("started (pid") == 1
    lines = re.split(r"[\r\n]", emperor.log_file.read_bytes().decode())
    assert not [line for line in lines if line.startswith("forged by a user") or "\x1b" in line]


def test_the_check_of_an_application_that_closes_its_output_ends_and_it_is_sound(call, tmp_path):
    (tmp_path / "vassals").mkdir()
    (tmp_path / "closing.py").write_text("import os\nos.close(1)\ndef application(environ, start_response):\n    return []\n")
    text = f"[uwsgi]\nhttp-socket = 127.0.0.1:0\npythonpath = {tmp_path}\nmodule = closing\n"
    (tmp_path / "vassals" / "one.ini").write_text(text)
    (tmp_path / "emperor.ini").write_text("[uwsgi]\nemperor = vassals\n")
    status, said = call("check", "--load", "emperor.ini")
    assert (status, "note: 1 vassal checked" in said) == (0, True), said


def test_commands_find_a_site_while_the_masters_of_others_are_stopped(call, tmp_path, free_port):
    port = free_port()
    # Each of them would hold up a command for 10 s.
    count = 7
    emperor = Emperor(program(), tmp_path, "emperor = {directory}/vassals", "emperor-starts-max = 8")
    for number in range(count):
        emperor.write(f"stopped{number}.ini", *site(0, "stopped", "single-interpreter = true"))
    emperor.write("lively.ini", *site(port, "lively"))
    emperor.start()
    try:
        before = emperor.answer(port)
        wait_until(lambda: emperor.log.count("ready: ") == count + 1, lambda: emperor.log)
        lively = re.search(r"vassal lively\.ini started \(pid (\d+)\)", emperor.log)[1]
        for pid in set(children_of(emperor.process.pid)) - {int(lively)}:
            os.kill(pid, signal.SIGSTOP)
        commands = [("status", "lively.ini"), ("top", "--once", str(emperor.process.pid)), ("reload", "lively")]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for words, (status, said) in zip(commands, pool.map(lambda words: call(*words), commands), strict=True):
                assert (status, lively in said) == (0, True), (words, said)
        wait_until(lambda: emperor.answer(port)[1] != before[1], lambda: emperor.log)
    finally:
        for pid in children_of(emperor.process.pid):
            os.kill(pid, signal.SIGCONT)
        emperor.finish()
