"""A client that does anything that a WebSocket client may or may not do, in a random order that its seed reproduces."""

import contextlib
import os
import random
import select
import socket

from support.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Scripted, close_payload, deflated, frame, handshake

#: Maximum number of concurrent connections.
MAX_CONNECTIONS = 60

#: Maximum number of bytes of one read.
READ_BYTES = 65536

RESPONSE = "websocket.http.response"

#: The application's steps after the accept; ``tests/apps/asgi_socket.py`` defines the verbs.
BEHAVIORS = [
    [("echo", 1000)],
    [("echo", 3)],
    [("receive_all",)],
    [("turn",), ("echo", 2), ("turn",)],
    [("say_zeros", 50_000, 50), ("receive_all",)],
    [("say_at_once", 4, 5)],
    [("say_for_ever", 5000), ("receive_all",), ("end_saying",)],
    [("receive_with_timeout", 0.02), ("receive_with_timeout", 0.02), ("say", "bye")],
    [("receive", 2), ("fail",)],
    [("turn",), ("cancel",)],
    [("send", {"type": "websocket.close", "code": 4000, "reason": "enough"}), ("receive", 2)],
    [("receive", 1), ("send", {"type": "websocket.close"}), ("send", {"type": "websocket.send", "text": "late"})],
    [("send", {"type": "websocket.send"}), ("send", {"type": "nonsense"}), ("say_buffers",)],
]

#: Its steps instead of an accept.
REFUSALS = [
    [],
    [("fail",)],
    [("receive",), ("fail",)],
    [("receive",), ("turn",), ("send", {"type": "websocket.close"})],
    [("receive",), ("send", {"type": f"{RESPONSE}.start", "status": 404, "headers": []}), ("refuse_with", 200_000)],
    [("receive",), ("send", {"type": f"{RESPONSE}.start", "status": 404, "headers": []})],
    [("receive",), ("receive_with_timeout", 0.05), ("accept",)],
]


class Peer:
    """One connection, and the data still to be sent on it."""

    def __init__(self, address, small_window):
        self.socket = socket.socket()
        if small_window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(address)
        self.socket.setblocking(False)
        self.reads = True


class Hostile:
    """``act()`` does one random thing; the server's responses are read and ignored."""

    def __init__(self, address, seed):
        self.address = address
        self.random = random.Random(seed)
        self.peers = []
        self.actions = [
            (12, self.say_frames),
            (4, self.say_half_a_frame),
            (2, self.say_noise),
            (6, self.read),
            (1, self.stop_reading),
            (2, self.close),
            (2, self.reset),
            (1, self.end_sending),
        ]

    def act(self):
        if not self.peers or (len(self.peers) < MAX_CONNECTIONS and self.random.random() < 0.3):
            return self.open()
        weights, actions = zip(*self.actions)
        (action,) = self.random.choices(actions, weights)
        peer = self.random.choice(self.peers)
        with contextlib.suppress(BlockingIOError):
            try:
                action(peer)
            except OSError as error:
                if isinstance(error, BlockingIOError):
                    raise
                self.forget(peer)

    def leave(self):
        """Ends all connections, in a random way."""
        for peer in list(self.peers):
            self.random.choice((self.close, self.reset))(peer)

    # Coming.

    def open(self):
        peer = Peer(self.address, self.random.random() < 0.2)
        self.peers.append(peer)
        request = self.request()
        chance = self.random.random()
        if chance < 0.15:
            request = request[: self.random.randrange(len(request))]
        elif chance < 0.2:
            request = self.spoiled(request)
        elif chance < 0.5:
            request += self.frames()
        with contextlib.suppress(OSError):
            peer.socket.send(request)
        chance = self.random.random()
        if chance < 0.05:
            self.reset(peer)
        elif chance < 0.1:
            self.close(peer)
        elif chance < 0.15:
            # The server may have reset a spoiled request's connection.
            with contextlib.suppress(OSError):
                self.end_sending(peer)

    def request(self):
        accepts = self.random.random() < 0.85
        steps = [("accept",), *self.random.choice(BEHAVIORS)] if accepts else self.random.choice(REFUSALS)
        headers = []
        if self.random.random() < 0.5:
            headers.append(("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"))
        # No name: a hostile client leaves nothing behind in the application either.
        return handshake(f"/?{Scripted.query('', steps)}", headers)[0]

    def spoiled(self, data):
        data = bytearray(data)
        for _ in range(self.random.randrange(1, 5)):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        return bytes(data)

    # Saying.

    def frames(self):
        return b"".join(self.frame() for _ in range(self.random.randrange(1, 6)))

    def frame(self):
        some = self.random
        size = some.choice((0, 1, 10, 125, 126, 1000, 20_000))
        chance = some.random()
        if chance < 0.3:
            return frame(TEXT, "x" * size)
        if chance < 0.5:
            return frame(BINARY, os.urandom(size))
        if chance < 0.6:
            return frame(some.choice((PING, PONG)), bytes(min(size, 125)))
        if chance < 0.75:
            return frame(some.choice((TEXT, BINARY)), deflated(b"y" * size * 10), rsv=4)
        if chance < 0.85:
            return frame(BINARY, bytes(size), final=False) + frame(CONTINUATION, bytes(size), final=some.random() < 0.5)
        if chance < 0.9:
            return frame(CLOSE, some.choice((b"", close_payload(1000), close_payload(4000, "bye"), b"\x03", close_payload(1005))))
        payload = os.urandom(min(size, 200))
        mask = some.choice((b"", b"abcd"))
        length = some.choice((None, 1 << 62, 70_000))
        return frame(some.randrange(16), payload, some.random() < 0.5, some.randrange(8), mask, length)

    def say_frames(self, peer):
        peer.socket.send(self.frames())

    def say_half_a_frame(self, peer):
        wire = self.frame()
        peer.socket.send(wire[: self.random.randrange(len(wire))])

    def say_noise(self, peer):
        peer.socket.send(os.urandom(self.random.randrange(1, 300)))

    # Listening, or not.

    def read(self, peer):
        """Reads from all connections that are being read."""
        reading = [one.socket for one in self.peers if one.reads]
        for ready in select.select(reading, [], [], 0)[0]:
            with contextlib.suppress(OSError):
                ready.recv(READ_BYTES)

    def stop_reading(self, peer):
        peer.reads = False

    # Going.

    def end_sending(self, peer):
        peer.socket.shutdown(socket.SHUT_WR)

    def close(self, peer):
        self.forget(peer)

    def reset(self, peer):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.forget(peer)

    def forget(self, peer):
        peer.socket.close()
        self.peers.remove(peer)
