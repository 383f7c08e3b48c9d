"""Like ``held.py``, in a blocked event loop: its views block, as a driver without ``await`` does."""

import held


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("only requests of HTTP are held")
    path, name = scope["path"], scope["query_string"].decode()
    with held.noted(name):
        body = held.view(path, name)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})
    if path.startswith("/after/"):
        with held.noted(f"after {name}"):
            held.wait_at(path.split("/")[2])
