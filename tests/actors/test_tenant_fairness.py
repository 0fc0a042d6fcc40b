"""What one tenant's flood is to another at each door, in virtual time: places on hosts, model calls, tool slots, memories."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest
from msgspec.structs import replace

from actors.plan import ToolSlots, WorkerPlan
from actors.tool_task import MemoryCalls, TaskToolRunner
from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import AgentId, TenantId, ToolCallId
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.actors.slot_lines import SlotNode
from tests.actors.test_tool_task import call
from tests.model_requests import model_request
from tests.placement.test_directory import SteeredHost, SteeredPool, Work
from tests.worlds import Model, says

PLACES = 8


class ModelCalls:
    """Model calls of one provider, of as many at once as there are places."""

    def __init__(self, clock, weight, _):
        self._clock = clock
        self._gateway = ModelGateway(
            [self], clock=clock, retry=RetryPolicy(1), max_concurrent=PLACES, jitter=lambda: 0.0, weight=weight
        )

    def serves(self, model):
        return True

    async def load(self):
        pass

    async def complete(self, request, model):
        await self._clock.sleep(float(request.system))
        return ModelReply("ok", (), model)

    async def use(self, agent, seconds):
        request = replace(model_request("p/m", timeout=1e6), agent_id=agent.agent_id, tenant=agent.tenant)
        await self._gateway.complete(replace(request, system=str(seconds)))

    async def stop(self):
        pass


class RayQueue:
    """Runs as many tasks at once as there are slots on a node, in the order in which they come; each takes as long as it says."""

    def __init__(self, clock):
        self._clock, self._slots, self.seconds = clock, asyncio.Semaphore(PLACES), {}

    async def run(self, tool_class, packed_calls):
        _, invocations, _ = unpack(packed_calls)
        async with self._slots:
            await self._clock.sleep(self.seconds[invocations[0].call_id])
        return pack([ToolOutcome(ToolResult(each.call_id, "done"), 1) for each in invocations])

    async def use_memory(self, packed_call):
        _, _, (_, seconds) = unpack(packed_call)
        async with self._slots:
            await self._clock.sleep(seconds)
        return pack(None)

    def warm(self, plan):
        pass


class ToolCallsOfManyHosts:
    """Calls of handlers from agents on many hosts of a node, which has as many slots as there are places."""

    HOSTS = 5

    def __init__(self, clock, weight, folder):
        self._clock, self._numbers, self._tasks = clock, count(), RayQueue(clock)
        self._node = SlotNode(clock, ToolSlots(PLACES), weight)
        self._plan = WorkerPlan("", "", str(folder), "none", "trial")
        self._runners = {}

    def _host(self, agent):
        """Return the agent's host. No host has agents of two tenants: that is another door."""
        return f"{agent.tenant}-{self._share(agent)}"

    def _share(self, agent):
        return int(agent.agent_id.removeprefix("bot-")) % self.HOSTS

    async def _runner(self, host):
        if host not in self._runners:
            link = await self._node.host(host)
            numbers, ids = ToolSlots(PLACES), SequentialIds()
            self._runners[host] = TaskToolRunner(
                self._plan, self._clock, numbers, slots=link.place, tasks=self._tasks, ids=ids
            )
        return self._runners[host]

    async def use(self, agent, seconds):
        call_id = ToolCallId(f"call-{next(self._numbers)}")
        self._tasks.seconds[call_id] = seconds
        invocation = replace(call(Effect.PURE), call_id=call_id, agent=agent, timeout=1e6)
        runner = await self._runner(self._host(agent))
        await runner.run(invocation)

    async def stop(self):
        await self._node.close()


class ToolCallsOfSharedHosts(ToolCallsOfManyHosts):
    """The same, with agents of all tenants on each host."""

    def _host(self, agent):
        return f"shared-{self._share(agent)}"


class ToolCallsOverBreakingLines(ToolCallsOfManyHosts):
    """The first, with lines between root and hosts that break now and then, with what is on its way: one of 200 frames is the last."""

    def __init__(self, clock, weight, folder):
        super().__init__(clock, weight, folder)
        self._node.breaks = 0.005


class MemoryCallsOfAgentsAndRequests:
    """Calls of agents' memories: half of them by tools, on a host, and half of them by requests, at the root."""

    def __init__(self, clock, weight, folder):
        self._clock, self._numbers, self._tasks = clock, count(), RayQueue(clock)
        slots, self._plan = ToolSlots(1, memory=PLACES), WorkerPlan("", "", str(folder), "none", "trial")
        self._node = SlotNode(clock, slots, weight)
        self._requests = MemoryCalls(self._plan, self._node.desk.own(weight), clock, self._tasks.use_memory)
        self._runner = None

    async def use(self, agent, seconds):
        number = next(self._numbers)
        if number % 2:
            await self._requests.call(agent, "recall", (seconds,), 1e6)
            return
        if self._runner is None:
            link = await self._node.host("host")
            self._runner = TaskToolRunner(
                self._plan,
                self._clock,
                ToolSlots(1, memory=PLACES),
                slots=link.place,
                tasks=self._tasks,
                ids=SequentialIds(),
            )
        call_id = ToolCallId(f"call-{number}")
        self._tasks.seconds[call_id] = seconds
        recall = replace(call(Effect.PURE, ToolClass.MEMORY), call_id=call_id, agent=agent, timeout=1e6)
        await self._runner.run(recall)

    async def stop(self):
        await self._node.close()


