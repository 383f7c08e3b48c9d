"""A stateful MCP server (the official package, over streamable HTTP) that counts the calls of each session in memory."""

import os

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("counter")

#: Session -> calls.
calls = {}


@server.tool()
async def count(context: Context) -> dict[str, int]:
    session = context.headers["mcp-session-id"]
    calls[session] = calls.get(session, 0) + 1
    return {"pid": os.getpid(), "count": calls[session]}


@server.tool()
async def announce(context: Context) -> str:
    """Sends a notification, which does not belong to this request, on the stream that the client has opened with GET."""
    await context.session.send_tool_list_changed()
    return "sent"


app = server.streamable_http_app()
