"""Sets fields that belong to the server: `/field?NAME=VALUE` sets one, `/status/STATUS` has that status, and the other paths
frame their body in chunks.
"""

from urllib.parse import parse_qsl

TEXT = b"one two three"


def in_chunks(*parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


#: The bodies of answers with `Transfer-Encoding: chunked`, in parts.
BODIES = {
    "whole": [in_chunks(b"one ", b"two three")],
    "parts": [b"4\r\none \r\n", b"9;name=value\r\ntwo three\r\n", b"0\r\nX-Trailer: 1\r\n\r\n"],
    "bytes": [bytes([byte]) for byte in in_chunks(b"one ", b"two three")],
    "large": [in_chunks(bytes(range(256)) * 16384)],
    "more": [in_chunks(TEXT), b"more"],
    "plain": [TEXT],
    "unended": [b"4\r\none \r\n"],
    "nothing": [],
}


def application(environ, start_response):
    path = environ["PATH_INFO"].strip("/")
    if path.startswith("status/"):
        start_response(path.partition("/")[2], parse_qsl(environ["QUERY_STRING"]))
        return []
    if path == "field":
        fields = parse_qsl(environ["QUERY_STRING"])
        start_response("200 OK", [("Content-Type", "text/plain"), *fields])
        return [TEXT]
    kind, _, way = path.partition("/")
    fields = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")]
    if way == "length":
        fields.append(("Content-Length", str(sum(map(len, BODIES[kind])))))
    write = start_response("200 OK", fields)
    if way == "write":
        for part in BODIES[kind]:
            write(part)
        return []
    return iter(BODIES[kind]) if way == "iterator" else list(BODIES[kind])
