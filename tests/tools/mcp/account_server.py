"""A real server over streamable HTTP that notes which credential came with which request."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from owlclaw_ray.tools.mcp.options import Address, McpServerOptions
from serve.loopback import free_ports

LISTER = "Bearer of-the-operator"


@dataclass
class Asked:
    """A request."""

    verb: str
    method: str
    """Of the protocol."""
    authorization: str
    session: str
    arguments: dict
    connection: int
    """The port that it came from."""


@dataclass
class AccountServer:
    """What came, and whom it lets in: everybody, unless `known` names the credentials."""

    port: int
    known: set[str] | None = None
    has_sessions: bool = False
    """Whether it speaks the older protocol."""
    moved: dict[str, str] = field(default_factory=dict)
    """Where credentials are sent on to."""
    asked: list[Asked] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def calls(self):
        """Of each call of a tool, who its caller says it is, and the credential."""
        return [(each.arguments["me"], each.authorization) for each in self.asked if each.method == "tools/call"]

    def options(self, name="crm", headers=(("Authorization", LISTER), ("X-Of", "operator")), **more):
        own = (("authorization", "Bearer ${CRM_TOKEN}"),)
        return McpServerOptions(name, Address(f"http://127.0.0.1:{self.port}/mcp", headers, own), **more)

    def app(self):
        server = MCPServer("accounts")

        @server.tool()
        def whoami(me: str, context: Context) -> str:
            return f"{me} has {context.headers['authorization']}"

        @server.tool()
        async def wait(me: str) -> str:
            while not self.gate.is_set():
                await asyncio.sleep(0.005)
            return me

        inner = server.streamable_http_app()

        async def noting(scope, receive, send):
            if scope["type"] != "http":
                await inner(scope, receive, send)
                return
            parts, more = [], scope["method"] == "POST"
            while more:
                message = await receive()
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
            body = b"".join(parts)
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            said = json.loads(body) if body else {}
            authorization = headers.get("authorization", "")
            self.asked.append(
                Asked(
                    scope["method"],
                    said.get("method", ""),
                    authorization,
                    headers.get("mcp-session-id", ""),
                    (said.get("params") or {}).get("arguments") or {},
                    scope["client"][1],
                )
            )
            if authorization in self.moved:
                head = [(b"location", self.moved[authorization].encode())]
                await send({"type": "http.response.start", "status": 307, "headers": head})
                await send({"type": "http.response.body", "body": b""})
                return
            if self.known is not None and authorization not in self.known:
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            if self.has_sessions and said.get("method") == "server/discover":
                error = {"jsonrpc": "2.0", "id": said["id"], "error": {"code": -32601, "message": "unknown"}}
                head = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": json.dumps(error).encode()})
                return
            given = iter([{"type": "http.request", "body": body, "more_body": False}] if parts else [])

            async def again():
                return next(given, None) or await receive()

            await inner(scope, again, send)

        return noting


@contextmanager
def account_server():
    """Serve until the end of the block."""
    found = AccountServer(free_ports(1)[0])
    config = uvicorn.Config(found.app(), port=found.port, log_level="critical", timeout_graceful_shutdown=1)
    web = uvicorn.Server(config)
    thread = threading.Thread(target=web.run)
    thread.start()
    while not web.started:
        os.sched_yield()
    try:
        yield found
    finally:
        found.gate.set()
        web.should_exit = True
        thread.join()
