"""WSGI applications in a worker of ASGI applications: each request runs in a thread, and its answer goes through the event loop.

It serves ``mount`` options that put both kinds into one worker; a worker that has WSGI applications only does not use it. Must
not know sockets. Runs in workers.
"""

import asyncio
import concurrent.futures
import io
import ipaddress
import socket
import tempfile
import urllib.parse

from bolide import _native, wsgi
from bolide.log import errors

#: Bytes of a body that are kept in memory, as with ``post-buffering``; the rest goes to a temporary file.
DEFAULT_BODY_MEMORY_BYTES = 1024 * 1024


class ClientLeft(OSError):
    """The client disconnected while the application was writing."""


class WsgiApplication:
    """An ASGI application around a WSGI one."""

    def __init__(self, application, settings, loop):
        self.application = application
        self.loop = loop
        self.body_memory_bytes = settings["limits"]["body_memory_bytes"] or DEFAULT_BODY_MEMORY_BYTES
        self.body_disk_bytes = settings["limits"]["body_disk_bytes"]
        #: Bytes of all requests' bodies that are on the disk now. Only the loop's thread counts.
        self.on_disk = 0
        self.multiprocess = settings["workers"]["processes"] > 1
        self.has_file_wrapper = not settings["language"]["python"]["no_file_wrapper"]
        threads = settings["workers"]["threads"]
        self.threads = threads["Fixed"] if isinstance(threads, dict) else AUTO_THREADS
        self.node = socket.gethostname()
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads, thread_name_prefix="bolide wsgi")

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            # A WSGI application has no WebSockets.
            await send({"type": "websocket.close"})
            return
        length = on_disk = 0

        def give_back():
            # Before the client has the end of its answer: it may send its next request immediately.
            nonlocal on_disk
            self.on_disk -= on_disk
            on_disk = 0

        try:
            with tempfile.SpooledTemporaryFile(self.body_memory_bytes) as body:
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    length += len(message["body"])
                    more = message["more_body"]
                    if length > self.body_memory_bytes:
                        self.on_disk += length - on_disk
                        on_disk = length
                        if self.on_disk > self.body_disk_bytes:
                            give_back()
                            await refuse(send)
                            return
                    body.write(message["body"])
                body.seek(0)
                environ = self.environ(scope, body, length)
                answer = Answer(self.loop, send, give_back)
                await self.loop.run_in_executor(self.pool, answer.run, self.application, environ)
        finally:
            give_back()

    def environ(self, scope, body, length):
        """Return the environ of a request (PEP 3333), with the same keys as in a worker of WSGI applications."""
        path = path_of(scope).decode("latin-1")
        root = scope["root_path"].encode().decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        server, port = scope["server"]
        client, client_port = scope["client"] or ("", "")
        raw_path = scope["raw_path"].decode("latin-1")
        uri = f"{raw_path}?{query}" if query else raw_path
        environ = {
            "REQUEST_METHOD": scope["method"],
            "REQUEST_URI": uri,
            # The scope has it if it differs, such as a target with scheme and host.
            "RAW_URI": scope["bolide.raw_uri"].decode("latin-1") if "bolide.raw_uri" in scope else uri,
            "SCRIPT_NAME": root,
            "PATH_INFO": path[len(root) :] if root and path.startswith(root) else path,
            "QUERY_STRING": query,
            "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
            "SERVER_NAME": self.node if is_address(server) else server,
            "SERVER_PORT": str(port) if port is not None else "443" if scope["scheme"] == "https" else "80",
            "REMOTE_ADDR": client,
            "REMOTE_PORT": str(client_port),
            "DOCUMENT_ROOT": "",
            "SERVER_SOFTWARE": f"bolide/{_native.__version__}",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": scope["scheme"],
            "wsgi.input": body if length else io.BytesIO(),
            "wsgi.input_terminated": True,
            "wsgi.errors": errors,
            "wsgi.multithread": self.threads > 1,
            "wsgi.multiprocess": self.multiprocess,
            "wsgi.run_once": False,
            "uwsgi.version": _native.__version__.encode(),
            "uwsgi.node": self.node.encode(),
            "uwsgi.core": 0,
        }
        if scope["scheme"] == "https":
            environ["HTTPS"] = "on"
        if self.has_file_wrapper:
            environ["wsgi.file_wrapper"] = wsgi.FileWrapper
        for name, value in scope["headers"]:
            key = name.decode("latin-1").upper().replace("-", "_")
            # httpoxy: a client's Proxy header must not become HTTP_PROXY, the setting of HTTP clients (CVE-2016-5385).
            if key in ("PROXY", "TRANSFER_ENCODING"):
                continue
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = f"HTTP_{key}"
            text = value.decode("latin-1")
            if key in environ:
                text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ', '}{text}"
            environ[key] = text
        if length:
            environ["CONTENT_LENGTH"] = str(length)
        return environ


