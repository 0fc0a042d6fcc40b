"""What the ledger knows of memories that people change and search, and when the index follows."""

import asyncio
from types import SimpleNamespace

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.errors import (
    MemoryUnavailableError,
    NotFoundError,
    RuntimeUnavailableError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.runtime_memory import AgentMemories, MemoryLedger
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import LocalMemory
from tests.paid_embeddings import Provider

WATCH = AgentRef.parse("watch")


class ClosedStore:
    """A store that cannot be written."""

    async def apply(self, commands):
        raise StoreUnavailableError("the store is away")


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="trial")
    yield opened
    await opened.close()


async def _known(_):
    pass


async def _utc(_):
    return "UTC"


@pytest.fixture
def trial(tmp_path, store):
    """People's memories over real files, index and store; `store` may be put away, and the provider too."""
    provider, clock, ids = Provider(failing=1), ManualClock(), SequentialIds()
    index = LanceMemory(tmp_path, provider.embedders(clock), clock)
    refreshes = []

    def memories(store=store, indexed=None):
        return AgentMemories(
            files=index.files,
            indexed=indexed or LocalMemory(index),
            ledger=MemoryLedger(store, clock, ids),
            require_known=_known,
            timezone_of=_utc,
            behind=lambda message: refreshes.append(asyncio.ensure_future(message)),
            clock=clock,
            ids=ids,
        )

    async def refreshed():
        await asyncio.gather(*refreshes)
        await asyncio.to_thread(index.settle)

    async def told():
        page = await store.read(LedgerFilter(DEFAULT_TENANT, limit=100))
        assert {(each.record.agent_id, each.record.run_id) for each in page} <= {("watch", "")}
        return [(each.record.kind, each.record.data) for each in page]

    return SimpleNamespace(memories=memories, index=index, provider=provider, refreshed=refreshed, told=told)


async def test_every_change_that_people_make_is_in_the_ledger_with_who_and_what(trial):
    memory = trial.memories()

    stored = await memory.remember(WATCH, "The pump fails at nine.", ["pump"], by="ana")
    other = await memory.remember(WATCH, "The lift fails at noon.")
    await memory.edit(WATCH, stored.memory_id, "The pump fails at ten.", by="ben")
    await memory.edit(WATCH, stored.memory_id, tags=["pump", "late"], by="ben")
    await memory.archive(WATCH, [other.memory_id, "mem_none"], by="ana")
    await memory.delete(WATCH, other.memory_id, by="ana")
    await memory.reindex(WATCH, by="cay")

    assert [data for kind, data in await trial.told() if kind is LedgerKind.MEMORY] == [
        {
            "what": "add",
            "by": "ana",
            "memory_ids": [stored.memory_id],
            "content": "The pump fails at nine.",
            "tags": ["pump"],
        },
        {"what": "add", "by": "", "memory_ids": [other.memory_id], "content": "The lift fails at noon.", "tags": []},
        {"what": "edit", "by": "ben", "memory_ids": [stored.memory_id], "content": "The pump fails at ten."},
        {"what": "edit", "by": "ben", "memory_ids": [stored.memory_id], "tags": ["pump", "late"]},
        {"what": "archive", "by": "ana", "memory_ids": [other.memory_id]},
        {"what": "delete", "by": "ana", "memory_ids": [other.memory_id]},
        {"what": "reindex", "by": "cay", "memory_ids": []},
    ]


async def test_a_repeated_request_is_one_record_and_what_changes_nothing_is_none(trial):
    memory = trial.memories()

    for _ in range(2):
        await memory.remember(WATCH, "The pump fails at nine.", idempotency_key="k")
    await memory.archive(WATCH, ["mem_none"])
    with pytest.raises(NotFoundError):
        await memory.edit(WATCH, "mem_none", "x")
    with pytest.raises(NotFoundError):
        await memory.delete(WATCH, "mem_none")

    assert [data["what"] for _, data in await trial.told()] == ["add"]


async def test_what_cannot_be_recorded_is_not_changed(trial):
    stored = await trial.memories().remember(WATCH, "The pump fails at nine.")
    memory = trial.memories(ClosedStore())

    for change in (
        memory.remember(WATCH, "another"),
        memory.edit(WATCH, stored.memory_id, "another"),
        memory.archive(WATCH, [stored.memory_id]),
        memory.delete(WATCH, stored.memory_id),
        memory.reindex(WATCH),
    ):
        with pytest.raises(StoreUnavailableError):
            await change

    assert await memory.memories(WATCH) == (stored,)


