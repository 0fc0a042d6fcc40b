from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from msgspec.structs import replace
from sqlalchemy import inspect, text

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.schedule import ScheduleKind, ScheduleStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.store.commands import CancelRun, CreateSchedule, PauseSchedule
from owlclaw_ray.store.queries import (
    AgentsOfDefinition,
    ApprovalFilter,
    DueCallbacks,
    RunById,
    RunFilter,
    ScheduleFilter,
)
from owlclaw_ray.store.sql import migrations
from owlclaw_ray.store.sql.migrator import migrate
from owlclaw_ray.store.sql.schema import metadata
from tests.contracts import store_family_contract as family
from tests.contracts.store_admission_contract import ids_in_order, with_priority
from tests.contracts.store_approval_contract import waits
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, submission
from tests.contracts.store_schedule_contract import DUE, schedule


def differences(connection):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return compare_metadata(context, metadata)


def partial_indexes(connection):
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%WHERE%'"))
        return set(found.scalars())
    indexes = [index for table in metadata.tables for index in inspect(connection).get_indexes(table)]
    return {index["name"] for index in indexes if "postgresql_where" in index["dialect_options"]}


async def test_the_migrations_lead_to_the_schema(store):
    assert await store._database.read(differences) == []
    assert await store._database.read(partial_indexes) == {
        "approvals_pending",
        "callbacks_due",
        "runs_active",
        "runs_awaiting",
        "runs_mergeable",
        "schedules_due",
        "schedules_open",
        "webhook_deliveries_waiting",
    }


def downgrade(connection, revision):
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    command.downgrade(config, revision)


async def test_runs_that_waited_before_priorities_existed_keep_their_order(store):
    await store.apply([activation("act_1"), *(submission(f"run_{at}") for at in range(3))])

    await store._database.write(downgrade, "0001")
    await store._database.write(migrate)
    await store.apply([with_priority(-1, "run_3"), with_priority(1, "run_4")])

    assert await ids_in_order(store) == ["run_4", "run_0", "run_1", "run_2", "run_3"]


async def test_runs_that_wait_for_others_are_taken_up_as_interrupted_ones_by_a_version_without_families(store):
    await family.waits(store)

    await store._database.write(downgrade, "0005")
    await store._database.write(migrate)
    await store.apply([activation("act_2")])

    resumed = await claimed(store, 2)
    assert (resumed.run.awaits, resumed.journal[-1].kind) == ((), EntryKind.RUN_RESUMED)


async def test_a_version_without_pauses_finds_paused_schedules_cancelled_and_none_that_it_cannot_read(store):
    steady = replace(schedule("sch_2"), kind=ScheduleKind.INTERVAL, interval_seconds=60)
    await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(steady, 9)])
    await store.apply([CreateSchedule(schedule("sch_3"), 9), PauseSchedule(AGENT, ScheduleId("sch_3"), DUE)])

    await store._database.write(downgrade, "0006")
    await store._database.write(migrate)

    kept = await store.read(ScheduleFilter(AGENT.tenant))
    assert [(each.schedule_id, each.status) for each in kept] == [
        ("sch_1", ScheduleStatus.ACTIVE),
        ("sch_3", ScheduleStatus.CANCELLED),
    ]


async def test_runs_that_wait_are_taken_up_as_interrupted_ones_by_a_version_without_approvals(store):
    await waits(store)

    await store._database.write(downgrade, "0002")
    await store._database.write(migrate)
    await store.apply([activation("act_2")])

    resumed = await claimed(store, 2)
    assert (resumed.run.run_id, resumed.journal[-1].kind) == ("run_1", EntryKind.RUN_RESUMED)
    assert await store.read(ApprovalFilter(AGENT.tenant)) == []


async def test_what_was_to_be_told_before_hosts_had_lines_of_their_own_is_told(store):
    url = "https://Example.org:8443/ended"
    await store.apply([replace(submission("run_1"), callback_urls=(url,)), CancelRun(AGENT.tenant, "run_1", NOW)])

    await store._database.write(downgrade, "0008")
    await store._database.write(migrate)

    (due,) = await store.read(DueCallbacks(NOW, per_host=1))
    assert (due.url, due.host) == (url, "example.org:8443")


async def test_agents_that_were_started_before_lineages_were_kept_are_bound_by_the_last_one(store):
    narrower = replace(family.FAMILY, grants=(("shop.look",),))
    triggers = [Trigger(TriggerKind.AGENT, {"lineage": {}}, lineage=each) for each in (family.FAMILY, narrower)]
    started = [replace(submission(f"run_{at}", OTHER), trigger=each) for at, each in enumerate(triggers)]
    unbound = replace(submission("run_3", payload={"lineage": {"role": "fork"}}), agent=AGENT)
    await store.apply([*started, submission("run_2", OTHER), unbound])

    await store._database.write(downgrade, "0010")
    await store._database.write(migrate)

    assert await store.read(AgentsOfDefinition(AGENT.definition)) == [AGENT]
    await store.apply(
        [activation("act_o", OTHER), CancelRun(AGENT.tenant, "run_0", NOW), CancelRun(AGENT.tenant, "run_1", NOW)]
    )
    assert (await claimed(store, agent=OTHER)).run.trigger.lineage == narrower


async def test_payloads_are_read_where_versions_before_and_after_keep_them(store):
    payload = {"价格": 7, "nul": "a\x00b"}
    await store.apply([submission("run_1", payload=payload), submission("run_2", payload=None)])

    await store._database.write(downgrade, "0009")
    await store._database.write(migrate)

    assert (await store.read(RunById(AGENT.tenant, "run_1"))).trigger == submission("run_1", payload=payload).trigger
    assert (await store.read(RunById(AGENT.tenant, "run_2"))).trigger.payload is None
    assert [run.trigger.payload for run in await store.read(RunFilter(AGENT.tenant, payloads=False))] == [None, None]
