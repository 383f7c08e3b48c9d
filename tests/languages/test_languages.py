"""What applications of each language that is a plugin have in common."""

import signal
import threading

from support.waiting import wait_until


def test_a_reload_takes_the_changed_file_and_loses_no_request(applications):
    say = applications.language.saying
    server = applications(say("old"), "processes = 2\nmaster = true")
    bodies, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            bodies.append(server.get("/said").text)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        wait_until(lambda: len(bodies) > 5, "requests")
        applications.write(server, say("new"))
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: bodies[-1] == "new", "the new code")
    finally:
        stop.set()
        thread.join()
    assert set(bodies) == {"old", "new"}


def test_a_change_of_the_file_reloads_it_with_develop(applications):
    server = applications(applications.language.saying("old"), "develop = true")
    assert server.get("/said").text == "old"
    applications.write(server, applications.language.saying("new"))
    wait_until(lambda: server.get("/said").text == "new", "the new code serves")
