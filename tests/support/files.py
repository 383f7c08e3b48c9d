"""Directories of static files for tests, and requests for them."""

import email
import os
import time
from email.policy import HTTP


def pattern(size):
    """Returns bytes in which each position differs from its neighbors."""
    block = b"".join(number.to_bytes(4, "big") for number in range(16384))
    return (block * (size // len(block) + 1))[:size]


def assert_same(got, expected):
    """Like ``==`` on bytes, but a failure shows the first difference instead of megabytes."""
    if got != expected:
        place = next((at for at, (left, right) in enumerate(zip(got, expected)) if left != right), min(len(got), len(expected)))
        raise AssertionError(f"{len(got)} bytes in place of {len(expected)}; they differ from byte {place} on")


def age(path, seconds=3600):
    """Sets a file's modification time to the past."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def fill(directory, files):
    """Writes ``{"a/b.txt": b"…"}``; the modification time of each is an hour ago."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        age(path)


def parts_of(response):
    """Parses a multipart/byteranges response. Returns ``[(content range, content type, bytes)]``."""
    head = b"Content-Type: " + response.get("content-type").encode() + b"\r\n\r\n"
    message = email.message_from_bytes(head + response.body, policy=HTTP)
    assert message.get_content_type() == "multipart/byteranges", response
    assert not message.defects, message.defects
    boundary = message.get_boundary().encode()
    # The email package changes line ends, so the bytes are extracted by hand.
    found = []
    pieces = response.body.split(b"\r\n--" + boundary)
    assert (pieces[0], pieces[-1]) == (b"", b"--\r\n"), response
    for piece in pieces[1:-1]:
        lines, _, body = piece[2:].partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in lines.decode().split("\r\n"))
        found.append((fields["Content-Range"], fields["Content-Type"], body))
    return found
