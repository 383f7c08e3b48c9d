"""Server-sent events: `/events/COUNT/MILLISECONDS` sends COUNT events at this interval, then waits for the client to disconnect.

Any other path is answered with hello. Runs in the servers' workers; the suite's client imports `event` to verify the stream.
"""

import asyncio

from asgi_hello import application as hello

HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


def event(number):
    """Returns the bytes of one event, about as long as a short notification."""
    return (
        f'id: {number}\ndata: {{"number": {number}, "text": "something has happened at the other end of the wire"}}\n\n'.encode()
    )


async def application(scope, receive, send):
    if scope["type"] != "http" or not scope["path"].startswith("/events/"):
        await hello(scope, receive, send)
        return
    count, milliseconds = (int(word) for word in scope["path"].removeprefix("/events/").split("/"))
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    for number in range(count):
        await send({"type": "http.response.body", "body": event(number), "more_body": True})
        await asyncio.sleep(milliseconds / 1000)
    while (await receive())["type"] != "http.disconnect":
        pass
