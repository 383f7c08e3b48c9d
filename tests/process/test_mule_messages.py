"""Messages to mules: each one that was accepted is taken once, whatever happens to the mule's process in the meantime."""

import os
import signal
import threading

import pytest
from support import processes
from support.statistics import read_statistics
from support.waiting import wait_until
from support_instance import reload_by_command
from support_mules import helpers_of, prepare, wait_for_notes

#: The shop sends the message that the path says, and takes messages as notes.
MAIL = """
from uwsgidecorators import *
def answer(path):
    to, _, message = path[1:].partition("/")
    arguments = [int(to) if to.isdigit() else to] if to != "any" else []
    try:
        return str(uwsgi.mule_msg(message, *arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def take(message):
    note(f"{uwsgi.mule_id()}:{message.decode()}")
uwsgi.mule_msg_hook = take
"""
#: The hook waits for a gate.
GATED = """
def take(message):
    note("begins")
    while not os.path.exists("gate"):
        time.sleep(0.01)
    note("ends")
uwsgi.mule_msg_hook = take
"""
#: The code catches every exception.
STUBBORN = """\
import shop, uwsgi
shop.note("works")
while True:
    try:
        uwsgi.mule_get_msg()
    except:
        pass
"""
#: The mule has a decorated function for its messages, one of which it can't take.
OWN = """
@mulemsg(1)
def own(message):
    note("own-" + message.decode())
    if message == b"bad":
        raise ValueError("bad mail")
"""
#: The same with a script that takes them itself.
LOOP = """\
import shop, uwsgi
while True:
    message = uwsgi.mule_get_msg()
    shop.take(message)
"""


@pytest.fixture
def shop(serve, tmp_path):
    return lambda *options, source=MAIL, **more: prepare(serve, tmp_path, *options, source=source, **more)


def test_a_message_reaches_any_mule_one_mule_or_a_farm(shop):
    mail = shop("mules = 3", "farm = post:2,3", "farm = solo:1")
    expected = {"any/a": "123", "0/b": "123", "1/c": "1", "3/d": "3", "post/e": "23", "solo/f": "1"}
    for path in expected:
        assert mail.get(f"/{path}").text == "True"
    wait_until(lambda: len(mail.words()) == len(expected), mail.words)
    found = {message: number for number, message in (word.split(":") for word in mail.words())}
    assert all(found[path[-1]] in numbers for path, numbers in expected.items()), found
    for path, refusal in {"4/x": "invalid mule number", "nobody/x": "unknown farm"}.items():
        assert mail.get(f"/{path}").text == f"ValueError: {refusal}"


def test_without_mules_a_message_has_no_place(shop):
    assert shop().get("/any/x").text == "ValueError: no mule configured"


@pytest.mark.parametrize("mule", ["mules = 1", "mule = loop.py"])
def test_reloads_and_deaths_lose_no_message_that_waits_and_take_none_twice(mule, shop):
    mail = shop(mule, "processes = 2", files={"loop.py": LOOP})
    mail.expects_alarms = True
    sent, is_over = [], threading.Event()

    def send_all():
        while not is_over.is_set():
            number = len(sent)
            if mail.get(f"/1/{number}").text == "True":
                sent.append(f"1:{number}")

    client = threading.Thread(target=send_all)
    client.start()
    for _ in range(2):
        enough = len(sent) + 20
        wait_until(lambda enough=enough: len(sent) > enough, "messages")
        reload_by_command(mail)
    is_over.set()
    client.join()
    wait_until(lambda: len(mail.words()) >= len(sent), lambda: f"{len(sent)}: {mail.words()[-5:]}")
    assert mail.words() == sent


