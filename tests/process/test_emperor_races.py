"""Users with a shell who change files while an emperor of root looks: nothing of root's is read, logged or made for them, and
what one user has written runs as no other user.
"""

import json
import os
import pwd
import random
import re
import select
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from support.emperor import Emperor
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_users import NOBODY, python_for_everybody

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root starts a vassal as another user")

#: Other users that every Debian has. The last one only serves.
GAMES = pwd.getpwnam("games")
DAEMON = pwd.getpwnam("daemon")
SECRET = "the-secret-of-root"

#: A user at a shell. Each line contains an operation and its arguments. The answer is an empty line, or why it was refused.
SHELL = """\
import itertools, json, os, shutil, sys

def write(path, text, mode=0o644):
    new = os.path.join(os.path.dirname(path), f".new-{os.getuid()}")
    with open(new, "w") as file:
        file.write(text)
    os.chmod(new, mode)
    os.rename(new, path)

def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)

def make(path, kind, *arguments):
    {"link": os.symlink, "name": os.link, "pipe": lambda path: os.mkfifo(path), "directory": lambda path: os.mkdir(path),
     "file": lambda text, path: write(path, text)}[kind](*arguments, path)

def put(path, kind, *arguments):
    new = os.path.join(os.path.dirname(path), f".put-{os.getuid()}")
    remove(new)
    make(new, kind, *arguments)
    try:
        os.rename(new, path)
    except OSError:
        # A directory and a file do not replace each other.
        remove(path)
        os.rename(new, path)

def swap(path, things, count):
    # A kernel may refuse hard links to files of others.
    for thing in itertools.islice(itertools.cycle(things), count):
        try:
            put(path, *thing)
        except OSError:
            pass

operations = {"write": write, "remove": remove, "put": put, "swap": swap, "chmod": os.chmod, "rename": os.rename}
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        operations[name](*arguments)
        print(flush=True)
    except OSError as error:
        print(error, flush=True)
"""

#: An application that notes who has written the configuration that it is of, and whom it runs as.
WITNESS = """\
import os
with open(os.environ["NOTES"], "a") as notes:
    notes.write(f"{os.environ['AUTHOR']} {os.getuid()}\\n")
from hosted import application
"""


