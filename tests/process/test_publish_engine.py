"""`publish` with `engine`: messages of channels between instances, on a real redis-server."""

import os
import signal

import pytest
from support.listeners import Listener, ask, in_each_worker, numbers
from support.metrics import metrics_address, value_of
from support.redis_server import PATIENT
from support.waiting import wait_until

CONFIGURATION = """
asgi = listening_asgi:application
pythonpath = {{apps}}
publish = engine={url}
master = true
disable-logging = true
processes = {processes}
"""


@pytest.fixture
def shop(serve, redis):
    """Starts an instance that uses the server."""

    def shop(*options, processes=2, url=f"{redis.url}?{PATIENT}"):
        return serve(CONFIGURATION.format(url=url, processes=processes) + "\n".join(options))

    return shop


def wait_for_listeners(redis, count, channel="news"):
    """Wait until as many processes have subscribed to a channel at the server."""
    name = f"bolide:publish:0:{channel}"
    wait_until(lambda: redis.listeners(name) == count, lambda: f"{count} listeners of {name}, not {redis.listeners(name)}")


def test_a_message_reaches_each_listener_of_each_instance_once_and_in_its_order(shop, redis):
    here, there = shop(), shop()
    listeners = [*in_each_worker(here, 2).values(), *in_each_worker(there, 2).values()]
    wait_for_listeners(redis, 4)
    assert ask(here, "publish_all('news', 300)") == "300"
    for listener in listeners:
        assert listener.take(300) == numbers(300)
    # Each gets the messages of the other instance exactly once too, and none comes back.
    assert ask(there, "publish('news', 'back')") == "[2]"
    for listener in listeners:
        assert listener.next() == {"news": "back"}
    assert ask(here, "publish('news', 'last')") == "[2]"
    for listener in listeners:
        assert listener.next() == {"news": "last"}


@pytest.mark.parametrize("kind", ["bytes", "str"])
def test_messages_of_every_size_arrive_as_the_same_type(shop, redis, kind):
    here, there = shop(processes=1), shop(processes=1)
    listener = Listener(there)
    wait_for_listeners(redis, 1)
    letter = "b'x'" if kind == "bytes" else "'x'"
    sizes = [0, 1, 65_536, 65_537, 1 << 20, 3, 16 << 20, 2]
    asked = ", ".join(f"{letter} * {size}" for size in sizes)
    assert ask(here, f"publish('news', {asked})") == str([0] * len(sizes))
    for size in sizes:
        said = listener.next()["news"]
        if size > 200:
            assert said[:2] == [kind, size]
        else:
            assert said == ("x" * size if kind == "str" else [120] * size)


def test_only_listeners_of_a_channel_get_its_messages_and_the_server_forgets_those_that_left(shop, redis):
    here, there = shop(processes=1), shop(processes=1)
    news, weather = Listener(there), Listener(there, channels="weather,sport")
    wait_for_listeners(redis, 1)
    wait_for_listeners(redis, 1, "sport")
    assert ask(here, "publish('news', 'a') + publish('sport', 'b') + publish('nobody', 'c')") == "[0, 0, 0]"
    assert (news.next(), weather.next()) == ({"news": "a"}, {"sport": "b"})
    news.close()
    wait_for_listeners(redis, 0)
    weather.close()
    wait_for_listeners(redis, 0, "sport")
    again = Listener(there)
    wait_for_listeners(redis, 1)
    assert ask(here, "publish('news', 'd')") == "[0]"
    assert again.next() == {"news": "d"}


def test_a_publisher_does_not_wait_for_a_server_that_hangs_and_local_listeners_get_its_messages(shop, redis):
    url = f"{redis.url}?{PATIENT}"
    here, there = shop(processes=1, url=url), shop(processes=1)
    listener, other = Listener(here), Listener(there)
    wait_for_listeners(redis, 2)
    redis.freeze()
    # The server would answer after a minute at the earliest, and the publisher has answered before it goes on.
    assert ask(here, "publish_all('news', 200)") == "200"
    assert listener.take(200) == numbers(200)
    redis.thaw()
    assert other.take(200) == numbers(200)


