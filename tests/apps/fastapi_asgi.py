"""A small FastAPI site: coroutines and plain functions, dependencies, forms, background work, WebSockets."""

import asyncio
import contextlib
import contextvars
import threading
from typing import Any, Optional

from fastapi import BackgroundTasks, Cookie, Depends, FastAPI, Form, Header, HTTPException, Request, UploadFile, WebSocket
from fastapi.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel
from starlette.websockets import WebSocketDisconnect

#: Notes of dependencies and background work, for later requests.
notes: list[str] = []
visitor = contextvars.ContextVar("visitor", default="nobody")


@contextlib.asynccontextmanager
async def lifespan(app):
    app.state.opened = "yes"
    yield
    print("the site closes", flush=True)


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    name: str
    count: int = 1
    tags: list[str] = []


@app.get("/hello/{name}", response_class=PlainTextResponse)
async def hello(name: str, q: str = ""):
    return f"hello {name} {q}"


@app.post("/json")
async def json(request: Request):
    received: Any = await request.json()
    return {"received": received, "length": int(request.headers.get("content-length", -1))}


@app.post("/order", status_code=201)
async def order(order: Order, x_mark: Optional[str] = Header(None)):
    if order.count > 100:
        raise HTTPException(409, "too many")
    return {"order": order, "mark": x_mark}


@app.get("/cookies", response_class=PlainTextResponse)
async def cookies(visits: int = Cookie(0), plain: str = Cookie("none")):
    answer = PlainTextResponse(f"{visits + 1} {plain}")
    answer.set_cookie("visits", str(visits + 1))
    answer.set_cookie("plain", "yes")
    return answer


@app.post("/upload")
async def upload(file: UploadFile, field: str = Form()):
    content = await file.read()
    return {"name": file.filename, "size": len(content), "total": sum(content), "field": field}


@app.get("/redirect")
async def redirects():
    return RedirectResponse("/hello/redirected", 302)


@app.get("/stream")
def stream():
    # A plain generator: each part is generated in a thread.
    return StreamingResponse((f"{number}\n" for number in range(1000)), media_type="text/plain")


@app.get("/error")
async def error():
    raise RuntimeError("as the test asked")


@app.get("/where", response_class=PlainTextResponse)
async def where(request: Request):
    return str(request.url)


@app.get("/state")
async def state(request: Request):
    return {"opened": request.app.state.opened}


@app.get("/sync")
def sync():
    return {"thread": threading.current_thread() is threading.main_thread()}


async def session():
    notes.append("the session opens")
    try:
        yield "a session"
    except RuntimeError:
        notes.append("the session is rolled back")
        raise
    finally:
        notes.append("the session closes")


def blocking_session(outer: str = Depends(session)):
    # A plain generator, in a thread.
    notes.append("the inner opens")
    try:
        yield f"{outer} within"
    finally:
        notes.append("the inner closes")


@app.get("/depends")
async def depends(session: str = Depends(blocking_session)):
    notes.append("the view runs")
    return session


@app.get("/depends-and-fails")
async def depends_and_fails(session: str = Depends(session)):
    raise RuntimeError("as the test asked")


@app.get("/notes")
async def told():
    found = list(notes)
    notes.clear()
    return found


@app.get("/background")
async def background(tasks: BackgroundTasks):
    tasks.add_task(notes.append, "the background work ran")
    return "told"


@app.middleware("http")
async def name_visitor(request, call_next):
    visitor.set(request.headers.get("x-visitor", "nobody"))
    return await call_next(request)


@app.get("/visitor", response_class=PlainTextResponse)
async def who():
    # Other requests run in the meantime, each in a separate context.
    for _ in range(20):
        await asyncio.sleep(0)
    return visitor.get()


@app.get("/visitor-in-thread", response_class=PlainTextResponse)
def who_in_thread():
    return visitor.get()


@app.websocket("/echo")
async def echo(websocket: WebSocket):
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text") == "leave":
                await websocket.close(4001, "as you asked")
                return
            if message.get("text") is not None:
                await websocket.send_text(message["text"])
            else:
                await websocket.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        pass


@app.websocket("/items/{name}")
async def items(websocket: WebSocket, name: str, q: Optional[str] = None, session: str = Depends(session)):
    if q == "bad":
        # Before the handshake is answered.
        await websocket.close(1008)
        return
    await websocket.accept()
    async for order in websocket.iter_json():
        await websocket.send_json({"name": name, "q": q, "session": session, "order": order})
