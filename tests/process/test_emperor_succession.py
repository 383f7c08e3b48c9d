"""An emperor that is killed: its sites serve on, and the next emperor takes them over and starts none twice."""

import os
import signal
import threading

import pytest
from support.client import Client
from support.emperor import Emperor
from support.server import program
from support.waiting import wait_until
from support_processes import children_of, is_alive


@pytest.fixture
def emperors(tmp_path):
    """Makes emperors of the same places, one after the other."""
    made = []

    def emperor():
        made.append(Emperor(program(), tmp_path, "emperor = {directory}/vassals", "emperor-freq = 3600"))
        return made[-1]

    yield emperor
    for one in reversed(made):
        one.finish()


def site(port, name, *lines):
    return [f"http-socket = 127.0.0.1:{port}", f"env = NAME={name}", *lines]


def kill(emperor):
    emperor.process.kill()
    emperor.process.wait()


def test_sites_serve_on_without_their_emperor_and_the_next_one_governs_them(emperors, free_port):
    ports = [free_port(), free_port()]
    first = emperors()
    for number, port in enumerate(ports):
        first.write(f"{number}.ini", *site(port, str(number)))
    first.start()
    before = [first.answer(port) for port in ports]
    masters = set(children_of(first.process.pid))
    losses, over = [], threading.Event()

    def ask():
        while not over.is_set():
            try:
                with Client(("127.0.0.1", ports[0])) as client:
                    assert client.request("GET", "/").status == 200
            except Exception as error:
                losses.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    kill(first)
    wait_until(lambda: first.log.count("serving on until the next one comes") == 2, lambda: first.log)
    second = emperors().start()
    for number in range(2):
        second.wait_for_log(f"vassal {number}.ini (pid ")
    wait_until(lambda: second.log.count("is taken over from the emperor before") == 2, lambda: second.log)
    over.set()
    thread.join()
    assert losses == []
    assert [second.answer(port) for port in ports] == before
    assert children_of(second.process.pid) == []
    assert "started (pid" not in second.log.split("emperor pid")[-1]
    # It governs them: by their files, and at its end.
    second.write("0.ini", *site(ports[0], "changed"))
    wait_until(lambda: second.answer(ports[0])[0] == "changed", lambda: second.log)
    (second.vassals / "1.ini").unlink()
    second.is_gone(ports[1])
    assert second.stop(signal.SIGTERM) == 0
    assert not any(is_alive(pid) for pid in masters)


def test_what_has_changed_in_the_meantime_counts(emperors, free_port):
    kept, changed, removed, added = (free_port() for _ in range(4))
    first = emperors()
    for name, port in (("kept", kept), ("changed", changed), ("removed", removed)):
        first.write(f"{name}.ini", *site(port, name))
    # One that a vassal has read in the second of its last change is read again: it may have changed after that.
    old = os.stat(first.vassals / "removed.ini").st_ctime
    wait_until(lambda: os.stat(first.write("clock.txt")).st_ctime >= old + 2, "two seconds")
    first.start()
    before = {port: first.answer(port) for port in (kept, changed, removed)}
    kill(first)
    first.write("changed.ini", *site(changed, "other"))
    (first.vassals / "removed.ini").unlink()
    first.write("added.ini", *site(added, "added"))
    second = emperors().start()
    assert second.answer(added)[0] == "added"
    wait_until(lambda: second.answer(changed)[0] == "other", lambda: second.log)
    second.is_gone(removed)
    assert second.answer(kept)[2] == before[kept][2]


def test_a_site_that_ends_under_the_next_emperor_starts_again(emperors, free_port):
    port = free_port()
    first = emperors()
    first.write("one.ini", *site(port, "one"))
    first.start()
    first.answer(port)
    (master,) = children_of(first.process.pid)
    kill(first)
    second = emperors().start()
    second.wait_for_log("is taken over from the emperor before")
    os.kill(master, signal.SIGKILL)
    wait_until(lambda: len(children_of(second.process.pid)) == 1, lambda: second.log)
    assert second.answer(port)[0] == "one"


def test_an_emperor_beside_another_tells_that_its_sites_do_not_answer(emperors, free_port):
    port = free_port()
    first = emperors()
    first.write("one.ini", *site(port, "one"))
    first.start()
    _, worker, *_ = first.answer(port)
    second = emperors().start()
    second.wait_for_log("1 vassal of an emperor of the same places does not answer: is another one running?")
    assert first.answer(port)[1] == worker
    second.stop(signal.SIGTERM)
    assert first.answer(port)[1] == worker
