"""ASGI applications that break the rules, one for each path. Those of ``MISTAKES`` report the exception of ``send()`` and its
line.
"""

import asyncio
import json
import os
import sys
import traceback

START = {"type": "http.response.start", "status": 200, "headers": []}
BODY = {"type": "http.response.body", "body": b"body"}


def start(**more):
    return {**START, **more}


def body(**more):
    return {**BODY, **more}


def headers(*pairs):
    return start(headers=list(pairs))


#: name -> (messages, the last of which is refused; name of the exception; a part of its text)
MISTAKES = {
    "none": ([None], "TypeError", "a message must be a dict, not NoneType"),
    "list": ([["http.response.start"]], "TypeError", "a message must be a dict, not list"),
    "no type": ([{}], "TypeError", "a message must have a 'type'"),
    "type is bytes": ([{"type": b"http.response.start"}], "TypeError", "the 'type' of a message must be a str, not bytes"),
    "unknown type": ([{"type": "http.response.end"}], "RuntimeError", "http.response.end"),
    "websocket type": ([{"type": "websocket.accept"}], "RuntimeError", "websocket.accept"),
    "lone surrogate type": ([{"type": "\ud800"}], "TypeError", "type"),
    "body first": ([BODY], "RuntimeError", "'http.response.start' was not sent yet"),
    "trailers first": ([{"type": "http.response.trailers"}], "RuntimeError", "'http.response.start' was not sent yet"),
    "start twice": ([START, START], "RuntimeError", "already sent"),
    "no status": ([{"type": "http.response.start"}], "TypeError", "'status' must be an int, not missing"),
    "status is str": ([start(status="200")], "TypeError", "'status' must be an int, not str"),
    "status is float": ([start(status=200.0)], "TypeError", "'status' must be an int, not float"),
    "status 99": ([start(status=99)], "ValueError", "status 99"),
    "status 100": ([start(status=100)], "ValueError", "status 100"),
    "status 1000": ([start(status=1000)], "ValueError", "status 1000"),
    "status negative": ([start(status=-200)], "ValueError", "status"),
    "status huge": ([start(status=1 << 80)], "ValueError", "status"),
    "headers are a number": ([start(headers=7)], "TypeError", "int"),
    "headers are a dict": ([start(headers={b"a": b"b"})], "TypeError", "b'a'"),
    "headers are a str": ([start(headers="ab")], "TypeError", "'a'"),
    "header of one": ([headers((b"a",))], "TypeError", "(b'a',)"),
    "header of three": ([headers((b"a", b"b", b"c"))], "TypeError", "b'c'"),
    "header name is str": ([headers(("a", b"b"))], "TypeError", "must be bytes, not str"),
    "header value is str": ([headers((b"a", "b"))], "TypeError", "must be bytes, not str"),
    "header value is int": ([headers((b"content-length", 4))], "TypeError", "must be bytes, not int"),
    "header value is none": ([headers((b"a", None))], "TypeError", "must be bytes, not NoneType"),
    "header name is empty": ([headers((b"", b"b"))], "ValueError", "token"),
    "header name with blank": ([headers((b"a b", b"c"))], "ValueError", "a b"),
    "header name with colon": ([headers((b"a:", b"c"))], "ValueError", "token"),
    "header name with newline": ([headers((b"a\r\nx-injected", b"c"))], "ValueError", "token"),
    "header value with newline": ([headers((b"a", b"b\r\nx-injected: 1"))], "ValueError", "control character"),
    "header value with lone lf": ([headers((b"a", b"b\nx-injected: 1"))], "ValueError", "control character"),
    "header value with lone cr": ([headers((b"a", b"b\rx-injected: 1"))], "ValueError", "control character"),
    "header value with nul": ([headers((b"a", b"b\0"))], "ValueError", "control character"),
    "header too long": ([headers((b"a", b"b" * 70_000))], "ValueError", "64 KiB"),
    "length is not a number": ([headers((b"content-length", b"four"))], "ValueError", "not a number"),
    "length is negative": ([headers((b"content-length", b"-4"))], "ValueError", "not a number"),
    "two lengths": ([headers((b"content-length", b"4"), (b"Content-Length", b"5"))], "ValueError", "twice"),
    "body is str": ([START, body(body="text")], "TypeError", "'body' must be bytes, not str"),
    "body is a number": ([START, body(body=4)], "TypeError", "'body' must be bytes, not int"),
    "body is a list": ([START, body(body=[b"a"])], "TypeError", "'body' must be bytes, not list"),
    "longer than its length": ([headers((b"content-length", b"3")), BODY], "RuntimeError", "Content-Length is 3"),
    "shorter than its length": ([headers((b"content-length", b"5")), BODY], "RuntimeError", "Content-Length is 5"),
    "first part longer than its length": (
        [headers((b"content-length", b"3")), body(more_body=True)],
        "RuntimeError",
        "Content-Length is 3",
    ),
    "trailers unannounced": ([START, {"type": "http.response.trailers"}], "RuntimeError", "announced"),
    "hint after start": ([START, {"type": "http.response.early_hint", "links": []}], "RuntimeError", "must precede"),
    "hint without links": ([{"type": "http.response.early_hint"}], "TypeError", "'links'"),
    "hint of str": ([{"type": "http.response.early_hint", "links": ["</a>"]}], "TypeError", "a link must be bytes, not str"),
    "hint with newline": ([{"type": "http.response.early_hint", "links": [b"</a>\r\nx-injected: 1"]}], "ValueError", "control"),
    "too many hints": ([{"type": "http.response.early_hint", "links": [b"x" * 40_000] * 2}], "ValueError", "64 KiB"),
    "informational is not offered": (
        [{"type": "http.response.informational", "status": 103, "headers": []}],
        "RuntimeError",
        "'asgi-extensions = informational' offers it",
    ),
    "path is bytes": (
        [START, {"type": "http.response.pathsend", "path": b"/etc/passwd"}],
        "TypeError",
        "'path' must be a str, not bytes",
    ),
    "path is missing": ([START, {"type": "http.response.pathsend"}], "TypeError", "'path'"),
    "path is nowhere": ([START, {"type": "http.response.pathsend", "path": "/no/where"}], "FileNotFoundError", "/no/where"),
    "path is a directory": ([START, {"type": "http.response.pathsend", "path": "/"}], "OSError", "not a regular file"),
    "path with nul": ([START, {"type": "http.response.pathsend", "path": "/a\0b"}], "OSError", ""),
    "file is missing": ([START, {"type": "http.response.zerocopysend"}], "TypeError", "'file'"),
    "file is a str": ([START, {"type": "http.response.zerocopysend", "file": "/etc/passwd"}], "TypeError", ""),
    "file is closed": ([START, {"type": "http.response.zerocopysend", "file": 1000}], "OSError", ""),
    "offset is a str": ([START, {"type": "http.response.zerocopysend", "file": 0, "offset": "1"}], "Error", ""),
}


