"""Whoever listens to a store hears of every run whose journal grew, and of no other: followers rest on nothing else."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.store.commands import (
    AppendJournal,
    AppendLedger,
    CancelRun,
    CancelSchedule,
    ClaimRun,
    CommandFailed,
    CreateSchedule,
)
from owlclaw_ray.store.queries import JournalPosition, ProgressOfRuns, RunFilter
from tests.contracts.store_approval_contract import deciding, waiting
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, ending, entries, submission
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_schedule_contract import DUE, firing, schedule

LATER = NOW + timedelta(minutes=5)
STEPS = (
    (submission("run_1"), submission("run_2"), submission("other", OTHER)),
    (activation("act_1"), activation("act_2", OTHER)),
    (ClaimRun(AGENT, 1, NOW),),
    (AppendJournal(RunId("run_1"), AGENT, 1, entries(3, EntryKind.MODEL_REPLIED)),),
    (replace(submission("run_3"), busy=BusyPolicy.INTERRUPT),),
    (ending("run_1", 4),),
    (submission("run_4"), ClaimRun(OTHER, 1, LATER)),
    (replace(ending("run_3", 3), at=LATER),),
    (AppendLedger((record(1),)),),
    (CancelRun(OTHER.tenant, RunId("other"), NOW), CancelRun(AGENT.tenant, RunId("run_none"), NOW)),
    (replace(activation("act_3"), claim=True),),
    (CreateSchedule(schedule("sch_1"), 10), firing("sch_1", DUE, DUE + timedelta(minutes=5))),
    (CancelSchedule(AGENT, ScheduleId("sch_1"), NOW),),
)


async def lengths(store):
    runs = [run.run_id for run in await store.read(RunFilter(AGENT.tenant, limit=100))]
    found = await store.read(ProgressOfRuns([JournalPosition(AGENT.tenant, run_id) for run_id in runs]))
    return {run_id: (len(watched.entries), watched.status) for run_id, watched in zip(runs, found, strict=True)}


async def heard_and_grown(store, commands):
    heard = []
    before = await lengths(store)
    store.tell(lambda run_ids, _: heard.extend(run_ids))
    outcomes = await store.apply(commands)
    after = await lengths(store)
    return set(heard), {run_id for run_id, length in after.items() if before.get(run_id) != length}, outcomes


async def test_every_commit_tells_of_the_runs_whose_journals_grew(store):
    ended = set()
    for commands in STEPS:
        heard, grown, outcomes = await heard_and_grown(store, list(commands))

        assert heard == grown, commands
        assert not any(isinstance(outcome, CommandFailed) for outcome in outcomes), outcomes
        ended |= {run_id for run_id, (_, status) in (await lengths(store)).items() if status.final}

    assert {"run_1", "run_3"} <= ended


async def test_approvals_and_commands_that_are_applied_one_by_one_are_told_of_too(store):
    await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
    wrong = AppendJournal(RunId("run_1"), AGENT, 1, entries(9, EntryKind.MODEL_REPLIED))

    heard, grown, outcomes = await heard_and_grown(store, [wrong, submission("run_2")])
    assert isinstance(outcomes[0], CommandFailed)
    assert grown == {"run_2"} <= heard

    for command in (waiting(), deciding()):
        heard, grown, _ = await heard_and_grown(store, [command])
        assert heard == grown == {"run_1"}


async def test_what_changed_nothing_is_told_of_by_nobody(store):
    await store.apply([submission("run_1")])

    heard, grown, _ = await heard_and_grown(store, [submission("run_1"), AppendLedger((record(1),))])

    assert heard == grown == set()