class User:
    """A user at a shell."""

    def __init__(self, python, account):
        self.name, self.uid = account.pw_name, account.pw_uid
        self.shell = subprocess.Popen(
            [python, "-c", SHELL],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def begin(self, *words):
        self.shell.stdin.write(json.dumps([str(word) if isinstance(word, Path) else word for word in words]).encode() + b"\n")

    def is_done(self, seconds=0.0):
        return bool(select.select([self.shell.stdout], [], [], seconds)[0])

    def end(self):
        """Returns why the operation was refused, or nothing."""
        assert self.is_done(TIMEOUT_SECONDS)
        return self.shell.stdout.readline().decode().strip()

    def do(self, *words):
        self.begin(*words)
        return self.end()

    def close(self):
        self.shell.kill()
        self.shell.communicate()


class Host:
    """An emperor with `emperor-tyrant`, users at shells, and a directory of root's that nothing may change."""

    def __init__(self, python, directory, places, *lines):
        self.directory = directory
        self.roots = directory / "roots"
        self.roots.mkdir(mode=0o700)
        (self.roots / "secret.ini").write_text(f"[uwsgi]\n{SECRET} = {SECRET}\n")
        (self.roots / "secret.ini").chmod(0o600)
        self.before = self.state_of_roots()
        self.notes = directory / "notes"
        self.notes.touch()
        self.notes.chmod(0o666)
        self.users = {account: User(python, account) for account in (NOBODY, GAMES)}
        command = ["env", "-C", str(directory), python, "-m", "bolide"]
        self.emperor = Emperor(command, directory, *places, "emperor-tyrant = true", "emperor-freq = 1", *lines)
        (directory / "witness.py").write_text(WITNESS)
        #: It notes who has written a configuration that was read, before the application is loaded.
        self.witness = directory / "witness"
        self.witness.write_text(f'#!/bin/sh\necho "$1 $(id -u)" >> {self.notes}\n')
        self.witness.chmod(0o755)
        #: Who has ever owned a file with the name of a vassal.
        self.owners = {}
        self.own_words = None

    def state_of_roots(self):
        paths = [self.roots, *sorted(self.roots.rglob("*"))]
        return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_ctime_ns, path.lstat().st_uid) for path in paths]

    def text(self, author, *lines, port=0):
        """A configuration that says who has written it."""
        own = [f"http-socket = 127.0.0.1:{port}", f"pythonpath = {self.directory}", "module = witness"]
        own += [f"env = AUTHOR={author.pw_name}", f"env = NOTES={self.notes}", f"exec-asap = {self.witness} {author.pw_name}"]
        return "\n".join(["[uwsgi]", *own, *lines]) + "\n"

    def start(self, port):
        """Starts it, with a site of another user that is to go on."""
        self.port = port
        honest = self.emperor.write("honest.ini", f"http-socket = 127.0.0.1:{port}")
        os.chown(honest, DAEMON.pw_uid, DAEMON.pw_gid)
        self.emperor.start()
        self.emperor.answer(port)
        self.own_words = Path(f"/proc/{self.emperor.process.pid}/cmdline").read_bytes()
        return self

    def look_again(self):
        """Returns when the emperor has looked at all places."""
        before = self.emperor.log.count("vassal honest.ini (pid")
        self.emperor.touch("honest.ini")
        wait_until(lambda: self.sample() or self.emperor.log.count("vassal honest.ini (pid") > before, lambda: self.emperor.log)

    def note_owner(self, name, path):
        if path.is_file() and not path.is_symlink():
            self.owners.setdefault(name, set()).add(path.lstat().st_uid)

    def sample(self):
        """Checks the processes that there are now."""
        emperor = self.emperor.process.pid
        for process in self.emperor.processes():
            try:
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                owner = os.stat(f"/proc/{process.pid}").st_uid
            except OSError:
                continue
            # A copy of the emperor becomes the user before it executes a program.
            if process.pid == emperor or words in (b"", self.own_words):
                continue
            assert owner != 0, (process, words, self.emperor.log)
            arguments = words.rstrip(b"\0").decode().split("\0")
            name = arguments[-1]
            if process.parent == emperor and "--ini" in arguments and name in self.owners:
                assert owner in self.owners[name], (process, name, self.emperor.log)

    def during(self, user, *words):
        """Lets a user do something, and looks at the processes in the meantime."""
        user.begin(*words)
        while not user.is_done(0.01):
            self.sample()
        return user.end()

    def check(self):
        """What holds at any time."""
        log = self.emperor.log
        self.sample()
        assert SECRET not in log
        assert "panicked" not in log
        assert self.state_of_roots() == self.before
        for line in self.notes.read_text().splitlines():
            author, runs_as = line.split()
            assert pwd.getpwnam(author).pw_uid == int(runs_as), f"what {author} wrote ran as {runs_as}:\n{log}"
        assert self.emperor.process.poll() is None
        assert self.emperor.answer(self.port)[3:] == [str(DAEMON.pw_uid), str(DAEMON.pw_gid)]

    def close(self):
        for user in self.users.values():
            user.close()
        self.emperor.finish()


@pytest.fixture
def host(open_directory):
    """Makes a host whose emperor has these places and lines; `vassals` is one of them."""
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    made = []

    def host(*places, lines=()):
        places = ["emperor = {directory}/vassals", *(f"emperor = {{directory}}/{place}" for place in places)]
        made.append(Host(python, open_directory, places, *lines))
        return made[-1]

    yield host
    for one in made:
        one.close()


def folder(path, owner=None, mode=0o755):
    path.mkdir(parents=True)
    path.chmod(mode)
    if owner:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def file(path, owner, text, mode=0o644):
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def test_a_file_that_is_swapped_while_the_emperor_looks_starts_nothing_but_its_owners_vassal(host, free_port):
    # A vassal that has opened a pipe waits for its writer.
    host = host(lines=["emperor-curse-tolerance = 1"])
    host.emperor.vassals.chmod(0o1777)
    nobodys, other = host.users[NOBODY], folder(host.directory / "games", GAMES)
    foreign = file(other / "foreign.ini", GAMES, host.text(GAMES), 0o600)
    host.start(free_port())
    path = host.emperor.vassals / "bad.ini"
    host.owners["bad.ini"] = {NOBODY.pw_uid}
    own = ["file", host.text(NOBODY)]
    others = [["link", f"{host.roots}/secret.ini"], ["link", str(foreign)], ["name", str(foreign)], ["pipe"], ["directory"]]
    for last in others:
        things = [thing for other in others for thing in (own, other)]
        host.during(nobodys, "swap", path, things, 200)
        host.during(nobodys, "swap", path, [own, last], 2)
        host.look_again()
    host.check()
    # What was seen last is that of its owner, who is served like anyone.
    started = host.emperor.log.count("vassal bad.ini started (pid")
    nobodys.do("put", path, *own)
    wait_until(lambda: host.emperor.log.count("vassal bad.ini started (pid") > started, lambda: host.emperor.log)
    host.check()