def test_a_full_queue_is_counted_and_told(shop, redis, call):
    here = shop(processes=1, url=f"{redis.url}?{PATIENT}")
    redis.freeze()
    assert ask(here, "publish('news', *[b'x' * (12 * 1024 * 1024)] * 6)") == "[0, 0, 0, 0, 0, 0]"
    here.wait_for_log(
        r"^bolide: publish: messages did not get to engine redis\+unix://\S+ \(\d since the last line\): the queue is full$"
    )
    redis.thaw()
    wait_until(lambda: " 0 received" in (said := call("status", here.process.pid)[1]) and said, "the numbers")
    said = wait_until(
        lambda: (line := remote_line(call, here)) and "publish to other machines: 0 sent" not in line and line, "sent"
    )
    assert "unsent" in said


def remote_line(call, server):
    lines = call("status", server.process.pid)[1].splitlines()
    return next(line for line in lines if line.startswith("publish to other machines: "))


def test_a_killed_server_is_told_to_listeners_when_it_is_back(shop, redis, call):
    here, there = shop("metrics = 127.0.0.1:0"), shop()
    listeners = [*in_each_worker(here, 2).values(), *in_each_worker(there, 2).values()]
    wait_for_listeners(redis, 4)
    redis.kill()
    there.wait_for_log(
        r"^bolide: publish: a connection to engine redis\+unix://\S+ has ended: .*; messages of other machines may"
    )
    assert ask(here, "publish('news', 'only here')") == "[2]"
    for listener in listeners[:2]:
        assert listener.next() == {"news": "only here"}
    metrics = metrics_address(here)
    # Otherwise a late process would send it to the server that is back.
    wait_until(lambda: value_of(metrics, "bolide_publish_messages_total", result="unsent") >= 1, "the message is given up")
    redis.start()
    for listener in listeners:
        assert listener.next() == {"missed": 0, "in_all": 0}
    wait_for_listeners(redis, 4)
    wait_until(lambda: ask(here, "publish('news', 'a')") == "[2]" and " is back after " in "\n".join(here.lines), "its return")
    wait_until(lambda: value_of(metrics, "bolide_publish_interruptions_total") >= 2, "the interruptions")
    assert "interruptions" in remote_line(call, here)


def test_a_network_that_is_cut_is_noticed_and_what_follows_arrives(shop, redis, proxy):
    here, there = shop(processes=1), shop(processes=1, url=f"{proxy.url}?connect-ms=20000&answer-ms=5000")
    listener = Listener(there)
    wait_for_listeners(redis, 1)
    proxy.cut()
    # A new channel asks the server. Otherwise the pause of 10 seconds would have to pass first.
    second = Listener(there, channels="weather")
    assert ask(there, "publish('news', 'local')") == "[1]"
    assert listener.next() == {"news": "local"}
    there.wait_for_log(r"has ended: no answer to PING in time")
    proxy.heal()
    assert (listener.next(), second.next()) == ({"missed": 0, "in_all": 0}, {"missed": 0, "in_all": 0})
    assert ask(here, "publish('news', 'a') + publish('weather', 'b')") == "[0, 0]"
    assert (listener.next(), second.next()) == ({"news": "a"}, {"weather": "b"})


def test_a_subscription_that_begins_while_the_server_is_away_listens_when_it_is_back(shop, redis):
    here, there = shop(processes=1), shop(processes=1)
    redis.kill()
    listener = Listener(there)
    there.wait_for_log(r"^bolide: engine redis\+unix://\S+ is away: ")
    redis.start()
    assert listener.next() == {"missed": 0, "in_all": 0}
    assert ask(here, "publish('news', 'a')") == "[0]"
    assert listener.next() == {"news": "a"}


def test_both_generations_of_a_reload_and_the_other_instance_get_each_message_once(shop, redis):
    here, there = shop("worker-reload-mercy = 600", "reload-mercy = 600"), shop(processes=1)
    old, other = in_each_worker(here, 2), Listener(there)
    here.send_signal(signal.SIGHUP)
    here.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    new = in_each_worker(here, 2, without=old)
    wait_for_listeners(redis, 5)
    assert ask(here, "publish('news', 'to all')") == "[4]"
    assert ask(there, "publish('news', 'from there')") == "[1]"
    for listener in [*old.values(), *new.values(), other]:
        assert {listener.next()["news"], listener.next()["news"]} == {"to all", "from there"}
    for listener in old.values():
        listener.close()
    wait_for_listeners(redis, 3)


