"""What one tenant's calls for memories are to others, in a process that many use."""

import asyncio
import threading
from collections import Counter

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import MemoryUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.memory.runtime_memory import AgentMemories, MemoryLedger
from owlclaw_ray.store.commands import LedgerAppended
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds

GREEDY, MODEST = TenantId("greedy"), TenantId("modest")


class Files:
    """Files of agents; writing an archive hangs until it is let go."""

    def __init__(self):
        self.let_go, self.writing = threading.Event(), Counter()

    def put_archive_text(self, agent, text):
        self.writing[agent] += 1
        self.let_go.wait()
        return ()

    def text(self, agent):
        return b"what " + agent.tenant.encode()


class Ledger:
    async def apply(self, commands):
        return [LedgerAppended() for _ in commands]


async def known(agent):
    pass


@pytest.fixture
async def street():
    """Memories over those files, and tasks that write."""
    files, clock, ids, tasks = Files(), ManualClock(), SequentialIds(), []
    memories = AgentMemories(
        files=files,
        indexed=None,
        ledger=MemoryLedger(Ledger(), clock, ids),
        require_known=known,
        timezone_of=None,
        behind=None,
        clock=clock,
        ids=ids,
    )
    yield files, clock, memories, tasks
    files.let_go.set()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("agents", [1, 60])
async def test_writes_of_one_tenant_that_hang_hold_up_neither_reads_of_another_nor_what_else_needs_a_thread(
    street, agents
):
    files, clock, memories, tasks = street
    for number in range(60):
        agent = AgentRef.parse(f"bot:{number % agents}", GREEDY)
        tasks.append(asyncio.create_task(memories.put_archive_text(agent, b"")))
    await clock.settle()

    assert await memories.text(AgentRef.parse("bot", MODEST)) == b"what modest"
    assert await asyncio.to_thread(lambda: "an artifact") == "an artifact"
    assert set(files.writing.values()) == {1}


async def test_a_call_that_waits_ten_seconds_for_its_agent_s_turn_is_told_so(street):
    files, clock, memories, tasks = street
    agent = AgentRef.parse("bot", GREEDY)
    tasks += [asyncio.create_task(memories.put_archive_text(agent, b"")) for _ in range(2)]
    await clock.settle()

    await clock.advance(10.0)

    with pytest.raises(
        MemoryUnavailableError, match="the memory files of greedy/bot were used by other calls for 10 s"
    ):
        await tasks[1]
    assert files.writing[agent] == 1
