"""A small Litestar site."""

import asyncio
import contextlib
from typing import Annotated, Any

from litestar import Litestar, MediaType, Request, Response, WebSocket, get, post, websocket, websocket_listener
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from litestar.logging import LoggingConfig
from litestar.params import Body
from litestar.response import Redirect, ServerSentEvent, Stream

notes = []


@get("/hello/{name:str}", media_type=MediaType.TEXT)
async def hello(name: str, q: str = "") -> str:
    return f"hello {name} {q}"


@post("/json", status_code=200)
async def json(request: Request) -> dict[str, Any]:
    return {"received": await request.json(), "length": int(request.headers.get("content-length", -1))}


@get("/cookies", sync_to_thread=True)
def cookies(request: Request) -> Response[str]:
    visits = int(request.cookies.get("visits", 0)) + 1
    answer = Response(f"{visits} {request.cookies.get('plain', 'none')}", media_type=MediaType.TEXT)
    answer.set_cookie("visits", str(visits))
    answer.set_cookie("plain", "yes")
    return answer


@post("/upload", status_code=200)
async def upload(data: Annotated[dict[str, Any], Body(media_type=RequestEncodingType.MULTI_PART)]) -> dict[str, Any]:
    file: UploadFile = data["file"]
    content = await file.read()
    return {"name": file.filename, "size": len(content), "total": sum(content), "field": data["field"]}


@get("/redirect")
async def redirects() -> Redirect:
    return Redirect("/hello/redirected")


async def numbers():
    for number in range(1000):
        yield f"{number}\n"


@get("/stream")
async def stream() -> Stream:
    return Stream(numbers(), media_type=MediaType.TEXT)


@get("/error")
async def error() -> None:
    raise RuntimeError("as the test asked")


@get("/where", media_type=MediaType.TEXT)
async def where(request: Request) -> str:
    return str(request.url)


@get("/state")
async def state(request: Request) -> dict[str, str]:
    return {"opened": request.app.state.opened}


@get("/background")
async def background() -> Response[str]:
    return Response("told", media_type=MediaType.TEXT, background=BackgroundTask(after))


async def after():
    await asyncio.sleep(0.01)
    notes.append("the background work ran")


@get("/notes")
async def noted() -> list:
    return notes


@get("/events")
async def events() -> ServerSentEvent:
    async def parts():
        for number in range(3):
            yield str(number)

    return ServerSentEvent(parts())


@websocket("/echo")
async def echo(socket: WebSocket) -> None:
    offered = socket.scope["subprotocols"]
    await socket.accept(subprotocols=offered[-1] if offered else None)
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") == "leave":
            await socket.close(4001, "as you asked")
            return
        if message.get("text") is not None:
            await socket.send_text(message["text"])
        else:
            await socket.send_bytes(message["bytes"])


@websocket_listener("/listener")
async def listener(data: dict[str, int]) -> dict[str, int]:
    return {"sum": sum(data.values())}


@contextlib.asynccontextmanager
async def lifespan(app):
    app.state.opened = "yes"
    yield
    print("the site closes", flush=True)


app = Litestar(
    [hello, json, cookies, upload, redirects, stream, error, where, state, background, noted, events, echo, listener],
    lifespan=[lifespan],
    # Its default configuration logs through a thread that is started at import.
    logging_config=LoggingConfig(handlers={"queue_listener": {"class": "logging.StreamHandler"}}, log_exceptions="always"),
)
