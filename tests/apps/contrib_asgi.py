"""What ``bolide.contrib`` offers to frameworks, for tests: a channel layer, a backend of broadcaster, a manager of
python-socketio.

``/run?NAME`` runs the checks of a function of ``contrib_checks``; ``/ws/ROOM`` is a consumer of Django Channels in a group;
``/broadcast/CHANNEL`` is a WebSocket of broadcaster; ``/socket.io/`` is Socket.IO.
"""

import os
import traceback

import contrib_checks
import django
import socketio
from bolide.contrib.broadcaster import BolideBackend
from bolide.contrib.socketio import AsyncBolideManager
from broadcaster import Broadcast
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

settings.configure(
    SECRET_KEY="key",
    CHANNEL_LAYERS={"default": {"BACKEND": "bolide.contrib.channels.ChannelLayer", "CONFIG": {"capacity": 100}}},
)
django.setup()

broadcast = Broadcast(backend=BolideBackend())
events = socketio.AsyncServer(async_mode="asgi", client_manager=AsyncBolideManager(), cors_allowed_origins="*")


@events.event
async def say(sid, room, text):
    await events.emit("said", text, room=room)


@events.event
async def enter(sid, room):
    await events.enter_room(sid, room)
    return os.getpid()


class Chat(AsyncWebsocketConsumer):
    async def connect(self):
        self.room = self.scope["path"].rpartition("/")[2]
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept()
        await self.send(text_data=f"{os.getpid()} {self.channel_name}")

    async def disconnect(self, code):
        await self.channel_layer.group_discard(self.room, self.channel_name)

    async def receive(self, text_data=None, bytes_data=None):
        target, _, text = text_data.rpartition(" ")
        message = {"type": "chat.message", "text": text, "raw": b"\0"}
        if target:
            await self.channel_layer.send(target, message)
        else:
            await self.channel_layer.group_send(self.room, message)

    async def chat_message(self, event):
        await self.send(text_data=event["text"] + repr(event["raw"]))


async def broadcast_socket(scope, receive, send):
    channel = scope["path"].rpartition("/")[2]
    await receive()
    async with broadcast.subscribe(channel) as subscriber:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": str(os.getpid())})
        async for event in subscriber:
            await send({"type": "websocket.send", "text": f"{event.channel}: {event.message}"})


async def http(scope, receive, send):
    path, query = scope["path"], scope["query_string"].decode()
    answer = "fine"
    try:
        if path == "/run":
            await getattr(contrib_checks, query)()
        else:
            await broadcast.publish(path.rpartition("/")[2], query)
    except Exception:
        answer = traceback.format_exc()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer.encode()})


async def lifespan(scope, receive, send):
    await receive()
    await broadcast.connect()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await broadcast.disconnect()
    await send({"type": "lifespan.shutdown.complete"})


chat = Chat.as_asgi()


async def other(scope, receive, send):
    if scope["type"] == "http":
        await http(scope, receive, send)
    elif scope["path"].startswith("/ws/"):
        await chat(scope, receive, send)
    else:
        await broadcast_socket(scope, receive, send)


with_events = socketio.ASGIApp(events, other)


async def application(scope, receive, send):
    await (lifespan if scope["type"] == "lifespan" else with_events)(scope, receive, send)