def test_a_message_in_progress_is_finished_at_a_reload_and_the_next_mule_waits_for_that(shop, call):
    mail = shop("mules = 1", source=MAIL + GATED)
    assert mail.get("/1/a").text == "True"
    (first,) = wait_for_notes(mail, "begins", 1)
    reload_by_command(mail)
    assert mail.get("/1/b").text == "True"
    (old,) = helpers_of(call, mail)
    assert (old["pid"], old["state"], old["generation"]) == (first, "ending", 1)
    assert old["in_flight"][0]["work"] == "a message of 1 bytes"
    gate(mail)
    assert wait_for_notes(mail, "ends", 2)[0] == first
    assert wait_for_notes(mail, "begins", 2)[1] != first
    assert mail.words() == ["begins", "ends", "begins", "ends"]


def test_a_message_that_takes_longer_than_the_mercy_is_cut_off_with_a_line(shop):
    source = MAIL + "def take(message):\n    note('begins')\n    time.sleep(600)\nuwsgi.mule_msg_hook = take\n"
    mail = shop("mules = 1", "mule-reload-mercy = 1", source=source)
    mail.expects_alarms = True
    mail.get("/1/a")
    (first,) = wait_for_notes(mail, "begins", 1)
    reload_by_command(mail)
    mail.wait_for_log(rf"^bolide: mule 1 \(pid {first}\) did not finish within 1 s \(mule-reload-mercy\): killing it")
    mail.get("/1/b")
    wait_for_notes(mail, "begins", 2)


def test_a_full_queue_refuses_and_is_counted(shop, call):
    source = MAIL + "def forever():\n    note('works')\n    while True: time.sleep(3600)\n"
    mail = shop("mule = shop:forever", "mule-msg-size = 4096", "stats = {directory}/stats.sock", source=source)
    wait_for_notes(mail, "works", 1)
    answers = [mail.get("/1/x").text for _ in range(40)]
    accepted = answers.count("True")
    assert answers == ["True"] * accepted + ["False"] * (40 - accepted)
    assert 0 < accepted < 40
    mail.wait_for_log("the queue of messages to mule 1 is full, and refused a message")
    assert mail.log.count("is full") == 1
    assert read_statistics(str(mail.directory / "stats.sock"))["refused_messages"] == 40 - accepted
    assert (
        f"mules: {40 - accepted} messages were refused because their queue was full\n" in call("status", str(mail.process.pid))[1]
    )
    assert mail.get("/1/" + "x" * 10000).text == "False"


def test_a_mule_that_is_killed_leaves_the_waiting_messages_to_the_next_one(shop):
    source = MAIL + "def take(message):\n    note(message.decode())\n    if message == b'die': os.kill(os.getpid(), 9)\n"
    mail = shop("mules = 1", source=source + "uwsgi.mule_msg_hook = take\n")
    mail.expects_alarms = True
    for message in ("a", "die", "b", "die", "c"):
        assert mail.get(f"/1/{message}").text == "True"
    wait_for_notes(mail, "c", 1)
    assert mail.words() == ["a", "die", "b", "die", "c"]


def test_mule_harakiri_kills_a_mule_that_works_too_long_and_shows_its_stack(shop):
    source = MAIL + "def take(message):\n    note(message.decode())\n    if message == b'long': time.sleep(600)\n"
    mail = shop("mules = 1", "mule-harakiri = 5", source=source + "uwsgi.mule_msg_hook = take\n")
    mail.expects_alarms = True
    for message in ("short", "long", "after"):
        mail.get(f"/1/{message}")
    wait_for_notes(mail, "after", 1)
    (first,) = mail.notes("long")
    mail.wait_for_log(rf"^bolide: harakiri: mule 1 \(pid {first}\) works on a message of 4 bytes .*, the limit is 5 s")
    mail.wait_for_log(r"shop.py.* in take")
    mail.wait_for_log(rf"^bolide: harakiri: killing mule 1 \(pid {first}\)")
    assert mail.get("/any/x").text == "True"


LIMITED = """
def take(message):
    uwsgi.set_user_harakiri(4)
    note(message.decode())
    if message == b"long":
        time.sleep(600)
    uwsgi.set_user_harakiri(0)
    if message == b"removed":
        time.sleep(5)
        note("done")
uwsgi.mule_msg_hook = take
def own():
    if not os.path.exists("again"):
        open("again", "w").close()
        uwsgi.set_user_harakiri(4)
        note("long")
        time.sleep(600)
    uwsgi.set_user_harakiri(60)
    note("short")
    uwsgi.set_user_harakiri(0)
    time.sleep(600)
"""


