"""``write()`` (PEP 3333) from threads of the application: an error or a part, never another request's memory."""

import itertools

import pytest

PART_BYTES, THREADS, WRITES = 60_000, 4, 30


@pytest.fixture(scope="module", params=[1, 2], ids=["1 thread", "2 threads"])
def server(serve_module, request):
    return serve_module(f"wsgi-file = {{apps}}/writing.py\nthreads = {request.param}")


def read_slowly(client, target):
    """Returns the body of the response, read by a client whose buffer is small."""
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert client.read_head().status == 200
    return b"".join(client.read_chunks())


def runs(body):
    """Returns ``[(byte, length of its run)]``."""
    return [(bytes([byte]), len(list(same))) for byte, same in itertools.groupby(body)]


def test_threads_that_write_at_the_same_time_take_turns_or_are_refused(server):
    pid = server.get("/pid").body
    client = server.connect(receive_bytes=4096)
    body = read_slowly(client, "/threads")
    assert body.endswith(b"end")
    assert len(body) == THREADS * WRITES * PART_BYTES + 3
    # Each part is whole: none is inside another.
    assert all(count % PART_BYTES == 0 for _, count in runs(body[:-3]))
    assert client.request(target="/refusals").text in (
        "",
        "write was called while it was running in another thread: it takes one part at a time",
    )
    assert server.get("/pid").body == pid


def test_an_answer_does_not_end_under_a_thread_that_still_writes(server):
    pid = server.get("/pid").body
    client = server.connect(receive_bytes=4096)
    assert read_slowly(client, "/left_behind") == b"a" * (100 * PART_BYTES) + b"end"
    assert client.request(target="/pid").body == pid