class BusyHost(SteeredHost):
    """Runs what it adopts for as long as the door says; then it is idle."""

    def __init__(self, host_id, node_id, door):
        super().__init__(host_id, node_id)
        self._door, self._ends = door, {}

    async def adopt(self, agents, term):
        await super().adopt(agents, term)
        for agent in agents:
            self._ends[agent] = asyncio.create_task(self._run(agent))

    async def _run(self, agent):
        await self._door.clock.sleep(self._door.seconds[agent])
        self.idle[agent] = 0.0
        self._door.ended[agent].set()

    async def hand_over(self, agents, grace=None):
        await asyncio.gather(*(self._ends[agent] for agent in agents))
        return await super().hand_over(agents, grace)


class BusyPool(SteeredPool):
    def __init__(self, door):
        super().__init__()
        self._door = door

    async def spawn(self, node_id):
        self.made += 1
        host = self.hosts[f"host-{self.made}"] = BusyHost(f"host-{self.made}", node_id, self._door)
        return host


class Places:
    """Runs of agents that need a host of their own, of which there are as many as places."""

    def __init__(self, clock, weight, _):
        self.clock, self.seconds, self.ended = clock, {}, {}
        self._directory = Directory(
            pool=BusyPool(self),
            store=Work(),
            isolation_of=lambda name: Isolation.DEDICATED,
            placement=Placement(warm=0, heartbeat=1.0, sweep=1e6, idle=20.0, most=PLACES),
            clock=clock,
            weight=weight,
        )
        self._started = False

    async def use(self, agent, seconds):
        if not self._started:
            self._started = True
            await self._directory.start()
        self.seconds[agent], self.ended[agent] = seconds, asyncio.Event()
        await self._directory.wake([agent])
        await self.ended[agent].wait()

    async def stop(self):
        await self._directory.stop(0)


DOORS = [Places, ModelCalls, ToolCallsOfManyHosts, ToolCallsOfSharedHosts, MemoryCallsOfAgentsAndRequests]


class Street:
    """Brings calls of tenants to a door, each of an agent of its own, at the times at which they come."""

    def __init__(self, make, folder, weights):
        self.clock = ManualClock()
        self._door = make(self.clock, lambda tenant: weights.get(tenant, 1.0), folder)
        self._tasks, self._numbers = [], count()
        self.latencies = {}

    async def use(self, tenant, seconds):
        agent = AgentRef(TenantId(tenant), AgentId(f"bot-{next(self._numbers)}"))
        began = self.clock.monotonic()
        await self._door.use(agent, seconds)
        self.latencies.setdefault(tenant, []).append(self.clock.monotonic() - began)

    async def arrive(self, tenant, calls):
        for at, seconds in calls:
            await self.clock.sleep(at - self.clock.monotonic())
            self._begin(self.use(tenant, seconds))

    async def repeat(self, tenant, seconds):
        while True:
            await self.use(tenant, seconds)

    def _begin(self, work):
        self._tasks.append(asyncio.create_task(work))

    def begin(self, *works):
        for work in works:
            self._begin(work)

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._door.stop()


def arrivals(a_second, seconds, seed):
    """Return when calls come, at random, and how long each takes: a second on average."""
    dice, at, calls = random.Random(seed), 0.0, []
    while (at := at + dice.expovariate(a_second)) < seconds:
        calls.append((at, 0.5 + dice.random()))
    return calls


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


@pytest.mark.parametrize("make", DOORS)
async def test_a_hundred_times_the_load_of_one_tenant_moves_another_s_p99_by_a_fifth_at_most(make, tmp_path):
    async def modest_p99(times):
        street = Street(make, tmp_path, {})
        calls = arrivals(PLACES / 40, 200.0, 1)
        street.begin(street.arrive("greedy", arrivals(times * PLACES / 40, 200.0, 2)), street.arrive("modest", calls))
        await street.clock.advance(200.0)
        while len(street.latencies["modest"]) < len(calls):
            await street.clock.advance(1.0)
        await street.close()
        return p99(street.latencies["modest"])

    before, beside_a_flood = await modest_p99(1), await modest_p99(100)

    assert beside_a_flood <= 1.2 * before


@pytest.mark.parametrize("make", [*DOORS, ToolCallsOverBreakingLines])
async def test_weights_of_three_to_one_show_within_a_twentieth(make, tmp_path):
    street = Street(make, tmp_path, {"greedy": 3.0})
    for _ in range(3 * PLACES):
        street.begin(street.repeat("modest", 1.0), street.repeat("greedy", 1.0))
    await street.clock.advance(10.0)
    before = {tenant: len(each) for tenant, each in street.latencies.items()}

    await street.clock.advance(100.0)
    await street.close()

    served = {tenant: len(each) - before[tenant] for tenant, each in street.latencies.items()}
    assert served["greedy"] / served["modest"] == pytest.approx(3.0, rel=0.05)


async def test_a_model_call_says_whose_agent_asks(agents, tmp_path):
    agents.define()
    asked = []

    async def decide(request):
        asked.append((request.tenant, request.agent_id))
        return says("done")

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(decide)]
    ) as runtime:
        run = await runtime.submit(AgentRef.parse("watch", TenantId("acme")), Trigger(TriggerKind.API))
        while not (await runtime.run(run.agent.tenant, run.run_id)).status.final:
            await asyncio.sleep(0)

    assert asked == [("acme", "watch")]
