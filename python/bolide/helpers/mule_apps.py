"""The objects that a mule keeps (``mule-app``), and the answers to calls of their methods.

Must not know how calls reach the mule. Runs in mules.
"""

import asyncio
import inspect
import select
import socket
import traceback

from bolide import log
from bolide.helpers.mules import END, FAILURE, PART, RESULT, framed, received
from bolide.loading.load import LoadError

#: Seconds that a caller has to send its arguments, and to take each part of the answer.
CALLER_SECONDS = 30


class Apps:
    """The objects of one mule, by the places of their queues."""

    def __init__(self, described, number, places):
        self.described = [app for app in described if number in app["mules"]]
        self.number = number
        self.places = places
        self.objects = {}
        self.names = {}

    def load(self):
        """Make the objects. Returns the places of their queues."""
        from bolide.hooks import find

        for app in self.described:
            kind = find({"name": app["name"], "origin": f"{app['origin']}: mule-app"})
            # As with gunicorn's dirty apps, a class may say how many processes have it.
            most = getattr(kind, "workers", None)
            if most is not None and not app["has_count"] and app["mules"].index(self.number) >= most:
                continue
            made = kind()
            if not callable(made) and not hasattr(made, "__dict__"):
                raise LoadError(f"{app['origin']}: {app['name']} does not make an object with methods")
            if hasattr(made, "init"):
                made.init()
            place = self.places[f"app {app['name']}"]
            self.objects[place], self.names[place] = made, app["name"]
        return list(self.objects)

    def close(self):
        for place, made in self.objects.items():
            if hasattr(made, "close"):
                try:
                    made.close()
                except Exception as error:
                    log.log_exception(error, f"{self.names[place]}.close")

    def answer(self, place, descriptor, link):
        """Answer a call. The caller may be gone at any time."""
        with socket.socket(fileno=descriptor) as connection:
            connection.settimeout(CALLER_SECONDS)
            try:
                method, arguments, named = received(connection)
                if is_gone(connection):
                    return
                link.begin_work(f"{self.names[place]}.{method}")
                for answer in self.answers(place, method, arguments, named):
                    connection.sendall(answer)
            except (EOFError, ConnectionError, socket.timeout):
                # The caller no longer waits for the answer.
                return

    def answers(self, place, method, arguments, named):
        """Yield the answers as bytes."""
        try:
            result = called(self.objects[place], method, arguments, named)
            if inspect.isawaitable(result):
                result = asyncio.run(awaited(result))
            if inspect.isasyncgen(result):
                result = parts_of(result)
            if inspect.isgenerator(result):
                for part in result:
                    yield framed((PART, part))
                yield framed((END,))
            else:
                yield framed((RESULT, result))
        except Exception as error:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            log.log_exception(error, f"{self.names[place]}.{method}")
            yield framed((FAILURE, str(error) or type(error).__name__, text))


def called(made, method, arguments, named):
    # gunicorn's dirty apps choose the method themselves.
    if callable(made):
        return made(method, *arguments, **named)
    if method.startswith("_") or not hasattr(made, method):
        raise ValueError(f"there is no method {method!r}")
    return getattr(made, method)(*arguments, **named)


async def awaited(result):
    return await result


def parts_of(generator):
    """Yield the parts of an asynchronous generator."""
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(generator.__anext__())
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(generator.aclose())
        loop.close()


def is_gone(connection):
    """Return whether the caller has closed its end: its time was over before its call began."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
