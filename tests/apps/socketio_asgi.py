"""A Socket.IO server (python-socketio), with rooms, acknowledgments and a namespace, in front of another application."""

import asyncio

import socketio

server = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins="*", ping_interval=0.5, ping_timeout=5)

#: Clients that connected and disconnected, for later requests.
notes = []


@server.event
async def connect(sid, environ, auth):
    if auth == {"ticket": "forged"}:
        raise socketio.exceptions.ConnectionRefusedError("no ticket")
    await server.save_session(sid, {"path": environ["PATH_INFO"], "agent": environ.get("HTTP_X_AGENT", "")})
    await server.emit("welcome", {"sid": sid}, to=sid)


@server.event
async def disconnect(sid, reason=None):
    notes.append("left")


@server.event
async def echo(sid, data):
    """Its return value is the acknowledgment."""
    session = await server.get_session(sid)
    return {"data": data, "path": session["path"], "agent": session["agent"]}


@server.event
async def enter(sid, room):
    await server.enter_room(sid, room)
    return "in"


@server.event
async def say(sid, room, text):
    await server.emit("said", {"room": room, "text": text}, room=room)


@server.event
async def slowly(sid, count):
    async def emit():
        for number in range(count):
            await server.emit("number", number, to=sid)
            await asyncio.sleep(0)

    server.start_background_task(emit)


@server.on("shout", namespace="/loud")
async def shout(sid, text):
    return text.upper()


async def other(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": ",".join(notes).encode()})


app = socketio.ASGIApp(server, other, on_startup=lambda: print("the site opens", flush=True))