def test_set_user_harakiri_limits_a_message_and_the_next_one_has_no_limit(shop):
    mail = shop("mules = 1", source=MAIL + LIMITED)
    mail.expects_alarms = True
    for message in ("removed", "long", "after"):
        mail.get(f"/1/{message}")
    wait_for_notes(mail, "after", 1)
    assert mail.words() == ["removed", "done", "long", "after"]
    (first,) = mail.notes("long")
    mail.wait_for_log(rf"^bolide: harakiri: mule 1 \(pid {first}\) works on a message of 4 bytes .*, the limit is 4 s")
    mail.wait_for_log(rf"^bolide: harakiri: killing mule 1 \(pid {first}\)")


def test_set_user_harakiri_limits_code_of_a_mule_outside_of_messages_until_the_limit_is_removed(shop):
    mail = shop("mule = shop:own", "mule-reload-mercy = 600", source=MAIL + LIMITED)
    mail.expects_alarms = True
    wait_for_notes(mail, "short", 1)
    (first,) = mail.notes("long")
    mail.wait_for_log(rf"^bolide: harakiri: mule 1 \(pid {first}\) works on code with a limit .*, the limit is 4 s")
    # Code without a limit does not put off the end.
    assert mail.stop() == 0


FUNCTIONS = """
from uwsgidecorators import *
@mulefunc
def of_any(*arguments, **named):
    note(f"{uwsgi.mule_id()}-of_any-{arguments}-{named}".replace(" ", ""))
@mulefunc(2)
def of_second(*arguments):
    note(f"{uwsgi.mule_id()}-of_second-{arguments}".replace(" ", ""))
@mulefunc("post")
def of_farm(*arguments):
    note(f"{uwsgi.mule_id()}-of_farm-{arguments}".replace(" ", ""))
@postfork
def everywhere():
    note(f"fork-{uwsgi.worker_id()}-{uwsgi.mule_id()}")
@mule(1)
def brain():
    note(f"brain-of-{uwsgi.mule_id()}")
@farm("post")
def of_post(message):
    note(f"post-{uwsgi.mule_id()}-{message.decode()}")
def answer(path):
    if path == "/farm":
        return str(uwsgi.farm_msg("post", "hello"))
    return f"{of_any(1, x=2)} {of_second(3)}"
"""


def test_the_decorators_for_mules_run_their_functions_where_they_should(shop):
    mail = shop("mules = 3", "farm = post:3", "enable-threads = true", source=FUNCTIONS)
    assert mail.get("/").text == "True True"
    assert mail.get("/farm").text == "None"
    wait_for_notes(mail, "post-3-hello", 1)
    wait_for_notes(mail, "2-of_second-(3,)", 1)
    any_note = wait_until(lambda: [word for word in mail.words() if "of_any" in word], mail.words)
    assert any_note[0] in [f"{number}-of_any-(1,)-{{'x':2}}" for number in (1, 2)]
    # Mules are forked at the same time, and each notes its steps when it comes to them.
    wait_for_notes(mail, "brain-of-1", 1)
    wait_until(lambda: sum(word.startswith("fork") for word in mail.words()) >= 4, mail.words)
    assert sorted(word for word in mail.words() if word.startswith("fork")) == ["fork-0-1", "fork-0-2", "fork-0-3", "fork-1-0"]


def test_the_loops_of_decorators_go_on_after_an_exception_in_one_message(shop):
    mail = shop("mules = 1", source=MAIL + OWN)
    for message in ("bad", "good"):
        mail.get(f"/1/{message}")
    wait_for_notes(mail, "own-good", 1)
    mail.wait_for_log("^mule 1: ValueError: bad mail")
    reload_by_command(mail)
    mail.get("/1/again")
    wait_for_notes(mail, "own-again", 1)
    assert len(set(mail.notes("own-bad") + mail.notes("own-good"))) == 1


