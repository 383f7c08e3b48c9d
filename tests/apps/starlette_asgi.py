"""A small Starlette site: pages, streams, files, background work, WebSockets and a lifespan."""

import asyncio
import contextlib
import os
import tempfile

import anyio
import sniffio
from starlette.applications import Starlette
from starlette.background import BackgroundTasks
from starlette.concurrency import run_in_threadpool
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocketDisconnect

#: The files of this directory are served below /files.
FILES = os.environ.get("SITE_FILES") or tempfile.gettempdir()

#: Notes of background work and abandoned requests, for later requests.
notes = []
gate = None


@contextlib.asynccontextmanager
async def lifespan(app):
    global gate
    gate = asyncio.Event()
    print("the site opens", flush=True)
    async with anyio.create_task_group() as group:
        yield {"opened": "yes", "shared": [], "group": group}
        group.cancel_scope.cancel()
    print("the site closes", flush=True)


async def hello(request):
    return PlainTextResponse(f"hello {request.path_params['name']} {request.query_params.get('q', '')}")


async def json(request):
    return JSONResponse({"received": await request.json(), "length": int(request.headers.get("content-length", -1))})


def cookies(request):
    # Not a coroutine function: Starlette runs it in a thread.
    visits = int(request.cookies.get("visits", 0)) + 1
    answer = PlainTextResponse(f"{visits} {request.cookies.get('plain', 'none')}")
    answer.set_cookie("visits", str(visits))
    answer.set_cookie("plain", "yes")
    return answer


async def upload(request):
    async with request.form() as form:
        content = await form["file"].read()
        told = {"name": form["file"].filename, "size": len(content), "total": sum(content), "field": form["field"]}
    return JSONResponse(told)


async def redirects(request):
    return RedirectResponse("/hello/redirected", 302)


async def numbers():
    for number in range(1000):
        yield f"{number}\n"


async def stream(request):
    return StreamingResponse(numbers(), media_type="text/plain")


async def error(request):
    raise RuntimeError("as the test asked")


async def where(request):
    return PlainTextResponse(str(request.url))


async def state(request):
    request.state.shared.append("a visit")
    request.state.own = "not seen by others"
    return JSONResponse(
        {"opened": request.state.opened, "visits": len(request.state.shared), "scope": sorted(request.scope["state"])}
    )


async def task(request):
    """Returns what libraries query from the loop to detect their environment."""
    name = asyncio.current_task().get_name()
    before = sniffio.current_async_library(), asyncio.get_running_loop() is asyncio.current_task().get_loop()
    await asyncio.sleep(0)
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep(60)
    in_thread = await run_in_threadpool(anyio.from_thread.run, in_loop)
    same = asyncio.current_task().get_name() == name
    return JSONResponse({"library": before, "cancelled": scope.cancelled_caught, "thread": in_thread, "same_task": same})


async def in_loop():
    return sniffio.current_async_library()


class Method(HTTPEndpoint):
    async def get(self, request):
        return PlainTextResponse("get")

    async def delete(self, request):
        return Response(status_code=204)


async def background(request):
    tasks = BackgroundTasks()
    tasks.add_task(write_when_open, "a coroutine")
    tasks.add_task(notes.append, "a function in a thread")
    notes.clear()
    gate.clear()
    return PlainTextResponse("it goes on", background=tasks)


async def write_when_open(text):
    await gate.wait()
    notes.append(text)


async def background_at_the_end(request):
    async def work():
        await asyncio.sleep(0.3)
        print("the work is done", flush=True)

    tasks = BackgroundTasks()
    tasks.add_task(work)
    return PlainTextResponse("it goes on", background=tasks)


async def open_gate(request):
    gate.set()
    return PlainTextResponse("open")


async def noted(request):
    return JSONResponse(notes)


async def endless(request):
    """A stream whose client disconnects at some time."""

    async def parts():
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            notes.append("the stream was ended")

    notes.clear()
    return StreamingResponse(parts())


async def breaking(request):
    async def parts():
        yield b"x" * 1000
        raise RuntimeError("as the test asked")

    return StreamingResponse(parts())


