"""The asynchronous version of ``turns.py``: it waits only for its client."""

import turns


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("turns are about HTTP")
    answer = turns.answer(scope["path"], scope["query_string"].decode())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if isinstance(answer, bytes):
        return await send({"type": "http.response.body", "body": answer})
    for part in answer:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
