"""Echoes every message, for the Autobahn test suite and the measurements."""


async def application(scope, receive, send):
    assert scope["type"] == "websocket", scope["type"]
    message = await receive()
    assert message == {"type": "websocket.connect"}, message
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})
