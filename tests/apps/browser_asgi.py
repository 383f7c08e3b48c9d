"""A page for the browser's tests: it uses WebSockets, an EventSource and fetch, and shows the results."""

import asyncio
import contextlib

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

PAGE = """<!DOCTYPE html>
<html lang="en">
<title>Bolide's tests</title>
<p id="socket">nothing yet</p>
<p id="large">nothing yet</p>
<p id="bytes">nothing yet</p>
<p id="closed">nothing yet</p>
<p id="left">nothing yet</p>
<p id="events">nothing yet</p>
<p id="uploaded">nothing yet</p>
<p id="streamed">nothing yet</p>
<script>
const show = (id, text) => { document.getElementById(id).textContent = text; };
const place = (path) => `ws://${location.host}${path}`;

// What the server closes.
const talk = new Promise((resolve) => {
    const socket = new WebSocket(place("/socket"), ["other", "chat"]);
    socket.binaryType = "arraybuffer";
    const large = "caf\\u00e9 ".repeat(40000);
    socket.onopen = () => socket.send("hello from a page");
    socket.onmessage = (event) => {
        if (event.data instanceof ArrayBuffer) {
            show("bytes", Array.from(new Uint8Array(event.data)).join(" "));
            socket.send("leave");
        } else if (event.data === large) {
            show("large", `${large.length} characters came back`);
            socket.send(new Uint8Array([0, 127, 128, 255]));
        } else {
            show("socket", `${event.data}, by ${socket.protocol}, ${socket.extensions.split(";")[0]}`);
            socket.send(large);
        }
    };
    socket.onclose = (event) => {
        show("closed", `${event.code} ${event.reason} ${event.wasClean}`);
        resolve();
    };
});

// What the page closes.
const leave = new Promise((resolve) => {
    const socket = new WebSocket(place("/socket"), ["chat"]);
    socket.onopen = () => socket.close(4100, "the page goes");
    socket.onclose = (event) => {
        show("left", `${event.code} ${event.wasClean}`);
        resolve();
    };
});

// The stream ends after each second number, and the browser comes back for the next.
const listen = new Promise((resolve) => {
    const told = [];
    const source = new EventSource("/numbers");
    source.addEventListener("number", (event) => {
        told.push(event.data);
        show("events", told.join(" "));
        fetch(`/read?events=${event.data}`, {method: "POST"});
        if (told.length === 5) {
            source.close();
            resolve();
        }
    });
});

const upload = fetch("/upload", {method: "POST", body: new Blob([new Uint8Array(300000)])})
    .then((answer) => answer.json())
    .then((answer) => show("uploaded", `${answer.length} bytes were read`));

const stream = (async () => {
    const answer = await fetch("/parts");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parts = [];
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
        parts.push(part.value);
        await fetch(`/read?parts=${parts.length}`, {method: "POST"});
    }
    show("streamed", parts.join("|"));
})();

Promise.all([talk, leave, listen, upload, stream]).then(() => { document.title = "done"; });
</script>
</html>
"""

#: The parts that the page has read so far: each is sent only after the previous one was read.
read = {"events": 0, "parts": 0}
changed = None

#: Close codes of WebSockets.
ends = []


@contextlib.asynccontextmanager
async def lifespan(app):
    global changed
    changed = asyncio.Condition()
    yield


async def has_read(name, count):
    async with changed:
        await changed.wait_for(lambda: read[name] >= count)


async def note_read(request):
    async with changed:
        for name, count in request.query_params.items():
            read[name] = int(count)
        changed.notify_all()
    return PlainTextResponse("")


async def page(request):
    return HTMLResponse(PAGE)


async def empty_page(request):
    return HTMLResponse("<!DOCTYPE html><title>empty</title>")


async def socket(websocket):
    await websocket.accept(subprotocol="chat")
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            ends.append([message["code"], message["reason"]])
            return
        if message.get("text") == "leave":
            await websocket.close(4002, "goodbye")
        elif message.get("text") is not None:
            await websocket.send_text(message["text"])
        else:
            await websocket.send_bytes(message["bytes"])


async def ended(request):
    return JSONResponse(ends)


async def numbers(request):
    first = int(request.headers.get("last-event-id", 0)) + 1

    async def parts():
        for number in range(first, first + 2):
            yield {"event": "number", "data": str(number), "id": str(number), "retry": 20}
            await has_read("events", number)

    return EventSourceResponse(parts())


async def parts(request):
    async def parts():
        for number, part in enumerate(["one", "two", "caf\xe9", "four"], 1):
            yield part
            await has_read("parts", number)

    return StreamingResponse(parts(), media_type="text/plain")


async def upload(request):
    length = 0
    async for part in request.stream():
        length += len(part)
    return JSONResponse({"length": length})


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/", page),
        Route("/empty", empty_page),
        Route("/read", note_read, methods=["POST"]),
        Route("/numbers", numbers),
        Route("/parts", parts),
        Route("/upload", upload, methods=["POST"]),
        Route("/ended", ended),
        WebSocketRoute("/socket", socket),
    ],
)
