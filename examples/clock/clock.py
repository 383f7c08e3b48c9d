"""A clock that ticks in the browser: an event stream, a WebSocket and a page, by Starlette."""

import asyncio
import contextlib
import datetime

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

PAGE = """<!DOCTYPE html>
<title>Clock</title>
<h1 id="time">–</h1>
<p><input id="words" placeholder="say something" autofocus> <span id="echo"></span></p>
<script>
new EventSource("/ticks").onmessage = (event) => { document.getElementById("time").textContent = event.data; };
const socket = new WebSocket(`${location.protocol.replace("http", "ws")}//${location.host}/echo`);
socket.onmessage = (event) => { document.getElementById("echo").textContent = event.data; };
document.getElementById("words").oninput = (event) => socket.send(event.target.value);
</script>
"""

#: Seconds between two ticks.
TICK_SECONDS = 1


def now():
    return datetime.datetime.now().strftime("%H:%M:%S")


@contextlib.asynccontextmanager
async def lifespan(app):
    """Runs in each worker before it serves. The yielded dictionary is the state of all requests."""
    yield {"started": now()}


async def page(request):
    return HTMLResponse(PAGE)


async def time(request):
    return JSONResponse({"time": now(), "started": request.state.started})


async def ticks(request):
    async def events():
        while True:
            yield f"data: {now()}\n\n"
            await asyncio.sleep(TICK_SECONDS)

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def echo(websocket):
    await websocket.accept()
    async for words in websocket.iter_text():
        await websocket.send_text(words.upper())


app = Starlette(
    lifespan=lifespan,
    routes=[Route("/", page), Route("/time", time), Route("/ticks", ticks), WebSocketRoute("/echo", echo)],
)
