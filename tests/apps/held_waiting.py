"""Like ``held.py``, for applications that do not block their worker: ``asgi`` waits in its loop, ``greenlets`` in gevent's hub.
Both read the whole body first, and ``asgi`` waits for the end of a WebSocket. The body of ``/held-stream/GATE`` does not
end. They print a line when its client has left, and wait at the gate then.
"""

import asyncio
import contextlib

import held


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        raise NotImplementedError("it has none")
    path, name = scope["path"], scope["query_string"].decode()
    if scope["type"] == "websocket":
        return await websocket(path, name, receive, send)
    if path.startswith("/held-stream/"):
        return await stream(path, name, send)
    with held.noted(name):
        while (await receive()).get("more_body"):
            pass
        body = await asyncio.to_thread(held.view, path, name)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


async def websocket(path, name, receive, send):
    """A WebSocket whose application works on when it has ended."""
    with held.noted(name):
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        await asyncio.to_thread(held.view, path, name)


async def stream(path, name, send):
    with held.noted(name):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with contextlib.suppress(OSError):
            while True:
                await send({"type": "http.response.body", "body": b"part", "more_body": True})
                await asyncio.sleep(0.001)
        print(f"the client of {name} has left", flush=True)
        await asyncio.to_thread(held.wait_at, path.split("/")[2])


def parts(path, name):
    import gevent

    with held.noted(name), contextlib.suppress(GeneratorExit):
        try:
            while True:
                yield b"part"
                gevent.sleep(0.001)
        finally:
            print(f"the client of {name} has left", flush=True)
            gevent.get_hub().threadpool.apply(held.wait_at, (path.split("/")[2],))


def greenlets(environ, start_response):
    import gevent

    path, name = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path.startswith("/held-stream/"):
        start_response("200 OK", held.PLAIN)
        return parts(path, name)
    with held.noted(name):
        environ["wsgi.input"].read()
        body = gevent.get_hub().threadpool.apply(held.view, (path, name))
    start_response("200 OK", [*held.PLAIN, ("Content-Length", str(len(body)))])
    return [body]
