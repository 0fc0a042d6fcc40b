"""A run of a thousand tool calls costs a thousand times one call, in bytes and in memory of what was said."""

from __future__ import annotations

import pytest

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.runs.run_journal import FLUSH_AFTER
from owlclaw_ray.store.queries import RunFilter
from tests.world import World

WATCH = AgentRef.parse("watch")
READ = "what the tool has read " * 40


async def converse(world, calls):
    """Have a run make so many calls, one a turn, its host killed near the end; return the messages of its last model call."""
    node = world.nodes[0]
    node.submit(WATCH, "x")
    last, killed = (), False
    while not world.witness.final:
        await world.clock.settle()
        if world.tools:
            [call] = world.tools
            call.answer.set_result(ToolOutcome(ToolResult(call.invocation.call_id, READ), 1))
        elif not world.models.pending:
            await world.clock.advance(1)
        elif len(world.models.pending[0].request.messages) // 2 == calls - 10 and not killed:
            killed = True
            await world.clock.advance(FLUSH_AFTER)
            await node.kill_hosts()
        else:
            [call] = world.models.pending
            last = call.request.messages
            world.answer_model(call, *(["look"] if len(last) // 2 < calls else []))
    return last


def stored(world):
    [[journal]] = world.database.tables("SELECT sum(length(data)) FROM journal")
    [[blobs]] = world.database.tables("SELECT sum(length(content)) FROM blobs")
    [[ledger]] = world.database.tables("SELECT sum(length(data)) FROM ledger")
    return journal + blobs + ledger


@pytest.fixture
def definitions(agents):
    agents.define(model="test", limits={"tool_calls": 2_000, "turns": 2_000, "run_timeout": 1e6}, isolation="shared")
    return DefinitionFolder(agents.folder, Defaults())


async def test_what_a_long_run_stores_grows_with_what_is_new_in_it_and_a_crash_repeats_nothing(stores, definitions):
    sizes = {}
    for calls in (250, 500, 1_000):
        world = World(*stores, definitions)
        await world.nodes[0].start()
        messages = await converse(world, calls)
        world.witness.audit(world.database.tables)
        sizes[calls] = stored(world)
        [run] = await world.nodes[0].gate.read(RunFilter(DEFAULT_TENANT))
        [[prompts]] = world.database.tables("SELECT count(*) FROM blobs WHERE content LIKE '%You are calm%'")
        await world.end()

        assert run.status is RunStatus.COMPLETED
        assert run.result.tool_calls == calls
        assert len(messages) == 1 + 2 * calls
        assert prompts == 1
        assert set(world.witness.executions.values()) == {1}
        assert not world.witness.violations

    growth = (sizes[500] - sizes[250]) / 250
    assert (sizes[1_000] - sizes[500]) / 500 == pytest.approx(growth, rel=0.01)
    assert sizes[1_000] < 1_000 * 4 * len(READ)