def start_held(host, path, port):
    """Starts a host whose vassals wait for a file before they read their own. Returns how to let them go on."""
    host.start(port)
    name = path.name if path.parent == host.emperor.vassals else str(path)
    seen = (f"vassal {name} started (pid", f"vassal {name} is not started")

    def go_on(change):
        wait_until(lambda: any(words in host.emperor.log for words in seen), lambda: host.emperor.log)
        assert change() == ""
        (host.directory / "go").touch()
        end = re.compile(rf"vassal {re.escape(name)} \(pid \d+\) (exited|was killed)|{re.escape(seen[1])}")
        wait_until(lambda: host.notes.read_text() or end.search(host.emperor.log), lambda: host.emperor.log)
        host.check()

    return go_on


def held(directory):
    """What holds a vassal back, except the one that is to go on."""
    return f"exec-as-vassal = test $1 = honest.ini || until [ -e {directory}/go ]; do sleep 0.01; done"


def test_a_file_that_another_user_has_replaced_after_the_look_is_not_read(host, free_port, open_directory):
    host = host(lines=[held(open_directory)])
    host.emperor.vassals.chmod(0o1777)
    path = file(host.emperor.vassals / "one.ini", NOBODY, host.text(NOBODY))
    go_on = start_held(host, path, free_port())

    def replace():
        # Without the sticky bit, each of its users may replace the files of the others.
        host.emperor.vassals.chmod(0o777)
        why = host.users[GAMES].do("write", path, host.text(GAMES))
        (host.directory / "go").touch()
        host.emperor.wait_for_log(f"{path} is not read: a user other than its owner may change")
        host.emperor.vassals.chmod(0o1777)
        return why

    go_on(replace)


@pytest.mark.parametrize("where", ["x/*/site.ini", "x/*/conf/site.ini"])
def test_a_folder_that_was_swapped_after_the_look_makes_no_user_run_what_another_wrote(where, host, free_port, open_directory):
    host = host(where, lines=[held(open_directory)])
    folder(host.directory / "x", mode=0o1777)
    path = host.directory / where.replace("*", "nobody")
    if path.parent.parent != host.directory / "x":
        folder(path.parent.parent, NOBODY)
    theirs = file(folder(host.directory / "theirs", GAMES) / "site.ini", GAMES, host.text(GAMES))
    own = file(folder(host.directory / "mine", NOBODY) / "site.ini", NOBODY, host.text(NOBODY))
    host.users[NOBODY].do("put", path.parent, "link", str(theirs.parent))
    go_on = start_held(host, path, free_port())
    go_on(lambda: host.users[NOBODY].do("put", path.parent, "link", str(own.parent)))


def test_a_module_that_another_user_puts_into_the_shared_folder_is_not_imported(host, free_port):
    port, host = free_port(), host()
    host.emperor.vassals.chmod(0o1777)
    (host.directory / "importing.py").write_text("import colorsys\nfrom witness import application\n")
    # It is one of Python's own, which no server has imported before.
    evil = f"import os\nopen({str(host.notes)!r}, 'a').write(f'games {{os.getuid()}}\\n')\n"
    host.users[GAMES].do("write", host.emperor.vassals / "colorsys.py", evil)
    file(host.emperor.vassals / "one.ini", NOBODY, host.text(NOBODY, port=port).replace("module = witness", "module = importing"))
    host.start(free_port())
    host.emperor.answer(port)
    host.check()


def test_a_folder_in_which_users_may_replace_the_files_of_others_starts_nothing(host, free_port):
    port, host = free_port(), host()
    host.emperor.vassals.chmod(0o777)
    file(host.emperor.vassals / "one.ini", NOBODY, host.text(NOBODY, port=port))
    host.emperor.start()
    why = f"a user other than its owner may change {host.emperor.vassals}: `chmod go-w` it, or `chmod +t` a directory that users"
    host.emperor.wait_for_log(f"vassal one.ini is not started: {why}")
    assert host.notes.read_text() == ""
    host.emperor.vassals.chmod(0o1777)
    assert host.emperor.answer(port)[3:] == [str(NOBODY.pw_uid), str(NOBODY.pw_gid)]