async def test_a_change_that_fails_is_recorded_as_not_made(trial, monkeypatch):
    memory = trial.memories()
    stored = await memory.remember(WATCH, "The pump fails at nine.")

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(trial.index.files, "edit", refuse)
    with pytest.raises(MemoryUnavailableError):
        await memory.edit(WATCH, stored.memory_id, "another", by="ana")

    *_, (_, failed) = await trial.told()
    assert "Read-only file system" in failed.pop("error")
    assert failed == {"what": "edit", "by": "ana", "memory_ids": [stored.memory_id], "uncertain": False}


async def test_what_is_remembered_in_a_second_try_or_again_after_it_was_removed_has_a_record_each_time(
    trial, monkeypatch
):
    memory = trial.memories()

    async def lose_it(*_):
        raise RuntimeUnavailableError("remember: no answer within 30 s")

    with monkeypatch.context() as away:
        away.setattr(memory._indexed, "remember", lose_it)
        with pytest.raises(RuntimeUnavailableError):
            await memory.remember(WATCH, "The pump fails at nine.", idempotency_key="k")
    stored = await memory.remember(WATCH, "The pump fails at nine.", idempotency_key="k")
    await memory.delete(WATCH, stored.memory_id)
    await memory.remember(WATCH, "The pump fails at nine.", idempotency_key="k")

    told = [(data["what"], data.get("uncertain")) for _, data in await trial.told()]
    assert told == [("add", None), ("add", True), ("add", None), ("delete", None), ("add", None)]


async def test_what_was_remembered_already_is_recorded_as_merged_into_that(trial):
    memory = trial.memories()
    one = await memory.remember(WATCH, "The pump fails at nine.")
    again = await memory.remember(WATCH, "The pump fails at nine")

    *_, (_, merged) = await trial.told()
    assert again.memory_id == one.memory_id
    assert (merged["what"], merged["memory_ids"][1]) == ("merge", one.memory_id)


async def test_what_a_search_costs_and_that_it_had_no_index_is_in_the_ledger(trial):
    memory = trial.memories()
    await memory.remember(WATCH, "The pump fails at nine.")

    await memory.search(WATCH, "what fails", 5)
    trial.provider.is_down = True
    degraded = await memory.search(WATCH, "when does it fail", 5)

    [(_, _), (asked, cost), (warned, why)] = await trial.told()
    assert (asked, cost["model"], cost["purpose"], cost["usage"]["cost"]) == (
        LedgerKind.MODEL_CALL,
        "openai/x",
        "recall",
        0.25,
    )
    assert [each["error"] for each in cost["failed_attempts"]] == ["busy"]
    assert (warned, why) == (LedgerKind.WARNING, {"what": "recall without its index", "why": degraded.reason})


async def test_a_search_is_answered_though_the_ledger_cannot_have_its_cost(trial):
    stored = await trial.memories().remember(WATCH, "The pump fails at nine.")

    found = await trial.memories(ClosedStore()).search(WATCH, "what fails", 5)

    assert [each.memory for each in found.memories] == [stored]


@pytest.mark.parametrize("change", ["edit", "archive", "delete"])
async def test_the_index_follows_a_change_without_being_searched(trial, change):
    memory = trial.memories()
    stored = await memory.remember(WATCH, "The pump fails at nine.")
    await trial.refreshed()
    assert trial.index.indexed(WATCH) == {stored.memory_id}

    if change == "edit":
        await memory.edit(WATCH, stored.memory_id, "The lift fails at noon.")
    elif change == "archive":
        await memory.archive(WATCH, [stored.memory_id])
    else:
        await memory.delete(WATCH, stored.memory_id)
    await trial.refreshed()

    hits = trial.index._index(WATCH)._use(lambda table: table.search("pump", None, ()))
    assert dict(hits.bm25) == {}
    assert trial.index.indexed(WATCH) == ({stored.memory_id} if change == "edit" else set())


async def test_a_change_is_made_though_no_worker_refreshes_the_index(trial, caplog):
    class Gone(LocalMemory):
        async def refresh(self, agent):
            raise RuntimeUnavailableError("no answer within 30 s")

    memory = trial.memories(indexed=Gone(trial.index))
    stored = await memory.remember(WATCH, "The pump fails at nine.")

    await memory.delete(WATCH, stored.memory_id)
    await trial.refreshed()

    assert await memory.memories(WATCH) == ()
    assert (await memory.search(WATCH, "pump", 5)).memories == ()
    assert "the index of watch follows at the next recall" in caplog.text
