"""Routes that leave memory behind, each in another way, and routes that only look as if they did: ``/leak/NAME`` and
``/clean/NAME``. The same functions serve as WSGI (``application``) and as ASGI (``asgi``), where some more are.
"""

import asyncio
import atexit
import collections
import ctypes
import functools
import gc
import importlib
import json
import logging
import logging.handlers
import os
import queue
import random
import re
import signal
import tempfile
import threading
import weakref

if "COLLECTOR_OFF" in os.environ:
    gc.disable()

LEAKS, CLEAN, ASYNC_LEAKS, ASYNC_CLEAN = {}, {}, {}, {}
numbers = iter(range(10**9))
kept = collections.defaultdict(list)
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
malloc.argtypes = [ctypes.c_size_t]
free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
chance = random.Random(7)


def route(table):
    def add(function):
        table[function.__name__.strip("_").replace("_", "-")] = function
        return function

    return add


leak, clean = route(LEAKS), route(CLEAN)


class Node:
    def __init__(self, other=None):
        self.other = other or self


class Undead:
    def __del__(self):
        kept["undead"].append(self)


@leak
def list_of_orders():
    kept["orders"].append({"number": next(numbers), "lines": ["a", 1.5]})


@leak
def dictionary_by_id(table={}):  # noqa: B006
    table[f"user-{next(numbers)}"] = object()


@leak
def closures():
    value = str(next(numbers))
    kept["callbacks"].append(lambda: value)


@leak
def logging_handlers():
    logging.getLogger("shop").addHandler(logging.NullHandler())


@leak
def growing_bytes():
    kept["text"].append(bytes(700))


@leak
def native_memory():
    malloc(300)


@leak
def resurrected():
    Undead()


@leak
def thread_locals():
    local = threading.local()
    local.data = [str(next(numbers))]
    kept["locals"].append(local)


@functools.cache
def price(number):
    return str(number)


@leak
def unbounded_cache():
    price(next(numbers))


@leak
def open_files():
    kept["files"].append(open(os.devnull, "rb"))  # noqa: SIM115


@leak
def signal_handlers():
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *arguments: before)


@leak
def rare_and_big():
    kept["rare"].append(None)
    if len(kept["rare"]) % 50 == 0:
        kept["big"].append(bytearray(1 << 20))


@leak
def small_and_steady():
    kept["small"].append(bytes(167))


@leak
def weak_keys_with_strong_values(table=weakref.WeakKeyDictionary()):  # noqa: B008
    node = Node()
    table[node] = node


@leak
def new_types():
    kept["types"].append(type(f"Row{next(numbers)}", (), {}))


@leak
def kept_exceptions():
    try:
        raise ValueError(str(next(numbers)))
    except ValueError as error:
        kept["errors"].append(error)


@leak
def filled_dictionaries(empty=iter([{} for _ in range(20_000)])):  # noqa: B008
    """Keep nothing but the tables of dictionaries, as long as there are empty ones."""
    row = next(empty, {})
    row["job"] = None
    kept["rows"].append(row)


@leak
def unfinished_generators():
    def rows():
        yield from [str(next(numbers))]

    generator = rows()
    next(generator)
    kept["generators"].append(generator)


@leak
def unread_queue(jobs=queue.Queue()):  # noqa: B008
    jobs.put({"job": next(numbers)})


@leak
def exit_functions():
    atexit.register(Node)


@leak
def cycles():
    """Collected as usual, unless the collector is off."""
    node = Node()
    node.other = [node, Node(node)]


del LEAKS["cycles"]


@clean
def nothing():
    pass


@functools.lru_cache(maxsize=40)
def product(number):
    return {"number": number, "name": str(number)}


@clean
def bounded_cache():
    product(next(numbers))


@clean
def late_imports(names=iter(["xml.dom.minidom", "decimal", "difflib", "csv", "sqlite3"])):  # noqa: B008
    name = next(names, None)
    if name:
        importlib.import_module(name)


@clean
def template_cache(templates={}):  # noqa: B006
    name = f"page-{next(numbers) % 12}"
    if name not in templates:
        templates[name] = re.sub("x", name, "x" * 400)


@clean
def expiring_sessions(sessions=collections.OrderedDict()):  # noqa: B006
    sessions[next(numbers)] = {"user": str(next(numbers)), "cart": [1, 2]}
    if len(sessions) > 20:
        sessions.popitem(last=False)


@clean
def log_in():
    kept["sessions"].append({"user": str(next(numbers)), "cart": [1.5, []]})


@clean
def log_out():
    if kept["sessions"]:
        kept["sessions"].pop()


@clean
def big_and_temporary():
    return len(bytearray(3 << 20)) and None


@clean
def collected_cycles():
    cycles()


@clean
def sizes_that_vary():
    kept["varied"] = [bytes(chance.randrange(6000)) for _ in range(5)]


@clean
def connection_pool(pool=[]):  # noqa: B006
    if len(pool) < 5:
        pool.append(open(os.devnull, "rb"))  # noqa: SIM115
    pool.append(pool.pop(0))


@clean
def last_requests(last=collections.deque(maxlen=25)):  # noqa: B006
    last.append({"number": next(numbers), "text": "x" * 600})


@clean
def weak_values(table=weakref.WeakValueDictionary()):  # noqa: B008
    table[next(numbers)] = Node()


@clean
def threads_that_end():
    thread = threading.Thread(target=cycles)
    thread.start()
    thread.join()


@clean
def native_memory_freed():
    free(malloc(70_000))


@clean
def temporary_files():
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 10_000)


@clean
def handled_exceptions():
    try:
        raise ValueError(str(next(numbers)))
    except ValueError as error:
        cycle = Node()
        cycle.error = error


@clean
def batches():
    kept["batch"].append(b"x" * 2000)
    if len(kept["batch"]) >= 30:
        kept["batch"].clear()


@clean
def buffered_log(handler=logging.handlers.MemoryHandler(15, target=logging.NullHandler())):  # noqa: B008
    handler.emit(logging.LogRecord("shop", logging.INFO, "", 0, "bought %s", (next(numbers),), None))


@clean
def dictionaries():
    json.dumps({"job": next(numbers)})


@clean
def documents():
    return json.loads(json.dumps({str(number): [number, None] for number in range(50)})) and None


holding, free_to_go = threading.Event(), threading.Event()


def held():
    holding.set()
    free_to_go.wait(60)


def is_held():
    assert holding.wait(60)


def answer(path):
    """Return what the route leaves to do in an event loop, or None."""
    kind, _, name = path.strip("/").partition("/")
    tables = {"leak": LEAKS, "clean": CLEAN, "async-leak": ASYNC_LEAKS, "async-clean": ASYNC_CLEAN, "off": {"cycles": cycles}}
    tables["held"] = {"hold": held, "is-held": is_held, "release": free_to_go.set}
    return tables[kind][name]()


def application(environ, start_response):
    answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "3")])
    return [b"ok\n"]


@route(ASYNC_LEAKS)
async def tasks_that_wait():
    kept["tasks"].append(asyncio.ensure_future(asyncio.Event().wait()))


@route(ASYNC_LEAKS)
async def subscribers():
    kept["subscribers"].append(asyncio.Queue())


@route(ASYNC_CLEAN)
async def tasks_that_end():
    await asyncio.gather(*[asyncio.sleep(0) for _ in range(3)])


@route(ASYNC_CLEAN)
async def after_the_answer():
    asyncio.get_running_loop().call_soon(cycles)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    waits = answer(scope["path"])
    if waits is not None:
        await waits
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"ok\n"})
