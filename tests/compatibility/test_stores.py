"""Stores that earlier versions made. store-0011.sql is the text of a database of the last commit before the migrations became one."""

import hashlib
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from owlclaw_ray.domain.approval import ApprovalStatus
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus, TickOutcome
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import CallbackId, DeliveryId, RunId
from owlclaw_ray.store.commands import ApprovalSettled, BudgetReserved, RunAccepted, ScheduleFired
from owlclaw_ray.store.queries import (
    AgentsOfDefinition,
    ApprovalFilter,
    CallbackFilter,
    DeliveryById,
    DueSchedules,
    JournalOfRun,
    LedgerBreaks,
    LedgerFilter,
    MissingLedgerGuards,
    RunById,
    RunFilter,
    ScheduleFilter,
    TaskById,
    TicksOfSchedule,
)
from owlclaw_ray.store.sql.factory import open_existing, open_store
from owlclaw_ray.store.sql.schema import metadata
from tests.contracts.store_approval_contract import deciding
from tests.contracts.store_budget_contract import reservation
from tests.contracts.store_commands import AGENT, OTHER, activation, claimed, ending, one, submission
from tests.contracts.store_family_contract import FAMILY, TASK
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_schedule_contract import DUE, firing

DUMP = Path(__file__).parent / "store-0011.sql"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "owlclaw.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(DUMP.read_text(encoding="utf-8"))
    connection.close()
    return path


@pytest.fixture
async def store(path):
    store = await open_store(f"sqlite:///{path}", writer="keeper-a")
    yield store
    await store.close()


def differences(connection):
    return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)


async def test_its_schema_is_the_one_of_today_and_its_ledger_holds(store):
    assert store.restored_guards == ()
    assert await store._database.read(differences) == []
    assert await store.read(MissingLedgerGuards()) == []
    assert await store.read(LedgerBreaks(AGENT.tenant)) == []
    assert [each.record for each in await store.read(LedgerFilter(AGENT.tenant))] == [
        record(1, OTHER),
        record(2),
        record(3),
    ]


async def test_everything_in_it_is_read(store):
    runs = {each.run_id: each for each in await store.read(RunFilter(AGENT.tenant))}
    assert {run_id: each.status for run_id, each in runs.items()} == {
        "run_1": RunStatus.WAITING,
        "run_o1": RunStatus.COMPLETED,
        "run_o2": RunStatus.RUNNING,
        "run_o3": RunStatus.QUEUED,
        "run_1_a": RunStatus.QUEUED,
        "run-sch_1-35": RunStatus.QUEUED,
    }
    assert runs["run_1"].trigger == submission("run_1", payload={"价格": 7}).trigger
    assert runs["run_o1"].trigger.lineage == FAMILY
    assert runs["run_o1"].result == ending("run_o1").result
    journal = await store.read(JournalOfRun(AGENT.tenant, RunId("run_o1")))
    assert [each.kind for each in journal] == [
        EntryKind.RUN_QUEUED,
        EntryKind.RUN_STARTED,
        EntryKind.MODEL_REPLIED,
        EntryKind.RUN_FINISHED,
    ]
    assert await store.read(AgentsOfDefinition(AGENT.definition)) == [AGENT]
    assert [each.status for each in await store.read(ScheduleFilter(AGENT.tenant))] == [
        ScheduleStatus.ACTIVE,
        ScheduleStatus.PAUSED,
    ]
    (schedule,) = await store.read(DueSchedules(DUE.replace(year=2030)))
    (tick,) = await store.read(TicksOfSchedule(schedule.schedule_id))
    assert (tick.outcome, tick.run_id) == (TickOutcome.FIRED, "run-sch_1-35")
    assert await store.read(TaskById(AGENT.tenant, TASK.task_id)) == TASK
    (approval,) = await store.read(ApprovalFilter(AGENT.tenant))
    assert approval.status is ApprovalStatus.PENDING
    (callback,) = await store.read(CallbackFilter(AGENT.tenant))
    assert (callback.status, callback.url) == (CallbackStatus.PENDING, "https://example.org/ended")
    assert callback.callback_id == CallbackId("cb_9ad6c5ab52376b7e1edcee0514")
    assert (await store.read(DeliveryById(AGENT.tenant, DeliveryId("whd_1")))).run_id == "run_1_a"


async def test_its_agents_go_on_where_they_were(store):
    await store.apply([activation("act_2"), activation("act_o2", OTHER)])

    assert isinstance(await one(store, deciding()), ApprovalSettled)
    continued = await claimed(store, epoch=2)
    assert (continued.run.run_id, continued.journal[-1].kind) == ("run_1", EntryKind.RUN_CONTINUED)
    resumed = await claimed(store, epoch=2, agent=OTHER)
    assert (resumed.run.run_id, resumed.journal[-1].kind) == ("run_o2", EntryKind.RUN_RESUMED)
    assert resumed.run.trigger.lineage == FAMILY
    held = await one(store, reservation("res_2", ("acct", 100, 40), run=resumed.run.run_id, agent=OTHER, epoch=2))
    assert isinstance(held, BudgetReserved)
    assert held.uses[0].reserved == 80
    (schedule,) = await store.read(DueSchedules(DUE.replace(year=2030)))
    fired = await one(store, firing(schedule.schedule_id, schedule.next_fire_at, None))
    assert isinstance(fired, ScheduleFired)
    accepted = await one(store, submission("run_new"))
    assert isinstance(accepted, RunAccepted)
    assert accepted.seq > max(each.seq for each in await store.read(RunFilter(AGENT.tenant)) if each.seq < accepted.seq)
    assert (await store.read(RunById(AGENT.tenant, RunId("run_new")))).status is RunStatus.QUEUED
    assert await store.read(LedgerBreaks(AGENT.tenant)) == []


@pytest.mark.parametrize("opened", [open_existing, lambda url: open_store(url, writer="keeper-a")])
async def test_one_of_a_schema_before_the_first_is_refused_and_left_as_it_is(path, opened):
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '0010'")
    connection.commit()
    connection.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    with pytest.raises(ConfigurationError, match=r"schema 0010; this version begins with 0011.*name another file"):
        await opened(f"sqlite:///{path}")

    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
