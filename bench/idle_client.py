"""Opens many kept-alive connections, asks once on each, and then holds them: `idle_client.py PORT PATH COUNT`.

Runs as a process of its own, so that its memory and files are not the suite's. It prints one line of JSON when all
are open, then another one for each line that it reads (`probe`), and ends with its standard input.
"""

import json
import select
import socket
import sys
import time

HOST = "127.0.0.1"
ANSWER_SECONDS = 5.0
MOST_HEAD_BYTES = 65536
# For all of them together.
OPEN_SECONDS = 40.0
# More failures than this in a row, and the server does not take any more.
MOST_FAILURES = 3


def ask(connection, path):
    """One request and its whole answer; raises OSError when it is not a 200 with a Content-Length."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
        if len(data) > MOST_HEAD_BYTES:
            raise OSError("the head of the answer is too long")
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if b" 200 " not in lines[0]:
        raise OSError(f"the answer is {lines[0].decode('latin-1')}")
    headers = dict(line.lower().split(b":", 1) for line in lines[1:])
    if b"content-length" not in headers:
        raise OSError("the answer has no Content-Length")
    missing = int(headers[b"content-length"]) - len(body)
    while missing > 0:
        missing -= len(receive(connection))


def receive(connection):
    data = connection.recv(65536)
    if not data:
        raise OSError("the server closed the connection")
    return data


def connect(port):
    connection = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def open_all(port, path, count):
    held, failures, problem = [], 0, None
    began = time.monotonic()
    while len(held) < count and failures < MOST_FAILURES:
        if time.monotonic() - began > OPEN_SECONDS:
            problem = problem or f"opening took more than {OPEN_SECONDS} s"
            break
        try:
            connection = connect(port)
            ask(connection, path)
        except OSError as error:
            failures, problem = failures + 1, str(error)
            continue
        failures = 0
        held.append(connection)
    return held, {"opened": len(held), "problem": problem, "seconds": time.monotonic() - began}


def count_open(held):
    """How many the server has not closed: a closed one is readable, an idle one is not."""
    poller = select.poll()
    for connection in held:
        poller.register(connection, select.POLLIN)
    return len(held) - len(poller.poll(0))


def timed(action):
    began = time.monotonic()
    try:
        action()
    except OSError as error:
        return {"problem": str(error), "milliseconds": None}
    return {"problem": None, "milliseconds": (time.monotonic() - began) * 1000}


def new_request(port, path):
    with connect(port) as connection:
        ask(connection, path)


def probe(held, port, path):
    return {
        "still_open": count_open(held),
        "new_connection": timed(lambda: new_request(port, path)),
        "old_connection": timed(lambda: ask(held[0], path)) if held else None,
    }


def main():
    port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    held, opened = open_all(port, path, count)
    print(json.dumps(opened), flush=True)
    for _ in sys.stdin:
        print(json.dumps(probe(held, port, path)), flush=True)


if __name__ == "__main__":
    main()