async def say_all(send, name, caught):
    """Sends the messages of a mistake; returns the exception of the last one, if ``caught``."""
    *before, last = MISTAKES[name][0]
    for message in before:
        await send(message)
    if not caught:
        await send(last)
        return None
    try:
        await send(last)
    except Exception as error:
        return error
    return None


async def mistake(scope, send, caught):
    """One of the mistakes; an application that catches the exception may still answer."""
    name = list(MISTAKES)[int(scope["query_string"])]
    error = await say_all(send, name, caught)
    frame = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
    text = json.dumps({"kind": type(error).__name__, "text": str(error), "line": frame.line}).encode()
    before = MISTAKES[name][0][:-1]
    if not before:
        await send(START)
    elif before[0]["headers"]:
        # The announced length is correct.
        text = b"x" * int(before[0]["headers"][0][1])
    await send(body(body=text))


# After a part was sent.


async def at_fine(scope, receive, send):
    await send(START)
    await send(body(body=b"fine"))


async def at_pid(scope, receive, send):
    await send(START)
    await send(body(body=str(os.getpid()).encode()))


async def at_returns(scope, receive, send):
    pass


async def at_returns_later(scope, receive, send):
    await asyncio.sleep(0)


async def at_returns_after_start(scope, receive, send):
    await send(START)


async def at_returns_after_start_later(scope, receive, send):
    await send(START)
    await asyncio.sleep(0)


async def at_returns_mid_body(scope, receive, send):
    await send(START)
    await send(body(body=b"begun", more_body=True))


