"""A prototype and its workers for the tests of the master: they speak the contract, and load and serve nothing.

The prototype reads its boot file as the real one does. The file `orders.json` in the directory of FAKE_DIRECTORY determines the
behavior of the prototype and its workers: a key for each generation, with the fallback `all`. Keys of an order:

    load     "ok", "fail" (reports it, exits 22), "explain" (reports the reason first), "exit" (exits 3), "crash" (SIGSEGV),
             "hang" (until the file `go` exists)
    worker   "serve", "die" (exits 3 before it serves), "unloadable" (exits 22), "deaf" (ignores the order to end),
             "liar" (reports the pid of another process), "silent" (serves, and does not report it)

A worker answers each connection with one line, `WORKER GENERATION PID PPID`, after it has executed the request:
`exit N`, `signal N`, `worn NUMBER` (if that is its number), `begin TEXT` (a request is in progress from now on), `end`,
`hold` (keeps the connection and the request open until the peer closes), `close` (closes its order socket),
`environment`, `descriptors`. The prototype and each worker append their events to `events.txt` in that directory.
"""

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time

ROW_BYTES, SLOT_BYTES, METERS_BYTES, ENTRY_BYTES, TEXT_BYTES, TEXT_START, PID_START = map(int, os.environ["FAKE_LAYOUT"].split())
FORK, RETIRE, DRAIN, STOP = 1, 2, 3, 4
LOADED, LOAD_FAILED, FORKED, FORK_FAILED, ENDED, SERVING, WORN = range(101, 108)
DIRECTORY = os.environ["FAKE_DIRECTORY"]


def send(channel, kind, *fields):
    channel.send(struct.pack("<6I", kind, *fields, *[0] * (5 - len(fields))))


def event(text):
    with open(os.path.join(DIRECTORY, "events.txt"), "a") as file:
        file.write(text + "\n")


def orders_of(boot):
    with open(os.path.join(DIRECTORY, "orders.json")) as file:
        orders = json.load(file)
    return orders.get(str(boot["generation"]), orders.get("all", {}))


