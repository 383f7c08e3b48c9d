"""Clients of every kind at the same time, all in one process, that count each failed request and the reason.

A request has failed if it was sent and its whole response, or the right one, did not come. A server may do the following at a
reload, which is not a failure: announce an end (`Connection: close`, GOAWAY, a close frame), or close a kept connection without a
request in flight.

Some clients keep something in flight until the next turn (:meth:`Traffic.turn`), so that a reload always interrupts it: an upload
whose chunks come slowly, a response that is read slowly, one that the application generates late, a body that is sent together
except
 for its last byte, a connection that is idle until the very moment.
"""

import collections
import hashlib
import itertools
import threading
import time
import uuid

from support import http2, uwsgi
from support.client import TIMEOUTS, Client, Closed
from support.http2 import Ended, Http2, Reset
from support.tls import TlsClient
from support.websocket import CLOSE, TEXT, WebSocket, close_payload

#: Size of a response that is read slowly, in bytes: far more than kernel and server buffer.
LONG_BYTES = 6 << 20
#: Bytes that its reader reads before it waits.
FIRST_BYTES = 100_000
#: Size of one chunk of an upload in bytes, and the pause after each, in seconds.
CHUNK = b"0123456789abcdef" * 64
CHUNK_PAUSE_SECONDS = 0.02
#: Size of a body that is sent together except for its last byte.
LARGE_BYTES = 10 << 20
#: Maximum time that something is in flight, in seconds, if no turn comes.
UNDER_WAY_SECONDS = 3.0
#: Pause between two requests of one client, in seconds: the test is about the reload, not about speed.
PAUSE_SECONDS = 0.002
#: Timeout of a client for a byte, and of a test for its clients, in seconds: all of them share a busy machine.
ANSWER_SECONDS = 60
TOGETHER_SECONDS = 120
#: Close codes of a server that exits: "going away" and "service restart".
CLOSE_CODES = (1001, 1012)
#: Concurrent streams of an HTTP/2 connection.
STREAMS = 3


class Broken(Exception):
    """A response to a different request."""


