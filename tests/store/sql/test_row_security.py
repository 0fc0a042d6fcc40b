"""PostgreSQL itself refuses other tenants' rows to what is read for one, whatever the statement says."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import contextmanager
from datetime import timedelta

import asyncpg
import pytest
from msgspec.structs import replace
from sqlalchemy import Select, event, func, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import callback_id_of
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import Chain, LedgerKind, NotedHead
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.usage import Grain, RunCounts, ToolCounts, UsageBy, floored
from owlclaw_ray.ids import ApprovalId, ArtifactId, KeyId, TaskId, TenantId
from owlclaw_ray.store import artifacts as artifact_queries
from owlclaw_ray.store import old_runs, run_ends, secrets, tenant_rows, usage
from owlclaw_ray.store import queries as q
from owlclaw_ray.store.commands import (
    AppendLedger,
    AwaitApprovals,
    CreateSchedule,
    NoteExported,
    PutArtifact,
    PutArtifactPart,
    PutKey,
    PutSecret,
    PutTask,
    PutTenant,
    ReceiveDelivery,
)
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.sql import queries as answers
from owlclaw_ray.store.sql.codec import agent_key, blob_key, tenant_key, to_micros
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.row_security import narrowing, owner_column, protection, tenant_of
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.testing.postgres import ORDINARY_USER, find_binaries
from tests.contracts.store_access_contract import KEY
from tests.contracts.store_approval_contract import request
from tests.contracts.store_budget_contract import reservation
from tests.contracts.store_commands import NOW, activation, claimed, entries, submission
from tests.contracts.store_family_contract import TASK
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_memory_contract import change, written
from tests.contracts.store_schedule_contract import DUE, firing, schedule
from tests.contracts.store_webhook_contract import URL, waiting

pytestmark = pytest.mark.postgres

MINE, THEIRS = TenantId("acme"), TenantId("租户/二' \\ --")
DIGEST = "0" * 64
DAY = floored(NOW, Grain.DAY)
NOBODYS = {
    "attempts",
    "cluster_lease",
    "cluster_nodes",
    "concurrency_limits",
    "probes",
    "queue_minutes",
    "schema_compatibility",
    "sweeps",
}
"""Tables without rows of one tenant: what is known by ids that nobody can guess, and the machinery."""
OWNED = [table for table in metadata.sorted_tables if table.name not in NOBODYS]
OVER_ALL = {
    q.ActiveRunCounts,
    q.AgentsOfDefinition,
    q.AgentsWithWork,
    q.BudgetUses,
    q.ChangedRuns,
    q.ClusterNodes,
    q.ConcurrencyLimits,
    q.DueCallbacks,
    q.DueSchedules,
    q.DueUpkeep,
    q.ExpiredApprovals,
    q.HeadsOfWriter,
    q.IsAccessControlled,
    q.KeyById,
    q.MissingLedgerGuards,
    q.NextDueTime,
    q.PausedHeartbeats,
    q.PendingCallbackCount,
    q.ReleasedRuns,
    q.RowSecurityGaps,
    q.SchedulesByIds,
    q.TenantPage,
    q.UpcomingSchedules,
    old_runs.ClocksOfSweep,
    run_ends.ChainPositions,
    run_ends.ExportPositions,
    run_ends.FactsOfRuns,
    secrets.SecretsSince,
    usage.QueueMinutes,
}
"""What the runtime and its operators read over all tenants: a new query is about one tenant, or is added here."""


LATER = NOW + timedelta(days=1)


def name_of(tenant):
    return "mine" if tenant == MINE else "theirs"


def reading(tenant):
    """Each query about one tenant, such that it finds something."""
    agent, name = AgentRef.parse("trader:AAPL", tenant), name_of(tenant)
    run = f"run_{name}"
    return [
        q.RunById(tenant, run),
        q.RunFilter(tenant),
        RunSearch(tenant),
        RunSearch(tenant, text="行情"),
        q.JournalOfRun(tenant, run),
        q.JournalTail(tenant, run),
        q.EntriesOfKinds(tenant, run, tuple(EntryKind)),
        q.PromptTexts(tenant, run),
        q.ProgressOfRuns([q.JournalPosition(tenant, run)]),
        q.KeysOfTenant(tenant),
        q.TenantById(tenant),
        q.AgentByRef(agent),
        q.AgentPage(tenant),
        q.AgentsByIds(tenant, (agent.agent_id,)),
        q.AgentsByKeyPrefix(tenant, "trader", "A"),
        q.ScheduleById(tenant, f"sch_{name}"),
        q.ScheduleFilter(tenant),
        q.TicksOfSchedule(f"sch_{name}", tenant=tenant),
        q.TickSums(tenant, f"sch_{name}", (NOW - timedelta(days=9), NOW + timedelta(days=9))),
        q.MemoryOfAgent(agent, {"MEMORY.md": 0}),
        q.TaskById(tenant, TaskId(f"task_{name}")),
        q.TasksOfAgent(agent),
        q.ApprovalById(tenant, ApprovalId(f"apr_{name}")),
        q.ApprovalFilter(tenant),
        q.PendingApprovalCounts(tenant, 9),
        q.DeliveryById(tenant, f"whd_{name}"),
        q.DeliveryFilter(tenant),
        q.WaitingDeliveries(agent),
        q.CallbackById(tenant, callback_id_of(run, URL)),
        q.CallbackFilter(tenant),
        q.LedgerFilter(tenant),
        q.LedgerBreaks(tenant, [NotedHead(NOW, tenant, "keeper-1", 1, "forged")]),
        q.LedgerChains(tenant),
        q.LedgerWriters(tenant),
        q.NextChainPage(tenant, "keeper-1"),
        q.NextLedgerStretch(q.LedgerFilter(tenant)),
        artifact_queries.ArtifactById(agent, ArtifactId("art_1")),
        artifact_queries.ArtifactPart(agent, ArtifactId("art_1"), 0),
        artifact_queries.ArtifactsOfAgent(agent, 9),
        artifact_queries.OldArtifacts(tenant, LATER, 9),
        run_ends.RunsEndedAfter(Chain(tenant, "keeper-1"), 0, 9),
        run_ends.EndedRunCount(Chain(tenant, "keeper-1"), 0),
        secrets.SecretByName(tenant, "crm"),
        secrets.SecretsOfTenant(tenant),
        usage.RunUsage(tenant, DAY, DAY + timedelta(days=1)),
        usage.RunUsage(tenant, DAY, DAY + timedelta(days=1), by=UsageBy.AGENT),
        usage.ToolUsage(tenant, DAY, DAY + timedelta(days=1)),
        tenant_rows.OpenRuns(tenant, 9),
        tenant_rows.RowsLeft(tenant),
        tenant_rows.TenantRowPage(tenant, "runs"),
    ]


def expiring(tenant):
    """Queries about one tenant that find something when what is told and heard is settled."""
    return [q.OldCallbacks(tenant, LATER), q.OldDeliveries(tenant, LATER)]


def aged(tenant):
    """Queries about one tenant that find something when runs of it ended long ago."""
    return [old_runs.ParentsOfOpenRuns(tenant), old_runs.OldRuns(tenant, LATER)]


def queued(tenant):
    """The query about one tenant that finds runs which are queued."""
    return [q.LongestQueues(tenant, 9)]


def scheduled(tenant):
    """The query about one tenant that finds schedules which are still to fire."""
    return [q.ComingSchedules(tenant, LATER)]


def left_behind(tenant):
    """Queries about one tenant that find what runs leave behind."""
    later = LATER + timedelta(days=9_999)
    return [old_runs.OldSchedules(tenant, later), old_runs.OldTexts(tenant, later), old_runs.NamedTexts(tenant, later)]


async def fill(store, tenant):
    """Give the tenant rows in every table: one of each kind, so that without any condition nothing else is found."""
    agent, name = AgentRef.parse("trader:AAPL", tenant), name_of(tenant)
    run = f"run_{name}"
    await store.apply([PutTenant(Tenant(tenant, "somebody", NOW, "system:local"), None)])
    await store.apply([replace(submission(run, agent, key="once"), callback_urls=(URL,)), activation("act_1", agent)])
    await claimed(store, agent=agent)
    asked = replace(request(name, agent), run_id=run)
    built = JournalEntry(3, EntryKind.PROMPT_BUILT, NOW, {"system": DIGEST, "tools": ""})
    facts = (built, *entries(4, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING))
    due = firing(f"sch_{name}", DUE, None, queues=False)
    delivery = replace(waiting(name, agent), tenant=tenant)
    account = f"day.tokens.2026@{tenant_key(tenant, '')[:-1]}"
    outcomes = await store.apply(
        [
            CreateSchedule(schedule(f"sch_{name}", agent), 9),
            due,
            PutTask(replace(TASK, task_id=TaskId(f"task_{name}"), owner=agent), 0, NOW),
            ReceiveDelivery(delivery, None),
            reservation(f"res_{name}", (account, 100, 1), run=run, agent=agent),
            AwaitApprovals(run, agent, 1, facts, (asked,), blobs={DIGEST: f"You trade what is {name}."}),
            change(0, written(b"x", "MEMORY.md"), agent=agent),
            PutArtifactPart(agent, ArtifactId("art_1"), 0, b"x", NOW),
            PutArtifact(agent, ArtifactId("art_1"), "text/plain", 1, 1, "ab", NOW),
            PutKey(replace(KEY, key_id=KeyId(name), tenant=tenant)),
            PutSecret(tenant, "crm", "k1", name.encode(), "somebody", NOW),
            AppendLedger((replace(record(1, agent, LedgerKind.RUN), run_id=run),)),
            NoteExported({Chain(tenant, "keeper-1"): 1}),
        ]
    )
    assert not [each for each in outcomes if type(each).__name__ in {"CommandFailed", "StaleEpoch", "NoSuchSchedule"}]
    await store._database.write(count, tenant)


def count(connection, tenant):
    """Note that something ended, which no run of the tenant has."""
    of_runs, of_calls = (dict.fromkeys(kind.__struct_fields__, 1) for kind in (RunCounts, ToolCounts))
    when = {"tenant": tenant, "begins_at": to_micros(DAY)}
    agent = {"agent": agent_key(AgentRef.parse("trader:AAPL", tenant)), "definition": "trader"}
    for table, row in (
        ("usage_of_tenants", {"seconds": 3_600, "writer": "keeper-1", **of_runs}),
        ("usage_of_agents", agent | of_runs),
        ("usage_of_tools", {"tool": "look", "writer": "keeper-1", **of_calls}),
    ):
        connection.execute(metadata.tables[table].insert().values(when | row))


@pytest.fixture
async def store(postgres_url):
    opened = await open_store(postgres_url, writer="keeper-1")
    try:
        for tenant in (MINE, THEIRS):
            await fill(opened, tenant)
        yield opened
    finally:
        await opened.close()


@contextmanager
def without_conditions(store):
    """Take the WHERE clause of every statement away."""

    def unconditional(_connection, statement, parameters, more_parameters, _options):
        if isinstance(statement, Select):
            statement = statement._generate()
            statement._where_criteria = ()
        return statement, parameters, more_parameters

    engine = store._database._reading.sync_engine
    event.listen(engine, "before_execute", unconditional, retval=True)
    yield
    event.remove(engine, "before_execute", unconditional)


def is_nothing(found):
    if isinstance(found, q.ChainPage | q.LedgerStretch):
        return not found.records
    return not found or found in ([None], q.AgentMemory(0, {}, {}), tenant_rows.RowPage([], None, []), RunPage(()))


def owner_of(table, row):
    """Whose a row is, as far as it says so itself."""
    for tenant in (MINE, THEIRS):
        name, key = name_of(tenant), tenant_key(tenant, "")
        said = {
            "tenant": tenant,
            "agent": agent_key(AgentRef.parse("trader:AAPL", tenant)),
            "key": f"{key}trader:AAPL once",
            "account": f"day.tokens.2026@{key[:-1]}",
            "schedule_id": f"sch_{name}",
            "run_id": f"run_{name}",
            "hash": blob_key(tenant, DIGEST),
        }
        column = owner_column(table)
        if getattr(row, column) == said[column]:
            return tenant
    return None


def all_rows(connection, table):
    return connection.execute(select(table)).all()


async def owners(store, tenant, tables=OWNED):
    """Whose rows each table shows to a statement that names no tenant."""
    found = {table.name: await store._database.read(all_rows, table, tenant=tenant) for table in tables}
    return {table.name: {owner_of(table, row) for row in found[table.name]} - {None} for table in tables}


async def test_a_statement_that_names_no_tenant_has_the_rows_of_the_one_it_is_run_for(store):
    def of_each(tenants):
        return {table.name: tenants for table in OWNED}

    assert await owners(store, None) == of_each({MINE, THEIRS})
    assert await owners(store, MINE) == of_each({MINE})
    assert await owners(store, THEIRS) == of_each({THEIRS})
    assert await owners(store, TenantId("")) == of_each(set())
    assert await owners(store, TenantId("acm")) == of_each(set())


async def test_a_table_that_loses_its_policy_shows_everything_and_is_named(store):
    shown, named = {}, {}
    for table in OWNED:
        await execute(store, f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        shown |= await owners(store, MINE, [table])
        named[table.name] = await store.read(q.RowSecurityGaps())
        await execute(store, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")

    assert shown == {table.name: {MINE, THEIRS} for table in OWNED}
    assert named == {table.name: [f"the table {table} is without its policy"] for table in OWNED}


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("DROP POLICY one_tenant ON runs", [*protection("runs", "tenant")]),
        ("ALTER TABLE runs NO FORCE ROW LEVEL SECURITY", ["ALTER TABLE runs FORCE ROW LEVEL SECURITY"]),
        ("CREATE POLICY another ON runs USING (true)", ["DROP POLICY another ON runs"]),
    ],
    ids=["dropped", "not for the owner", "another beside it"],
)
async def test_a_policy_that_does_not_hold_is_named(store, change, undo):
    assert await store.read(q.RowSecurityGaps()) == []
    await execute(store, change)
    try:
        assert await store.read(q.RowSecurityGaps()) == ["the table runs is without its policy"]
    finally:
        await execute(store, *undo)


async def execute(store, *statements):
    for statement in statements:
        await store._database.write(lambda connection, given=statement: connection.execute(text(given)))


async def test_a_query_that_forgets_its_conditions_finds_nothing_of_others(store):
    for query in reading(MINE):
        expected = await store.read(query)
        assert not is_nothing(expected), query
        assert tenant_of(query) == MINE
        if isinstance(
            query, q.LedgerBreaks | q.LedgerWriters
        ):  # without conditions its pages never end; they are of tables above
            continue
        with without_conditions(store):
            assert await store.read(query) == expected
            if not isinstance(query, q.ProgressOfRuns | q.ScheduleById):  # which look at the tenant in Python, too
                assert await unguarded(store, query) != expected, query


async def test_what_is_too_old_is_looked_for_in_one_tenant(store):
    await execute(
        store, "UPDATE callbacks SET status = 'delivered'", "UPDATE webhook_deliveries SET status = 'ignored'"
    )
    for mine, theirs in zip(expiring(MINE), expiring(THEIRS), strict=True):
        expected = await store.read(mine)
        assert (len(expected), tenant_of(mine)) == (1, MINE)
        assert await store.read(theirs) not in ([], expected)
        with without_conditions(store):
            assert await store.read(mine) == expected


async def test_old_runs_are_looked_for_in_one_tenant(store):
    for tenant in (MINE, THEIRS):
        agent = AgentRef.parse("trader:old", tenant)
        lineage = Lineage(f"run_{name_of(tenant)}", f"run_{name_of(tenant)}", agent.agent_id, 1, ChildRole.WORKER)
        started = Trigger(TriggerKind.AGENT, lineage=lineage)
        for name in ("old", "new"):
            await store.apply([replace(submission(f"{name}_{name_of(tenant)}", agent), trigger=started)])
    await execute(
        store, f"UPDATE runs SET status = 'completed', finished_at = {to_micros(NOW)} WHERE run_id LIKE 'old%'"
    )
    await execute(store, "UPDATE runs SET status = 'completed' WHERE run_id LIKE 'run%'")
    for mine, nothing in zip(aged(MINE), (set(), old_runs.OldRunPage((), None)), strict=True):
        found = await store.read(mine)
        assert tenant_of(mine) == MINE
        assert len(found.runs if isinstance(found, old_runs.OldRunPage) else found) == 1
        assert await store._database.read(answers.answer, mine, tenant=THEIRS) == nothing


async def test_what_runs_leave_behind_is_looked_for_in_one_tenant(store):
    nothing = [old_runs.OldSchedulePage((), (), (), None), [], old_runs.NamedTextPage(frozenset(), None)]
    for mine, theirs, none in zip(left_behind(MINE), left_behind(THEIRS), nothing, strict=True):
        found = await store.read(mine)
        assert tenant_of(mine) == MINE
        assert none not in (found, await store.read(theirs))
        assert await store._database.read(answers.answer, mine, tenant=THEIRS) == none
    page = await store.read(left_behind(MINE)[0])
    assert [(each.schedule_id, each.agent.tenant) for each in (*page.ticks, *page.found)] == [("sch_mine", MINE)] * 2


async def test_queues_are_told_of_one_tenant(store):
    for tenant in (MINE, THEIRS):
        await store.apply([submission(f"queued_{name_of(tenant)}", AgentRef.parse("trader:queued", tenant))])
    for mine in queued(MINE):
        assert tenant_of(mine) == MINE
        assert {each.oldest.agent.tenant for each in await store.read(mine)} == {MINE}
        assert await store._database.read(answers.answer, mine, tenant=THEIRS) == []


async def test_what_comes_is_told_of_one_tenant(store):
    for tenant in (MINE, THEIRS):
        coming = schedule(f"coming_{name_of(tenant)}", AgentRef.parse("trader:coming", tenant))
        await store.apply([CreateSchedule(coming, 9)])
    for mine in scheduled(MINE):
        assert tenant_of(mine) == MINE
        assert {each.agent.tenant for each in await store.read(mine)} == {MINE}
        assert await store._database.read(answers.answer, mine, tenant=THEIRS) == []


async def unguarded(store, query):
    try:
        return await store._database.read(answers.answer, query)
    except SQLAlchemyError as error:
        return error


async def test_a_query_about_another_tenant_finds_nothing(store):
    for query in reading(THEIRS):
        assert not is_nothing(await store.read(query)), query
        if isinstance(
            query, q.LedgerBreaks | run_ends.RunsEndedAfter
        ):  # to which a chain that is not there is one that is broken
            continue
        assert is_nothing(await store._database.read(answers.answer, query, tenant=MINE)), query


def test_every_query_is_about_one_tenant_or_known_to_be_about_all():
    def below(kind):
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    about_one = {
        type(query)
        for query in (*reading(MINE), *expiring(MINE), *aged(MINE), *queued(MINE), *scheduled(MINE), *left_behind(MINE))
    }
    assert about_one.isdisjoint(OVER_ALL)
    assert {each for each in below(q.Query) if each.__module__.startswith("owlclaw_ray.")} == about_one | OVER_ALL


def test_progress_of_runs_of_several_tenants_is_about_no_one_of_them():
    both = [q.JournalPosition(tenant, f"run_{name_of(tenant)}") for tenant in (MINE, THEIRS)]
    assert tenant_of(q.ProgressOfRuns(both)) is None


async def test_readers_that_share_connections_never_have_the_tenant_of_the_one_before(store):
    count = select(func.count()).select_from(metadata.tables["runs"])

    def counted(connection):
        return connection.execute(count).scalar_one()

    tenants = [MINE, None, THEIRS, TenantId("nobody")] * 20
    found = await asyncio.gather(*(store._database.read(counted, tenant=tenant) for tenant in tenants))
    assert found == [1, 2, 1, 0] * 20


async def test_a_tenant_costs_no_message_more(store):
    said = []

    def hear_driver(connection, _record, _proxy):
        connection.driver_connection.add_query_logger(lambda each: said.append(each.query))

    def hear(_connection, _cursor, statement, *_rest):
        said.append(statement)

    async def messages(tenant):
        said.clear()
        await store._database.read(lambda connection: connection.execute(text("SELECT 1")), tenant=tenant)
        return said

    engine = store._database._reading.sync_engine
    await messages(None)
    event.listen(engine, "checkout", hear_driver, once=True)
    event.listen(engine, "before_cursor_execute", hear)
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
    assert await messages(None) == ["SELECT 1", begin, "ROLLBACK;"]
    assert await messages(MINE) == ["SELECT 1", begin + narrowing(MINE), "ROLLBACK;"]


async def test_what_reads_cannot_write(store):
    with pytest.raises(DBAPIError, match="read-only"):
        await store._database.read(lambda connection: connection.execute(text("DELETE FROM runs")), tenant=MINE)


async def test_a_runtime_of_an_older_schema_which_names_no_tenant_works_on_all_rows(store, postgres_url):
    older = await asyncpg.connect(postgres_url)
    assert await older.fetchval("SELECT count(*) FROM runs") == 2
    assert await older.execute("UPDATE runs SET rank = 1") == "UPDATE 2"
    assert await older.execute("INSERT INTO journal SELECT run_id, 99, 'x', 1, '{}' FROM runs") == "INSERT 0 2"
    assert await older.execute("DELETE FROM journal WHERE seq = 99") == "DELETE 2"
    await older.close()


async def test_users_who_are_bound_by_no_policy_are_named(store, postgres_server):
    superuser = await open_store(postgres_server.url("owlclaw"), writer="keeper-2")
    assert await superuser.read(q.RowSecurityGaps()) == ["its user owlclaw is a superuser"]
    await execute(superuser, f"ALTER ROLE {ORDINARY_USER} BYPASSRLS")
    try:
        assert await store.read(q.RowSecurityGaps()) == [f"its user {ORDINARY_USER} has BYPASSRLS"]
    finally:
        await execute(superuser, f"ALTER ROLE {ORDINARY_USER} NOBYPASSRLS")
        await superuser.close()


async def test_a_dump_has_all_rows_if_it_is_asked_for_with_row_security(store, postgres_server, postgres_url, tmp_path):
    tools = (find_binaries() / "initdb").resolve().parent

    def run(tool, *arguments):
        return subprocess.run([str(tools / tool), *arguments], capture_output=True, text=True, check=False)

    dump = ("--format=custom", f"--file={tmp_path}/owlclaw.dump", postgres_url)
    refused = await asyncio.to_thread(run, "pg_dump", *dump)
    assert "affected by row-level security" in refused.stderr
    assert (await asyncio.to_thread(run, "pg_dump", "--enable-row-security", *dump)).stderr == ""

    administrator = await asyncpg.connect(postgres_server.url())
    await administrator.execute(f"CREATE DATABASE restored OWNER {ORDINARY_USER}")
    try:
        url = postgres_server.url("restored", ORDINARY_USER)
        arguments = ("--exit-on-error", f"--dbname={url}", f"{tmp_path}/owlclaw.dump")
        assert (await asyncio.to_thread(run, "pg_restore", *arguments)).stderr == ""
        restored = await open_store(url, writer="keeper-1")
        assert await owners(restored, MINE) == {table.name: {MINE} for table in OWNED}
        assert await owners(restored, None) == {table.name: {MINE, THEIRS} for table in OWNED}
        await restored.close()
    finally:
        await administrator.execute("DROP DATABASE restored WITH (FORCE)")
        await administrator.close()
