"""The table of scenarios: name, purpose and participants of each. Runs in the suite's own process."""

from collections.abc import Callable
from dataclasses import dataclass

from .. import queueing, workloads
from ..servers import OURS
from . import asgi, behind_nginx, connections, fresh, http2, resources, static_files, tls, transfers, waiting
from .cpu import Entry, compare, entries_of

THREADS_COMPARED = 4


@dataclass(frozen=True)
class Scenario:
    """`kind` names the structure of the results of `run(session, name)`, and so the table that shows them; `unit` is the unit
    that CPU is counted for.

    `interface` selects the Pythons that servers must be installed on: WSGI is measured on the suite's own, and so is the
    interface that a scenario measures `beside` it.
    """

    kind: str
    title: str
    run: Callable
    interface: str = "wsgi"
    unit: str = "request"
    beside: str = ""


def _against_limit(workload):
    def run(session, name):
        return compare(session, name, workload, entries_of(session.chosen(without=["memory-only"])))

    return run


def _behind_nginx(session, name):
    entries = entries_of(session.chosen("uwsgi-protocol"))
    return compare(session, name, workloads.HELLO, entries, start=behind_nginx.start)


def _django_behind_nginx(session, name):
    """Every combination of nginx, server and protocol in front of Django that is used in practice."""
    return compare(session, name, workloads.DJANGO, behind_nginx.ways_of(session), start=behind_nginx.start)


def _pairs(session, name, ability, suffix, options, workload=workloads.HELLO):
    """Each server with the ability, twice: with its defaults, and with these options. Bolide's pair has a target."""
    servers = [server for server in session.chosen(ability) if server in (OURS, "uwsgi", "granian")]
    entries = [Entry(server + end, server, extra) for server in servers for end, extra in (("", {}), (suffix, options))]
    return compare(session, name, workload, entries)


def _logging(session, name):
    return _pairs(session, name, "log", " + log", {"request_log": True})


def _threads(session, name):
    return _pairs(session, name, "threads", f" {THREADS_COMPARED} threads", {"threads": THREADS_COMPARED})


def _threads_django(session, name):
    return _pairs(session, name, "threads", f" {THREADS_COMPARED} threads", {"threads": THREADS_COMPARED}, workloads.DJANGO)


def _threads_flask(session, name):
    return _pairs(session, name, "threads", f" {THREADS_COMPARED} threads", {"threads": THREADS_COMPARED}, workloads.FIBONACCI)


def _cached(session, name):
    """Each server with an answer from its cache and with the application's: the application is not called for the first one."""
    ways = ((" hello", {}), ("", {"cached": True}))
    entries = [Entry(server + end, server, extra) for server in session.chosen("cache") for end, extra in ways]
    return compare(session, name, workloads.HELLO, entries)


ASGI_WORKLOADS = [
    ("asgi-hello", workloads.ASGI_HELLO, "a constant answer"),
    ("asgi-sleep", workloads.ASGI_SLEEP, "a constant answer after asyncio.sleep(0)"),
    ("asgi-starlette", workloads.ASGI_STARLETTE, "a JSON view of Starlette"),
    ("asgi-fastapi", workloads.ASGI_FASTAPI, "a JSON view of FastAPI"),
    ("asgi-post", workloads.ASGI_POST, "a POST of 10 KB of JSON, read to its end"),
]

