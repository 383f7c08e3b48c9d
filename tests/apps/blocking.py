"""Applications that wait for each other: their responses prove that they ran at the same time."""

import threading
import time

PLAIN = [("Content-Type", "text/plain")]
TIMEOUT_SECONDS = 60

#: Duration of a call that is longer than the polling interval of a worker's other threads.
CALL_SECONDS = 0.02

condition = threading.Condition()
pair = threading.Barrier(2, timeout=TIMEOUT_SECONDS)
present = 0
most = 0
released = threading.Event()
ticks = 0


def at_fine(query):
    return "fine"


def at_meet(query):
    """Waits until ``count`` requests are inside at the same time."""
    global present, most
    with condition:
        present += 1
        most = max(most, present)
        condition.notify_all()
        met = condition.wait_for(lambda: most >= int(query), TIMEOUT_SECONDS)
        present -= 1
    return f"met {most}" if met else f"alone with {most}"


def at_sleep(query):
    """As in the issue: sleeps, and counts the concurrent sleepers."""
    global present, most
    with condition:
        present += 1
        most = max(most, present)
    time.sleep(0.1)
    with condition:
        present -= 1
    return str(most)


def at_wait(query):
    return "released" if released.wait(TIMEOUT_SECONDS) else "waited in vain"


def at_spin(query):
    end = time.monotonic() + TIMEOUT_SECONDS
    while not released.is_set():
        if time.monotonic() > end:
            return "span in vain"
    return "released"


def at_release(query):
    released.set()
    return "fine"


def at_release_later(query):
    threading.Timer(0.2, released.set).start()
    return "fine"


def at_forget(query):
    global most
    released.clear()
    most = 0
    return "fine"


def at_threads(query):
    return str(threading.active_count())


def at_name(query):
    time.sleep(0.05)
    return threading.current_thread().name


def at_rest(query):
    """Off the CPU for a while, like a database query. Returns the thread's name."""
    time.sleep(CALL_SECONDS)
    return threading.current_thread().name


def at_work(query):
    """The same on the CPU."""
    end = time.thread_time() + CALL_SECONDS
    while time.thread_time() < end:
        pass
    return threading.current_thread().name


def at_pair(query):
    """Waits until two requests are inside at the same time. Returns the thread's name."""
    pair.wait()
    return threading.current_thread().name


def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)


def at_start(query):
    threading.Thread(target=tick, daemon=True).start()
    return "fine"


def at_ticks(query):
    return str(ticks)


def at_echo(query):
    return query


class Closing:
    """A response whose ``close()`` blocks, like one that returns a database connection: the client has the body already."""

    def __init__(self, body):
        self.body = body

    def __iter__(self):
        return iter([self.body])

    def close(self):
        time.sleep(0.05)


def at_closing(query):
    return Closing(query.encode())


def application(environ, start_response):
    answer = globals()["at_" + environ["PATH_INFO"].strip("/")](environ["QUERY_STRING"])
    if isinstance(answer, Closing):
        start_response("200 OK", [*PLAIN, ("Content-Length", str(len(answer.body)))])
        return answer
    start_response("200 OK", PLAIN)
    return [answer.encode()]
