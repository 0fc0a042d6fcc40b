"""A thousand agents in one process: what breaks one touches no other, and none waits for another's turn to end."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import ToolCall, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import DefinitionError, Problem
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import SubmitRun
from owlclaw_ray.store.queries import LedgerBreaks
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.definitions.test_folder import hanging
from tests.definitions.writing import write_skill
from tests.world import Definitions, Fate, World

BAD, GOOD = AgentRef.parse("crew:bad"), AgentRef.parse("crew:good")
SHARED = Placement(warm=1, most=1, agents_per_actor=1_000, idle=1e9, heartbeat=1.0, sweep=5.0)


class OddError(BaseException):
    """What no handler of Exceptions sees."""


class UnspeakableError(Exception):
    """One that cannot even be told."""

    def __str__(self):
        raise ValueError("no words")


class BreakingDefinitions(Definitions):
    """Definitions of which one agent's break while its trigger is on the way."""

    def __init__(self):
        super().__init__()
        self.error = None

    async def get(self, name):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await super().get(name)


@pytest.fixture
async def shared(stores):
    """A world of one host, which all agents share."""
    made = World(*stores, BreakingDefinitions(), placement=SHARED)
    await made.nodes[0].start()
    yield made
    await made.end()


async def both_asked(world):
    """Have both agents wait for the model, in the same host; return their calls."""
    for agent in (BAD, GOOD):
        world.nodes[0].submit(agent, "x")
        await world.clock.settle()
    [host] = world.nodes[0].hosts
    assert set(await host.hosted()) == {BAD, GOOD}
    return world.models.pending


async def end_of_both(world):
    """Let the good one end as it likes, give both another trigger, and return how all of it ended."""
    before = world.clock.monotonic()
    await world.clock.settle()
    for _ in range(4):
        await world.answer_all()
        await world.clock.settle()
    assert ending(world, GOOD) == [RunStatus.COMPLETED]
    assert world.clock.monotonic() == before
    for agent in (BAD, GOOD):
        world.nodes[0].submit(agent, "again")
    assert await world.come_to_rest()
    assert not await world.nodes[0].gate.read(LedgerBreaks(DEFAULT_TENANT))
    assert ending(world, GOOD) == [RunStatus.COMPLETED] * 2
    first, second = ending(world, BAD)
    assert second is RunStatus.COMPLETED
    return first