@pytest.mark.parametrize("where", ["the folder of the emperor", "a folder of a pattern", "a folder below that of the user"])
def test_a_folder_that_is_swapped_for_a_link_lets_no_user_choose_what_another_runs(where, host, free_port):
    place, in_nobodys = {
        "the folder of the emperor": ("of-nobody/vassals", "of-nobody/vassals"),
        "a folder of a pattern": ("x/*/site.ini", "x/nobody"),
        "a folder below that of the user": ("x/*/conf/site.ini", "x/nobody/conf"),
    }[where]
    host = host(place)
    folder(host.directory / "x", mode=0o1777)
    folder(host.directory / "of-nobody", NOBODY)
    if place.count("/") > 2:
        folder(host.directory / "x" / "nobody", NOBODY)
        folder(host.directory / "x" / "games", GAMES)
    folder(host.directory / "mine", NOBODY)
    file(host.directory / "mine" / "site.ini", NOBODY, host.text(NOBODY))
    theirs = folder(host.directory / "x" / "games" / ("conf" if place.count("/") > 2 else ""), GAMES) if "x" in place else None
    theirs = theirs or folder(host.directory / "theirs", GAMES)
    # Only its owner reads it, so no other user runs it by choice.
    file(theirs / "site.ini", GAMES, host.text(GAMES), 0o600)
    of_root = folder(host.directory / "of-root")
    (of_root / "site.ini").write_text(f"[uwsgi]\n{SECRET} = 1\n")
    (of_root / "site.ini").chmod(0o600)
    swapped = host.directory / in_nobodys
    host.users[NOBODY].do("put", swapped, "link", f"{host.directory}/mine")
    host.start(free_port())
    things = [["link", str(host.directory / name)] for name in ("mine", theirs.relative_to(host.directory), "mine", "of-root")]
    for _ in range(3):
        host.during(host.users[NOBODY], "swap", swapped, things, 1001)
        host.look_again()
    host.check()


def test_a_folder_that_is_a_users_link_starts_nothing_of_another_user(host, free_port):
    host = host("x/*/conf/site.ini")
    for owner in (NOBODY, GAMES):
        folder(host.directory / "x" / owner.pw_name, owner)
    folder(host.directory / "x" / "games" / "conf", GAMES)
    theirs = file(host.directory / "x" / "games" / "conf" / "site.ini", GAMES, host.text(GAMES))
    host.users[NOBODY].do("put", host.directory / "x" / "nobody" / "conf", "link", str(theirs.parent))
    host.start(free_port())
    # The user of the link would choose what `%d` and relative paths in the other's file mean.
    host.emperor.wait_for_log(f"vassal {theirs} started")
    host.look_again()
    assert f"vassal {host.directory}/x/nobody/conf/site.ini started" not in host.emperor.log
    host.check()


def demand(host, user, name, address):
    """Writes a vassal of a user's that starts at the first connection to an address."""
    file(host.emperor.vassals / f"{name}.socket", user, f"{address}\n")
    return file(host.emperor.vassals / name, user, host.text(user))


def test_a_users_address_on_demand_makes_and_removes_no_file_where_the_user_may_not(host, free_port):
    host = host(lines=["emperor-on-demand-ext = .socket"])
    stale = host.roots / "stale.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    host.before = host.state_of_roots()
    demand(host, NOBODY, "new.ini", host.roots / "new.sock")
    demand(host, NOBODY, "stale.ini", stale)
    demand(host, NOBODY, "good.ini", folder(host.directory / "own", NOBODY) / "good.sock")
    host.start(free_port())
    host.emperor.wait_for_log("vassal good.ini waits for its first connection")
    host.look_again()
    host.check()
    assert (host.directory / "own" / "good.sock").lstat().st_uid == NOBODY.pw_uid


def test_a_users_address_on_demand_is_no_port_that_only_root_may_open(host, free_port):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
        pytest.skip("each user may open each port here")
    host = host(lines=["emperor-on-demand-ext = .socket"])
    demand(host, NOBODY, "port.ini", "127.0.0.1:83")
    demand(host, NOBODY, "good.ini", f"127.0.0.1:{free_port()}")
    host.start(free_port())
    host.emperor.wait_for_log("vassal good.ini waits for its first connection")
    host.look_again()
    assert "vassal port.ini waits for its first connection" not in host.emperor.log
    host.check()