async def patient(request):
    """Waits until its client has disconnected."""
    notes.clear()
    notes.append("waiting")
    while not await request.is_disconnected():
        await asyncio.sleep(0.005)
    notes.append("the client has disconnected")
    return PlainTextResponse("nobody reads this")


async def count(request):
    """Reads a body of any size part by part."""
    length = largest = 0
    async for part in request.stream():
        length += len(part)
        largest = max(largest, len(part))
    return JSONResponse({"length": length, "largest": largest, "pid": os.getpid()})


async def hold(request):
    """Does not read its body, and does not answer before its client has disconnected."""
    while not gate.is_set():
        await asyncio.sleep(0.01)
    return PlainTextResponse("open")


async def large(request):
    """Sends the requested number of bytes, without a length."""

    async def parts(left=int(request.query_params["bytes"]), part=b"y" * 65536):
        while left > 0:
            yield part[:left]
            left -= len(part)

    return StreamingResponse(parts(), headers={"X-Pid": str(os.getpid())})


async def file(request):
    return FileResponse(os.path.join(FILES, request.path_params["name"]), filename="named.bin")


async def passed(request):
    """A response through the middleware that rewraps responses."""
    return StreamingResponse(numbers(), headers={"X-Inner": "yes"})


async def note_time(request, call_next):
    answer = await call_next(request)
    answer.headers["X-Outer"] = "yes"
    return answer


class Echo(WebSocketEndpoint):
    encoding = None

    async def on_connect(self, websocket):
        offered = websocket.scope["subprotocols"]
        await websocket.accept(subprotocol=offered[-1] if offered else None, headers=[(b"x-greeting", b"hello")])

    async def on_receive(self, websocket, data):
        if data == "leave":
            await websocket.close(code=4001, reason="as you asked")
        elif isinstance(data, str):
            await websocket.send_text(data)
        else:
            await websocket.send_bytes(data)

    async def on_disconnect(self, websocket, close_code):
        notes.append(f"left with {close_code}")

    async def decode(self, websocket, message):
        return message["text"] if message.get("text") is not None else message["bytes"]


async def chat(websocket):
    """Both directions at the same time, in two tasks."""
    await websocket.accept()
    queue = asyncio.Queue()

    async def read():
        try:
            async for text in websocket.iter_text():
                await queue.put(text)
        except WebSocketDisconnect:
            pass
        await queue.put(None)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        number = 0
        while (text := await queue.get()) is not None:
            number += 1
            await websocket.send_json({"number": number, "text": text})
    notes.append(f"chat of {number}")


async def refused(websocket):
    await websocket.send_denial_response(PlainTextResponse("not for you", 401, headers={"X-Why": "no ticket"}))


async def closed(websocket):
    await websocket.close()


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/hello/{name}", hello),
        Route("/json", json, methods=["POST"]),
        Route("/cookies", cookies),
        Route("/upload", upload, methods=["POST"]),
        Route("/redirect", redirects),
        Route("/stream", stream),
        Route("/error", error),
        Route("/where", where),
        Route("/state", state),
        Route("/task", task),
        Route("/method", Method),
        Route("/background", background),
        Route("/background-at-the-end", background_at_the_end),
        Route("/open", open_gate),
        Route("/notes", noted),
        Route("/endless", endless),
        Route("/breaking", breaking),
        Route("/patient", patient),
        Route("/count", count, methods=["POST", "PUT"]),
        Route("/hold", hold, methods=["POST"]),
        Route("/large", large),
        Route("/file/{name}", file),
        Mount("/files", StaticFiles(directory=FILES)),
        Mount(
            "/outer",
            routes=[Route("/stream", passed), Route("/endless", endless), Route("/patient", patient)],
            middleware=[Middleware(GZipMiddleware, minimum_size=500), Middleware(BaseHTTPMiddleware, dispatch=note_time)],
        ),
        WebSocketRoute("/echo", Echo),
        WebSocketRoute("/chat", chat),
        WebSocketRoute("/refused", refused),
        WebSocketRoute("/closed", closed),
    ],
)
