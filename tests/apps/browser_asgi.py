"""A page for the browser's test: it speaks by a WebSocket, an EventSource and a fetch, and shows what came of them."""

import asyncio

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute


async def page(request):
    return PlainTextResponse(PAGE, headers={"Content-Type": "text/html; charset=utf-8"})


PAGE = """<!DOCTYPE html>
<html lang="en">
<title>Bolide's tests</title>
<p id="socket">nothing yet</p>
<p id="large">nothing yet</p>
<p id="bytes">nothing yet</p>
<p id="closed">nothing yet</p>
<p id="events">nothing yet</p>
<p id="fetched">nothing yet</p>
<script>
const show = (id, text) => { document.getElementById(id).textContent = text; };

const talk = new Promise((resolve) => {
    const socket = new WebSocket(`ws://${location.host}/socket`, ["other", "chat"]);
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

const listen = new Promise((resolve) => {
    const told = [];
    const source = new EventSource("/numbers");
    source.addEventListener("number", (event) => {
        told.push(event.data);
        show("events", told.join(" "));
        // The next number is sent only when this one has been read.
        fetch(`/next?after=${event.data}`, {method: "POST"});
        if (told.length === 5) {
            source.close();
            resolve();
        }
    });
});

const ask = fetch("/upload", {method: "POST", body: new Blob([new Uint8Array(300000)])})
    .then((answer) => answer.json())
    .then((answer) => show("fetched", `${answer.length} bytes were read`));

Promise.all([talk, listen, ask]).then(() => { document.title = "done"; });
</script>
</html>
"""


async def socket(websocket):
    await websocket.accept(subprotocol="chat")
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") == "leave":
            await websocket.close(4002, "goodbye")
            return
        if message.get("text") is not None:
            await websocket.send_text(message["text"])
        else:
            await websocket.send_bytes(message["bytes"])


#: The last number that the page has read.
read = asyncio.Condition()
last_read = 0


async def numbers(request):
    async def parts():
        for number in range(1, 6):
            yield {"event": "number", "data": str(number)}
            async with read:
                await read.wait_for(lambda number=number: last_read >= number)

    return EventSourceResponse(parts())


async def next_number(request):
    global last_read
    async with read:
        last_read = int(request.query_params["after"])
        read.notify_all()
    return PlainTextResponse("")


async def upload(request):
    length = 0
    async for part in request.stream():
        length += len(part)
    return JSONResponse({"length": length})


app = Starlette(
    routes=[
        Route("/", page),
        Route("/numbers", numbers),
        Route("/next", next_number, methods=["POST"]),
        Route("/upload", upload, methods=["POST"]),
        WebSocketRoute("/socket", socket),
    ]
)
