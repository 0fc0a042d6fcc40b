"""The ends of runs, as the export of traces follows them, on every database."""

from __future__ import annotations

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import Chain, LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import RecordId, RunId
from owlclaw_ray.store.commands import AppendJournal, AppendLedger, CancelRun, ExportNoted, NoteExported
from owlclaw_ray.store.queries import ActiveRunCounts, JournalOfRun
from owlclaw_ray.store.run_ends import (
    ChainPositions,
    EndedRunCount,
    EndedRuns,
    ExportPositions,
    FactsOfRuns,
    RunsEndedAfter,
)
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, one, submission

CHAIN = Chain(AGENT.tenant, "keeper-1")
SYSTEM = "a" * 64


def cancel(run_id):
    return CancelRun(AGENT.tenant, RunId(run_id), NOW)


def record(number, kind=LedgerKind.WARNING, run_id="run_x", **data):
    return LedgerRecord(RecordId(f"rec_{number}"), AGENT.tenant, AGENT.agent_id, RunId(run_id), kind, NOW, data)


async def test_a_store_without_ends_has_none(store):
    assert await store.read(ChainPositions()) == {}


async def test_an_export_that_never_began_has_no_positions_and_one_that_began_with_nothing_has_none_yet(store):
    assert await store.read(ExportPositions()) is None

    assert await one(store, NoteExported({})) == ExportNoted()

    assert await store.read(ExportPositions()) == {}


async def test_noted_positions_are_kept_by_chain_and_never_go_back(store):
    other = Chain(AGENT.tenant, "keeper-2")
    await store.apply([NoteExported({CHAIN: 5, other: 2}), NoteExported({CHAIN: 7})])
    await store.apply([NoteExported({CHAIN: 6})])

    assert await store.read(ExportPositions()) == {CHAIN: 7, other: 2}

    await store.apply([NoteExported({CHAIN: 9}), NoteExported({CHAIN: 8})])

    assert await store.read(ExportPositions()) == {CHAIN: 9, other: 2}


async def test_each_end_is_at_its_place_and_what_lies_between_is_passed(store):
    await store.apply([AppendLedger((record(1), record(2)))])
    await store.apply([submission("run_1"), submission("run_2"), cancel("run_1")])
    await store.apply([AppendLedger((record(3),)), cancel("run_2"), AppendLedger((record(4),))])

    assert await store.read(ChainPositions()) == {CHAIN: 6}
    assert await store.read(RunsEndedAfter(CHAIN, 0, 1)) == EndedRuns(((3, RunId("run_1")),), 3)
    assert await store.read(RunsEndedAfter(CHAIN, 3, 10)) == EndedRuns(((5, RunId("run_2")),), 6)
    assert await store.read(RunsEndedAfter(CHAIN, 6, 10)) == EndedRuns((), 6)
    assert [await store.read(EndedRunCount(CHAIN, after)) for after in (0, 3, 5)] == [2, 1, 0]


async def test_the_facts_of_a_run_are_the_run_its_journal_its_failed_model_calls_and_its_system_prompt(store):
    await store.apply([submission("run_1", payload={"秘": 1}), activation("act_1")])
    await claimed(store)
    built = JournalEntry(3, EntryKind.PROMPT_BUILT, NOW, {"system": SYSTEM, "tools": "b" * 64, "user": "看看"})
    told = (
        record(1, LedgerKind.MODEL_CALL, "run_1", model="m"),
        record(2, LedgerKind.MODEL_CALL, "run_1", model="m", failed_attempts=[{"model": "n"}]),
        record(3, LedgerKind.MODEL_CALL, "run_1", error="late"),
        record(4, LedgerKind.WARNING, "run_1", error="of another kind"),
        record(5, LedgerKind.MODEL_CALL, "run_1", purpose="recall", failed_attempts=[{"model": "e", "error": "busy"}]),
    )
    texts = {SYSTEM: "you are calm", "b" * 64: "[]"}
    await one(store, AppendJournal(RunId("run_1"), AGENT, 1, (built,), told, texts))
    await one(store, ending("run_1", 4))

    [facts] = await store.read(FactsOfRuns([RunId("run_1"), RunId("run_unknown")]))

    assert (facts.run.run_id, facts.run.status, facts.run.trigger.payload) == ("run_1", RunStatus.COMPLETED, {"秘": 1})
    entries = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))
    assert [each.kind.value for each in entries] == ["run_queued", "run_started", "prompt_built", "run_finished"]
    assert list(facts.journal) == [built]
    assert [each.record_id for each in facts.failures] == ["rec_2", "rec_3"]
    assert facts.blobs == {SYSTEM: "you are calm"}


async def test_active_runs_are_counted_by_their_status(store):
    await store.apply([submission("run_1"), submission("run_2"), submission("run_3"), activation("act_1")])
    await claimed(store)
    await store.apply([cancel("run_3")])

    assert await store.read(ActiveRunCounts()) == {RunStatus.QUEUED: 1, RunStatus.RUNNING: 1, RunStatus.WAITING: 0}
