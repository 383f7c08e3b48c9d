"""The routes of the benchmark as a plain ASGI application."""

TEXT = (b"content-type", b"text/plain; charset=utf-8")
USER = "/user/"


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    method, path = scope["method"], scope["path"]
    status, body = 200, b""
    if method == "GET" and path.startswith(USER) and path != USER:
        body = path[len(USER) :].encode()
    elif (method, path) not in (("GET", "/"), ("POST", "/user")):
        status = 404
    headers = [TEXT, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
