"""Workers without free descriptors: clients wait, none is closed without an answer, and a worker that stays so is replaced."""

import contextlib
import os
import socket

import pytest
from support.server import program
from support.waiting import wait_until

#: A busy machine may need longer for hundreds of them than the default time that a connection may wait for its next request.
PATIENT = ("--http-keepalive=600",)
FINE = b"HTTP/1.1 200"


def limited(limit):
    """Options of an instance with this limit of open files."""
    return {"command": ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', *program()]}


def connected(instance, count):
    clients = []
    for _ in range(count):
        client = socket.create_connection(instance.address())
        client.settimeout(600)
        clients.append(client)
    return clients


def answers_to(clients, page_of=lambda number: "pid"):
    """Requests a page on each of these connections, and closes them. Returns the beginning of each answer. All of them ask before
    the first answer is read: while descriptors are missing, a client may wait for others that were accepted after it.
    """
    for number, client in enumerate(clients):
        client.sendall(f"GET /{page_of(number)} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    answers = []
    for client in clients:
        with client:
            answers.append(client.recv(4096)[: len(FINE)])
    return answers


@pytest.mark.parametrize(("limit", "connections"), [(40, 20), (40, 44), (40, 120), (64, 200), (256, 700)])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_connection_is_closed_for_want_of_a_descriptor(start, limit, connections, workers):
    instance = start("--processes", workers, *PATIENT, **limited(limit), alarms=True)
    clients = connected(instance, connections)
    assert answers_to(clients) == [FINE] * connections
    instance.wait_for_log(r"can't accept a connection|^bolide: ready")
    assert instance.whole_log().count("can't accept a connection") <= workers


def test_kept_connections_beyond_the_limit_wait_and_none_is_closed(start):
    instance = start("--processes", "2", "--threads", "4", *PATIENT, **limited(128), alarms=True)
    clients = connected(instance, 400)
    for client in clients:
        client.sendall(b"GET /pid HTTP/1.1\r\nHost: a\r\n\r\n")
    answered = []

    def are_answered():
        for client in set(clients) - set(answered):
            with contextlib.suppress(BlockingIOError):
                client.setblocking(False)
                assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
                answered.append(client)
        return len(answered) > 100

    wait_until(are_answered, lambda: f"{len(answered)} are answered")
    # Each one that leaves makes room for one that waits.
    while len(answered) < len(clients):
        before = len(answered)
        for client in answered[-50:]:
            client.close()
        wait_until(lambda before=before: are_answered() and len(answered) > before, lambda: f"{len(answered)} are answered")


def test_slow_pages_lose_no_connection_while_descriptors_are_missing(start):
    """Workers hand connections to each other while one is inside a slow call, and listen again in between."""
    instance = start("--processes", "2", *PATIENT, **limited(40), alarms=True)
    clients = connected(instance, 150)
    answers = answers_to(clients, lambda number: "pid" if number % 10 else "sleep/0.2")
    assert answers == [FINE] * len(clients)


def test_a_worker_that_can_accept_nobody_is_replaced(start, tmp_path):
    (tmp_path / "lowering.py").write_text(
        "import os, resource\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/lower':\n"
        "        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "    body = str(os.getpid()).encode()\n"
        "    start_response('200 OK', [('Content-Length', str(len(body)))])\n"
        "    return [body]\n"
    )
    instance = start("--pythonpath", tmp_path, "--processes", "1", module="lowering", alarms=True)
    worn = instance.body("/lower")
    # This client waits in the kernel's queue until the replacement serves.
    assert instance.body() != worn
    instance.wait_for_log(r"no connection could be accepted for 5 s")


def test_a_worker_that_is_full_of_connections_is_not_replaced(start):
    instance = start(*PATIENT, **limited(64), alarms=True)
    worker = instance.worker()
    clients = connected(instance, 100)
    instance.wait_for_log(r"can't accept a connection")
    wait_until(lambda: descriptors_are_full(worker), "all descriptors are in use")
    assert answers_to(clients) == [FINE] * len(clients)
    assert instance.worker() == worker


def descriptors_are_full(pid):
    return len(os.listdir(f"/proc/{pid}/fd")) >= 60