def ending(world, agent):
    return [status for run_id, status in world.witness.final.items() if world.agent_of(run_id) == agent]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        OddError("odder"),
        SystemExit(3),
        asyncio.CancelledError(),
        TimeoutError("late"),
        RecursionError("deep"),
        MemoryError(),
        UnspeakableError(),
        ExceptionGroup("many", [ValueError(1), OSError(2)]),
        AssertionError("half \ud83d"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_model_client_raises_ends_its_own_run_only(shared, error):
    calls = await both_asked(shared)

    calls[0].answer.set_exception(error) if not isinstance(error, asyncio.CancelledError) else calls[0].answer.cancel()

    expected = RunStatus.COMPLETED if isinstance(error, TimeoutError) else RunStatus.FAILED
    assert await end_of_both(shared) is expected


@pytest.mark.parametrize(
    "error",
    [DefinitionError([Problem("SOUL.md", "is gone")]), ValueError("odd"), OSError("disk"), SystemExit(3), OddError()],
    ids=lambda error: type(error).__name__,
)
async def test_a_definition_that_breaks_ends_the_runs_of_its_agents_only(shared, error):
    calls = await both_asked(shared)
    shared.nodes[0].submit(BAD, "y")
    await shared.clock.settle()
    shared.definitions.error = error
    shared.answer_model(calls[0])
    await shared.clock.settle()

    [*_, broken] = ending(shared, BAD)
    shared.answer_model(shared.models.pending[0])
    await shared.clock.settle()
    assert broken is RunStatus.FAILED
    assert ending(shared, GOOD) == [RunStatus.COMPLETED]


def circle():
    made = {}
    made["itself"] = made
    return made


def tower():
    made = []
    for _ in range(5_000):
        made = [made]
    return made


@pytest.mark.parametrize(
    "content",
    [object(), {1, 2}, circle(), tower(), {"half": "\ud83d"}, 2**80, float("nan"), b"bytes", "x" * 5_000_000],
    ids=["object", "set", "circle", "tower", "half a character", "huge", "nan", "bytes", "five megabytes"],
)
async def test_what_a_tool_returns_and_no_store_can_hold_touches_its_own_run_only(shared, content):
    calls = await both_asked(shared)
    shared.answer_model(calls[0], "look", "act")
    await shared.clock.settle()

    shared.end_tool(shared.tools[0], content=content)

    assert await end_of_both(shared) is RunStatus.COMPLETED


async def test_a_record_that_cannot_be_stored_does_not_fail_what_is_committed_with_it(shared):
    calls = await both_asked(shared)
    shared.answer_model(calls[0], "look")
    shared.answer_model(calls[1], "look")
    await shared.clock.settle()
    shared.nodes[0].gate.open = False
    await shared.clock.advance(1)
    bad, good = shared.tools
    unstorable = LedgerRecord(
        "rec_bad",
        DEFAULT_TENANT,
        BAD.agent_id,
        bad.invocation.run_id,
        LedgerKind.DECISION,
        shared.clock.now(),
        {"a": {1}},
    )
    bad.answer.set_result(ToolOutcome(ToolResult(bad.invocation.call_id, "x"), 1, (unstorable,)))
    shared.end_tool(good)
    await shared.clock.advance(1)
    shared.nodes[0].gate.open = True
    await shared.nodes[0].gate.decide(Fate.COMMIT)

    assert await end_of_both(shared) is RunStatus.FAILED


@pytest.mark.parametrize(
    "error", [ValueError("odd"), OddError(), SystemExit(1)], ids=lambda error: type(error).__name__
)
async def test_a_tool_runner_that_raises_stops_the_other_calls_of_its_turn_and_no_other_agent(shared, error):
    calls = await both_asked(shared)
    shared.answer_model(calls[0], "look", "look", "look")
    await shared.clock.settle()

    shared.tools[1].answer.set_exception(error)
    await shared.clock.settle()

    assert not shared.tools
    assert ending(shared, BAD) == [RunStatus.FAILED]
    assert await end_of_both(shared) is RunStatus.FAILED


class Talking:
    """A ModelClient that answers at once: each agent's first calls ask for a tool, its last does not."""

    def __init__(self, turns):
        self.turns = turns
        self.asked = Counter()
        self.order = []

    def serves(self, model):
        return True

    async def complete(self, request, model):
        await asyncio.sleep(0)
        agent = request.agent_id
        self.asked[agent] += 1
        self.order.append((agent, self.asked[agent]))
        number = self.asked[agent]
        calls = (ToolCall(f"t{number}", "look", "{}"),) if number < self.turns(agent) else ()
        return ModelReply("" if calls else "done", calls, "test")


async def talk(world, agents):
    """Let all these agents have a run each, tools answering at once; return when all have ended."""
    for agent in agents:
        world.nodes[0].submit(agent, "x")
    await world.clock.settle()
    while len(world.witness.final) < len(agents):
        await world.answer_all()
        await world.clock.settle()


@pytest.fixture
async def crowd(stores):
    def made(model):
        world = World(*stores, placement=SHARED)
        world.models.complete = model.complete
        worlds.append(world)
        return world

    worlds = []
    yield made
    for world in worlds:
        await world.end()


async def test_a_thousand_agents_of_one_host_go_on_in_turn(crowd):
    model = Talking(lambda agent: 3)
    world = crowd(model)
    await world.nodes[0].start()
    agents = [AgentRef.parse(f"crew:{number}") for number in range(1_000)]

    await talk(world, agents)

    assert set(world.witness.final.values()) == {RunStatus.COMPLETED}
    assert len(world.nodes[0].hosts) == 1
    turns = [turn for _, turn in model.order]
    last_of_the_first = max(at for at, turn in enumerate(turns) if turn == 1)
    assert turns.index(3) > last_of_the_first
    assert not world.witness.violations


async def test_a_chatty_agent_and_a_hanging_one_hold_nobody_up(crowd):
    hanging = asyncio.Event()
    model = Talking(lambda agent: 5 if agent == "crew:chatty" else 2)
    answer = model.complete

    async def complete(request, name):
        if request.agent_id == "crew:hangs":
            await hanging.wait()
        return await answer(request, name)

    model.complete = complete
    world = crowd(model)
    await world.nodes[0].start()
    world.nodes[0].submit(AgentRef.parse("crew:hangs"), "x")
    others = [AgentRef.parse(f"crew:{number}") for number in range(50)]

    await talk(world, [AgentRef.parse("crew:chatty"), *others])
    last_of_others = max(at for at, (agent, _) in enumerate(model.order) if agent != "crew:chatty")
    chatted = sum(agent == "crew:chatty" for agent, _ in model.order[:last_of_others])

    assert chatted <= 3
    assert "crew:hangs" not in model.asked
    assert world.clock.monotonic() == 0


async def test_an_agent_whose_saved_state_cannot_be_read_keeps_no_other_one_from_its_run(agents, tmp_path):
    agents.define()
    bad, good = AgentRef.parse("watch:bad"), AgentRef.parse("watch:good")
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        for agent in (bad, good):
            await runtime.outcome(await runtime.submit(agent, Trigger(TriggerKind.API)))
    with closing(sqlite3.connect(tmp_path / "data" / "owlclaw.db")) as database, database:
        database.execute("UPDATE agents SET state = '{' WHERE agent LIKE '%bad'")

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        now = SystemClock().now()
        runs = {agent: RunId(f"run_{agent.key}") for agent in (bad, good)}
        await runtime.store.apply([SubmitRun(runs[agent], agent, Trigger(TriggerKind.API), now) for agent in runs])
        await runtime.directory.take_over()
        watched = await runtime.watch(good.tenant, runs[good], 0, 20)
        while not watched.status.final:
            watched = await runtime.watch(
                good.tenant, runs[good], watched.entries[-1].seq if watched.entries else 0, 20
            )
        waiting = await runtime.run(bad.tenant, runs[bad])

    assert watched.status is RunStatus.COMPLETED
    assert waiting.status is RunStatus.QUEUED


async def test_an_agent_whose_files_hang_keeps_no_other_one_from_its_run(agents, tmp_path):
    agents.define()
    folder = agents.define("stuck")
    write_skill(folder, "slow", "---\nname: slow\ndescription: Slow.\n---\nTake your time.\n")
    quiet = Placement(warm=1, heartbeat=1e6, sweep=1e6)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", placement=quiet) as runtime:
        hung = [f"stuck:{number}" for number in range(10)]
        await asyncio.gather(*(runtime.trigger(each, focus="slow") for each in hung))

        with hanging(folder / "capabilities" / "slow" / "SKILL.md"):
            stuck = [asyncio.create_task(runtime.trigger(each, focus="slow")) for each in hung]
            runs = [await runtime.trigger(f"watch:{number}", focus="disk") for number in range(3)]
            assert not any(each.done() for each in stuck)

        assert {run.status for run in (*runs, *await asyncio.gather(*stuck))} == {RunStatus.COMPLETED}


async def test_looks_at_memories_that_hang_keep_no_other_agent_from_its_run(agents, tmp_path, monkeypatch):
    agents.define()
    answers, exists = threading.Event(), Path.exists

    def look(path, *arguments, **options):
        if path.name == "MEMORY.md" and "stuck" in path.parts[-2]:
            answers.wait()
        return exists(path, *arguments, **options)

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        monkeypatch.setattr(Path, "exists", look)
        stuck = [asyncio.create_task(runtime.trigger(f"watch:stuck{number}", focus="disk")) for number in range(4)]
        runs = [await runtime.trigger(f"watch:{number}", focus="disk") for number in range(3)]
        assert not any(each.done() for each in stuck)

        answers.set()
        assert {run.status for run in (*runs, *await asyncio.gather(*stuck))} == {RunStatus.COMPLETED}
