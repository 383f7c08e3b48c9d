"""An application whose prototype and workers each have a child that does random harm, with everything that it has inherited.

The child takes an order from the directory of `HOSTILE_DIRECTORY`: a file `act-SEED`. It answers with a file `done-SEED`, which
says what it did. A file `alive-PID` says that it is there. It leaves when there is a file `over`, or its instance has exited. It
does not send signals. The kernel decides which processes a user may signal.
"""

import array
import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import socket
import struct
import sys
import time

DIRECTORY = os.environ["HOSTILE_DIRECTORY"]
MASTER = os.getppid()
#: Seconds between two looks for an order.
LOOK_SECONDS = 0.002
F_ADD_SEALS, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE = 1033, 2, 1
#: Most bytes of a write.
JUNK_BYTES = 4096


def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descriptors():
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: target for number, target in found.items() if number > 2 and not target.startswith((DIRECTORY, "/proc"))}


class Hostile:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.said = []

    def number(self):
        edges = [0, 1, 2, 3, 5, 255, 4096, 0x7FFFFFFF, 0xFFFFFFFF]
        return self.random.choice([*edges, *pids(), self.random.getrandbits(32)])

    def junk(self, most=JUNK_BYTES):
        return self.random.choice(
            [os.urandom(self.random.randrange(most)), bytes(most), b"\xff" * self.random.randrange(1, most)]
        )

    def message(self):
        """A message to the master as a child of it sends it, or to a child as the master does."""
        code = self.random.choice([*range(1, 12), 20, 21, *range(101, 112), *range(120, 126), 130, 131, 132])
        return struct.pack("<6I", code, self.random.randrange(6), *(self.number() & 0xFFFFFFFF for _ in range(4)))

    def act(self):
        found = descriptors()
        memories = [number for number, target in found.items() if target.startswith("/") and "fifo" not in target]
        sockets = [number for number, target in found.items() if target.startswith("socket:")]
        if self.random.random() < 0.4 and memories:
            number = self.random.choice(memories)
            act = self.random.choice([self.cut, self.grow, self.seal, self.lock, self.punch, self.write, self.map, self.map])
        elif sockets:
            number = self.random.choice(sockets)
            act = self.random.choice([self.send, self.claim, self.claim, self.claim, self.pass_on, self.option, self.take])
        else:
            return "nothing is inherited"
        try:
            outcome = act(number)
        except (OSError, ValueError, IndexError) as error:
            outcome = str(error)
        return f"{act.__name__} {number} {found[number]}: {outcome}"

    # Memory and files.

    def cut(self, number):
        os.ftruncate(number, self.random.choice([0, 1, 4096, 8192]))

    def grow(self, number):
        os.ftruncate(number, os.fstat(number).st_size + 4096)

    def seal(self, number):
        fcntl.fcntl(number, F_ADD_SEALS, self.random.choice([1, 2, 4, 8, 16, 31]))

    def lock(self, number):
        fcntl.flock(number, self.random.choice([fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN]) | fcntl.LOCK_NB)

    def punch(self, number):
        libc = ctypes.CDLL(None, use_errno=True)
        size = max(os.fstat(number).st_size, 1)
        offset = ctypes.c_long(self.random.randrange(size) & ~4095)
        length = ctypes.c_long(self.random.choice([4096, size]))
        return libc.fallocate(number, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length)

    def write(self, number):
        return os.pwrite(number, self.junk(), self.random.randrange(max(os.fstat(number).st_size, 1)))

    def map(self, number):
        """Writes numbers all over a memory, as a process that has it mapped can."""
        size = os.fstat(number).st_size
        with mmap.mmap(number, size) as memory:
            for _ in range(self.random.choice([1, 10, 1000])):
                place = self.random.randrange(max(size - 8, 1)) & ~3
                memory[place : place + 8] = struct.pack("<II", self.number() & 0xFFFFFFFF, self.number() & 0xFFFFFFFF)

    # Sockets.

    @contextlib.contextmanager
    def socket(self, number):
        with socket.socket(fileno=os.dup(number)) as one:
            yield one

    def send(self, number):
        with self.socket(number) as one:
            return sum(one.send(self.junk(), socket.MSG_DONTWAIT) for _ in range(self.random.choice([1, 1, 50])))

    def claim(self, number):
        with self.socket(number) as one:
            return sum(one.send(self.message(), socket.MSG_DONTWAIT) for _ in range(self.random.choice([1, 5, 50])))

    def pass_on(self, number):
        """A message with a descriptor, which may be a pipe that is never written, or a directory."""
        given = os.open(self.random.choice(["/", "/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/stat"]), os.O_RDONLY)
        try:
            with self.socket(number) as one:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [given]))]
                return one.sendmsg([self.random.choice([self.message(), self.junk(64)])], rights, socket.MSG_DONTWAIT)
        finally:
            os.close(given)

    def option(self, number):
        with self.socket(number) as one:
            one.setsockopt(
                socket.SOL_SOCKET, self.random.choice([socket.SO_SNDBUF, socket.SO_RCVBUF]), self.random.choice([1, 9999])
            )

    def take(self, number):
        """Reads what is meant for another process."""
        with self.socket(number) as one:
            return len(one.recv(65536, socket.MSG_DONTWAIT))


def do_harm():
    open(f"{DIRECTORY}/alive-{os.getpid()}", "w").close()
    while os.path.exists(f"/proc/{MASTER}") and not os.path.exists(f"{DIRECTORY}/over"):
        for name in os.listdir(DIRECTORY):
            taken = f"{DIRECTORY}/taken-{os.getpid()}"
            if name.startswith("act-"):
                try:
                    os.rename(f"{DIRECTORY}/{name}", taken)
                except FileNotFoundError:
                    continue
                said = Hostile(name).act()
                told = f"{DIRECTORY}/told-{os.getpid()}"
                with open(told, "w") as file:
                    file.write(f"{ROLE}: {said}")
                # One of the two files is there at any moment, so that the end of this process is seen.
                os.rename(told, f"{DIRECTORY}/{name.replace('act', 'done')}")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(taken)
        time.sleep(LOOK_SECONDS)


ROLE = "prototype"
IS_HARMFUL = False


def become_harmful():
    """Leaves a child that holds what this process has."""
    global IS_HARMFUL
    if IS_HARMFUL or os.fork() != 0:
        return
    IS_HARMFUL = True
    try:
        do_harm()
    except BaseException as error:
        print("hostile:", repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def in_worker():
    global ROLE
    if not IS_HARMFUL and ROLE == "prototype":
        ROLE = "worker"
        become_harmful()


become_harmful()
try:
    import uwsgi

    uwsgi.post_fork_hook = in_worker
except ImportError:
    pass
