"""What following runs, and listing agents page by page, rest on in a store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.governance import Breaker
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import AppendJournal, CancelRun, ClaimRun
from owlclaw_ray.store.queries import (
    AgentPage,
    ChangedRuns,
    EntriesOfKinds,
    JournalOfRun,
    JournalPosition,
    JournalTail,
    ProgressOfRuns,
    PromptTexts,
    RunProgress,
)
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, ending, entries, submission

_OTHER_AGENT = AgentRef.parse("trader:AAPL", TenantId("租户"))


def position(run_id: str, after: int = 0, agent: AgentRef = AGENT) -> JournalPosition:
    """Return how far somebody has read."""
    return JournalPosition(agent.tenant, RunId(run_id), after)


def seqs(watched: RunProgress | None) -> list[int]:
    """Return the numbers of its entries."""
    assert watched is not None
    return [entry.seq for entry in watched.entries]


class FollowingContract:
    """Reading many journals from where they were read last."""

    async def test_many_journals_are_read_each_from_its_position(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2", OTHER), activation("act_1")])
        await store.apply([ClaimRun(AGENT, 1, NOW)])
        told = AppendJournal(RunId("run_1"), AGENT, 1, entries(3, EntryKind.MODEL_REPLIED))
        await store.apply([told, CancelRun(OTHER.tenant, RunId("run_2"), NOW)])

        asked = [position("run_1"), position("run_2", 1), position("run_1", 2), position("run_1", 2**62)]
        found = await store.read(ProgressOfRuns(asked))

        assert [seqs(each) for each in found] == [[1, 2, 3], [2], [3], []]
        assert found[0] == RunProgress(
            tuple(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))), RunStatus.RUNNING
        )
        assert found[1] is not None
        assert found[1].over
        assert found[1].status is RunStatus.CANCELLED
        assert await store.read(ProgressOfRuns([])) == []

    async def test_the_last_entries_of_a_journal_are_read_page_by_page_from_its_end(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2", _OTHER_AGENT), activation("act_1")])
        await store.apply([ClaimRun(AGENT, 1, NOW)])
        await store.apply([AppendJournal(RunId("run_1"), AGENT, 1, entries(3, *[EntryKind.MODEL_REPLIED] * 3))])

        async def tail(run_id: str, before: int | None = None) -> list[int]:
            return [each.seq for each in await store.read(JournalTail(AGENT.tenant, RunId(run_id), before, 2))]

        assert await tail("run_1") == [4, 5]
        assert await tail("run_1", 4) == [2, 3]
        assert await tail("run_1", 2) == [1]
        assert await tail("run_1", 1) == []
        assert await tail("run_2") == []

    async def test_entries_of_some_kinds_are_read_in_order_page_by_page_and_only_for_their_tenant(
        self, store: Store
    ) -> None:
        await store.apply([submission("run_1"), submission("run_2", _OTHER_AGENT), activation("act_1")])
        await store.apply([ClaimRun(AGENT, 1, NOW)])
        told = (EntryKind.MODEL_REPLIED, EntryKind.RUN_ACTIVE, EntryKind.TOOL_FINISHED, EntryKind.MODEL_REPLIED)
        await store.apply([AppendJournal(RunId("run_1"), AGENT, 1, entries(3, *told))])

        async def found(tenant: str, run_id: str, after: int = 0, limit: int = 9) -> list[int]:
            kinds = (EntryKind.MODEL_REPLIED, EntryKind.TOOL_FINISHED)
            asked = EntriesOfKinds(TenantId(tenant), RunId(run_id), kinds, after, limit)
            return [each.seq for each in await store.read(asked)]

        assert await found(AGENT.tenant, "run_1") == [3, 5, 6]
        assert await found(AGENT.tenant, "run_1", limit=2) == [3, 5]
        assert await found(AGENT.tenant, "run_1", after=5) == [6]
        assert await found(AGENT.tenant, "run_2") == []
        assert await found("other", "run_1") == []

    async def test_the_texts_of_a_prompt_are_read_by_their_hashes_and_only_for_its_tenant(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2", _OTHER_AGENT), activation("act_1")])
        await store.apply([ClaimRun(AGENT, 1, NOW)])
        hashes = {"s" * 64: "You trade.", "t" * 64: "[]", "x" * 64: "named by nobody"}
        built = JournalEntry(3, EntryKind.PROMPT_BUILT, NOW, {"system": "s" * 64, "tools": "t" * 64})
        assert await store.read(PromptTexts(AGENT.tenant, RunId("run_1"))) == {}
        await store.apply([AppendJournal(RunId("run_1"), AGENT, 1, (built,), blobs=hashes)])

        found = await store.read(PromptTexts(AGENT.tenant, RunId("run_1")))

        assert found == {"s" * 64: "You trade.", "t" * 64: "[]"}
        assert await store.read(PromptTexts(_OTHER_AGENT.tenant, RunId("run_1"))) == {}
        assert await store.read(PromptTexts(_OTHER_AGENT.tenant, RunId("run_2"))) == {}

    async def test_runs_of_other_tenants_are_none(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2", _OTHER_AGENT)])

        found = await store.read(ProgressOfRuns([position("run_2"), position("run_none"), position("run_1")]))

        assert found[:2] == [None, None]
        assert seqs(found[2]) == [1]

    async def test_what_is_too_much_for_an_answer_comes_in_parts_until_nothing_is_left(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2", OTHER)])
        await store.apply([activation("act_1"), activation("act_2", OTHER)])
        await store.apply([ClaimRun(AGENT, 1, NOW), ClaimRun(OTHER, 1, NOW)])
        for run_id, agent in (("run_1", AGENT), ("run_2", OTHER)):
            long = tuple(JournalEntry(at, EntryKind.MODEL_REPLIED, NOW, {"text": "x" * 900_000}) for at in range(3, 9))
            await store.apply([AppendJournal(RunId(run_id), agent, 1, long)])
            await store.apply([ending(run_id, 9, agent=agent)])

        after, read, answers = {"run_1": 0, "run_2": 0}, dict[str, list[int]](), 0
        while after:
            found = await store.read(ProgressOfRuns([position(run_id, seq) for run_id, seq in after.items()]))
            answers += 1
            for run_id, watched in zip(tuple(after), found, strict=True):
                assert watched is not None
                read.setdefault(run_id, []).extend(seqs(watched))
                after[run_id] = max(read[run_id], default=0)
                if watched.over:
                    del after[run_id]

        assert read == {"run_1": list(range(1, 10)), "run_2": list(range(1, 10))}
        assert 2 <= answers <= 4

    async def test_only_runs_that_went_on_or_ended_have_moved(self, store: Store) -> None:
        await store.apply([submission(f"run_{at}", AGENT) for at in range(4)])
        await store.apply([CancelRun(AGENT.tenant, RunId("run_3"), NOW)])

        asked: Sequence[JournalPosition] = [
            position("run_0", 1),
            position("run_1", 0),
            position("run_2", 2**62),
            position("run_3", 2**62),
        ]

        assert list(await store.read(ChangedRuns(asked))) == ["run_1", "run_3"]


class AgentPagesContract:
    """Agents, page by page."""

    async def test_pages_hold_every_agent_once_while_others_appear(self, store: Store) -> None:
        names = [f"trader:{at:04}" for at in range(25)]
        await store.apply([submission(f"run_{name}", AgentRef.parse(name)) for name in names])
        await store.apply([submission("run_stranger", AgentRef.parse("trader:0007", _OTHER_AGENT.tenant))])

        found: list[str] = []
        while page := await store.read(AgentPage(AGENT.tenant, found[-1] if found else "", limit=10)):
            found += [record.agent.agent_id for record in page]
            late = [f"trader:0000-{len(found)}", f"trader:9999-{len(found)}"] if len(found) < 30 else []
            await store.apply([submission(f"run_{name}", AgentRef.parse(name)) for name in late])

        assert [name for name in found if name in names] == names
        assert found == sorted(set(found))
        assert not any("0000-" in name for name in found)

    async def test_agents_come_in_the_order_of_their_code_points(self, store: Store) -> None:
        names = ["a", "a-b", "a_b", "a0", "a:b", "a:B", "a:+", "a:=1", "a:10", "a:9"]
        await store.apply([submission(f"run_{at}", AgentRef.parse(name)) for at, name in enumerate(names)])

        found = [record.agent.agent_id for record in await store.read(AgentPage(AGENT.tenant))]

        assert found == sorted(names)
        assert [each.agent.agent_id for each in await store.read(AgentPage(AGENT.tenant, "a:=1"))] == [
            "a:B",
            "a:b",
            "a_b",
        ]

    async def test_agents_whose_ids_begin_alike_are_read_page_by_page(self, store: Store) -> None:
        names = ["trader", "trader:AAPL", "trader:AMZN", "trader:上海", "trades", "tr"]
        await store.apply([submission(f"run_{at}", AgentRef.parse(name)) for at, name in enumerate(names)])
        await store.apply([submission("run_stranger", AgentRef.parse("trader:ACME", _OTHER_AGENT.tenant))])

        async def found(prefix: str, after: str = "", limit: int = 9) -> list[str]:
            page = await store.read(AgentPage(AGENT.tenant, after, limit, prefix))
            return [each.agent.agent_id for each in page]

        assert await found("trader") == ["trader", "trader:AAPL", "trader:AMZN", "trader:上海"]
        assert await found("trader", limit=2) == ["trader", "trader:AAPL"]
        assert await found("trader", "trader:AAPL") == ["trader:AMZN", "trader:上海"]
        assert await found("trader:A") == ["trader:AAPL", "trader:AMZN"]
        assert await found("trader:上") == ["trader:上海"]
        assert await found("x") == []

    async def test_busy_agents_are_those_with_a_run_that_is_not_over(self, store: Store) -> None:
        idle, strange = AgentRef.parse("trader:idle"), AgentRef.parse("trader:busy", _OTHER_AGENT.tenant)
        given = [AGENT, idle, AgentRef.parse("trader:queued"), strange]
        await store.apply([submission(f"run_{at}", agent) for at, agent in enumerate(given)])
        await store.apply([activation("act_1"), ClaimRun(AGENT, 1, NOW), CancelRun(idle.tenant, RunId("run_1"), NOW)])

        async def found(after: str = "", limit: int = 9, prefix: str = "") -> list[str]:
            page = await store.read(AgentPage(AGENT.tenant, after, limit, prefix, busy=True))
            return [each.agent.agent_id for each in page]

        assert await found() == sorted([AGENT.agent_id, "trader:queued"])
        assert await found(limit=1) == [min(AGENT.agent_id, "trader:queued")]
        assert await found(after=AGENT.agent_id) == ["trader:queued"]
        assert await found(prefix="trader:q") == ["trader:queued"]

    async def test_agents_with_open_breakers_are_those_whose_saved_state_has_one(self, store: Store) -> None:
        closed, strange = AgentRef.parse("trader:closed"), AgentRef.parse("trader:AAPL", _OTHER_AGENT.tenant)
        named = AgentRef.parse("trader:named")
        states = {
            AGENT: AgentState(breakers=(Breaker("shop.ask", 3), Breaker("shop.pay", 5, NOW.timestamp()))),
            closed: AgentState(breakers=(Breaker("shop.ask", 3),)),
            strange: AgentState(breakers=(Breaker("shop.ask", 5, NOW.timestamp() + 60),)),
            named: AgentState(('failed with "open_until":1',), 1, (Breaker('"open_until":1', 3),)),
            AgentRef.parse("trader:new"): AgentState(),
        }
        await store.apply([submission(f"run_{at}", agent) for at, agent in enumerate(states)])
        await store.apply([replace(activation(f"act_{at}", agent), claim=True) for at, agent in enumerate(states)])

        async def found(after: str = "", limit: int = 9) -> list[str]:
            page = await store.read(AgentPage(AGENT.tenant, after, limit, with_open_breaker=True))
            return [each.agent.agent_id for each in page]

        assert await found() == []
        ends = [
            replace(ending(f"run_{at}", agent=agent), state=state) for at, (agent, state) in enumerate(states.items())
        ]
        await store.apply(ends)
        assert await found() == [AGENT.agent_id]
        assert await found(AGENT.agent_id) == []

        await store.apply([submission("run_again"), ClaimRun(AGENT, 1, NOW), ending("run_again")])
        assert await found() == []
