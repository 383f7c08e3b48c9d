"""ASGI applications for HTTP, one for each path: bodies in both directions, disconnects, background work, extensions."""

import asyncio
import hashlib
import json
import os
import sys
import tempfile
import time

MEGABYTE = bytes(range(256)) * 4096
PART = 64 * 1024

#: Messages of applications for later requests, by the query string of the first.
told = {}
#: Events that requests wait for, by name.
gates = {}


def gate(name):
    if name not in gates:
        gates[name] = asyncio.Event()
    return gates[name]


def say(text):
    print(text, file=sys.stderr, flush=True)


async def start(send, status=200, headers=(), **more):
    await send({"type": "http.response.start", "status": status, "headers": list(headers), **more})


async def finish(send, body=b""):
    await send({"type": "http.response.body", "body": body})


async def part(send, body):
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def answer(send, body, status=200, headers=()):
    await start(send, status, headers)
    await finish(send, body)


def length(number):
    return (b"content-length", str(number).encode())


async def messages(receive):
    """Reads the body up to its end or the client's disconnect."""
    while True:
        message = await receive()
        yield message
        if message["type"] == "http.disconnect" or not message["more_body"]:
            return


# Plain answers.


async def at_fine(scope, receive, send):
    await answer(send, b"fine")


async def at_pid(scope, receive, send):
    await answer(send, str(os.getpid()).encode())


async def at_told(scope, receive, send):
    """Returns the message of an earlier request under this name."""
    await answer(send, json.dumps(told.get(scope["query_string"].decode())).encode())


async def at_open(scope, receive, send):
    gate(scope["query_string"].decode()).set()
    await answer(send, b"open")


async def at_slow(scope, receive, send):
    """Answers when another request has opened the gate of this name."""
    name = scope["query_string"].decode()
    say(f"slow {name} has begun")
    await gate(name).wait()
    await answer(send, f"slow {name}".encode())


async def at_status(scope, receive, send):
    await answer(send, b"", int(scope["query_string"]))


async def at_status_with_body(scope, receive, send):
    await answer(send, b"body", int(scope["query_string"]))


