"""Calls between actors as type checkers see them: a method has the arguments and the answer that its actor's class says."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from actors.remote import DIRECTORY, GATEWAY, KEEPER, AgentHandle, NamedActor, call_now, calls
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.store.queries import RunById

if TYPE_CHECKING:

    async def named(agent: AgentRef) -> None:
        directory = NamedActor(DIRECTORY, "owlclaw")
        assert_type(await directory.call.wake([agent]), dict[AgentRef, str])
        await directory.call.waken([agent])  # type: ignore[attr-defined]
        await directory.call.wake(1)  # type: ignore[arg-type]
        await directory.call.cancel(agent)  # type: ignore[call-arg]
        await NamedActor(GATEWAY, "owlclaw").call.wake([agent])  # type: ignore[attr-defined]

    async def queries() -> None:
        keeper = NamedActor(KEEPER, "owlclaw")
        assert_type(await keeper.call.read(RunById(DEFAULT_TENANT, RunId("run_1"))), Run | None)
        await keeper.call.read("run")  # type: ignore[arg-type]

    async def handles(actor: AgentHandle, agent: AgentRef) -> None:
        assert_type(await calls(actor).wake([agent]), tuple[AgentRef, ...])
        await calls(actor).ring([])  # type: ignore[attr-defined]

    def blocking(actor: AgentHandle, agent: AgentRef) -> None:
        keeper = NamedActor(KEEPER, "owlclaw")
        query = RunById(DEFAULT_TENANT, RunId("run_1"))
        assert_type(keeper.call_now(lambda each: each.read(query)), Run | None)
        assert_type(call_now(actor, lambda each: each.cancel(agent, RunId("run_1"))), bool)
        keeper.call_now(lambda each: each.reads(query))  # type: ignore[attr-defined]
        call_now(actor, lambda each: each.cancel(agent))  # type: ignore[call-arg]
