"""Answers with the path, and the length of the body."""


def application(environ, start_response):
    length = 0
    while part := environ["wsgi.input"].read(65536):
        length += len(part)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['PATH_INFO']} {length}".encode()]


async def asgi(scope, receive, send):
    assert scope["type"] == "http", scope
    length, is_over = 0, False
    while not is_over:
        message = await receive()
        length += len(message.get("body", b""))
        is_over = not message.get("more_body", False)
    body = f"{scope['path']} {length}".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