async def at_defaults(scope, receive, send):
    """Sends the minimal messages of the specification."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body"})


async def at_headers(scope, receive, send):
    fields = [(b"x-one", b"1"), [b"X-Two", b"2"], (b"x-one", b"3"), (b"x-empty", b""), (b"x-latin", b"\xe4")]
    await answer(send, b"ok", headers=fields)


async def at_headers_as_generator(scope, receive, send):
    fields = ((name, b"v") for name in (b"x-one", b"x-two"))
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await finish(send, b"ok")


async def at_hop_by_hop(scope, receive, send):
    fields = [(b"transfer-encoding", b"chunked"), (b"connection", b"keep-alive"), (b"keep-alive", b"timeout=5")]
    await answer(send, b"ok", headers=fields)


async def at_close(scope, receive, send):
    await answer(send, b"ok", headers=[(b"connection", b"close")])


async def at_own_date_and_server(scope, receive, send):
    await answer(send, b"ok", headers=[(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"server", b"own")])


async def at_declared(scope, receive, send):
    await answer(send, b"fine", headers=[length(4)])


async def at_parts(scope, receive, send):
    await start(send)
    for body in (b"one ", b"", b"two ", b"three"):
        await part(send, body)
    await finish(send)


async def at_parts_declared(scope, receive, send):
    await start(send, headers=[length(13)])
    await part(send, b"one ")
    await part(send, b"two ")
    await finish(send, b"three")


async def at_part_kinds(scope, receive, send):
    await start(send)
    await part(send, bytearray(b"one "))
    await part(send, memoryview(b"two "))
    await finish(send, b"three")


async def at_head_first(scope, receive, send):
    """An empty part shows the client that the response has begun; the rest waits for the gate."""
    await start(send)
    await part(send, b"")
    await gate(scope["query_string"].decode()).wait()
    await finish(send, b"rest")


async def at_head_then_wait(scope, receive, send):
    """Answers with the seconds of CPU time that its worker has used while it waited for 0.4 s."""
    await start(send)
    before = time.process_time()
    await asyncio.sleep(0.4)
    await finish(send, str(time.process_time() - before).encode())


async def at_step(scope, receive, send):
    """Sends one part, then another when the gate opens."""
    await start(send)
    await part(send, b"one")
    await gate(scope["query_string"].decode()).wait()
    await finish(send, b"two")


# Bodies of requests.


async def at_digest(scope, receive, send):
    count, digest, parts = 0, hashlib.sha256(), 0
    async for message in messages(receive):
        if message["type"] == "http.disconnect":
            say("disconnected while it read")
            return
        count += len(message["body"])
        digest.update(message["body"])
        parts += 1
    await answer(send, json.dumps({"bytes": count, "sha256": digest.hexdigest(), "parts": parts}).encode())


async def at_messages(scope, receive, send):
    """Returns each message as received."""
    found = []
    async for message in messages(receive):
        body = message.get("body")
        found.append({**message, "body": None if body is None else [type(body).__name__, body.decode("latin-1")]})
    await answer(send, json.dumps(found).encode())


async def at_echo(scope, receive, send):
    """Echoes each part when it comes."""
    await start(send)
    async for message in messages(receive):
        await part(send, message.get("body", b""))
    await finish(send)


async def at_slow_reader(scope, receive, send):
    """Reads nothing of its body until the gate opens."""
    await gate(scope["query_string"].decode()).wait()
    await at_digest(scope, receive, send)


async def at_first_part_then_answer(scope, receive, send):
    message = await receive()
    await answer(send, str(message["more_body"]).encode())


async def at_answer_then_read(scope, receive, send):
    await answer(send, b"answered")
    message = await receive()
    told[scope["query_string"].decode()] = message["type"]


async def at_answer_at_gate(scope, receive, send):
    """Answers when the gate opens, and never reads."""
    await gate(scope["query_string"].decode()).wait()
    await answer(send, b"unread")


async def at_begin_then_read(scope, receive, send):
    """Begins its response, then reads: too late for 100 Continue."""
    await start(send)
    await part(send, b"begun ")
    count = 0
    async for message in messages(receive):
        count += len(message.get("body", b""))
    await finish(send, str(count).encode())


async def at_read_beyond(scope, receive, send):
    """Waits for the message after the body: the client's disconnect, or the response's end."""
    name = scope["query_string"].decode()
    async for _ in messages(receive):
        pass
    beyond = asyncio.ensure_future(receive())
    done, _ = await asyncio.wait([beyond], timeout=0.05)
    before = len(done)
    await answer(send, b"answered")
    told[name] = [before, (await beyond)["type"]]


# The client's disconnect.


async def at_wait_for_end(scope, receive, send):
    name = scope["query_string"].decode()
    say(f"waits {name}")
    found = []
    while True:
        message = await receive()
        found.append(message["type"])
        if message["type"] == "http.disconnect":
            break
    told[name] = [*found, (await receive())["type"]]
    say(f"ended {name}")


async def at_send_to_nobody(scope, receive, send):
    name = scope["query_string"].decode()
    await start(send)
    await part(send, b"begun")
    say(f"waits {name}")
    await gate(name).wait()
    try:
        while True:
            await part(send, MEGABYTE)
            await asyncio.sleep(0)
    except OSError as error:
        told[name] = [type(error).__name__, type(error).__mro__[1].__name__]
        say(f"ended {name}")
        raise


async def at_send_ignoring_the_end(scope, receive, send):
    """Continues after the disconnect: each send raises, and nothing else happens."""
    name = scope["query_string"].decode()
    await start(send)
    await part(send, b"begun")
    say(f"waits {name}")
    while (await receive())["type"] != "http.disconnect":
        pass
    errors = []
    for _ in range(3):
        try:
            await part(send, b"more")
        except OSError as error:
            errors.append(str(error))
    told[name] = errors
    say(f"ended {name}")


async def at_not_cancelled(scope, receive, send):
    """The disconnect cancels nothing: the application continues its work."""
    name = scope["query_string"].decode()
    say(f"waits {name}")
    try:
        await gate(name).wait()
        told[name] = "finished"
    except asyncio.CancelledError:
        told[name] = "cancelled"
        raise
    say(f"ended {name}")


# Responses to HEAD.


async def at_parts_behind_a_gate(scope, receive, send):
    """A body in four parts, with or without its length; the last three come when the gate has opened. More code follows."""
    name, _, how = scope["query_string"].decode().partition("&")
    status = int(how) if how.isdigit() else 200
    await start(send, status, [length(40_000)] if how == "length" else [])
    errors = []
    for number in range(4):
        if number == 1:
            say(f"waits {name}")
            await gate(name).wait()
        try:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": number < 3})
        except OSError as error:
            errors.append(str(error))
    told[name] = [*errors, "the work behind it"]
    say(f"ended {name}")


async def at_parts_without_a_pause(scope, receive, send):
    """Another task runs while the parts are sent."""
    name = scope["query_string"].decode()
    others = 0

    async def count():
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await start(send, 200, [length(1000)])
    for number in range(1000):
        await send({"type": "http.response.body", "body": b"x", "more_body": number < 999})
    counting.cancel()
    told[name] = others
    say(f"ended {name}")


# Long responses.


async def at_stream(scope, receive, send):
    """Sends ``megabytes``; reports how many it has sent."""
    query = scope["query_string"].decode()
    megabytes = int(query.split("&")[0])
    told["given"] = 0
    await start(send)
    try:
        for _ in range(megabytes):
            for place in range(0, len(MEGABYTE), PART):
                await part(send, MEGABYTE[place : place + PART])
                told["given"] += PART
        await finish(send)
    finally:
        say(f"streamed {query}")


async def at_stream_and_look(scope, receive, send):
    """The same, and polls for the client's disconnect in the meantime."""

    async def look():
        while True:
            try:
                if (await asyncio.wait_for(receive(), 0.1))["type"] == "http.disconnect":
                    return
            except asyncio.TimeoutError:
                continue

    looking = asyncio.ensure_future(look())
    try:
        await at_stream(scope, receive, send)
    finally:
        looking.cancel()


