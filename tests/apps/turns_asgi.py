"""What ``turns.py`` does, said asynchronously: nothing in it waits but for its client."""

import time

PART = bytes(100_000)

calls = 0
given = 0


def at_fine(query):
    return b"fine"


def at_view(query):
    """A view that blocks the loop for 5 ms."""
    global calls
    calls += 1
    time.sleep(0.005)
    return b"seen"


def at_calls(query):
    return str(calls).encode()


def at_given(query):
    return str(given).encode()


def at_quick_parts(query):
    global given
    for _ in range(int(query)):
        given += len(PART)
        yield PART


def at_steady_parts(query):
    """Not as quick as any client takes them: its socket never fills up."""
    for _ in range(int(query)):
        time.sleep(0.001)
        yield PART


def at_one_part(query):
    return PART * int(query)


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("turns are about HTTP")
    answer = globals()["at_" + scope["path"].strip("/")](scope["query_string"].decode())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if isinstance(answer, bytes):
        return await send({"type": "http.response.body", "body": answer})
    for part in answer:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
