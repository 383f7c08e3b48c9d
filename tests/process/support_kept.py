"""Connections that a client keeps, of each protocol that can: whoever answers them, they are the same sockets."""

import select

from support import fastcgi, uwsgi

#: Protocol -> the option that has it spoken.
OPTIONS = {"http": "http-socket", "puwsgi": "puwsgi-socket", "fastcgi": "fastcgi-socket"}


class Kept:
    """A connection for one request after the other. An answer that is none of the expected kind is an error."""

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
        """The body of an answer after which the connection goes on."""
        answer = fastcgi.read_answer(self.client) if self.protocol == "fastcgi" else self.client.read_response()
        assert answer.status == 200, answer
        assert self.protocol != "http" or not answer.says_close, answer
        return answer.body.decode()

    def ask(self, target="/pid"):
        self.send(target)
        return self.read()

    def is_silent(self):
        """Nothing has come so far: no answer, and no end."""
        readable, _, _ = select.select([self.client.socket], [], [], 0)
        return not readable and not self.client.buffer