async def at_small_parts(scope, receive, send):
    megabytes = int(scope["query_string"])
    told["given"] = 0
    await start(send)
    for place in range(0, megabytes * len(MEGABYTE), 1024):
        place %= len(MEGABYTE)
        await part(send, MEGABYTE[place : place + 1024])
        told["given"] += 1024
    await finish(send)


async def at_one_part(scope, receive, send):
    await answer(send, MEGABYTE * int(scope["query_string"]))


async def at_two_senders(scope, receive, send):
    """Two tasks send parts at the same time; each part is whole."""

    async def sender(letter):
        for _ in range(100):
            await part(send, letter * 50_000)

    await start(send)
    await asyncio.gather(sender(b"a"), sender(b"b"))
    await finish(send)


# Work after the response.


async def at_background(scope, receive, send):
    name = scope["query_string"].decode()
    await answer(send, b"answered")
    say(f"works {name}")
    await gate(name).wait()
    told[name] = "done"
    say(f"worked {name}")


async def at_background_fails(scope, receive, send):
    await answer(send, b"answered")
    await asyncio.sleep(0)
    raise RuntimeError("after the answer")


async def at_sleep(scope, receive, send):
    await asyncio.sleep(float(scope["query_string"]))
    await answer(send, str(os.getpid()).encode())


async def at_block(scope, receive, send):
    block_the_loop(float(scope["query_string"]))
    await answer(send, b"blocked")


def block_the_loop(seconds):
    time.sleep(seconds)


# Extensions.


def file_of(data):
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(data)
    file.flush()
    return file