def test_code_that_catches_every_exception_ends_all_the_same(shop):
    mail = shop("mule = loop.py", "mule-reload-mercy = 600", files={"loop.py": STUBBORN})
    wait_for_notes(mail, "works", 1)
    reload_by_command(mail)
    wait_for_notes(mail, "works", 2)
    assert mail.stop() == 0


def test_a_handler_of_the_mules_own_is_called_with_uwsgis_signal(shop):
    loop = (
        "import shop, signal, sys, uwsgi\n"
        "def leave(number, frame):\n    shop.note(f'signal-{number}')\n    sys.exit(0)\n"
        "for number in (signal.SIGHUP, signal.SIGINT):\n    signal.signal(number, leave)\n"
        "shop.note('works')\nwhile True: uwsgi.farm_get_msg()\n"
    )
    mail = shop("mule = loop.py", files={"loop.py": loop})
    wait_for_notes(mail, "works", 1)
    reload_by_command(mail)
    wait_for_notes(mail, f"signal-{int(signal.SIGHUP)}", 1)
    wait_for_notes(mail, "works", 2)
    assert mail.stop() == 0
    assert len(mail.notes(f"signal-{int(signal.SIGINT)}")) == 1


def test_touch_mules_reload_replaces_the_mules_alone(shop, call, tmp_path):
    (tmp_path / "touched").touch()
    mail = shop("mules = 2", f"touch-mules-reload = {tmp_path}/touched")

    def pids():
        found = helpers_of(call, mail)
        return len(found) == 2 and all(one["state"] == "serving" for one in found) and {one["pid"] for one in found}

    before = wait_until(pids, "two mules")
    worker = mail.get("/any/x").text
    os.utime(tmp_path / "touched")
    wait_until(lambda: (found := pids()) and not found & before, "two other mules")
    assert worker == "True"
    assert "generation 2" not in mail.log


def test_a_mule_with_too_much_memory_is_replaced_after_its_message(shop):
    source = MAIL + "kept = []\ndef take(message):\n    kept.append(bytearray(b'x') * (200 << 20))\n    note(message.decode())\n"
    mail = shop("mules = 1", "mule-reload-on-rss = 150", source=source + "uwsgi.mule_msg_hook = take\n")
    mail.get("/1/much")
    (first,) = wait_for_notes(mail, "much", 1)
    mail.wait_for_log(rf"^bolide: mule 1 \(pid {first}\) uses \d+ MiB of memory, and the limit is 150 MiB: it is replaced")
    wait_until(lambda: processes.look(first) is None, "its end")
    mail.get("/1/more")
    assert wait_for_notes(mail, "more", 1) != [first]


def test_a_hook_runs_in_each_mule_before_its_work(shop):
    mail = shop("mule = shop:forever", "hook-as-mule = call:shop.noted", source="def noted(): note('hooked')\n")
    wait_for_notes(mail, "works", 1)
    assert mail.words() == ["hooked", "works"]


def test_the_mules_of_an_upgrade_take_the_messages_that_wait(shop, call):
    source = MAIL + "def take(message):\n    note(message.decode())\n    while not os.path.exists('gate'): time.sleep(0.01)\n"
    mail = shop("mules = 1", "pidfile = {directory}/pid", source=source + "uwsgi.mule_msg_hook = take\n")
    for message in ("a", "b", "c"):
        assert mail.get(f"/1/{message}").text == "True"
    wait_for_notes(mail, "a", 1)
    status, said = call("upgrade", str(mail.process.pid))
    assert status == 0, said
    mail.wait_for_log("upgrade: the new master .* is ready, and this one exits")
    gate(mail)
    assert wait_for_notes(mail, "c", 1) != mail.notes("a")
    assert mail.words() == ["a", "b", "c"]
    os.kill(int((mail.directory / "pid").read_text()), signal.SIGTERM)
    mail.wait_for_log("stopped after")


def gate(instance):
    """Lets the messages in progress end."""
    (instance.shop / "gate").touch()
