"""What becomes of a call for an agent's memory when the worker, or the root, hangs."""

from __future__ import annotations

import asyncio
import fcntl

import pytest

from actors.memory_link import MemoryLink
from actors.plan import ToolSlots, WorkerPlan
from actors.remote import ROOT, full_name, kill, make
from actors.remote_actor import RemoteActor
from actors.slot_link import SlotDesk
from actors.tool_task import MemoryCalls
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.fair_order import equal_weights
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.clock import ManualClock

pytestmark = pytest.mark.ray

WATCH = AgentRef.parse("watch")


class StuckRoot(RemoteActor):
    """A root that takes calls and answers none."""

    async def use_memory(self, *_) -> None:
        await asyncio.Event().wait()


async def test_a_worker_that_hangs_is_ended_and_the_next_one_answers(trial, tmp_path):
    plan, clock = WorkerPlan("", "", str(tmp_path), "none", "memory-trial"), SystemClock()
    worker = MemoryCalls(plan, SlotDesk(ToolSlots(1, memory=4), clock).own(equal_weights), clock)
    memory = Memory("mem_1", "The pump fails at nine.", (), ManualClock().now())
    lock = tmp_path / "agents" / WATCH.folder / ".lock"
    lock.parent.mkdir(parents=True)

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RuntimeUnavailableError, match="remember of a memory: no answer within 2 s"):
            await worker.call(WATCH, "remember", (memory,), 2.0)
        assert await worker.call(WATCH, "recall", ("pump", 5), 60.0)

    assert await worker.call(WATCH, "remember", (memory,), 60.0) == memory


async def test_a_root_that_hangs_is_not_waited_for_without_end(trial):
    root = make(StuckRoot, name=full_name(ROOT), namespace="stuck-root")
    link = MemoryLink("stuck-root", seconds=0.5, on_the_way=0.5)

    with pytest.raises(RuntimeUnavailableError, match="refresh of a memory: no answer within 1 s"):
        await link.refresh(WATCH)
    kill(root)
