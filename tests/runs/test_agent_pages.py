from __future__ import annotations

from contextlib import asynccontextmanager

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.contracts.store_commands import submission


def queued(*names):
    return [submission(f"run_{name}", AgentRef.parse(name)) for name in names]


@asynccontextmanager
async def runtime_at_rest(agents_dir, data_dir):
    """Runs stay queued in it: its Directory looks for work left behind as it starts, but places nobody any more."""
    async with in_process_runtime(agents_dir=agents_dir, data_dir=data_dir, clock=ManualClock()) as runtime:
        runtime.directory.close()
        yield runtime


async def pages(runtime, size, between=lambda _: ()):
    found = []
    while page := await runtime.agents(DEFAULT_TENANT, found[-1].agent.agent_id if found else "", size):
        found += page
        await runtime.store.apply(queued(*between(len(found))))
    return found


async def test_every_agent_is_on_one_page_with_its_runs_however_many_there_are(agents, tmp_path):
    """Definitions before, between and behind the agents with keys, one of them never run."""
    for name in ("alpha", "bench", "zeta", "zzz"):
        agents.define(name)
    keyed = [f"bench:{at}" for at in range(1_202)]
    async with runtime_at_rest(agents.folder, tmp_path / "data") as runtime:
        await runtime.store.apply(queued("alpha", "zeta", *keyed))

        found = await pages(runtime, 500)
        one_by_one = await pages(runtime, 7)

    names = [view.agent.agent_id for view in found]
    assert names == sorted({"alpha", "bench", "zeta", "zzz", *keyed})
    assert [view.agent.agent_id for view in one_by_one] == names
    counts = {view.agent.agent_id: view.record.queued_runs if view.record else None for view in found}
    assert counts == {**dict.fromkeys(["alpha", "zeta", *keyed], 1), "bench": None, "zzz": None}


async def test_agents_that_appear_meanwhile_move_no_other_to_another_page(agents, tmp_path):
    agents.define("bench")
    keyed = [f"bench:{at:03}" for at in range(60)]
    async with runtime_at_rest(agents.folder, tmp_path / "data") as runtime:
        await runtime.store.apply(queued(*keyed))

        found = await pages(runtime, 10, lambda seen: [f"bench:{at}-{seen}" for at in (0, 59)] if seen < 60 else [])

    names = [view.agent.agent_id for view in found]
    assert [name for name in names if "-" not in name] == ["bench", *keyed]
    assert len(names) == len(set(names))


async def test_a_page_of_many_agents_looks_at_the_files_of_a_definition_once(agents, tmp_path, monkeypatch):
    for name in ("alpha", "bench"):
        agents.define(name)
    looked = []
    async with runtime_at_rest(agents.folder, tmp_path / "data") as runtime:
        await runtime.store.apply(queued("gone:1", "gone:2", *(f"bench:{at}" for at in range(50))))
        get = runtime._definitions.get

        async def noting(name):
            looked.append(name)
            return await get(name)

        monkeypatch.setattr(runtime._definitions, "get", noting)
        found = await runtime.agents(DEFAULT_TENANT)

    assert sorted(looked) == ["alpha", "bench", "gone"]
    assert [view.agent.agent_id for view in found if view.problem] == ["gone:1", "gone:2"]


async def test_agents_that_are_called_come_in_that_order_with_and_without_a_definition(agents, tmp_path):
    agents.define("alpha")
    async with runtime_at_rest(agents.folder, tmp_path / "data") as runtime:
        await runtime.store.apply(queued("gone:1", "alpha:2", "alpha:1"))
        called = [AgentId(each) for each in ("alpha:2", "gone:1", "alpha", "alpha:1")]

        found = await runtime.agents_called(DEFAULT_TENANT, called)

        assert await runtime.agents_called(DEFAULT_TENANT, ()) == []
    assert [view.agent.agent_id for view in found] == called
    assert [view.record.queued_runs if view.record else None for view in found] == [1, 1, None, 1]
    assert [bool(view.problem) for view in found] == [False, True, False, False]
