"""Sessions in the memory of a worker, as WSGI and as ASGI. Every response is JSON with the pid of the worker.

`/new` makes a session and sends its identifier in the field Mcp-Session-Id. `/use` finds the session of that field or of the
parameter `sid`, and is 404 in a worker that does not have it. `/poll` makes the session of `sid` if there is none. `/count` reads
a body. `/hold` returns when the file of the parameter `gate` is there.
"""

import json
import os
import pathlib
import time
import uuid
from urllib.parse import parse_qs

SESSIONS = {}


def answer(path, query, header, body):
    """Returns the status, the fields, and the body of the response."""
    known = header or parse_qs(query).get("sid", [""])[0]
    fields = [("Content-Type", "application/json")]
    said = {"pid": os.getpid(), "session": known}
    if path == "/new":
        known = said["session"] = uuid.uuid4().hex
        SESSIONS[known] = 0
        fields.append(("Mcp-Session-Id", known))
    elif path == "/poll":
        SESSIONS.setdefault(known, 0)
    elif path == "/hold":
        gate = pathlib.Path(parse_qs(query)["gate"][0])
        gate.with_suffix(".begun").touch()
        while not gate.exists():
            time.sleep(0.002)
    elif path == "/use" and known not in SESSIONS:
        return "404 Not Found", fields, json.dumps(said).encode()
    if known in SESSIONS:
        SESSIONS[known] += 1
        said["count"] = SESSIONS[known]
    said["bytes"] = len(body)
    return "200 OK", fields, json.dumps(said).encode()


def application(environ, start_response):
    body = environ["wsgi.input"].read() if environ["PATH_INFO"] == "/count" else b""
    status, fields, made = answer(
        environ["PATH_INFO"], environ.get("QUERY_STRING", ""), environ.get("HTTP_MCP_SESSION_ID", ""), body
    )
    start_response(status, [*fields, ("Content-Length", str(len(made)))])
    return [made]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    header = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
    status, fields, made = answer(scope["path"], scope["query_string"].decode(), header, body)
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": made})
