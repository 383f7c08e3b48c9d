"""A redis-server for a test, on a UNIX socket in a directory of the test, and a proxy that can stop forwarding."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from support.waiting import TIMEOUT_SECONDS, wait_until

READY = b"eady to accept connections"

#: The query of an engine's URL. The default limit of half a second would make an error of a redis-server that stalls.
PATIENT = "connect-ms=60000&answer-ms=60000"


class RedisServer:
    """Runs from its creation to :meth:`finish`, and writes every command to its disk."""

    def __init__(self, *arguments):
        # The path of a UNIX socket is short, which a directory of pytest need not be.
        self.directory = tempfile.mkdtemp(prefix="redis-")
        self.socket = Path(self.directory) / "s"
        self.url = f"redis+unix://{self.socket}"
        self._arguments = arguments
        self.process = None
        self._reader = None
        self.start()

    def start(self):
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        command += ["--unixsocket", str(self.socket), "--dir", self.directory, *self._arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for line in self.process.stdout:
            if READY in line:
                break
        else:
            raise AssertionError(f"redis-server exited with status {self.process.wait()}")
        # The rest is read, so that the server never waits for a reader.
        self._reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._reader.start()

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        self.process.stdout.close()

    def freeze(self):
        """Give the server no time, as on a machine that hangs."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def ask(self, *words):
        """Send a command and return the first line of its answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(str(self.socket))
            parts = [str(word).encode() for word in words]
            request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                return answer.readline().decode().rstrip()

    def listeners(self, channel):
        """Return how many connections have subscribed to a channel."""
        return int(re.search(r"^:(\d+)$", self._whole_answer(f"PUBSUB NUMSUB {channel}"), re.MULTILINE)[1])

    def all_listeners(self):
        """Return the same for each channel that has any."""
        names = re.findall(r"^bolide:publish:.*$", self._whole_answer("PUBSUB CHANNELS"), re.MULTILINE)
        return {name: self.listeners(name) for name in names}

    def calls(self, command):
        """Return how often the server has run a command since its start."""
        found = re.search(rf"^cmdstat_{command}:calls=(\d+)", self._whole_answer("INFO commandstats"), re.MULTILINE)
        return int(found[1]) if found else 0

    def _whole_answer(self, command):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(str(self.socket))
            connection.sendall(f"{command}\r\nQUIT\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode().replace("\r\n", "\n")

    def wait_for_calls(self, command, more):
        """Wait until a command was run this many times from now on."""
        before = self.calls(command)
        wait_until(lambda: self.calls(command) >= before + more, f"{more} calls of {command}")

    def finish(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory)


class Proxy:
    """Forwards TCP to a server's UNIX socket. While it is cut, bytes are lost and both sides still see a connection."""

    def __init__(self, server):
        self._server = server
        self._is_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self._is_cut.set()

    def heal(self):
        self._is_cut.clear()

    def finish(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server.socket))
            except OSError:
                client.close()
                server.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._is_cut.is_set():
                    target.sendall(data)
        for end in (source, target):
            # Wakes the other direction too.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
