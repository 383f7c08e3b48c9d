"""`publish` in threads, greenlets, mules, spoolers and timers, on the real program."""

import signal

import pytest
from support.listeners import Listener, ask, assert_a_slow_listener_is_told_what_it_missed, in_each_worker, numbers
from support.waiting import wait_until

CONFIGURATION = """
wsgi = listening:application
pythonpath = {apps}
publish = true
master = true
disable-logging = true
"""

KINDS = {
    "threads": "threads = 6",
    "gevent": "gevent = 50",
    "patched gevent": "gevent = 50\ngevent-monkey-patch = true",
}


@pytest.fixture
def shop(serve):
    return lambda *options, processes=2: serve(CONFIGURATION + "\n".join([f"processes = {processes}", *options]))


@pytest.mark.parametrize("kind", KINDS)
def test_each_listener_of_a_process_gets_each_message_in_order(shop, kind):
    server = shop(KINDS[kind])
    listeners = [Listener(server) for _ in range(4)]
    other = Listener(server, channels="weather")
    processes = len({listener.pid for listener in listeners})
    assert ask(server, "publish('news', 'first')") == f"[{processes}]"
    assert ask(server, "publish_all('news', 300)") == "300"
    for listener in listeners:
        assert listener.take(301) == [{"news": "first"}, *numbers(300)]
    assert ask(server, "publish('weather', b'rain')") == "[1]"
    assert other.next() == {"weather": list(b"rain")}
    # A listener that leaves does not take the others' messages with it.
    for listener in listeners[:2]:
        listener.close()
    for number in range(20):
        ask(server, f"publish('news', 'more {number}')")
    for listener in listeners[2:]:
        assert listener.take(20) == [{"news": f"more {number}"} for number in range(20)]


@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_leave_nothing_behind(shop, kind):
    server = shop(KINDS[kind], processes=1)
    for _ in range(3):
        # The server notices that a client has left when its stream sends something.
        listeners = [Listener(server, timeout=0.01) for _ in range(4)]
        for listener in listeners:
            assert listener.next() == "nothing"
            listener.close()
        wait_until(lambda: ask(server, "leftovers()") == "[0, None]", lambda: ask(server, "leftovers()"))


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_timeout_a_listener_gets_none_while_no_message_comes(shop, kind):
    server = shop(KINDS[kind], processes=1)
    patient, impatient = Listener(server), Listener(server, timeout=0.01)
    assert impatient.take(3) == ["nothing"] * 3
    assert ask(server, "publish('news', 'a')") == "[1]"
    assert patient.next() == {"news": "a"}
    said = impatient.next()
    while said == "nothing":
        said = impatient.next()
    assert said == {"news": "a"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_listener_is_told_what_it_missed(shop, kind, tmp_path):
    server = shop(KINDS[kind], processes=1)
    assert_a_slow_listener_is_told_what_it_missed(server, tmp_path / "gate")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=["reload", "stop"])
def test_waiting_ends_when_the_worker_drains(shop, kind, number):
    server = shop(KINDS[kind], "reload-mercy = 600", "worker-reload-mercy = 600", processes=1)
    listeners = [Listener(server) for _ in range(3)]
    server.send_signal(number)
    for listener in listeners:
        assert listener.next() == "the end"
        assert listener.has_ended()
    if number == signal.SIGHUP:
        wait_until(lambda: "generation 2" in server.log, "the new generation")
        (successor,) = in_each_worker(server, 1, without={listeners[0].pid}).values()
        assert ask(server, "publish('news', 'a')") == "[1]"
        assert successor.next() == {"news": "a"}


def test_a_thread_of_the_application_listens_beside_requests(shop, tmp_path):
    server = shop("threads = 2", processes=1)
    heard = tmp_path / "heard"
    assert ask(server, f"in_thread('news', {str(heard)!r})") == "'listens'"
    listener = Listener(server)
    for number in range(20):
        assert ask(server, f"publish('news', '{number}')") == "[1]"
    assert listener.take(20) == numbers(20)
    wait_until(lambda: heard.read_text() == "".join(f"{number}\n" for number in range(20)), "all are heard")


def test_mules_spoolers_and_timers_publish_and_a_mule_listens(shop, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "clock.py").write_text(
        "import bolide\nfrom uwsgidecorators import timer\n@timer(1)\ndef tick(number):\n    bolide.publish('ticks', 'tick')\n"
    )
    server = shop(
        "threads = 3",
        "mule = true",
        "mule = listening:listening_mule",
        "mule-reload-mercy = 600",
        f"spooler = {tmp_path}/jobs",
        f"import = {tmp_path}/clock.py",
        processes=1,
    )
    listener = Listener(server, channels="jobs,mules,answers,ticks")
    assert listener.next() == {"ticks": "tick"}

    def until(said):
        while (line := listener.next()) != said:
            assert line == {"ticks": "tick"}

    assert ask(server, "uwsgi.mule_msg(b'hello', 1)") == "True"
    until({"mules": list(b"heard hello")})
    assert ask(server, "uwsgi.spool({b'name': b'one'}) is not None") == "True"
    until({"jobs": "job one"})
    wait_until(lambda: ask(server, "publish('questions', 'who?')") == "[1]", "the mule listens")
    until({"answers": "mule 2: who?"})
    # A mule that waits is idle: a reload does not wait for its mercy.
    listener.close()
    old = {process.pid for process in server.processes()} - {server.process.pid}
    server.send_signal(signal.SIGHUP)
    # Until then the old worker and the old mule answer too.
    wait_until(lambda: old.isdisjoint(process.pid for process in server.processes()), lambda: f"their end: {server.log}")
    listener = Listener(server, channels="answers")
    wait_until(lambda: ask(server, "publish('questions', 'you?')") == "[1]", "the new mule listens")
    assert listener.next() == {"answers": "mule 2: you?"}
