"""Applications that name a file instead of a body, as WSGI and as ASGI: the query contains the header field and others.

With ASGI also by `http.response.pathsend`, with `path`.
"""

from urllib.parse import parse_qs

#: A body that must not reach any client.
BODY = b"of the application"


def said(query):
    """Returns (status, header fields) of a query: `field`, `name`, and additional `header`s as `Name: value`."""
    asked = parse_qs(query)
    headers = [tuple(line.split(": ", 1)) for line in asked.get("header", [])]
    if "field" in asked:
        headers.append((asked["field"][0], asked["name"][0]))
    return asked.get("status", ["200 OK"])[0], headers, asked.get("body", ["part"])[0]


def application(environ, start_response):
    status, headers, kind = said(environ["QUERY_STRING"])
    if kind == "length":
        # The Content-Length of frameworks for a body that they consider empty.
        headers.append(("Content-Length", "0"))
    write = start_response(status, headers)
    if kind == "written":
        write(BODY)
    return {"empty": [], "length": [], "parts": iter([BODY, BODY * 10000, b""])}.get(kind, [BODY])


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    query = scope["query_string"].decode()
    if "path" in parse_qs(query):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": parse_qs(query)["path"][0]})
        return
    status, headers, kind = said(query)
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers]
    if kind == "length":
        pairs.append((b"content-length", b"%d" % len(BODY)))
    await send({"type": "http.response.start", "status": int(status.split()[0]), "headers": pairs})
    if kind == "parts":
        for part in (b"", BODY, BODY * 10000):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    body = b"" if kind in ("empty", "parts") else BODY
    await send({"type": "http.response.body", "body": body})