class Slot:
    """The first slot of a worker's scoreboard row, and its ring of requests."""

    ENTRIES = 4

    def __init__(self, boot, row):
        rows, slots = boot["scoreboard_rows"], boot["scoreboard_slots"]
        self.memory = mmap.mmap(boot["scoreboard"], 0)
        # As the real worker does before it takes any work.
        struct.pack_into("<I", self.memory, row * ROW_BYTES + PID_START, os.getpid())
        self.start = rows * ROW_BYTES + row * slots * SLOT_BYTES
        before = rows * (ROW_BYTES + slots * (SLOT_BYTES + METERS_BYTES))
        self.ring = before + row * ((len(self.memory) - before) // rows)
        self.count = struct.unpack_from("<Q", self.memory, self.start + 24)[0]

    def begin(self, text):
        self.count += 1
        content = text.encode()[:TEXT_BYTES]
        now_ms = time.monotonic_ns() // 1_000_000
        entry = self.ring + self.count % self.ENTRIES * ENTRY_BYTES
        struct.pack_into("<QI", self.memory, self.start + 8, self.count, ctypes.CDLL(None).gettid())
        struct.pack_into("<QQ", self.memory, self.start + 24, self.count, self.count)
        struct.pack_into("<I", self.memory, self.start + 48, self.ENTRIES)
        self.memory[entry + TEXT_START : entry + TEXT_START + len(content)] = content
        struct.pack_into("<Q", self.memory, entry, self.count << 48 | len(content) << 40 | now_ms)
        struct.pack_into("<Q", self.memory, self.start, now_ms)

    def end(self):
        entry = self.ring + self.count % self.ENTRIES * ENTRY_BYTES
        struct.pack_into("<Q", self.memory, entry + 8, self.count << 48)
        struct.pack_into("<Q", self.memory, self.start, 0)


def work(boot, row, number, channel):
    order = orders_of(boot).get("worker", "serve")
    if order == "die":
        os._exit(3)
    if order == "unloadable":
        os._exit(22)
    signal.signal(signal.SIGRTMIN + 10, lambda *_: event(f"stack {number}"))
    slot = Slot(boot, row)
    listeners = [socket.socket(fileno=listener["descriptor"]) for listener in boot["listeners"]]
    event(f"serving {number} {boot['generation']}")
    if order != "silent":
        send(channel, SERVING, row, 1 if order == "liar" else os.getpid())
    held, draining = [], False
    while not draining or held:
        readable = select.select(([] if draining else listeners) + ([channel] if channel else []) + held, [], [], 30)[0]
        for place in readable:
            if place is channel:
                packet = channel.recv(24)
                kind = struct.unpack("<6I", packet)[0] if packet else 0
                event(f"told {number} {boot['generation']} {kind}")
                if order == "deaf" and packet:
                    continue
                if not packet or kind in (DRAIN, STOP):
                    draining = True
                    listeners = []
                    if not packet:
                        channel = None
            elif place in held:
                if not place.recv(1024):
                    held.remove(place)
                    slot.end()
            else:
                try:
                    connection, _ = place.accept()
                except OSError:
                    # No connection is pending any more, or the master has shut the socket down.
                    continue
                if answer(connection, boot, row, number, channel, slot):
                    held.append(connection)
    event(f"drained {number} {boot['generation']}")
    os._exit(0)


def answer(connection, boot, row, number, channel, slot):
    connection.settimeout(60)
    line = connection.makefile("r").readline().strip()
    verb, _, rest = line.partition(" ")
    text = f"{number} {boot['generation']} {os.getpid()} {os.getppid()}"
    if verb == "exit":
        os._exit(int(rest))
    elif verb == "signal":
        os.kill(os.getpid(), int(rest))
    elif verb == "worn" and rest == str(number):
        send(channel, WORN, row, os.getpid())
    elif verb in ("begin", "hold"):
        slot.begin(rest)
    elif verb == "end":
        slot.end()
    elif verb == "close":
        channel.shutdown(socket.SHUT_RDWR)
    elif verb == "environment":
        text = " ".join([os.getcwd(), str(os.getpgid(0)), str(os.getuid()), os.environ.get("FAKE_VALUE", "-")])
    elif verb == "descriptors":
        links = [
            os.readlink(f"/proc/self/fd/{name}")
            for name in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{name}")
        ]
        text = " ".join(f"{kind} {sum(link.startswith(kind) for link in links)}" for kind in ("socket:", "/memfd:"))
    connection.sendall((text + "\n").encode())
    return verb == "hold"


def load(boot, channel):
    order = orders_of(boot).get("load", "ok")
    event(f"load {boot['generation']} {order}")
    if order == "explain":
        os.pwrite(boot["reason"], b"ImportError: no module named fake", 0)
    if order in ("fail", "explain"):
        sys.stderr.write("Traceback: no such application\n")
        send(channel, LOAD_FAILED)
        sys.exit(22)
    if order == "exit":
        sys.exit(3)
    if order == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if order == "hang":
        while not os.path.exists(os.path.join(DIRECTORY, "go")):
            time.sleep(0.01)
    send(channel, LOADED, 7)


def main():
    with open(int(sys.argv[1]), "rb") as file:
        boot = json.load(file)
    assert boot["master_pid"] == os.getppid()
    channel = socket.socket(fileno=boot["control"])
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    load(boot, channel)
    workers, retired = {}, False
    while workers or not retired:
        readable = select.select([channel, woken] if not retired else [woken], [], [], 30)[0]
        if woken in readable:
            woken.recv(1024)
        if channel in readable:
            packet, descriptors, _, _ = socket.recv_fds(channel, 24, 1)
            kind, row, number = struct.unpack("<6I", packet)[:3] if packet else (RETIRE, 0, 0)
            if kind == RETIRE:
                event(f"retired {boot['generation']}")
                retired = True
            elif kind == FORK:
                fork(boot, row, number, descriptors[0], channel, workers)
        reap(channel, workers)
    sys.exit(0)


def fork(boot, row, number, descriptor, channel, workers):
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        try:
            work(boot, row, number, socket.socket(fileno=descriptor))
        finally:
            os._exit(99)
    os.close(descriptor)
    workers[pid] = row
    send(channel, FORKED, row, pid)


def reap(channel, workers):
    while workers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        row = workers.pop(pid)
        with contextlib.suppress(OSError):
            send(channel, ENDED, row, pid, status)


main()
