"""Reads a body to its end and returns its length and its last bytes as JSON. Runs in the servers' workers.

The body is not decoded, so that only the server's own cost of a POST is measured.
"""

END_BYTES = 16


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    # The end of the suite's POST body does not contain characters that JSON escapes, except the quotation mark.
    end = body[-END_BYTES:].replace(b'"', b'\\"')
    answer = b'{"bytes": %d, "end": "%b"}' % (len(body), end)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
