"""The client and the means of testing as type checkers see them: synchronous methods have the types of the asynchronous ones."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

from owlclaw_ray import wire
from owlclaw_ray.client import Client, SyncClient, verify_callback
from owlclaw_ray.domain.approval import ApprovalRequest, Decision
from owlclaw_ray.domain.run import Run
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import InProcessRuntime, in_process_runtime

if TYPE_CHECKING:

    def blocking(client: SyncClient) -> None:
        with client as same:
            assert_type(same, SyncClient)
        accepted = client.submit("clerk", {"order": 1}, focus="late", idempotency_key="a")
        assert_type(accepted, wire.Accepted | wire.Run)
        assert_type(client.run(accepted["run_id"]), wire.Run)
        assert_type(client.agent("clerk"), wire.Agent)
        assert_type(client.mcp_servers(), list[wire.McpServer])
        assert_type(client.nodes(), wire.Nodes)
        for event in client.events(accepted["run_id"]):
            assert_type(event["seq"], int)
        client.submit("clerk", focuss="late")  # type: ignore[call-arg]
        client.run()  # type: ignore[call-arg]
        accepted["runid"]  # type: ignore[typeddict-item]

    async def asynchronous(client: Client) -> None:
        async with client as same:
            assert_type(same, Client)
        assert_type(await client.submit("clerk"), wire.Accepted | wire.Run)
        assert_type(await client.run("run_1"), wire.Run)
        await client.submit("clerk", busy="sometimes")  # type: ignore[arg-type]
        _done: bool = (await client.run("run_1"))["status"] == "done"  # type: ignore[comparison-overlap]

    async def approve(_request: ApprovalRequest) -> Decision:
        return Decision.ALLOW_ONCE

    async def testing(agents: Path, data: Path, clock: ManualClock) -> None:
        async with in_process_runtime(agents_dir=agents, data_dir=data, clock=clock, approve=approve) as runtime:
            assert_type(runtime, InProcessRuntime)
            assert_type(await runtime.trigger("clerk", {"order": 1}), Run)
        await clock.advance(60)
        in_process_runtime(agents_dir="agents", data_dir=data)  # type: ignore[arg-type]

    def receiving(headers: dict[str, str], body: bytes, now: datetime) -> None:
        assert_type(verify_callback(headers, body, ["secret"], now), wire.RunFinished)
        verify_callback(headers, "body", ["secret"], now)  # type: ignore[arg-type]
