"""A stateful MCP server with several workers and `sticky`, with the official client: a session lives in the memory of one worker,
and every other worker answers its requests with 404.
"""

import asyncio
import contextlib
import os
import signal

import pytest
from support import processes
from support.waiting import wait_until

mcp = pytest.importorskip("mcp", reason="the package is for Python 3.10 and newer")
streamable_http = pytest.importorskip("mcp.client.streamable_http")
httpx2 = pytest.importorskip("httpx2")

TIMEOUT_SECONDS = 60
WORKERS = 4
#: Sessions of a test, or more until each worker has one.
SESSIONS = 8
MAX_SESSIONS = 200

#: Whether clients keep their connections open between two requests.
CONNECTIONS = {"kept": httpx2.Limits(), "fresh": httpx2.Limits(max_keepalive_connections=0)}


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(f"pythonpath = {{apps}}\nasgi = mcp_sessions:app\nprocesses = {WORKERS}\nsticky = header:mcp-session-id")


class Visitor:
    """A client with a session. `pid` is the worker that has made it."""

    def __init__(self, session, heard):
        self.session = session
        self.heard = heard
        self.count = 0

    async def call(self, tool):
        answer = await self.session.call_tool(tool)
        assert not answer.is_error, answer
        return answer.structured_content

    async def counts(self):
        self.count += 1
        told = await self.call("count")
        assert told["count"] == self.count
        return told["pid"]

    async def hears(self):
        """Waits for a notification of the server. One that comes before the client's stream is there is lost."""
        while not self.heard.is_set():
            await self.call("announce")


@contextlib.asynccontextmanager
async def visitor(server, limits):
    heard = asyncio.Event()

    async def hear(message):
        if isinstance(message, Exception):
            raise message
        heard.set()

    async with (
        httpx2.AsyncClient(limits=limits, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
        streamable_http.streamable_http_client(f"{server.url}/mcp", http_client=client) as (receive, send),
        mcp.ClientSession(receive, send, message_handler=hear) as session,
    ):
        await session.initialize()
        one = Visitor(session, heard)
        one.pid = await one.counts()
        yield one


async def visitors(stack, server, limits):
    """Returns clients, of which each worker has one."""
    all_of_them = []
    while len(all_of_them) < SESSIONS or len({one.pid for one in all_of_them}) < WORKERS:
        assert len(all_of_them) < MAX_SESSIONS, "each worker has made a session"
        all_of_them.append(await stack.enter_async_context(visitor(server, limits)))
    return all_of_them


def run(talk):
    asyncio.run(asyncio.wait_for(talk(), TIMEOUT_SECONDS))


@pytest.mark.parametrize("limits", CONNECTIONS.values(), ids=CONNECTIONS)
def test_each_request_of_a_session_reaches_the_worker_that_has_it(server, limits, caplog):
    async def talk():
        async with contextlib.AsyncExitStack() as stack:
            clients = await visitors(stack, server, limits)
            for _ in range(5):
                pids = await asyncio.gather(*(client.counts() for client in clients))
                assert pids == [client.pid for client in clients]
            await asyncio.gather(*(client.hears() for client in clients))

    run(talk)
    # A client ends its session with a request too.
    assert "Session termination failed" not in caplog.text


def test_a_killed_worker_takes_only_its_own_sessions_with_it(server):
    server.expects_alarms = True

    async def talk():
        async with contextlib.AsyncExitStack() as stack:
            clients = await visitors(stack, server, CONNECTIONS["kept"])
            victim = clients[0].pid
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: processes.look(victim) is None, "its end")
            for client in clients:
                if client.pid == victim:
                    with pytest.raises(mcp.MCPError, match="Session not found"):
                        await client.counts()
                else:
                    assert await client.counts() == client.pid
            again = await stack.enter_async_context(visitor(server, CONNECTIONS["kept"]))
            assert await again.counts() == again.pid != victim

    run(talk)