def is_bridge(coroutine):
    """Return whether the coroutine is a request whose application runs in one of our threads."""
    return getattr(coroutine, "cr_code", None) is WsgiApplication.__call__.__code__


async def refuse(send):
    """Refuse a request whose body exceeds the disk limit (``limit-post-disk``), as a worker of WSGI applications does."""
    text = b"the temporary files of this worker hold as many bytes as limit-post-disk allows"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 507, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def path_of(scope):
    """Return the bytes of the path: ``raw_path`` keeps those that are not UTF-8, and the scope's text does not."""
    if "\ufffd" in scope["path"]:
        return urllib.parse.unquote_to_bytes(scope["raw_path"])
    return scope["path"].encode()


def is_address(server):
    """Return whether this is the address of our socket, and not the name by which a reverse proxy knows itself."""
    if server.startswith(("/", "@")):
        return True
    try:
        ipaddress.ip_address(server)
    except ValueError:
        return False
    return True


#: Number of threads with ``threads = auto``.
AUTO_THREADS = 8


class Answer:
    """The answer of a WSGI application on its way to the loop. Runs in a thread of the pool."""

    def __init__(self, loop, send, on_end):
        self.loop = loop
        self.send = send
        #: Called in the loop's thread before the last message.
        self.on_end = on_end
        self.head = None
        self.has_begun = False

    def run(self, application, environ):
        """Call the application and send its answer. Its exceptions end the ASGI task, which logs them."""
        result = application(environ, self.start_response)
        try:
            if isinstance(result, wsgi.FileWrapper) and self.send_file(result):
                return
            parts = len(result) if isinstance(result, (list, tuple)) else None
            for part in result:
                if part:
                    if parts == 1 and not self.has_begun:
                        self.finish(part)
                        return
                    self.write(part)
            self.finish(b"")
        except ClientLeft:
            # The client has disconnected. close() runs all the same.
            return
        finally:
            if hasattr(result, "close"):
                result.close()

    def start_response(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.has_begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.head is not None:
            raise AssertionError("start_response was called twice without exc_info (PEP 3333)")
        code = int(status[:3])
        self.head = {
            "type": "http.response.start",
            "status": code,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        return self.write

    def write(self, data):
        if not isinstance(data, bytes):
            raise TypeError(f"the application's answer must be of bytes, not {type(data).__name__} (PEP 3333)")
        self.tell({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self, data):
        if not isinstance(data, bytes):
            raise TypeError(f"the application's answer must be of bytes, not {type(data).__name__} (PEP 3333)")
        self.tell({"type": "http.response.body", "body": data, "more_body": False})

    def send_file(self, wrapper):
        """Send a regular file without reading it. Return False if the wrapper holds none."""
        found = wsgi.sendable(wrapper)
        if found is None:
            return False
        descriptor, offset, length = found
        self.tell({"type": "http.response.zerocopysend", "file": descriptor, "offset": offset, "count": length})
        return True

    def tell(self, message):
        """Send a message from this thread, and wait until the client can take more."""
        if self.head is None:
            raise AssertionError("the application produced a part of the body before it called start_response (PEP 3333)")
        messages = [message] if self.has_begun else [self.head, message]
        self.has_begun = True
        try:
            is_last = not message.get("more_body", False)
            asyncio.run_coroutine_threadsafe(self.say(messages, is_last), self.loop).result()
        except OSError as error:
            raise ClientLeft(*error.args) from None

    async def say(self, messages, is_last):
        if is_last:
            self.on_end()
        for message in messages:
            await self.send(message)
