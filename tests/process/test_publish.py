"""`publish`: messages between the processes of an instance, on the real program."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest
from support.listeners import Listener, ask, assert_a_slow_listener_is_told_what_it_missed, in_each_worker, numbers
from support.metrics import metrics_address, value_of
from support.server import APPS
from support.waiting import wait_until
from support_upgrade import SERVES, upgrade

CONFIGURATION = """
asgi = listening_asgi:application
pythonpath = {apps}
publish = true
master = true
disable-logging = true
"""


@pytest.fixture
def shop(serve):
    return lambda *options, processes=4: serve(CONFIGURATION + "\n".join([f"processes = {processes}", *options]))


def listeners_line(size):
    """What a listener says of a long text."""
    return {"news": ["str", size, hashlib.sha256(b"x" * size).hexdigest()]}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_listener_in_each_worker_gets_what_one_publishes_in_its_order(shop, loop):
    server = shop(f"loop = {loop}")
    listeners = in_each_worker(server, 4)
    assert ask(server, "publish_all('news', 300)") == "300"
    for listener in listeners.values():
        assert listener.take(300) == numbers(300)


def published(server, call):
    """Returns the numbers of `bolide status`, and the packets for each process that listens, by its pid."""
    status, said = call("status", server.process.pid, "--json")
    assert status == 0, said
    numbers = json.loads(said)["publish"]
    return numbers, {listener["pid"]: listener["received"] for listener in numbers["listeners"]}


def test_only_processes_that_listen_to_a_channel_are_woken(shop, call):
    server = shop()
    news, weather = Listener(server), None
    while weather is None or news.pid == weather.pid:
        weather = Listener(server, channels="weather,sport")
    before = published(server, call)[1]
    assert ask(server, "publish('news', 'a', 'b')") == "[1, 1]"
    assert ask(server, "publish('sport', 'c')") == "[1]"
    assert ask(server, "publish('nobody', *'d' * 100)") == str([0] * 100)
    assert (news.take(2), weather.next()) == ([{"news": "a"}, {"news": "b"}], {"sport": "c"})
    numbers, after = published(server, call)
    assert (after[news.pid] - before[news.pid], after[weather.pid] - before[weather.pid]) == (2, 1)
    assert (numbers["published"], numbers["delivered"], numbers["missed"]) == (103, 3, 0)
    assert "publish: 103 messages, 3 delivered, 0 missed, " in call("status", server.process.pid)[1]


def test_an_instance_without_listeners_has_none_and_says_what_was_published(shop, call):
    server = shop(processes=2)
    none = {"published": 0, "delivered": 0, "missed": 0, "remote": None, "inboxes": 8, "listeners": []}
    assert published(server, call) == (none, {})
    listener = Listener(server)
    assert ask(server, "publish('news', 'a')") == "[1]"
    assert len(published(server, call)[1]) == 1
    listener.close()
    wait_until(lambda: published(server, call)[1] == {}, "the last listener has left")
    assert ask(server, "publish('news', 'b')") == "[0]"


def test_threads_and_tasks_of_a_process_listen_together_while_others_come_and_go(shop):
    server = shop(processes=1)
    started = ask(server, "mixed(2000)")
    outcomes = wait_until(lambda: (said := ask(server, f"results.get({started})")) != "None" and said, "all have ended")
    assert outcomes == str([True] * 8)
    wait_until(lambda: ask(server, "leftovers()") == "[0, None]", lambda: ask(server, "leftovers()"))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_subscriptions_leave_nothing_behind(shop, loop):
    server = shop(f"loop = {loop}", processes=1)
    for _ in range(3):
        listeners = [Listener(server, channels=f"news,own-{number}") for number in range(5)]
        assert ask(server, "publish('news', 'a')") == "[1]"
        for listener in listeners:
            assert listener.next() == {"news": "a"}
            listener.close()
        wait_until(lambda: ask(server, "leftovers()") == "[0, None]", lambda: ask(server, "leftovers()"))


def test_the_metrics_count_messages_and_listeners(shop):
    server = shop("metrics = 127.0.0.1:0", processes=1)
    address = metrics_address(server)
    listener = Listener(server)
    assert ask(server, "publish('news', 'a', 'b') + publish('nobody', 'c')") == "[1, 1, 0]"
    counted = [value_of(address, "bolide_publish_messages_total", result=key) for key in ("published", "delivered", "missed")]
    assert (counted, value_of(address, "bolide_publish_listeners")) == ([3, 2, 0], 1)
    listener.close()


@pytest.mark.parametrize("kind", ["bytes", "str"])
def test_messages_of_every_size_arrive_in_the_order_in_which_they_were_sent(shop, kind):
    server = shop(processes=2)
    letter = "b'x'" if kind == "bytes" else "'x'"
    listeners = in_each_worker(server, 2)
    sizes = [0, 1, 65_535, 65_536, 65_537, 1 << 20, 3, 16 << 20, 2]
    asked = ", ".join(f"{letter} * {size}" for size in sizes)
    assert ask(server, f"publish('news', {asked})") == str([2] * len(sizes))
    for listener in listeners.values():
        for size in sizes:
            said = listener.next()["news"]
            if size > 200:
                assert said == [kind, size, hashlib.sha256(b"x" * size).hexdigest()]
            else:
                assert said == ("x" * size if kind == "str" else [120] * size)


def test_bad_messages_and_channels_are_refused_with_words(shop):
    server = shop(processes=1)
    for expression, said in [
        ("publish('', 'x')", "ValueError: the name of a channel has 1 to 255 bytes, not 0"),
        ("publish('ü' * 128, 'x')", "ValueError: the name of a channel has 1 to 255 bytes, not 256"),
        (
            "publish('a', b'x' * (16 * 1024 * 1024 + 1))",
            "ValueError: 16777217 bytes are too many for a message: the most are 16777216",
        ),
        ("publish('a', 7)", "TypeError: a message is bytes or str, not int"),
        ("bolide.subscribe('x' * 256)", "ValueError: the name of a channel has 1 to 255 bytes, not 256"),
        ("bolide.subscribe('x', most=0)", "ValueError: most = 0: a subscription keeps at least 1 message"),
        ("next(bolide.subscribe('x'))", "RuntimeError: `for` would block the event loop: use `async for`"),
    ]:
        assert ask(server, expression) == said
    assert ask(server, "publish('x' * 255, 'x', bytearray(b'y'), memoryview(b'z'))") == "[0, 0, 0]"
    assert "\\ud800" in ask(server, "publish('a', '\\ud800')")


def test_a_subscription_that_is_too_slow_loses_the_oldest_messages_and_is_told_how_many(shop, tmp_path):
    server = shop(processes=1)
    assert_a_slow_listener_is_told_what_it_missed(server, tmp_path / "gate")


def block_one(server, gate):
    """Blocks the loop of one worker until the file `gate` exists; returns the connection of this request."""
    begun = gate.with_suffix(".begun")
    blocked = server.connect()
    code = f"(open('{begun}','w').close(),block('{gate}'))"
    blocked.send(f"GET /?{code} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    # Before that, the worker may take another request, which would not be answered, and may read messages.
    wait_until(begun.exists, "a worker is blocked")
    return blocked


def test_a_process_that_does_not_read_does_not_hold_up_publishers_and_is_told_what_it_missed(shop, tmp_path):
    server = shop(processes=2)
    gate = tmp_path / "gate"
    listeners = in_each_worker(server, 2, most=100_000)
    blocked = block_one(server, gate)
    # The worker that does not block publishes, and its own listener gets everything: it empties its inbox in between.
    publisher = int(ask(server, "(publish_all('news', 5000), os.getpid())[1]"))
    assert listeners[publisher].take(5000) == numbers(5000)
    gate.touch()
    (listener,) = (listener for pid, listener in listeners.items() if pid != publisher)
    arrived, missed = [], 0
    while len(arrived) + missed < 5000:
        said = listener.next()
        missed += said.get("missed", 0)
        arrived += [said] if "news" in said else []
    assert (len(arrived) + missed, missed > 0, arrived[:100]) == (5000, True, numbers(100))
    # The subscription goes on.
    assert ask(server, "publish('news', 'more')") == "[2]"
    assert listener.next() == {"news": "more"}
    blocked.close()


def test_many_publishers_at_the_same_time_keep_their_orders_and_each_message_arrives_or_is_counted(shop):
    server = shop("publish-inbox-size = 131072")
    listeners = in_each_worker(server, 4, most=100_000)
    for name in range(8):
        ask(server, f"in_background('news', 'publisher-{name}', 500)")
    for listener in listeners.values():
        numbers_of, missed = {}, 0
        while sum(map(len, numbers_of.values())) + missed < 4000:
            said = listener.next()
            missed += said.get("missed", 0)
            if "news" in said:
                name, number = said["news"].split()
                numbers_of.setdefault(name, []).append(int(number))
        assert all(numbers == sorted(set(numbers)) for numbers in numbers_of.values())
        assert sum(map(len, numbers_of.values())) + missed == 4000


def test_large_messages_that_no_process_reads_are_bounded_and_counted(shop, tmp_path, call):
    server = shop(processes=2)
    gate = tmp_path / "gate"
    listeners = in_each_worker(server, 2)
    blocked = block_one(server, gate)
    said = ask(server, "[publish('news', *['x' * 100_000] * 20), os.getpid()]")
    publisher = int(said.strip("[]").split(", ")[-1])
    assert listeners[publisher].take(20) == [listeners_line(100_000)] * 20
    assert published(server, call)[0]["missed"] == 4
    gate.touch()
    (listener,) = (listener for pid, listener in listeners.items() if pid != publisher)
    assert sorted(map(str, listener.take(17))) == sorted(map(str, [*[listeners_line(100_000)] * 16, {"missed": 4, "in_all": 4}]))
    # There is room again.
    assert ask(server, "publish('news', *['x' * 100_000] * 5)") == "[2, 2, 2, 2, 2]"
    assert listener.take(5) == [listeners_line(100_000)] * 5
    blocked.close()


def test_a_killed_listener_loses_nothing_of_others_and_its_successor_starts_clean(shop):
    server = shop(processes=3)
    server.expects_alarms = True
    listeners = in_each_worker(server, 3)
    victim, *others = listeners.values()
    os.kill(victim.pid, signal.SIGKILL)
    assert victim.has_ended()
    wait_until(lambda: ask(server, "publish('weather', 'a')") == "[0]", "a worker answers")
    assert ask(server, "publish_all('news', 300)") == "300"
    for other in others:
        assert other.take(300) == numbers(300)
    pids = {other.pid for other in others}
    (successor,) = in_each_worker(server, 1, without=pids).values()
    assert ask(server, "publish('news', 'last')") == "[3]"
    assert successor.next() == {"news": "last"}


def test_listeners_that_are_killed_with_their_prototype_are_forgotten(start, call):
    options = ("--asgi", "listening_asgi:application", "--pythonpath", APPS, "--publish", "--processes", "2")
    instance = start(*options, module=None, alarms=True)
    listeners = in_each_worker(instance, 2)
    for pid in [instance.prototype(), *listeners]:
        os.kill(pid, signal.SIGKILL)
    new = in_each_worker(instance, 2, without=listeners)
    assert ask(instance, "publish('news', 'a')") == "[2]"
    assert set(published(instance, call)[1]) == set(new)
    for listener in new.values():
        assert listener.next() == {"news": "a"}


@pytest.mark.parametrize("options", ["processes = 1", "processes = 2\nlazy-apps = true\nmaster = true"], ids=["alone", "lazy"])
def test_workers_that_load_the_application_themselves_listen_too(serve, options):
    server = serve(CONFIGURATION.replace("master = true\n", "") + options)
    count = 2 if "lazy" in options else 1
    listeners = in_each_worker(server, count)
    assert ask(server, "publish('news', 'a')") == f"[{count}]"
    for listener in listeners.values():
        assert listener.next() == {"news": "a"}


def test_both_generations_get_messages_until_the_old_one_has_drained(shop):
    server = shop("worker-reload-mercy = 600", "reload-mercy = 600", processes=2)
    old = in_each_worker(server, 2)
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    new = in_each_worker(server, 2, without=old)
    assert ask(server, "publish('news', 'to all')") == "[4]"
    for listener in [*old.values(), *new.values()]:
        assert listener.next() == {"news": "to all"}
    for listener in old.values():
        listener.close()
    wait_until(lambda: ask(server, "publish('news', 'to the new ones')") == "[2]", "the old generation is gone")


def test_without_the_option_the_functions_say_which_one_is_missing(serve):
    server = serve("asgi = listening_asgi:application\npythonpath = {apps}\ndisable-logging = true\n")
    for function, expression in [("publish", "publish('a', 'x')"), ("subscribe", "bolide.subscribe('a')")]:
        assert ask(server, expression) == (
            f"RuntimeError: bolide.{function}() needs a server with the option `publish`: "
            "write `publish = true` into its configuration"
        )


def test_outside_of_a_server_the_functions_say_the_same(tmp_path):
    code = "import bolide\ntry:\n    bolide.publish('a', 'x')\nexcept RuntimeError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("bolide.publish() needs a server with the option `publish`"), done


def test_a_subscription_while_the_application_is_loaded_is_refused_with_words(serve, tmp_path):
    (tmp_path / "early.py").write_text("import bolide\nbolide.subscribe('news')\ndef application(environ, start_response): ...\n")
    server = serve.prepare(f"wsgi-file = {tmp_path}/early.py\nmaster = true\nprocesses = 2\npublish = true\nneed-app = true")
    server.expects_alarms = True
    server.launch()
    server.wait_for_log("bolide.subscribe\\(\\) was called while the application was being loaded")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("publish-inbox-size = 200000", "`publish-inbox-size` has no effect without `publish`"),
        ("publish = true\npublish-inbox-size = 1000", "publish-inbox-size"),
    ],
)
def test_bad_options_are_said(call, tmp_path, lines, said):
    (tmp_path / "shop.ini").write_text(f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nwsgi-file = /nowhere.py\n{lines}\n")
    assert said in call("check", tmp_path / "shop.ini")[1]


def test_too_few_descriptors_for_the_inboxes_are_said_at_startup(fail):
    options = ["--http-socket", "127.0.0.1:0", "--asgi", "listening_asgi", "--processes", "64", "--publish", "--max-fd", "256"]
    status, lines = fail(*options)
    assert (status, lines[-1]) == (
        1,
        "bolide: not started: no sockets for messages between processes: Too many open files for the queues of messages: "
        "raise the limit (max-fd, LimitNOFILE), or set fewer processes",
    )


def test_an_upgrade_hands_the_inboxes_on(upgradable, tmp_path):
    options = ("--asgi", "listening_asgi:application", "--pythonpath", APPS, "--publish", "--processes", "2")
    server = upgradable(*options, "--reload-mercy", "600", module=None)
    old = in_each_worker(server, 2)
    upgrade(tmp_path)
    server.wait_for_log(SERVES)
    new = in_each_worker(server, 2, without=old)
    assert ask(server, "publish('news', 'to all')") == "[4]"
    for listener in [*old.values(), *new.values()]:
        assert listener.next() == {"news": "to all"}
        listener.close()


def test_a_reload_that_needs_more_inboxes_says_that_it_starts_with_new_ones(shop):
    server = shop("reload-mercy = 600", processes=1)
    old = Listener(server)
    server.configure(CONFIGURATION + "processes = 6\nreload-mercy = 600\n")
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: reload: inboxes: its settings have changed, so it starts empty$")
    new = in_each_worker(server, 6, without={old.pid})
    # The order to drain may be on its way: until it arrives, the old worker answers too, and publishes to its own inboxes.
    publication = f"os.getpid() != {old.pid} and publish('news', 'to the new ones')"
    assert wait_until(lambda: (said := ask(server, publication)) != "False" and said, "an answer of a new worker") == "[6]"
    for listener in new.values():
        assert listener.next() == {"news": "to the new ones"}
    old.close()


def test_a_child_that_the_application_forks_has_a_subscription_of_its_own(shop):
    server = shop(processes=1)
    listener = Listener(server)
    assert ask(server, "in_child()") == "'the copy is closed, the child heard x, its parent did not end'"
    assert ask(server, "publish('news', 'a')") == "[1]"
    assert listener.next() == {"news": "a"}


def test_subscriptions_change_their_channels_and_end(shop):
    server = shop(processes=1)
    assert ask(server, "changes()") == "'a b c, then b d, then nothing'"