def test_who_connects_to_a_users_address_on_demand_does_not_find_root_there(host, free_port):
    host = host(lines=["emperor-on-demand-ext = .socket"])
    path = folder(host.directory / "own", NOBODY) / "good.sock"
    demand(host, NOBODY, "good.ini", path)
    host.start(free_port())
    host.emperor.wait_for_log("vassal good.ini waits for its first connection")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert user == NOBODY.pw_uid


def hostile_lines(host):
    roots = host.roots
    return [
        [],
        ["uid = root", "gid = root"],
        [f"exec-as-root = touch {roots}/executed"],
        [f"exec-asap = touch {roots}/asap"],
        [f"logto = {roots}/log"],
        [f"pidfile = {roots}/pid"],
        [f"touch-reload = {roots}/secret.ini"],
        [f"http-socket = {roots}/own.sock", "chown-socket = root:root"],
        [f"include = {roots}/secret.ini"],
        [f"inherit = {roots}/secret.ini"],
        [f"env-file = {roots}/secret.ini"],
        [f"env = X=@({roots}/secret.ini)"],
    ]


def acts_of(chance, host, user, account, other):
    """Returns a random act of a user, as the words of the shell."""
    shared = [host.emperor.vassals / name for name in ("one.ini", "two.ini")]
    own = host.directory / "x" / account.pw_name / "conf"
    path = chance.choice([*shared, own / "site.ini"])
    secret = host.roots / "secret.ini"
    # Only its owner reads this one, so no other user runs it by choice.
    mode = 0o600 if path.parent == own else 0o644
    others = host.directory / "x" / other.pw_name / "conf"
    return chance.choice(
        [
            *[("write", path, host.text(account, *chance.choice(hostile_lines(host))), mode)] * 5,
            ("remove", path),
            ("chmod", path, chance.choice([mode | 0o020, mode | 0o002, mode, 0o4700])),
            ("put", path, "link", str(chance.choice([secret, others / "site.ini"]))),
            ("put", path, "name", str(chance.choice([secret, others / "site.ini"]))),
            ("put", path, "pipe"),
            ("put", path, "directory"),
            ("rename", *chance.sample(shared, 2)),
            ("put", own, chance.choice(["directory", "pipe"])),
            ("put", own, "link", str(chance.choice([host.roots, host.emperor.vassals]))),
            ("swap", shared[0], [["file", host.text(account)], ["link", str(secret)]], 300),
        ]
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_two_users_do_root_does_nothing_for_them_and_neither_runs_as_the_other(seed, host, free_port):
    chance = random.Random(seed)
    host = host("x/*/conf/site.ini")
    host.emperor.vassals.chmod(0o1777)
    for account in host.users:
        folder(host.directory / "x" / account.pw_name / "conf", account)
        os.chown(host.directory / "x" / account.pw_name, account.pw_uid, account.pw_gid)
    host.start(free_port())
    names = {name: host.emperor.vassals / name for name in ("one.ini", "two.ini")}
    done = []
    try:
        for step in range(20):
            account, other = chance.sample([NOBODY, GAMES], 2)
            user = host.users[account]
            words = acts_of(chance, host, user, account, other)
            done.append((account.pw_name, words[0], *map(str, words[1:]), user.do(*words)))
            for name, path in names.items():
                host.note_owner(name, path)
            host.sample()
            if step % 4 == 3:
                host.look_again()
                host.check()
        # Whatever they have left there, a file of one alone serves as this one again.
        for path in (*names.values(), host.directory / "x" / "nobody" / "conf"):
            for user in host.users.values():
                user.do("remove", path)
        port = free_port()
        host.users[NOBODY].do("write", names["one.ini"], host.text(NOBODY, port=port))
        host.note_owner("one.ini", names["one.ini"])
        assert host.emperor.answer(port)[3:] == [str(NOBODY.pw_uid), str(NOBODY.pw_gid)]
        host.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, after {json.dumps(done, indent=1)}") from error


def test_the_name_of_a_users_file_makes_no_line_of_the_log(host, free_port):
    host = host()
    path = file(host.emperor.vassals / "one\nforged by a user \x1b[31m.ini", NOBODY, host.text(NOBODY), 0o666)
    host.start(free_port())
    host.emperor.wait_for_log("its group or others may write it")
    lines = host.emperor.log.splitlines()
    assert not [line for line in lines if line.startswith("forged by a user") or "\x1b[31m" in line], path
    host.check()
