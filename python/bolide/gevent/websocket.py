"""``environ["wsgi.websocket"]``: the WebSocket that gevent-websocket's server offers to applications, on the server's own
implementation. Flask-Sockets, python-engineio and others look for it.

It does not know about sockets. Runs in workers with the option ``gevent``, in the greenlet of a request and in those that it
spawns.
"""

from bolide import _native

__all__ = ["WebSocket", "offer"]


def error_class():
    """Return the exception of a WebSocket that is closed: gevent-websocket's own, which is an OSError, if it is installed."""
    try:
        from geventwebsocket.exceptions import WebSocketError
    except ImportError:
        return OSError
    return WebSocketError


def offer(environ):
    """Offer a WebSocket to the application of this request, if the client asks for one."""
    if environ.get("HTTP_UPGRADE", "").lower() == "websocket":
        environ["wsgi.websocket"] = WebSocket(environ)
        environ["wsgi.websocket_version"] = environ.get("HTTP_SEC_WEBSOCKET_VERSION")


class WebSocket:
    """A WebSocket of a request. The handshake is answered at its first use, so an application may also answer with HTTP."""

    OPCODE_TEXT = 1
    OPCODE_BINARY = 2

    def __init__(self, environ):
        self.environ = environ
        self.closed = False
        #: Set when the handshake has been answered.
        self.context = None
        from gevent.lock import RLock

        #: Held during the handshake, which lets other greenlets run.
        self.handshake = RLock()

    @property
    def origin(self):
        return self.environ.get("HTTP_ORIGIN")

    @property
    def protocol(self):
        return self.environ.get("HTTP_SEC_WEBSOCKET_PROTOCOL")

    @property
    def version(self):
        return self.environ.get("HTTP_SEC_WEBSOCKET_VERSION")

    @property
    def path(self):
        return self.environ.get("PATH_INFO")

    def open(self):
        """Return the request's context. The first call answers the handshake, and calls of other greenlets wait for that."""
        if self.context is None:
            with self.handshake:
                if self.context is None:
                    self.context = self.accept()
        if self.closed:
            raise error_class()("Connection is already closed")
        return self.context

    def accept(self):
        """Answer the handshake, in whichever greenlet. Return the request's context."""
        context = _native.uwsgi_request_context(self.environ)
        protocol = (self.protocol or "").split(",")[0].strip()
        _native.uwsgi_accept_websocket(self.environ, None, protocol.encode("latin-1") or None, context)
        return context

    def receive(self):
        """Wait for the next message: a str or bytes. None: the WebSocket has ended."""
        context = self.open()
        try:
            return _native.uwsgi_hear(True, context, True)
        except OSError:
            self.closed = True
            return None

    def send(self, message, binary=None):
        """Send a message: bytes as a binary one, anything else as text, unless `binary` is set. None is an empty message."""
        context = self.open()
        is_binary = isinstance(message, (bytes, bytearray, memoryview)) if binary is None else binary
        if message is None:
            message = ""
        if not isinstance(message, (str, bytes, bytearray, memoryview)):
            message = str(message)
        payload = message if isinstance(message, str) else bytes(message)
        try:
            _native.uwsgi_say(payload, not is_binary, context)
        except OSError as error:
            self.closed = True
            raise error_class()(str(error)) from None

    def close(self, code=1000, message=b""):
        """Close the WebSocket."""
        if self.closed:
            return
        context = self.open()
        self.closed = True
        reason = message if isinstance(message, bytes) else str(message).encode()
        _native.uwsgi_close_websocket(code, reason, context)
