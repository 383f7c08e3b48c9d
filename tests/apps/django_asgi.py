"""A small Django site in one file, as an ASGI application: coroutines and plain functions, and Channels for its WebSockets."""

import asyncio
import json as json_module
import threading

import django
from asgiref.sync import sync_to_async
from channels.generic.http import AsyncHttpConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer, WebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    INSTALLED_APPS=["django.contrib.sessions", "channels"],
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
    ],
    LOGGING_CONFIG=None,
    USE_TZ=True,
)

#: Notes of abandoned requests, for later requests.
notes = []


async def hello(request, name):
    return HttpResponse(f"hello {name} {request.GET.get('q', '')}")


async def json(request):
    length = int(request.headers.get("content-length") or -1)
    return JsonResponse({"received": json_module.loads(request.body), "length": length})


# The effect of `csrf_exempt`, which supports coroutines since Django 5.0.
json.csrf_exempt = True


def cookies(request):
    # Not a coroutine function: Django runs it in a thread.
    request.session["visits"] = request.session.get("visits", 0) + 1
    answer = HttpResponse(f"{request.session['visits']} {request.COOKIES.get('plain', 'none')}")
    answer.set_cookie("plain", "yes")
    return answer


@csrf_exempt
def upload(request):
    file = request.FILES["file"]
    content = file.read()
    told = {"name": file.name, "size": len(content), "total": sum(content), "field": request.POST["field"]}
    return JsonResponse(told)


def redirects(request):
    return HttpResponseRedirect("/hello/redirected")


async def numbers():
    for number in range(1000):
        yield f"{number}\n"


async def stream(request):
    return StreamingHttpResponse(numbers(), content_type="text/plain")


def blocking_stream(request):
    return StreamingHttpResponse((f"{number}\n" for number in range(1000)), content_type="text/plain")


def error(request):
    raise RuntimeError("as the test asked")


async def where(request):
    return HttpResponse(request.build_absolute_uri())


async def threads(request):
    """Returns the threads in which coroutines and their sync functions run."""
    inside = await sync_to_async(threading.current_thread)()
    return JsonResponse(
        {
            "view_is_main": threading.current_thread() is threading.main_thread(),
            "other_is_main": inside is threading.main_thread(),
            "task": asyncio.current_task() is not None,
        }
    )


def sent_file(request):
    return FileResponse(open(__file__, "rb"), content_type="text/x-python")


async def patient(request):
    """Waits longer than its client."""
    notes.clear()
    notes.append("waiting")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        notes.append("cancelled")
        raise
    return HttpResponse("nobody reads this")


async def endless(request):
    async def parts():
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            # Cancelled while it slept, or closed because the response could not be sent.
            notes.append("the stream was ended")

    notes.clear()
    return StreamingHttpResponse(parts())


async def noted(request):
    return JsonResponse(notes, safe=False)


async def version(request):
    return JsonResponse(list(django.VERSION[:2]), safe=False)


urlpatterns = [
    path("hello/<name>", hello),
    path("json", json),
    path("cookies", cookies),
    path("upload", upload),
    path("redirect", redirects),
    path("stream", stream),
    path("blocking-stream", blocking_stream),
    path("error", error),
    path("where", where),
    path("threads", threads),
    path("file", sent_file),
    path("patient", patient),
    path("endless", endless),
    path("notes", noted),
    path("version", version),
]


class Echo(AsyncWebsocketConsumer):
    async def connect(self):
        offered = self.scope["subprotocols"]
        await self.accept(offered[-1] if offered else None)

    async def receive(self, text_data=None, bytes_data=None):
        if text_data == "leave":
            await self.close(code=4001, reason="as you asked")
        elif text_data is not None:
            await self.send(text_data=text_data)
        else:
            await self.send(bytes_data=bytes_data)


class BlockingEcho(WebsocketConsumer):
    """In a separate thread."""

    def receive(self, text_data=None, bytes_data=None):
        self.send(text_data=f"{text_data} {threading.current_thread() is threading.main_thread()}")


class Room(AsyncJsonWebsocketConsumer):
    """A message of one client reaches all clients in the room."""

    async def connect(self):
        self.room = self.scope["url_route"]["kwargs"]["room"]
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept()

    async def disconnect(self, code):
        await self.channel_layer.group_discard(self.room, self.channel_name)
        await self.channel_layer.group_send(self.room, {"type": "room.left", "code": code})

    async def receive_json(self, content):
        await self.channel_layer.group_send(self.room, {"type": "room.said", "content": content})

    async def room_said(self, event):
        await self.send_json({"said": event["content"]})

    async def room_left(self, event):
        await self.send_json({"left": event["code"]})


class Forbidden(AsyncWebsocketConsumer):
    async def connect(self):
        await self.close()


class Ticker(AsyncHttpConsumer):
    """Events with Channels."""

    async def handle(self, body):
        await self.send_headers(headers=[(b"Content-Type", b"text/event-stream")])
        for number in range(3):
            await self.send_body(f"data: {number}\n\n".encode(), more_body=True)
        await self.send_body(b"")


pages = get_asgi_application()

application = ProtocolTypeRouter(
    {
        "http": URLRouter([path("ticker", Ticker.as_asgi()), path("", pages), path("<path:rest>", pages)]),
        "websocket": URLRouter(
            [
                path("echo", Echo.as_asgi()),
                path("blocking-echo", BlockingEcho.as_asgi()),
                path("room/<room>", Room.as_asgi()),
                path("forbidden", Forbidden.as_asgi()),
            ]
        ),
    }
)
