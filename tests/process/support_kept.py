"""Connections that a client keeps, for each protocol with persistent connections. They survive a change of the worker."""

import select

from support import fastcgi, uwsgi

#: Protocol -> the option that selects it.
OPTIONS = {"http": "http-socket", "puwsgi": "puwsgi-socket", "fastcgi": "fastcgi-socket"}


class Kept:
    """A connection for one request after the other. An unexpected response is an error."""

    def __init__(self, server, protocol="http", address=None):
        self.protocol = protocol
        self.client = server.connect(address or server.address(protocol))

    def bytes_of(self, target, body=b""):
        method = "POST" if body else "GET"
        if self.protocol == "puwsgi":
            return uwsgi.packet(uwsgi.request_variables(method, target, body)) + body
        if self.protocol == "fastcgi":
            return fastcgi.request(method, target, body, keep=True)
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n".encode() + body

    def send(self, target, body=b""):
        assert self.client.send(self.bytes_of(target, body)), "the connection is closed"

    def read(self):
        """Returns the body of a response after which the connection stays open."""
        answer = fastcgi.read_answer(self.client) if self.protocol == "fastcgi" else self.client.read_response()
        assert answer.status == 200, answer
        assert self.protocol != "http" or not answer.says_close, answer
        return answer.body.decode()

    def ask(self, target="/pid"):
        self.send(target)
        return self.read()

    def is_silent(self):
        """Returns whether nothing has arrived so far: no response, and no end."""
        readable, _, _ = select.select([self.client.socket], [], [], 0)
        return not readable and not self.client.buffer