async def at_pathsend(scope, receive, send):
    megabytes = int(scope["query_string"] or b"1")
    with file_of(MEGABYTE * megabytes) as file:
        await start(send, headers=[length(megabytes * len(MEGABYTE))])
        await send({"type": "http.response.pathsend", "path": file.name})


async def at_pathsend_undeclared(scope, receive, send):
    with file_of(b"content") as file:
        await start(send)
        await send({"type": "http.response.pathsend", "path": file.name})


async def at_pathsend_missing(scope, receive, send):
    await start(send)
    try:
        await send({"type": "http.response.pathsend", "path": "/nowhere/at/all"})
    except FileNotFoundError as error:
        await finish(send, f"FileNotFoundError {error.errno}".encode())


async def at_pathsend_directory(scope, receive, send):
    await start(send)
    await send({"type": "http.response.pathsend", "path": "/"})


async def at_zerocopysend(scope, receive, send):
    """Parts of files among parts of bytes: ``declared`` sends their length, ``chunked`` does not."""
    kind = scope["query_string"]
    with file_of(b"0123456789") as file:
        await start(send, headers=[length(17)] if kind == b"declared" else [])
        await part(send, b"<")
        zero_copy = {"type": "http.response.zerocopysend", "file": file, "more_body": True}
        await send({**zero_copy, "offset": 2, "count": 3})
        await part(send, b"|")
        await send({**zero_copy, "offset": 0})
        await send({**zero_copy, "offset": 10})
        await send({**zero_copy, "offset": 8, "count": 100, "more_body": False})


async def at_zerocopysend_ends_with_nothing(scope, receive, send):
    with file_of(b"0123456789") as file:
        await start(send)
        await send({"type": "http.response.zerocopysend", "file": file, "offset": 0, "count": 5, "more_body": True})
        await send({"type": "http.response.zerocopysend", "file": file, "offset": 10, "more_body": False})


async def at_zerocopysend_position(scope, receive, send):
    """Without an offset it begins at the file's position. The descriptor alone is enough, and may be closed immediately."""
    with file_of(b"0123456789") as file:
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        await start(send)
        await send({"type": "http.response.zerocopysend", "file": file.fileno()})


async def at_zerocopysend_parts(scope, receive, send):
    megabytes = int(scope["query_string"])
    with file_of(MEGABYTE) as file:
        await start(send)
        for _ in range(megabytes):
            await send({"type": "http.response.zerocopysend", "file": file, "offset": 0, "more_body": True})
        await finish(send)


async def at_early_hint(scope, receive, send):
    await send({"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload; as=style", b"</a.js>; rel=preload"]})
    if scope["query_string"]:
        await gate(scope["query_string"].decode()).wait()
    await answer(send, b"page", headers=[(b"link", b"</style.css>; rel=preload; as=style")])


async def at_trailers(scope, receive, send):
    await start(send, headers=[(b"trailer", b"x-sum, x-two")], trailers=True)
    await part(send, b"one ")
    await finish(send, b"two")
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"7")], "more_trailers": True})
    await send({"type": "http.response.trailers", "headers": [(b"x-two", b"b")]})


async def at_trailers_only(scope, receive, send):
    await start(send, trailers=True)
    await finish(send)
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"0")]})


async def at_trailers_declared(scope, receive, send):
    """A response with a length has no trailers; the response is correct all the same."""
    await start(send, headers=[length(4)], trailers=True)
    await finish(send, b"body")
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"4")]})


async def at_trailers_after_file(scope, receive, send):
    megabytes = int(scope["query_string"])
    with file_of(MEGABYTE * megabytes) as file:
        await start(send, trailers=True)
        await send({"type": "http.response.zerocopysend", "file": file, "offset": 0})
        await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})


async def at_trailers_after_part(scope, receive, send):
    await start(send, trailers=True)
    await finish(send, MEGABYTE * int(scope["query_string"]))
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await globals()["at_" + scope["path"].rsplit("/", 1)[1]](scope, receive, send)
