"""Event streams, with sse-starlette and by hand: each event is sent when another request has posted it."""

import asyncio

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

#: One queue for each listener.
listeners = set()


async def posted():
    queue = asyncio.Queue()
    listeners.add(queue)
    try:
        while (text := await queue.get()) != "end":
            yield text
    finally:
        listeners.discard(queue)


async def events(request):
    async def named():
        async for text in posted():
            yield {"event": "news", "data": text}

    return EventSourceResponse(named(), ping=0.2 if "ping" in request.query_params else 60)


async def by_hand(request):
    async def lines():
        async for text in posted():
            yield f"data: {text}\n\n"

    return StreamingResponse(lines(), headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})


async def post(request):
    text = (await request.body()).decode()
    for queue in listeners:
        queue.put_nowait(text)
    return JSONResponse(len(listeners))


async def listening(request):
    return JSONResponse(len(listeners))


app = Starlette(
    routes=[
        Route("/events", events),
        Route("/by-hand", by_hand),
        Route("/post", post, methods=["POST"]),
        Route("/listening", listening),
    ]
)
