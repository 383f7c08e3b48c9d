"""Like ``held.py``, for applications that do not block their worker: ``asgi`` waits in its loop, ``greenlets`` in gevent's hub.
Both read the whole body first.
"""

import asyncio

import held


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("only requests of HTTP are held")
    path, name = scope["path"], scope["query_string"].decode()
    with held.noted(name):
        while (await receive()).get("more_body"):
            pass
        body = await asyncio.to_thread(held.view, path, name)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def greenlets(environ, start_response):
    import gevent

    path, name = environ["PATH_INFO"], environ["QUERY_STRING"]
    with held.noted(name):
        environ["wsgi.input"].read()
        body = gevent.get_hub().threadpool.apply(held.view, (path, name))
    start_response("200 OK", [*held.PLAIN, ("Content-Length", str(len(body)))])
    return [body]
