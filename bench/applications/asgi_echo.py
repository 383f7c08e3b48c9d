"""Echoes every WebSocket message; answers HTTP requests with hello. Runs in the servers' workers."""

from asgi_hello import application as hello


async def application(scope, receive, send):
    if scope["type"] != "websocket":
        await hello(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        # The server may omit the other key, or set it to None.
        if (text := message.get("text")) is not None:
            await send({"type": "websocket.send", "text": text})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})
