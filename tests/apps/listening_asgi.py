"""Listens to channels and publishes, for tests of ``bolide.publish``.

``/listen`` answers with lines of JSON: the pid, then one for each message. Any other path evaluates the query, in which
``publish`` and the functions below are known.
"""

import asyncio
import hashlib
import itertools
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, unquote

import bolide

#: Longer data is told by its kind, its length and its digest.
LONGEST = 200


def told(message):
    """What a listener says of a message: JSON."""
    if message is None:
        return "nothing"
    data = message.data
    if len(data) > LONGEST:
        encoded = data.encode() if isinstance(data, str) else data
        return {message.channel: [type(data).__name__, len(data), hashlib.sha256(encoded).hexdigest()]}
    return {message.channel: data if isinstance(data, str) else list(data)}


def parameters(query):
    return {key: values[0] for key, values in parse_qs(query).items()}


def subscription(given):
    timeout = float(given["timeout"]) if "timeout" in given else None
    return bolide.subscribe(*given["channels"].split(","), timeout=timeout, most=int(given.get("most", 1000)))


def publish(channel, *many):
    return [bolide.publish(channel, data) for data in many]


def publish_all(channel, count):
    for number in range(count):
        bolide.publish(channel, str(number))
    return count


def leftovers():
    """What the process still keeps of subscriptions."""
    hub = bolide.publishing.hub
    kept = (hub.boxes, hub.bits, hub.missed, hub.loops, hub.threads, hub.greenlets, hub.leaving)
    return [hub.count, hub.inbox, *filter(None, kept)]


async def publish_between(channel, name, count):
    """Publish, and let other tasks run in between."""
    for number in range(count):
        bolide.publish(channel, f"{name} {number}")
        await asyncio.sleep(0)


def in_background(*publication):
    tasks.add(asyncio.ensure_future(publish_between(*publication)))
    return os.getpid()


#: What runs in the background.
tasks = set()


def block(path):
    """Block the whole loop."""
    while not os.path.exists(path):
        time.sleep(0.002)


async def there(path):
    while not os.path.exists(path):
        await asyncio.sleep(0.002)


def heard(messages):
    """The messages that wait, without waiting for more."""
    found = []
    for message in messages:
        if message is None:
            break
        found.append(message.data)
    return " ".join(found) or "nothing"


def in_thread(function):
    """Run a function where no event loop runs, and return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def changes():
    def use():
        with bolide.subscribe("one", "two", timeout=0) as messages:
            publish("one", "a", "b")
            publish("two", "c")
            publish("three", "not heard")
            first = heard(messages)
            messages.discard("one", "never")
            messages.add("three", "two")
            publish("one", "not heard")
            publish("two", "b")
            publish("three", "d")
            second = heard(messages)
        publish("two", "not heard")
        return f"{first}, then {second}, then {heard(messages)}"

    return in_thread(use)


def listen_in_thread(count, timeout=None):
    """Whether a thread of its own gets as many messages in their order. The result is that of a call in a pool."""
    messages = bolide.subscribe("mixed", timeout=timeout, most=count)

    def listen():
        with messages:
            heard = (message.data for message in messages if message)
            return list(itertools.islice(heard, count)) == [str(number) for number in range(count)]

    return pool.submit(listen)


async def listen_in_task(count):
    with bolide.subscribe("mixed", most=count) as messages:
        return [(await messages.__anext__()).data for _ in range(count)] == [str(number) for number in range(count)]


def come_and_go():
    """Subscriptions that begin and end all the time."""
    while not is_over.is_set():
        next(bolide.subscribe("mixed", "other", timeout=0.0005, most=100_000))


def mixed(count):
    """Threads and tasks listen in the same process, while others come and go."""
    started = time.time()
    threads = [listen_in_thread(count, timeout) for timeout in (None, None, 0.001, 0.001)]
    others = [pool.submit(come_and_go) for _ in range(2)]
    listening = [asyncio.ensure_future(listen_in_task(count)) for _ in range(4)]

    async def run():
        await asyncio.sleep(0)
        publication = pool.submit(publish_all, "mixed", count)
        outcomes = await asyncio.gather(*map(asyncio.wrap_future, threads), *listening)
        is_over.set()
        await asyncio.gather(*map(asyncio.wrap_future, [publication, *others]))
        results[started] = outcomes

    tasks.add(asyncio.ensure_future(run()))
    return started


pool = ThreadPoolExecutor(8)
is_over = threading.Event()
#: What `mixed` has found, by the time when it began.
results = {}


def in_child():
    mine = bolide.subscribe("child", timeout=0)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "the copy is closed" if next(mine, "ended") == "ended" else "the copy works"
        own = bolide.subscribe("child", timeout=60)
        publish("child", "x")
        # Without exiting as Python does, it would not wait for its messages to other machines.
        bolide._native.finish_publishing()
        os.write(writer, f"{said}, the child heard {next(own).data}".encode())
        own.close()
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    mine.close()
    return f"{said}, its parent did not end"


async def events(given):
    """The lines of a listener."""
    with subscription(given) as messages:
        yield {"pid": os.getpid()}
        if "hold" in given:
            await there(given["hold"])
        while True:
            try:
                async for message in messages:
                    yield told(message)
                return
            except bolide.Missed as missed:
                yield {"missed": missed.count, "in_all": messages.missed}


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    query = unquote(scope["query_string"].decode())
    if scope["path"] == "/listen":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        lines = events(parameters(query))
        left = asyncio.ensure_future(until_left(receive))
        try:
            while True:
                line = asyncio.ensure_future(lines.__anext__())
                await asyncio.wait([line, left], return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    line.cancel()
                    return
                body = json.dumps(line.result()).encode() + b"\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            left.cancel()
    try:
        answer = repr(eval(query, globals()))
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer.encode()})


async def until_left(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
