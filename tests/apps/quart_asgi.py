"""A small Quart site."""

import asyncio

from quart import Quart, Response, jsonify, make_response, redirect, request, session, stream_with_context, websocket

app = Quart(__name__)
app.secret_key = "only for tests"
notes = []
opened = None


@app.before_serving
async def open_site():
    global opened
    opened = asyncio.Event()


@app.after_serving
async def close_site():
    print("the site closes", flush=True)


@app.get("/hello/<name>")
async def hello(name):
    return f"hello {name} {request.args.get('q', '')}"


@app.post("/json")
async def json():
    return jsonify(received=await request.get_json(), length=request.content_length or -1)


@app.route("/cookies")
async def cookies():
    session["visits"] = session.get("visits", 0) + 1
    answer = await make_response(f"{session['visits']} {request.cookies.get('plain', 'none')}")
    answer.set_cookie("plain", "yes")
    return answer


@app.post("/upload")
async def upload():
    file = (await request.files)["file"]
    content = file.read()
    field = (await request.form)["field"]
    return jsonify(name=file.filename, size=len(content), total=sum(content), field=field)


@app.get("/redirect")
async def redirects():
    return redirect("/hello/redirected")


@app.get("/stream")
async def stream():
    @stream_with_context
    async def numbers():
        for number in range(1000):
            yield f"{number}\n"

    return Response(numbers(), mimetype="text/plain")


@app.get("/error")
async def error():
    raise RuntimeError("as the test asked")


@app.get("/where")
async def where():
    return request.url


@app.get("/state")
async def state():
    return jsonify(opened="yes" if opened is not None else "no")


@app.get("/sync")
def sync():
    # Not a coroutine function: Quart runs it in a thread, with the request's context.
    return request.path


@app.get("/background")
async def background():
    async def work():
        await asyncio.sleep(0.01)
        notes.append("the background work ran")

    app.add_background_task(work)
    return "told"


@app.get("/notes")
async def noted():
    return jsonify(notes)


@app.post("/count")
async def count():
    """Reads a body part by part, without keeping a large one in memory."""
    length = 0
    async for part in request.body:
        length += len(part)
    return jsonify(length=length)


@app.websocket("/echo")
async def echo():
    offered = websocket.requested_subprotocols
    await websocket.accept(subprotocol=offered[-1] if offered else None)
    while True:
        data = await websocket.receive()
        if data == "leave":
            await websocket.close(4001, "as you asked")
            return
        await websocket.send(data)


@app.websocket("/refused")
async def refused():
    return "not for you", 401


@app.websocket("/both")
async def both():
    """Sends and receives in two tasks; the end of the socket cancels them."""

    async def send():
        number = 0
        while True:
            await websocket.send(str(number))
            number += 1
            await asyncio.sleep(0.001)

    async def receive():
        while True:
            notes.append(await websocket.receive())

    try:
        await asyncio.gather(send(), receive())
    finally:
        notes.append("both have ended")
