"""A server made with the official SDK: over stdio, or over streamable HTTP at the port that is given."""

import asyncio
import base64
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import CallToolResult, TextContent, ToolAnnotations

server = MCPServer("demo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
def picture() -> list:
    return ["a pixel", Image(data=base64.b64decode("iVBORw0KGgo="), format="png")]


@server.tool(annotations=ToolAnnotations(destructive_hint=True, open_world_hint=True))
def fail(why: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=why)], is_error=True)


@server.tool()
async def hang(log: str) -> str:
    try:
        await asyncio.sleep(3600)
    except BaseException:
        Path(log).write_text("cancelled\n")  # noqa: ASYNC240
        raise
    return "never"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(context: Context, log: str) -> str:
    await context.report_progress(3, 4, "three of four")
    while not Path(log).exists():  # noqa: ASYNC240
        await asyncio.sleep(0.01)
    return "counted"


@server.tool()
async def grow(context: Context) -> str:
    server.add_tool(lambda: "new", name="grown", description="New.")
    await context.notify_tools_changed()
    return "grown"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]), json_response="json" in sys.argv)
else:
    server.run()
