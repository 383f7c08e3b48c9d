"""``write()`` and ``uwsgi.sendfile`` over HTTP/2: a thread inside a call continues when its client's window opens.

In the meantime another thread may read the connection, or this thread itself if all threads are in calls.
"""

import pytest
from support.files import assert_same, pattern
from support.http2 import CANCEL, INITIAL_WINDOW_SIZE, USUAL_WINDOW_BYTES, Both, settings
from support.waiting import wait_until

PART_BYTES = 65536
PARTS = 64
FEW = 5
LARGE = pattern(4 << 20)

APPLICATION = f"""
import uwsgi

def application(environ, start_response):
    path, name = environ["PATH_INFO"], environ["QUERY_STRING"]
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    try:
        if path == "/write":
            for number in range({PARTS}):
                write(b"%c" % (97 + number % 26) * {PART_BYTES})
        elif path == "/few":
            for number in range({FEW}):
                write(b"%c" % (97 + number) * {PART_BYTES})
            return [b"the end" * 1000]
        elif path == "/file":
            uwsgi.sendfile(environ["bolide.directory"] + "/large.bin")
        else:
            write(b"fine")
    finally:
        print("left", name, flush=True)
    return []
"""
WRITTEN = b"".join(b"%c" % (97 + number % 26) * PART_BYTES for number in range(PARTS))
WRITTEN_FEW = WRITTEN[: FEW * PART_BYTES] + b"the end" * 1000

#: Too small for a response, so that each call blocks.
SMALL_WINDOW_BYTES = 100


@pytest.fixture(scope="module", params=[1, 2, 4])
def both(request, serve_module, tmp_path_factory):
    directory = tmp_path_factory.mktemp("write")
    (directory / "large.bin").write_bytes(LARGE)
    (directory / "application.py").write_text(APPLICATION.replace('environ["bolide.directory"]', repr(str(directory))))
    (directory / "tls").mkdir()
    both = Both(serve_module, directory / "tls", f"wsgi-file = {directory}/application.py\nthreads = {request.param}")
    both.threads = request.param
    return both


@pytest.fixture(params=["plain", "tls"])
def way(request):
    return request.param


def give_back(connection, answers):
    """Returns consumed window, but only then: the server waits for each update."""

    def step():
        for stream in [0, *(answer.stream for answer in answers if not answer.is_over)]:
            if connection.receive_windows[stream] == 0:
                connection.open_window(stream, USUAL_WINDOW_BYTES)
        return all(answer.is_over for answer in answers)

    connection.read_until(step, lambda: f"these answers end: {answers}")
    return [answer.body for answer in answers]


@pytest.mark.parametrize(("path", "body"), [("/write", WRITTEN), ("/file", LARGE)])
def test_a_call_that_waits_goes_on_whenever_its_window_opens(both, way, path, body):
    connection = both.connect(way, gives_back=False)
    (got,) = give_back(connection, [connection.begin(target=path)])
    assert_same(got, body)


def test_all_threads_may_wait_for_one_connection(both, way):
    # And one request more than there are threads, which waits for a thread.
    connection = both.connect(way, gives_back=False)
    answers = [connection.begin(target="/write") for _ in range(both.threads + 1)]
    for got in give_back(connection, answers):
        assert_same(got, WRITTEN)


def test_all_threads_may_wait_for_a_connection_each(both, way):
    connections = [both.connect(way, gives_back=False) for _ in range(both.threads)]
    begun = [connection.begin(target="/write") for connection in connections]
    for connection, answer in zip(connections, begun):
        connection.read_until(lambda answer=answer: answer.received == USUAL_WINDOW_BYTES, "the call waits")
    for connection, answer in zip(connections, begun):
        (got,) = give_back(connection, [answer])
        assert_same(got, WRITTEN)


@pytest.mark.parametrize(("path", "body"), [("/few", WRITTEN_FEW), ("/file", LARGE)])
def test_a_client_may_take_its_answers_one_after_the_other(both, way, path, body):
    # The calls of later responses wait in the meantime, in all available threads.
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: SMALL_WINDOW_BYTES}, gives_back=False)
    connection.read_settings()
    connection.open_window(0, 1 << 30)
    answers = [connection.begin(target=path) for _ in range(both.threads + 2)]

    def step():
        first = next((answer for answer in answers if not answer.is_over), None)
        if first is not None and connection.receive_windows[first.stream] == 0:
            connection.open_window(first.stream, USUAL_WINDOW_BYTES)
        return first is None

    connection.read_until(step, lambda: f"these answers end: {answers}")
    for answer in answers:
        assert_same(answer.body, body)


def test_the_connection_has_its_own_answers_while_all_threads_wait(both, way):
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: SMALL_WINDOW_BYTES}, gives_back=False)
    connection.read_settings()
    answers = [connection.begin(target="/few") for _ in range(both.threads)]
    for answer in answers:
        connection.read_until(lambda answer=answer: answer.received == SMALL_WINDOW_BYTES, "the call waits")
    for number in range(5):
        connection.ping(b"number %d" % number)
    before = connection.settings_acknowledged
    connection.send(settings({INITIAL_WINDOW_SIZE: SMALL_WINDOW_BYTES}))
    connection.read_until(lambda: connection.settings_acknowledged > before, "the settings are acknowledged")
    assert [answer.received for answer in answers] == [SMALL_WINDOW_BYTES] * both.threads
    # The threads are free for other tests.
    for got in give_back(connection, answers):
        assert_same(got, WRITTEN_FEW)


def test_other_requests_of_the_connection_are_answered_meanwhile(both, way):
    if both.threads == 1:
        pytest.skip("one thread has one call at a time")
    connection = both.connect(way, gives_back=False)
    held = connection.begin(target="/write")
    connection.read_until(lambda: held.received == USUAL_WINDOW_BYTES, "the window is full")
    connection.open_window(0, 10 << 20)
    for _ in range(20):
        assert connection.request(target="/").body == b"fine"
    assert held.received == USUAL_WINDOW_BYTES
    (got,) = give_back(connection, [held])
    assert_same(got, WRITTEN)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_thread_whose_client_leaves_is_free_again(both, way, end):
    connections = [both.connect(way, gives_back=False) for _ in range(both.threads)]
    names = [f"{end}-{way}-{number}" for number in range(both.threads)]
    for connection, name in zip(connections, names):
        answer = connection.begin(target=f"/write?{name}")
        connection.read_until(lambda answer=answer: answer.received == USUAL_WINDOW_BYTES, "the window is full")
        if end == "close":
            connection.close()
        else:
            connection.reset(answer, CANCEL)
        wait_until(lambda name=name: f"left {name}\n" in both.server.log, "the call ends")
    assert both.connect(way).request(target="/").body == b"fine"