async def at_returns_mid_declared_body(scope, receive, send):
    await send(headers((b"content-length", b"10")))
    await send(body(body=b"begun", more_body=True))


async def at_raises(scope, receive, send):
    raise RuntimeError("as the test asked, with a d\u00e9tail \u20ac")


async def at_raises_later(scope, receive, send):
    await asyncio.sleep(0)
    raise RuntimeError("later")


async def at_raises_after_start(scope, receive, send):
    await send(start(headers=[(b"x-begun", b"1")]))
    raise RuntimeError("after startup")


async def at_raises_after_start_later(scope, receive, send):
    await send(start(headers=[(b"x-begun", b"1")]))
    await asyncio.sleep(0)
    raise RuntimeError("after startup")


async def at_raises_mid_body(scope, receive, send):
    await send(START)
    await send(body(body=b"begun", more_body=True))
    raise RuntimeError("mid body")


async def at_raises_mid_body_later(scope, receive, send):
    await send(START)
    await send(body(body=b"begun", more_body=True))
    await asyncio.sleep(0)
    raise RuntimeError("mid body")


async def at_raises_in_generator(scope, receive, send):
    async def parts():
        yield b"begun"
        raise KeyError("in the generator")

    await send(START)
    async for part in parts():
        await send(body(body=part, more_body=True))


async def at_cancels_itself(scope, receive, send):
    raise asyncio.CancelledError


async def at_cancels_itself_later(scope, receive, send):
    asyncio.current_task().cancel()
    await asyncio.sleep(1)


async def at_cancelled_by_timeout(scope, receive, send):
    await asyncio.wait_for(asyncio.sleep(10), 0.01)


class BaseExceptionOfOurs(BaseException):
    pass


async def at_base_exception(scope, receive, send):
    raise BaseExceptionOfOurs("no Exception")


async def at_base_exception_later(scope, receive, send):
    await asyncio.sleep(0)
    raise BaseExceptionOfOurs("no Exception")


async def at_generator_exit(scope, receive, send):
    raise GeneratorExit


async def at_stop_iteration(scope, receive, send):
    raise StopIteration(3)


async def at_recursion(scope, receive, send):
    await at_recursion(scope, receive, send)


async def at_system_exit(scope, receive, send):
    sys.exit(7)


async def at_system_exit_later(scope, receive, send):
    await asyncio.sleep(0)
    sys.exit(7)


async def at_send_after_end(scope, receive, send):
    await send(START)
    await send(BODY)
    await send(BODY)


async def at_start_after_end(scope, receive, send):
    await send(START)
    await send(BODY)
    await asyncio.sleep(0)
    await send(START)


async def at_too_long_mid_body(scope, receive, send):
    await send(headers((b"content-length", b"8")))
    await send(body(body=b"12345", more_body=True))
    await send(body(body=b"67890", more_body=True))


async def at_too_short_mid_body(scope, receive, send):
    await send(headers((b"content-length", b"8")))
    await send(body(body=b"12345", more_body=True))
    await send(body(body=b"6"))


async def at_str_mid_body(scope, receive, send):
    await send(START)
    await send(body(body=b"begun", more_body=True))
    await send(body(body="text"))


kept = []


async def at_keep(scope, receive, send):
    await send(START)
    await send(body(body=b"kept"))
    kept[:] = [receive, send]


async def at_use_kept(scope, receive, send):
    """The callables of a request after its end: they do not affect another request."""
    old_receive, old_send = kept
    told = [(await old_receive())["type"]]
    try:
        await old_send(body(body=b"for another client"))
    except RuntimeError as error:
        told.append(str(error))
    await send(START)
    await send(body(body=json.dumps(told).encode()))


async def at_never_awaited(scope, receive, send):
    """``send()`` raises immediately: a coroutine that is never awaited is this server's awaitable, and causes no warning."""
    send(START)
    send(body(body=b"fine"))


async def at_bad_truth(scope, receive, send):
    class Undecided:
        def __bool__(self):
            raise ValueError("undecided")

    await send(START)
    await send(body(body=b"fine", more_body=Undecided()))


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    name = scope["path"].strip("/")
    if name in ("mistake", "mistake_caught"):
        await mistake(scope, send, name == "mistake_caught")
    else:
        await globals()["at_" + name](scope, receive, send)