class Traffic:
    """``Traffic(address, directory, {"kept": 3, …})`` has this many clients of each kind; see the methods ``_kept`` and so on.

    The application is ``tests/apps/traffic.py``. Files are created in ``directory``; clients of the uwsgi protocol have a
    separate address, and with ``context`` all others use TLS.
    """

    def __init__(self, address, directory, kinds, uwsgi=None, context=None):
        self.address = address
        self.directory = directory
        self.uwsgi = uwsgi
        self.context = context
        #: Whole responses of each kind.
        self.answers = collections.Counter()
        #: How often a client of a kind had something in flight when a turn came.
        self.spanned = collections.Counter()
        #: Ends of connections that the server announced, or that came on an idle one.
        self.orderly_ends = collections.Counter()
        #: Failures: (seconds since startup, kind, reason).
        self.failures = []
        self.kinds = kinds
        self._turn = 0
        self._counted = {}
        self._under_way = collections.Counter()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._run, args=(kind,), name=f"{kind} {number}", daemon=True)
            for kind, count in kinds.items()
            for number in range(count)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Lets all clients finish, and waits for them."""
        self._over.set()
        self.turn()
        for thread in self._threads:
            thread.join(TOGETHER_SECONDS)
            assert not thread.is_alive(), f"{thread.name} does not end: {self}"

    def turn(self):
        """Lets everything in flight finish."""
        with self._changed:
            self._turn += 1
            self._changed.notify_all()

    def wait(self, condition, what):
        with self._changed:
            came = self._changed.wait_for(lambda: condition() or self.failures, TOGETHER_SECONDS)
        assert came, f"waited in vain for {what}: {self}"
        assert not self.failures, repr(self)

    def wait_until_under_way(self):
        """Waits until each client that can have something in flight has; :meth:`wait_for_more` counts from here."""
        self._counted = dict(self.answers)
        kinds = {kind: count for kind, count in self.kinds.items() if kind in SPANNING}
        self.wait(lambda: all(self._under_way[kind] >= count for kind, count in kinds.items()), "all to be under way")

    def wait_for_more(self):
        """Waits until clients of each kind have had another response."""
        before = self._counted
        self.wait(lambda: all(self.answers[kind] > before.get(kind, 0) for kind in self.kinds), "an answer of each kind")

    def __repr__(self):
        failures = collections.Counter((kind, reason) for _, kind, reason in self.failures)
        return f"answers {dict(self.answers)}, ends {dict(self.orderly_ends)}, failures {dict(failures)}: {self.failures[:5]}"

    # Code that all clients share.

    def _run(self, kind):
        client_of_this_kind = getattr(self, f"_{kind}")
        while not self._over.is_set():
            try:
                client_of_this_kind()
            except Exception as error:
                self._fail(kind, reason_of(error))

    def _fail(self, kind, reason):
        with self._changed:
            self.failures.append((round(time.monotonic() - self._began, 3), kind, reason))
            self._changed.notify_all()
        # A client that is refused immediately must not fill the memory.
        self._over.wait(0.05)

    def _connect(self, **options):
        options = {"patience": ANSWER_SECONDS, **options}
        return Client(self.address, **options) if self.context is None else TlsClient(self.address, self.context, **options)

    def _answered(self, kind):
        with self._changed:
            self.answers[kind] += 1
            self._changed.notify_all()

    def _count_orderly_end(self, kind):
        with self._changed:
            self.orderly_ends[kind] += 1

    def _pause(self):
        self._over.wait(PAUSE_SECONDS)

    def _wait_for_turn(self, kind, step=None):
        """Stays in flight until the next turn; ``step`` is called repeatedly in the meantime."""
        with self._changed:
            turn = self._turn
            self._under_way[kind] += 1
            self._changed.notify_all()
        end = time.monotonic() + UNDER_WAY_SECONDS
        try:
            while time.monotonic() < end and not self._over.is_set():
                with self._changed:
                    if self._changed.wait_for(lambda: self._turn != turn, CHUNK_PAUSE_SECONDS if step else UNDER_WAY_SECONDS):
                        self.spanned[kind] += 1
                        break
                if step:
                    step()
        finally:
            with self._changed:
                self._under_way[kind] -= 1

    def _target(self, path="/"):
        """Returns a unique path and its response."""
        number = next(self._numbers)
        return f"{path}?{number}", f"answer {number}"

    def _check(self, answer, expected, kind):
        if answer.status != 200:
            raise Broken(f"status {answer.status}: {answer.body[:100]!r}")
        if answer.body != expected:
            raise Broken(f"wrong body: {len(answer.body)} bytes, {answer.body[:40]!r}, in place of {expected[:40]!r}")
        self._answered(kind)

    def _connected(self, kind, use):
        """Uses a connection until the server announces its end: ``use(client)`` returns whether it has."""
        with self._connect() as client:
            while not self._over.is_set():
                if use(client):
                    self._count_orderly_end(kind)
                    return
                self._pause()

    # The kinds.

    def _kept(self):
        """Requests one after the other on a kept connection."""

        def use(client):
            target, text = self._target()
            answer = client.request("GET", target)
            self._check(answer, text.encode(), "kept")
            return answer.says_close

        self._connected("kept", use)

    def _fresh(self):
        """A new connection for each request."""
        target, text = self._target()
        with self._connect() as client:
            self._check(client.request("GET", target, [("Connection", "close")]), text.encode(), "fresh")
        self._pause()

    def _pairs(self):
        """Two requests in one packet. If the first response announces the end, the second is not answered, and does not count as
        lost.
        """

        def use(client):
            both = [self._target(), self._target()]
            client.send(b"".join(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for target, _ in both))
            for _, text in both:
                answer = client.read_response()
                self._check(answer, text.encode(), "pairs")
                if answer.says_close:
                    return True
            return False

        self._connected("pairs", use)

    def _uploads(self):
        """A chunked body that comes slowly."""

        def use(client):
            digest = hashlib.sha1()
            client.send(b"POST /digest HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")

            def send_chunk():
                digest.update(CHUNK)
                client.send(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))

            send_chunk()
            self._wait_for_turn("uploads", send_chunk)
            send_chunk()
            client.send(b"0\r\n\r\n")
            answer = client.read_response()
            self._check(answer, digest.hexdigest().encode(), "uploads")
            return answer.says_close

        self._connected("uploads", use)

    def _large(self):
        """A large body, of which the last byte comes late."""

        def use(client):
            body = next(self._numbers).to_bytes(8, "big") * (LARGE_BYTES // 8)
            client.send(f"POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            client.send(body[:-1])
            self._wait_for_turn("large")
            client.send(body[-1:])
            answer = client.read_response()
            self._check(answer, hashlib.sha1(body).hexdigest().encode(), "large")
            return answer.says_close

        self._connected("large", use)

    def _long(self):
        """A long response with a slow reader."""
        with self._connect(receive_bytes=FIRST_BYTES) as client:
            client.send(f"GET /long?{LONG_BYTES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            client.buffer = client.read_exactly(FIRST_BYTES)
            self._wait_for_turn("long")
            self._check(client.read_response(), long_body(LONG_BYTES), "long")

    def _streams(self):
        """A chunked response that the application generates slowly, until a file exists."""
        gate = self.directory / f"gate-{uuid.uuid4()}"
        with self._connect() as client:
            client.send(f"GET /stream?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = client.read_until(b"part\n")
            self._wait_for_turn("streams")
            gate.touch()
            client.buffer = head + client.buffer
            answer = client.read_response()
            count = answer.body.count(b"part\n")
            self._check(answer, b"part\n" * count + b"end\n", "streams")

    def _idle(self):
        """A kept connection with a request at the moment of the turn. A connection that the server has closed by then is not a
        loss: no request was in flight.
        """
        with self._connect() as client:
            for number in range(2):
                target, text = self._target()
                try:
                    answer = client.request("GET", target)
                except Closed as closed:
                    if number == 0 or closed.was_reset or closed.data:
                        raise
                    return self._count_orderly_end("idle")
                self._check(answer, text.encode(), "idle")
                if answer.says_close:
                    return self._count_orderly_end("idle")
                if number == 0:
                    self._wait_for_turn("idle")
        return None

    def _websockets(self):
        """An echo, until the server sends a close frame, which must be valid."""
        with self._connect() as client:
            socket = WebSocket(client, "/echo").open()
            while not self._over.is_set():
                text = f"message {next(self._numbers)}"
                socket.send_text(text)
                frame = socket.read()
                if frame.opcode == CLOSE:
                    code = int.from_bytes(frame.payload[:2], "big")
                    if code not in CLOSE_CODES:
                        raise Broken(f"a WebSocket was closed with {code}: {frame.payload[2:]!r}")
                    socket.send(CLOSE, close_payload(code))
                    if not client.is_closed() or client.was_reset:
                        raise Broken("a WebSocket did not end behind its close frame")
                    return self._count_orderly_end("websockets")
                if (frame.opcode, frame.payload) != (TEXT, text.encode()):
                    raise Broken(f"wrong message: {frame}")
                self._answered("websockets")
                self._pause()
            socket.close()
        return None

    def _http2(self):
        """Streams of an HTTP/2 connection until GOAWAY. Streams that are refused, or above the last stream of GOAWAY, were not
        begun.
        """
        with Http2(self._connect()) as connection:
            while not self._over.is_set():
                texts = {}
                for _ in range(STREAMS):
                    target, text = self._target()
                    texts[connection.begin(target=target).stream] = text
                try:
                    connection.finish(*(connection.answers[stream] for stream in texts))
                except Reset as reset:
                    if reset.code != http2.REFUSED_STREAM:
                        raise
                except Ended:
                    pass
                last = connection.went_away[-1][0] if connection.went_away else http2.MAX_WINDOW_BYTES
                for stream, text in texts.items():
                    answer = connection.answers[stream]
                    if answer.is_whole:
                        self._check(answer, text.encode(), "http2")
                    elif stream <= last and answer.reset != http2.REFUSED_STREAM:
                        raise Broken(f"a stream up to {last} has no answer: {answer}")
                if connection.went_away:
                    return self._count_orderly_end("http2")
                connection.answers.clear()
                self._pause()
        return None

    def _uwsgi(self):
        """Requests of a reverse proxy, each on a new connection."""
        target, text = self._target()
        with Client(self.uwsgi, patience=ANSWER_SECONDS) as client:
            client.send(uwsgi.packet(uwsgi.request_variables("GET", target)))
            data = client.read_to_end()
            if client.was_reset or not data:
                raise Closed(data, client.was_reset)
            self._check(uwsgi.Answer(data), text.encode(), "uwsgi")
        self._pause()


#: The kinds that have something in flight while they wait for a turn.
SPANNING = ("uploads", "large", "long", "streams", "idle")


def long_body(count):
    """Returns the application's response at `/long`: each position identifies itself."""
    return b"".join(b"%15d\n" % number for number in range(count // 16))


def reason_of(error):
    """Returns a failure by its reason."""
    if isinstance(error, Closed):
        how = "reset" if error.was_reset else "closed"
        return f"{how} {'in the middle of an answer' if error.data else 'without an answer'}"
    if isinstance(error, TIMEOUTS):
        return "no answer in time"
    if isinstance(error, ConnectionResetError):
        return "reset while connecting or sending"
    return f"{type(error).__name__}: {error}"
