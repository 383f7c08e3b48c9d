"""The clients of `static-transfers`: PORT DIRECTORY CLIENTS PACE SECONDS; one process, many sockets, every byte compared.

With a pace (bytes per second and client) they stop after SECONDS, which is not a failure; the bytes received by then must
be right. Prints its counts as JSON.
"""

import json
import selectors
import socket
import sys
import time
from pathlib import Path

CHUNK = 256 * 1024
# A client that receives nothing for this many seconds has failed.
STALL_SECONDS = 60


MB = 1 << 20
ZEROES = bytes(MB)


def mark(size, place):
    """Returns the bytes at the start of each megabyte of a file; zeroes follow."""
    return f"{size} {place} ".encode() * 64


def is_right(size, offset, data):
    """Returns whether these are the bytes at that offset of the file of this many megabytes. It does not read the file."""
    view = memoryview(data)
    while view:
        place, within = divmod(offset, MB)
        expected = mark(size, place)
        piece = min(len(view), MB - within)
        marked = max(0, min(piece, len(expected) - within))
        if view[:marked] != expected[within : within + marked] or view[marked:piece] != ZEROES[: piece - marked]:
            return False
        view = view[piece:]
        offset += piece
    return True


class Transfer:
    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STALL_SECONDS)
        self.socket.sendall(f"GET /static/{path.name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        self.socket.setblocking(False)
        self.megabytes = int(path.stem.split("-")[1])
        self.head = b""
        self.got = None
        self.problem = None
        self.done = False
        self.last = time.monotonic()

    def take(self, most):
        """Reads once; returns the bytes of the body."""
        try:
            data = self.socket.recv(most)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.fail(f"{error} after {self.got} bytes")
            return 0
        self.last = time.monotonic()
        if not data:
            if self.got != self.megabytes * MB:
                self.fail(f"the connection has ended after {self.got} bytes of {self.megabytes} MB")
            self.done = True
            return 0
        if self.got is None:
            self.head += data
            head, found, data = self.head.partition(b"\r\n\r\n")
            if not found:
                return 0
            self.got = 0
            if b" 200 " not in head.split(b"\r\n")[0]:
                self.fail(head.split(b"\r\n")[0].decode())
                return 0
        if not is_right(self.megabytes, self.got, data):
            self.fail(f"wrong bytes after {self.got}")
        self.got += len(data)
        return len(data)

    def fail(self, problem):
        self.problem = self.problem or problem
        self.done = True


def main():
    port, directory, clients, pace, seconds = int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
    files = sorted(directory.glob("large-*.bin"))
    selector = selectors.DefaultSelector()
    transfers = []
    for number in range(clients):
        transfer = Transfer(port, files[number % len(files)])
        transfers.append(transfer)
        selector.register(transfer.socket, selectors.EVENT_READ, transfer)
    began = time.monotonic()
    total, alive = 0, set(transfers)
    while alive:
        now = time.monotonic()
        if pace and now - began > seconds:
            break
        for key, _ in selector.select(1.0):
            transfer = key.data
            if pace and (transfer.got or 0) > pace * (now - began):
                continue
            total += transfer.take(CHUNK)
            if transfer.done:
                selector.unregister(transfer.socket)
                transfer.socket.close()
                alive.discard(transfer)
        for transfer in [transfer for transfer in alive if now - transfer.last > STALL_SECONDS]:
            transfer.fail("nothing came for a minute")
            selector.unregister(transfer.socket)
            alive.discard(transfer)
        if pace:
            # Clients ahead of their pace would be ready all the time.
            time.sleep(0.005)
    problems = [transfer.problem for transfer in transfers if transfer.problem]
    megabytes = total / (1 << 20)
    counts = {"wanted": clients, "failed": len(problems), "megabytes": megabytes, "problem": problems[0] if problems else None}
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
