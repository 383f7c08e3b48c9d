"""ASGI applications that return their scope: as JSON, with bytes as ``{"bytes": text}`` and tuples as lists."""

import functools
import json
import os

#: Scopes of earlier requests, by identity of their parts.
seen = []


def plain(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).decode("latin-1"), "type": type(value).__name__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


async def answer(send, value):
    body = json.dumps(value).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    if scope["path"].endswith("/types"):
        await answer(send, types_of(scope))
    elif scope["path"].endswith("/stain"):
        await answer(send, stain(scope))
    else:
        await answer(send, dict(plain(scope), pid=os.getpid()))


def types_of(scope):
    """Returns the type of each key, and of the parts of the headers."""
    types = {key: type(value).__name__ for key, value in scope.items()}
    types["header"] = sorted({type(pair).__name__ for pair in scope["headers"]})
    types["header parts"] = sorted({type(part).__name__ for pair in scope["headers"] for part in pair})
    types["scope"] = type(scope).__name__
    return types


def stain(scope):
    """Returns the values that earlier requests left in this scope, then leaves a value in every mutable part of it."""
    found = [name for name in ("stained",) if name in scope]
    found += [name for name in ("extensions", "asgi") if "stained" in scope[name]]
    found += ["headers"] if any(name == b"x-stained" for name, _ in scope["headers"]) else []
    found += ["same objects"] if any(scope is other or scope["headers"] is other["headers"] for other in seen) else []
    seen.append(scope)
    scope["stained"] = True
    scope["extensions"]["stained"] = {}
    scope["asgi"]["stained"] = True
    scope["headers"].append((b"x-stained", b"1"))
    return found


# The forms in which an application can be written. Each returns its name.


def named(name):
    async def application(scope, receive, send):
        assert scope["type"] == "http"
        await answer(send, {"way": name, "root_path": scope["root_path"], "path": scope["path"]})

    return application


async_function = named("async function")


class WithCall:
    async def __call__(self, scope, receive, send):
        await named("object")(scope, receive, send)


object_with_async_call = WithCall()


async def with_a_word(word, scope, receive, send):
    await named(word)(scope, receive, send)


partial = functools.partial(with_a_word, "partial")
partial_of_object = functools.partial(object_with_async_call)
method = object_with_async_call.__call__


@functools.wraps(async_function)
def wrapped(scope, receive, send):
    return named("wrapped")(scope, receive, send)


class Double:
    """An application of ASGI 2."""

    def __init__(self, scope):
        self.scope = scope

    async def __call__(self, receive, send):
        await named("ASGI 2")(self.scope, receive, send)


def factory():
    return named("factory")


def factory_of_object():
    return object_with_async_call


def plain_function(scope, receive, send):
    """Returns a coroutine without being an async function: only ``interface = asgi`` selects ASGI."""
    return named("plain function")(scope, receive, send)


class Awaitable:
    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __await__(self):
        return self.coroutine.__await__()


def awaitable(scope, receive, send):
    """Returns an awaitable that is not a coroutine."""
    return Awaitable(named("awaitable")(scope, receive, send))


def wsgi(environ, start_response):
    body = json.dumps({"way": "WSGI", "root_path": environ["SCRIPT_NAME"], "path": environ["PATH_INFO"]}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class WsgiClass:
    """A WSGI application as a class: it is constructed with environ and start_response, and iterated over."""

    def __init__(self, environ, start_response):
        self.environ, self.start_response = environ, start_response

    def __iter__(self):
        return iter(wsgi(self.environ, self.start_response))


class WsgiObject:
    def __call__(self, environ, start_response):
        return wsgi(environ, start_response)


wsgi_object = WsgiObject()
wsgi_partial = functools.partial(wsgi)


async def stateful(scope, receive, send):
    """Its lifespan sets a state; requests return it, and change it."""
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["count"] = 0
        scope["state"]["shared"] = []
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    state = scope["state"]
    told = {"count": state["count"], "shared": len(state["shared"]), "more": "more" in state}
    state["count"] += 1
    state["shared"].append(1)
    state["more"] = True
    await answer(send, told)
