"""Deleting and exporting tenants, on the whole engine in one process."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from datetime import timedelta

import pytest

from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import TEXT, Artifact
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import AccessConflictError, NotFoundError, QuotaReachedError
from owlclaw_ray.ids import DEFAULT_TENANT, ArtifactId, TenantId
from owlclaw_ray.runtime.tenant_export import FAMILIES, INSTEAD, TABLES
from owlclaw_ray.runtime.tenant_removal import FILES_AFTER, TenantFiles, TenantRemoval
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter, RunFilter
from owlclaw_ray.store.sql.tenant_rows import EMPTIED, KEPT
from owlclaw_ray.store.tenant_rows import RowsLeft
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.artifacts import ArtifactFolder
from tests.worlds import Model, says

ACME, OTHER = TenantId("acme"), TenantId("other")
ARTIFACT = ArtifactId("art_" + "0" * 26)
SECRET = "s3cr3t-of-acme"


def watch(tenant):
    return AgentRef.parse("watch", tenant)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def running(agents, tmp_path, clock):
    def made(model=None, **options):
        agents.define()
        models = [model or Model(lambda _: says("done"))]
        folder = tmp_path / "data"
        return in_process_runtime(agents_dir=agents.folder, data_dir=folder, models=models, clock=clock, **options)

    return made


async def trigger(runtime, tenant, payload="sell"):
    return await runtime.submit(watch(tenant), Trigger(TriggerKind.API, payload))


async def settled(runtime, tenant):
    """Give a tenant a run that is over, a memory, a secret and an artifact."""
    if tenant != DEFAULT_TENANT:
        await runtime.tenants.create(LOCAL, tenant)
    await runtime.outcome(await trigger(runtime, tenant, f"a question of {tenant}"))
    await runtime.memory.remember(watch(tenant), f"{tenant} likes tea.", by="ada")
    await asyncio.to_thread(runtime.indexed_memory.settle)
    await runtime.secrets.set_secret(tenant, "CRM_TOKEN", f"{SECRET} of {tenant}", "ada")


def artifact_of(tmp_path, tenant):
    ArtifactFolder(tmp_path / "data").put(watch(tenant), Artifact(ARTIFACT, TEXT, b"a large output"))


async def deleted(runtime, clock, tenant=ACME):
    await runtime.tenants.change(LOCAL, tenant, TenantChange(status=TenantStatus.SUSPENDED))
    await runtime.tenants.delete(LOCAL, tenant)
    await runtime.tenant_removal.tick()
    await clock.advance(FILES_AFTER.total_seconds())
    return await runtime.tenant_removal.tick()


async def exported(runtime, tenant=ACME):
    return [json.loads(line) async for line in await runtime.tenant_export.begin(tenant)]


@pytest.mark.parametrize("home", MemoryHomeKind)
async def test_nothing_of_a_deleted_tenant_is_left_but_its_ledger_and_others_keep_everything(
    running, tmp_path, clock, home
):
    async with running(memories=home) as runtime:
        for tenant in (DEFAULT_TENANT, ACME, OTHER):
            await settled(runtime, tenant)
            artifact_of(tmp_path, tenant)
        await clock.advance(120)
        kept = [await exported(runtime, tenant) for tenant in (DEFAULT_TENANT, OTHER)]

        assert await deleted(runtime, clock) == 1

        shown = await runtime.tenants.tenant(ACME)
        assert shown.status is TenantStatus.DELETED
        assert shown.deletion.deleted_at == clock.now()
        assert shown.deletion.removed["runs"] == 1
        assert shown.deletion.removed["files of data_dir"] >= 1
        assert (shown.deletion.left, shown.deletion.by) == ({}, "system:local")
        assert await runtime.store.read(RowsLeft(ACME)) == {}
        assert sorted(each.name for each in (tmp_path / "data/agents").iterdir()) == ["default", "other"]
        assert await runtime.store.read(LedgerBreaks(ACME)) == []
        assert (await runtime.store.read(LedgerFilter(ACME)))[-1].record.data["what"] == "tenant_deleted"
        assert [(await exported(runtime, tenant))[1:-1] for tenant in (DEFAULT_TENANT, OTHER)] == [
            each[1:-1] for each in kept
        ]


async def test_a_run_under_way_is_ended_and_what_its_host_still_stores_is_refused(running, clock):
    going_on = asyncio.Event()

    async def thinks(request):
        await going_on.wait()
        return says("too late")

    async with running(Model(thinks)) as runtime:
        await runtime.tenants.create(LOCAL, ACME)
        accepted, queued = await trigger(runtime, ACME), await trigger(runtime, ACME)
        while not (await runtime.run(ACME, accepted.run_id)).started_at:
            await clock.settle()

        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
        await runtime.tenants.delete(LOCAL, ACME)
        going_on.set()
        await clock.settle()
        await runtime.tenant_removal.tick()
        await clock.advance(FILES_AFTER.total_seconds())

        assert await runtime.tenant_removal.tick() == 1
        told = [each.record for each in await runtime.store.read(LedgerFilter(ACME))]
        ended = {each.run_id: each.data["status"] for each in told if each.kind.value == "run"}
        assert ended == {accepted.run_id: "cancelled", queued.run_id: "cancelled"}
        assert "too late" not in str(told)
        assert await runtime.store.read(RowsLeft(ACME)) == {}


async def test_a_host_that_nobody_could_tell_drops_the_agent_at_its_next_fact(running, clock):
    going_on = asyncio.Event()

    async def thinks(request):
        await going_on.wait()
        return says("too late")

    async def unheard(agent, run_id):
        raise TimeoutError

    async with running(Model(thinks)) as runtime:
        await runtime.tenants.create(LOCAL, ACME)
        accepted = await trigger(runtime, ACME)
        while not (await runtime.run(ACME, accepted.run_id)).started_at:
            await clock.settle()
        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
        await runtime.tenants.delete(LOCAL, ACME)
        removal = TenantRemoval(runtime.store, (), unheard, clock)
        await removal.tick()
        await removal.tick()
        going_on.set()
        await clock.settle()
        await clock.advance(FILES_AFTER.total_seconds())

        assert await removal.tick() == 1
        assert await runtime.store.read(RowsLeft(ACME)) == {}


async def test_only_a_suspended_tenant_is_deleted_and_never_comes_back(running, clock):
    async with running() as runtime:
        await settled(runtime, ACME)
        for tenant in (ACME, DEFAULT_TENANT):
            with pytest.raises(AccessConflictError):
                await runtime.tenants.delete(LOCAL, tenant)
        with pytest.raises(NotFoundError):
            await runtime.tenants.delete(LOCAL, TenantId("nobody"))

        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
        deleting = await runtime.tenants.delete(LOCAL, ACME)

        assert await runtime.tenants.delete(LOCAL, ACME) == deleting
        with pytest.raises(AccessConflictError, match="is deleting"):
            await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.ACTIVE))
        with pytest.raises(AccessConflictError, match="a part of it is gone"):
            await runtime.tenant_export.begin(ACME)
        with pytest.raises(QuotaReachedError, match="suspended"):
            await trigger(runtime, ACME)
        await clock.advance(FILES_AFTER.total_seconds())
        assert await runtime.tenant_removal.tick() == 1
        assert await runtime.tenant_removal.tick() == 0
        with pytest.raises(AccessConflictError):
            await runtime.tenants.create(LOCAL, ACME)
        with pytest.raises(QuotaReachedError, match="suspended"):
            await trigger(runtime, ACME)


class Disk:
    """A place whose files cannot be removed at first."""

    name = "files of a disk"

    def __init__(self):
        self.refuses, self.stays = True, True

    def remove(self, tenant):
        if self.refuses:
            raise OSError(5, "Input/output error")
        return TenantFiles(3, ("node-b",))

    def left(self, tenant):
        return TenantFiles(2 if self.stays else 0)


async def test_what_cannot_be_removed_is_told_and_tried_again_until_it_is_gone(running, clock):
    async with running() as runtime:
        await settled(runtime, ACME)
        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
        await runtime.tenants.delete(LOCAL, ACME)
        await clock.advance(FILES_AFTER.total_seconds())
        disk = Disk()
        removal = TenantRemoval(runtime.store, [disk], runtime.directory.cancel, clock)

        assert await removal.tick() == 0
        disk.refuses = False
        assert await removal.tick() == 0
        found = (await runtime.tenants.tenant(ACME)).deletion
        disk.stays = False
        assert await removal.tick() == 1

        assert (found.left, found.unreached, found.deleted_at) == ({"files of a disk": 2}, ("node-b",), None)
        last = (await runtime.store.read(LedgerFilter(ACME)))[-1].record.data
        assert {"of": "files of a disk", "number": 6} in last["removed"]
        assert last["unreached"] == ["node-b"]


async def test_a_removal_that_stops_between_two_transactions_is_gone_on_with_by_another_one(running, clock):
    async with running() as runtime:
        await settled(runtime, ACME)
        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
        await runtime.tenants.delete(LOCAL, ACME)
        await clock.advance(FILES_AFTER.total_seconds())
        kills = 0
        while (await runtime.tenants.tenant(ACME)).status is not TenantStatus.DELETED:
            assert await TenantRemoval(Mortal(runtime.store), (), runtime.directory.cancel, clock).tick() == 0
            kills += 1

        whole = (await runtime.tenants.tenant(ACME)).deletion
        assert kills > 1
        assert whole.deleted_at == clock.now()
        assert whole.removed["runs"] == 1
        assert await runtime.store.read(RowsLeft(ACME)) == {}
        assert await runtime.store.read(LedgerBreaks(ACME)) == []


class Mortal:
    """A store whose caller is killed at its second commit, before it has the answer."""

    def __init__(self, store):
        self._store, self._commits = store, 0
        self.read = store.read

    async def apply(self, commands):
        outcomes = await self._store.apply(commands)
        self._commits += 1
        if self._commits == 2:
            raise OSError("killed")
        return outcomes


@pytest.mark.parametrize("home", MemoryHomeKind)
async def test_an_export_has_everything_of_the_tenant_and_nothing_that_is_secret(running, tmp_path, home):
    async with running(memories=home) as runtime:
        for tenant in (ACME, OTHER):
            await settled(runtime, tenant)
            artifact_of(tmp_path, tenant)

        first, *lines, last = await exported(runtime)
        ((run,),) = [await runtime.store.read(RunFilter(ACME))]
        ledger = await runtime.store.read(LedgerFilter(ACME))

    assert (first["type"], first["format"], first["format_version"], first["tenant"]) == (
        "export",
        "owlclaw-tenant-export",
        1,
        "acme",
    )
    rows = [(line["table"], line["row"]) for line in lines if line["type"] == "row"]
    assert [row["run_id"] for table, row in rows if table == "runs"] == [run.run_id]
    assert [row["payload"] for table, row in rows if table == "runs"] == ["a question of acme"]
    assert {row["kind"] for table, row in rows if table == "journal"} > {"run_queued", "prompt_built", "run_finished"}
    assert [row["hash"] for table, row in rows if table == "ledger"] == [each.hash for each in ledger]
    assert [row["name"] for table, row in rows if table == "secrets"] == ["CRM_TOKEN"]
    (memory,) = [line for line in lines if line["type"] == "memory"]
    assert (memory["agent"], memory["document"], "acme likes tea." in memory["text"]) == ("watch", "MEMORY.md", True)
    content = b"".join(b64decode(line["base64"]) for line in lines if line["type"] == "artifact_part")
    assert content == b"a large output"
    assert (last["type"], last["lines"]) == ("end", len(lines) + 2)
    assert sum(last["counts"].values()) == len(lines)
    text = json.dumps([first, *lines, last])
    for hidden in (SECRET, "ciphertext", "secret_hash", 'previous_hash": "h4sh', "other likes", "of other"):
        assert hidden not in text


async def test_a_deleted_tenants_export_has_its_ledger(running, clock):
    async with running() as runtime:
        await settled(runtime, ACME)
        await deleted(runtime, clock)

        lines = await exported(runtime)

    assert set(lines[-1]["counts"]) == {"tenants", "ledger", "ledger_heads"}
    told = [line["row"] for line in lines if line.get("table") == "ledger"]
    assert told[-1]["data"]["what"] == "tenant_deleted"


def test_every_table_with_rows_of_tenants_is_exported_or_has_what_is_exported_instead():
    written = {*TABLES, *INSTEAD, *(table for family in FAMILIES for table in family)}

    assert written == {each.table.name for each in EMPTIED} | {table.name for table in KEPT} - {"export_positions"}


def test_files_are_removed_when_calls_that_were_under_way_have_ended():
    assert timedelta(seconds=60) <= FILES_AFTER