def test_generations_with_different_inboxes_share_messages_by_the_server(shop, redis):
    here = shop("reload-mercy = 600", processes=1)
    old = Listener(here)
    here.configure(CONFIGURATION.format(url=f"{redis.url}?{PATIENT}", processes=6) + "reload-mercy = 600\n")
    here.send_signal(signal.SIGHUP)
    here.wait_for_log(r"^bolide: reload: inboxes: its settings have changed, so it starts empty$")
    new = in_each_worker(here, 6, without={old.pid})
    wait_for_listeners(redis, 7)
    # The order to drain may be on its way: until it arrives, the old worker answers too, and publishes to its own inboxes.
    publication = f"os.getpid() != {old.pid} and publish('news', 'to all')"
    assert wait_until(lambda: (said := ask(here, publication)) != "False" and said, "an answer of a new worker") == "[6]"
    for listener in [old, *new.values()]:
        assert listener.next() == {"news": "to all"}
    old.close()


def test_a_killed_worker_leaves_nothing_behind_at_the_server(shop, redis):
    server, there = shop(processes=2), shop(processes=1)
    server.expects_alarms = True
    listeners = in_each_worker(server, 2)
    wait_for_listeners(redis, 2)
    victim, other = listeners.values()
    os.kill(victim.pid, signal.SIGKILL)
    wait_for_listeners(redis, 1)
    assert ask(there, "publish('news', 'a')") == "[0]"
    assert other.next() == {"news": "a"}


def test_a_child_that_the_application_forks_publishes_and_listens_with_connections_of_its_own(shop, redis):
    here, there = shop(processes=1), shop(processes=1)
    listener, other = Listener(here), Listener(there, channels="news,child")
    wait_for_listeners(redis, 2)
    assert ask(here, "publish('news', 'before')") == "[1]"
    assert ask(here, "in_child()") == "'the copy is closed, the child heard x, its parent did not end'"
    assert ask(here, "publish('news', 'after')") == "[1]"
    assert [listener.next() for _ in range(2)] == [{"news": "before"}, {"news": "after"}]
    assert sorted(map(str, other.take(3))) == sorted(map(str, [{"news": "before"}, {"news": "after"}, {"child": "x"}]))


def test_a_process_that_ends_sends_what_waits(shop, redis):
    listener = Listener(shop(processes=1))
    wait_for_listeners(redis, 1)
    ending = shop("max-requests = 1", processes=1)
    assert ask(ending, "publish_all('news', 1000)") == "1000"
    assert listener.take(1000) == numbers(1000)


def test_threads_and_greenlets_listen_to_other_machines_too(serve, redis):
    lines = CONFIGURATION.replace("asgi = listening_asgi:application", "wsgi-file = {{apps}}/listening.py")
    lines = lines.format(url=f"{redis.url}?{PATIENT}", processes=1)
    threads, greenlets = serve(lines + "threads = 4"), serve(lines + "gevent = 10")
    listeners = [Listener(server) for server in (threads, greenlets)]
    wait_for_listeners(redis, 2)
    for server in (threads, greenlets):
        assert ask(server, "publish_all('news', 50)") == "50"
    for listener in listeners:
        said = [line["news"] for line in listener.take(100)]
        assert sorted(said) == sorted([str(number) for number in range(50)] * 2)


def test_the_log_never_has_the_password(shop, redis):
    server = shop(processes=1, url=f"{redis.url}?pass=s3cr3tPASS&connect-ms=5000&answer-ms=5000")
    listener = Listener(server)
    server.wait_for_log(r"^bolide: engine redis\+unix://\S+ is away: the server refuses the password")
    assert all("s3cr3t" not in line for line in server.lines)
    listener.close()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("publish = engine=redis://", "`publish`: the engine's address: it has no host"),
        ("publish = engine=true", "`publish`: the engine's address: it is not the address of an engine"),
        ("publish = engine=redis://h?hold-seconds=5", "it has the unknown key `hold-seconds`"),
        ("publish = redis://:secret@127.0.0.1:6379/0", "`publish` is neither a switch nor an engine"),
    ],
)
def test_bad_engines_are_said(call, tmp_path, lines, said):
    (tmp_path / "shop.ini").write_text(f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nwsgi-file = /nowhere.py\n{lines}\n")
    status, told = call("check", tmp_path / "shop.ini")
    assert said in told
    assert status != 0
    assert "secret" not in told