SCENARIOS = {
    "hello": Scenario("cpu", "hello: a constant answer", _against_limit(workloads.HELLO)),
    "pprint": Scenario("cpu", "pprint: a generator yields the environ in pieces", _against_limit(workloads.PPRINT)),
    "fibonacci": Scenario("cpu", "fibonacci: a Flask API", _against_limit(workloads.FIBONACCI)),
    "django": Scenario("cpu", "django: a view without sessions", _against_limit(workloads.DJANGO)),
    "nginx-uwsgi": Scenario("cpu", "nginx-uwsgi: hello behind nginx, uwsgi protocol on a UNIX socket", _behind_nginx),
    "nginx-django": Scenario(
        "cpu", "nginx-django: Django behind nginx by FastCGI, uwsgi and HTTP, over TCP and UNIX sockets", _django_behind_nginx
    ),
    "logging": Scenario("cpu", "logging: hello with request logging on and off", _logging),
    "threads": Scenario("cpu", f"threads: hello with {THREADS_COMPARED} threads and with one", _threads),
    "threads-django": Scenario("cpu", f"threads-django: Django with {THREADS_COMPARED} threads and with one", _threads_django),
    "threads-flask": Scenario("cpu", f"threads-flask: Flask with {THREADS_COMPARED} threads and with one", _threads_flask),
    "fresh": Scenario("cpu", "fresh: hello with a connection for each request", fresh.http),
    "fresh-ways": Scenario(
        "cpu", "fresh-ways: the same over HTTP and the uwsgi protocol, over TCP and UNIX sockets, by workers", fresh.ways
    ),
    "cached": Scenario("cpu", "cached: hello as an item of a cache, and as the application's answer", _cached),
    **{
        name: Scenario("cpu", f"{name}: a file of {size.words}", static_files.whole(size))
        for name, size in static_files.SIZES.items()
    },
    "static-304": Scenario("cpu", "static-304: a file that has not changed", static_files.not_modified),
    "static-transfers": Scenario(
        "transfers", "static-transfers: 200 clients and files of 20 to 150 MB within 256 MB", transfers.transfers
    ),
    "waiting": Scenario(
        "waiting",
        f"waiting: views of {queueing.VIEW_MS} ms at {queueing.LOAD} % load, by workers x threads",
        waiting.shapes,
        beside="asgi",
    ),
    "waiting-loads": Scenario(
        "waiting-loads", f"waiting-loads: {waiting.WORKERS} workers with views of {queueing.VIEW_MS} ms, by load", waiting.loads
    ),
    "waiting-views": Scenario(
        "waiting", f"waiting-views: {waiting.WORKERS} workers at {queueing.LOAD} % load, by the length of the view", waiting.views
    ),
    "ab": Scenario("ab", "ab: 5,000 requests, 500 at once, a connection for each", connections.apache_bench),
    "wrk-1000": Scenario("wrk-1000", "wrk-1000: 1,000 kept-alive connections", connections.wrk_1000),
    "balance": Scenario("balance", "balance: 64 connections over two workers", connections.balance),
    "idle-connections": Scenario("idle", "idle-connections: 10,000 kept-alive connections", connections.idle_connections),
    "memory": Scenario("memory", "memory: a Django application, PSS of the whole tree", resources.memory),
    "startup": Scenario("startup", "startup: from exec to the first answer, beyond the application's import", resources.startup),
    **{
        name: Scenario("cpu", f"{name}: {title}", asgi.against_limit(workload), "asgi")
        for name, workload, title in ASGI_WORKLOADS
    },
    "websocket-echo": Scenario(
        "cpu",
        f"websocket-echo: messages of {asgi.ECHO_BYTES} bytes on {asgi.ECHO_SOCKETS} WebSockets",
        asgi.echo,
        "asgi",
        "message",
    ),
    "event-streams": Scenario(
        "streams", f"event-streams: {asgi.STREAMS:,} streams of server-sent events", asgi.streams, "asgi", "event"
    ),
    "idle-websockets": Scenario("idle", "idle-websockets: 10,000 idle WebSockets", asgi.idle_websockets, "asgi"),
    "tls-hello": Scenario("cpu", "tls-hello: a constant answer over kept-alive TLS", tls.hello),
    "tls-asgi-hello": Scenario("cpu", "tls-asgi-hello: the same by ASGI", tls.asgi_hello, "asgi"),
    "tls-file": Scenario("cpu", f"tls-file: a file of {tls.FILE.words} within TLS", tls.file, unit="file"),
    "tls-handshakes": Scenario(
        "cpu", "tls-handshakes: a full handshake, a request and a close", tls.full_handshakes, unit="connection"
    ),
    "tls-resumptions": Scenario(
        "cpu", "tls-resumptions: a resumed handshake, a request and a close", tls.resumed_handshakes, unit="connection"
    ),
    "tls-idle": Scenario("idle", "tls-idle: 10,000 kept-alive connections within TLS", tls.idle_connections, "asgi"),
    "h2-hello-tls": Scenario("cpu", f"h2-hello-tls: WSGI, {http2.WORDS}, within TLS", http2.hello(tls=True)),
    "h2-hello-h2c": Scenario("cpu", f"h2-hello-h2c: WSGI, {http2.WORDS}, without TLS", http2.hello(tls=False)),
    "h2-asgi-hello-tls": Scenario(
        "cpu", f"h2-asgi-hello-tls: ASGI, {http2.WORDS}, within TLS", http2.asgi_hello(tls=True), "asgi"
    ),
    "h2-asgi-hello-h2c": Scenario(
        "cpu", f"h2-asgi-hello-h2c: ASGI, {http2.WORDS}, without TLS", http2.asgi_hello(tls=False), "asgi"
    ),
}
