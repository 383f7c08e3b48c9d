"""Static files that change while they are served, many files, and readers that are slow or disappear."""

import contextlib
import hashlib
import os

import pytest
from support import processes
from support.client import Closed
from support.files import assert_same, fill, pattern
from support.waiting import wait_until

MEGABYTE = 1 << 20
#: More than the kernel's buffers of a connection hold.
LARGE = 24 * MEGABYTE
#: Maximum growth of a worker's memory, whatever is served: far less than one large file.
GROWTH_BYTES = 16 * MEGABYTE


@pytest.fixture
def server(serve):
    # A client that stops reading on purpose must not time out in the meantime, however busy the machine is.
    server = serve.prepare("wsgi-file = {apps}/static_front.py\nstatic-map = /s=files\nsocket-timeout = 600")
    fill(server.directory / "files", {"large.bin": pattern(LARGE), "small.txt": b"small"})
    return server.start()


def begin(server, name="large.bin"):
    """A client that has read only the head."""
    client = server.connect(receive_bytes=65536)
    client.send(f"GET /s/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    response = client.read_head()
    assert (response.status, response.get("content-length")) == (200, str(LARGE))
    return client


def file_of(server, name="large.bin"):
    return server.directory / "files" / name


# Changes.


def test_a_file_that_shrinks_ends_the_connection(server):
    client = begin(server)
    with open(file_of(server), "r+b") as file:
        file.truncate(LARGE // 2)
    with pytest.raises(Closed) as closed:
        client.read_exactly(LARGE)
    assert_same(closed.value.data, pattern(LARGE)[: len(closed.value.data)])
    assert server.get("/s/small.txt").body == b"small"


def test_a_file_that_grows_is_sent_to_its_announced_length_or_not_to_its_end(server):
    client = begin(server)
    with open(file_of(server), "ab") as file:
        file.write(b"more")
    # The content differs now: the client must not take the old length for the whole.
    with pytest.raises(Closed) as closed:
        client.read_exactly(LARGE)
    assert_same(closed.value.data, pattern(LARGE)[: len(closed.value.data)])
    assert_same(server.get("/s/large.bin").body, pattern(LARGE) + b"more")


def test_a_file_that_is_rewritten_in_place_is_never_a_mixture(server):
    client = begin(server)
    with open(file_of(server), "r+b") as file:
        file.seek(LARGE - MEGABYTE)
        file.write(b"x" * MEGABYTE)
    with pytest.raises(Closed):
        client.read_exactly(LARGE)
    assert server.get("/s/large.bin").body[-MEGABYTE:] == b"x" * MEGABYTE


def test_a_file_that_is_replaced_is_sent_to_its_end_as_it_was(server):
    client = begin(server)
    fill(server.directory, {"new.bin": b"new" * 1000})
    os.rename(server.directory / "new.bin", file_of(server))
    assert_same(client.read_exactly(LARGE), pattern(LARGE))
    # A connection that has carried a whole response carries the next.
    assert client.request(target="/s/large.bin").body == b"new" * 1000


def test_a_file_that_vanishes_is_sent_to_its_end_and_then_the_applications(server):
    client = begin(server)
    file_of(server).unlink()
    assert_same(client.read_exactly(LARGE), pattern(LARGE))
    server.wait_for(lambda: server.get("/s/large.bin").get("x-from") == "application", "it is gone")


def test_a_file_that_was_removed_gives_its_room_back(server):
    file = file_of(server, "removed.bin")
    file.write_bytes(pattern(100_000))
    client = server.connect()
    assert_same(client.request("GET", "/s/removed.bin").body, pattern(100_000))
    client.close()
    file.unlink()

    def held():
        found = []
        for one in server.processes():
            directory = f"/proc/{one.pid}/fd"
            for name in os.listdir(directory):
                with contextlib.suppress(FileNotFoundError):
                    found.append(os.readlink(f"{directory}/{name}"))
        return [path for path in found if "removed.bin" in path]

    # No request comes in the meantime: the worker itself closes files that were not requested for some seconds.
    wait_until(lambda: not held(), lambda: f"the descriptor is closed: {held()}")


@pytest.mark.parametrize("size", [5, 100_000], ids=["memory", "descriptor"])
def test_a_change_is_seen_within_little_more_than_a_second(server, size):
    for round_number in range(3):
        content = bytes([65 + round_number]) * size
        fill(server.directory, {"next": content})
        os.rename(server.directory / "next", file_of(server, "changing"))
        server.wait_for(lambda content=content: server.get("/s/changing").body == content, "the change is seen")
        response = server.get("/s/changing")
        # Head and body are of the same version.
        assert response.get("content-length") == str(size)
        assert response.body == content


def test_files_that_are_replaced_all_the_time_are_always_whole(server):
    """Each response is one of the versions of the file, head and body alike."""
    sizes = [3_000, 30_000, 300_000]
    contents = [bytes([97 + number]) * size for number, size in enumerate(sizes)]
    with server.connect() as client:
        for number in range(300):
            fill(server.directory, {"next": contents[number % 3]})
            os.rename(server.directory / "next", file_of(server, "moving"))
            response = client.request(target="/s/moving")
            assert response.status == 200
            assert response.body in contents
            etag_bytes = int(response.get("etag").strip('"').split("-")[1], 16)
            assert etag_bytes == len(response.body)


def test_a_root_that_is_switched_by_a_link_is_followed(serve):
    """As deployments do it: `current` is switched to another directory."""
    server = serve.prepare("wsgi-file = {apps}/static_front.py\nstatic-map = /s=current")
    fill(server.directory, {"one/a.txt": b"one", "two/a.txt": b"two"})
    (server.directory / "current").symlink_to("one")
    server.start()
    assert server.get("/s/a.txt").body == b"one"
    (server.directory / "next").symlink_to("two")
    os.rename(server.directory / "next", server.directory / "current")
    server.wait_for(lambda: server.get("/s/a.txt").body == b"two", "the switch is seen")


# Many.


def test_ten_thousand_files_through_a_small_cache(serve):
    server = serve.prepare(
        "wsgi-file = {apps}/static_front.py\nstatic-map = /s=files\nstatic-cache-files = 100\nstatic-cache-memory = 1000000\n"
        "disable-logging = true"
    )
    directory = server.directory / "files"
    directory.mkdir()
    for number in range(10_000):
        size = 20_000 if number % 10 == 0 else 300
        (directory / str(number)).write_bytes(str(number).encode() + b"." * size)
    server.start()
    worker = server.worker()
    with server.connect() as client:
        memory = None
        for number in range(10_000):
            response = client.request(target=f"/s/{number}")
            assert response.body.split(b".")[0] == str(number).encode()
            if number == 1000:
                memory = processes.resident_bytes(worker)
        assert processes.resident_bytes(worker) - memory < 4 * MEGABYTE
        assert len(os.listdir(f"/proc/{worker}/fd")) < 100 + 50


# Readers.


def test_stopped_readers_block_no_other_client_and_use_no_memory(server):
    worker = server.worker()
    server.get("/s/large.bin", method="HEAD")
    memory = processes.resident_bytes(worker)
    clients = [begin(server) for _ in range(40)]
    for _ in range(50):
        assert server.get("/s/small.txt").body == b"small"
        assert server.get("/").get("x-from") == "application"
    assert processes.resident_bytes(worker) - memory < GROWTH_BYTES
    digest = hashlib.sha256(pattern(LARGE)).digest()
    for client in clients[:5]:
        assert hashlib.sha256(client.read_exactly(LARGE)).digest() == digest
        assert client.request(target="/s/small.txt").body == b"small"


def test_readers_that_vanish_leave_nothing(server):
    worker = server.worker()
    server.get("/s/large.bin", method="HEAD")
    before = len(os.listdir(f"/proc/{worker}/fd"))
    clients = [begin(server) for _ in range(30)]
    for number, client in enumerate(clients):
        client.reset() if number % 2 else client.close()
    wait_until(lambda: len(os.listdir(f"/proc/{worker}/fd")) <= before, "their descriptors are given back")
    assert_same(server.get("/s/large.bin").body, pattern(LARGE))


def test_a_quick_reader_of_a_large_file_leaves_others_their_turn(server):
    """One worker, one thread, and a reader that is always ready for more."""
    with server.connect() as greedy:
        for _ in range(3):
            greedy.send(b"GET /s/large.bin HTTP/1.1\r\nHost: a\r\n\r\n")
        got = 0
        while got < 3 * LARGE:
            assert server.get("/s/small.txt").body == b"small"
            before = got
            while got < before + 8 * MEGABYTE and got < 3 * LARGE:
                got += len(greedy.socket.recv(MEGABYTE))


def test_pipelined_requests_for_files_are_answered_in_their_order(server):
    with server.connect() as client:
        client.send(
            b"".join(f"GET /s/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for name in ["small.txt", "large.bin", "small.txt"])
        )
        assert client.read_response().body == b"small"
        assert_same(client.read_response().body, pattern(LARGE))
        assert client.read_response().body == b"small"


def test_http_1_0_and_close_get_their_files_whole(server):
    for head in (b"GET /s/large.bin HTTP/1.0\r\n\r\n", b"GET /s/large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"):
        with server.connect() as client:
            client.send(head)
            response = client.read_response()
            assert response.says_close
            assert_same(response.body, pattern(LARGE))
            assert client.is_closed()
