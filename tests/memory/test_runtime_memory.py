"""What people do with the memories of agents, over the real files and index."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.memory import MemoryHomeKind, MemoryTextVersion
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import MemoryTextChangedError, MemoryUnavailableError, NotFoundError, UnknownAgentError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

WATCH, OTHER = AgentRef.parse("watch"), AgentRef.parse("watch:other")


@pytest.fixture(params=MemoryHomeKind)
async def memory(request, agents, tmp_path):
    agents.define()
    data_dir, memories = tmp_path / "data", request.param
    async with in_process_runtime(agents_dir=agents.folder, data_dir=data_dir, memories=memories) as runtime:
        yield runtime.memory


in_files = pytest.mark.parametrize("memory", [MemoryHomeKind.FILES], indirect=True)


async def test_what_a_person_writes_is_what_the_agent_recalls(memory):
    stored = await memory.remember(WATCH, "The owner is away on Fridays.", ["owner"])
    found = await memory.search(WATCH, "who is away on Friday?", 5)

    assert [each.memory for each in found.memories] == [stored]
    assert (stored.run_id, stored.tags) == ("", ("owner",))
    assert await memory.memories(WATCH) == (stored,)
    assert await memory.memory(WATCH, stored.memory_id) == stored


async def test_the_same_key_with_the_same_content_is_one_memory_for_each_agent(memory):
    one = await memory.remember(WATCH, "first", idempotency_key="k")
    again = await memory.remember(WATCH, "first", idempotency_key="k")
    other = await memory.remember(OTHER, "first", idempotency_key="k")

    assert (again, again.count) == (one, 1)
    assert (other.content, other.memory_id != one.memory_id) == ("first", True)
    assert await memory.memories(AgentRef(TenantId("other"), WATCH.agent_id)) == ()


async def test_a_key_that_comes_again_with_other_content_loses_neither_memory(memory):
    first = await memory.remember(WATCH, "The pump fails at nine.", idempotency_key="k")
    second = await memory.remember(WATCH, "Tea is for the owner.", idempotency_key="k")

    assert await memory.memories(WATCH) == (first, second)


async def test_edited_archived_and_removed_memories_are_recalled_as_they_are_now(memory):
    kept = await memory.remember(WATCH, "The pump fails at nine.")
    gone = await memory.remember(WATCH, "The lift fails at noon.")
    edited = await memory.edit(WATCH, kept.memory_id, "The pump fails at ten.", ["pump"])

    moved = await memory.archive(WATCH, [gone.memory_id])
    found = await memory.search(WATCH, "what fails", 5)
    in_archive = await memory.search(WATCH, "lift", 5, archived=True)

    assert [each.memory for each in found.memories] == [edited]
    assert [each.memory.memory_id for each in in_archive.memories] == [each.memory_id for each in moved]
    assert (await memory.memory(WATCH, gone.memory_id)).content == gone.content
    assert [each.memory_id for each in await memory.memories(WATCH, archived=True)] == [gone.memory_id]
    await memory.delete(WATCH, gone.memory_id)
    with pytest.raises(NotFoundError):
        await memory.memory(WATCH, gone.memory_id)


@in_files
async def test_a_new_index_holds_what_the_file_says(memory, tmp_path):
    await memory.remember(WATCH, "one")
    path = tmp_path / "data" / "agents" / "default" / "watch" / "MEMORY.md"
    path.write_text(path.read_text() + "\n## by hand\n\nThe owner likes tea.\n\n---\n")

    assert await memory.reindex(WATCH) == 2
    stats = await memory.stats(WATCH)
    assert (stats.active, stats.archived) == (2, 0)
    assert stats.file_bytes == path.stat().st_size


@in_files
async def test_unknown_agents_and_unusable_files_are_told_apart(memory, tmp_path):
    with pytest.raises(UnknownAgentError):
        await memory.remember(AgentRef.parse("nobody"), "x")
    with pytest.raises(UnknownAgentError):
        await memory.stats(AgentRef.parse("nobody"))
    (tmp_path / "data" / "agents" / "default" / "watch" / "MEMORY.md").mkdir(parents=True)
    with pytest.raises(MemoryUnavailableError, match="Is a directory"):
        await memory.memories(WATCH)


@pytest.mark.parametrize("memories", MemoryHomeKind)
async def test_agents_and_tenants_with_the_same_names_and_contents_never_see_each_other(agents, tmp_path, memories):
    def decide(request):
        asked = [message for message in request.messages if message.tool_calls]
        return says("done") if asked else asks(("recall", '{"query": "what is the secret"}'))

    folder, model = agents.define(preload_memories=0), Model(decide)
    owners = [AgentRef(TenantId(tenant), each.agent_id) for tenant in ("default", "acme") for each in (WATCH, OTHER)]
    async with in_process_runtime(
        agents_dir=folder.parent, data_dir=tmp_path / "data", models=[model], memories=memories
    ) as runtime:
        memory = runtime.memory
        same = [await memory.remember(each, "The secret is tea.", ["house"], idempotency_key="k") for each in owners]
        own = [await memory.remember(each, f"The secret is {each}.", ["house"]) for each in owners]
        for at, owner in enumerate(owners):
            seen = await memory.search(owner, "what is the secret", 20, ["house"])
            run = await runtime.outcome(await runtime.submit(owner, Trigger(TriggerKind.API)))
            entries = await runtime.store.read(JournalOfRun(owner.tenant, run.run_id))
            (told,) = [each.data["content"] for each in entries if each.kind is EntryKind.TOOL_FINISHED]
            assert {each.memory.memory_id for each in seen.memories} == {same[at].memory_id, own[at].memory_id}
            assert {each["memory_id"] for each in told["memories"]} == {same[at].memory_id, own[at].memory_id}
            for number, theirs in enumerate(own):
                if number != at:
                    with pytest.raises(NotFoundError):
                        await memory.memory(owner, theirs.memory_id)
                    with pytest.raises(NotFoundError):
                        await memory.edit(owner, theirs.memory_id, "mine now")
                    with pytest.raises(NotFoundError):
                        await memory.delete(owner, theirs.memory_id)
                    assert await memory.archive(owner, [theirs.memory_id]) == ()
        for at, owner in enumerate(owners):
            await memory.archive(owner, [own[at].memory_id])
            found = await memory.search(owner, "secret", 20, archived=True)
            assert [each.memory for each in found.memories] == [own[at]]
            assert (await memory.stats(owner)).archived == 1

    assert len({each.memory_id for each in (*same, *own)}) == 2 * len(owners)


async def test_a_model_that_asks_for_the_memory_of_another_tenant_is_refused(agents, tmp_path):
    asked = ["tenant", "agent", "agent_id", "namespace"]

    def decide(request):
        if any(message.tool_calls for message in request.messages):
            return says("done")
        return asks(*(("recall", f'{{"query": "secret", "{name}": "default/watch"}}') for name in asked))

    folder, model = agents.define(preload_memories=0), Model(decide)
    async with in_process_runtime(agents_dir=folder.parent, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.memory.remember(WATCH, "The secret is oolong.", [])
        stranger = AgentRef(TenantId("acme"), WATCH.agent_id)
        run = await runtime.outcome(await runtime.submit(stranger, Trigger(TriggerKind.API, focus="of default/watch")))
        entries = await runtime.store.read(JournalOfRun(stranger.tenant, run.run_id))

    told = [each.data for each in entries if each.kind is EntryKind.TOOL_FINISHED]
    assert [each["error"]["type"] for each in told] == ["invalid_arguments"] * len(asked)
    assert "oolong" not in repr(entries)


MEMORIES = """## mem_noon · 2026-05-08T12:00:00+00:00

A pump failed.

---

## mem_late · 2026-05-08T20:00:00+00:00

A crate fell.

---
"""


@pytest.mark.parametrize(("zone", "found"), [("UTC", {"mem_noon", "mem_late"}), ("Asia/Shanghai", {"mem_late"})])
async def test_yesterday_is_that_of_the_agents_zone_for_the_agent_and_for_people(agents, tmp_path, zone, found):
    def decide(request):
        asked = [message for message in request.messages if message.tool_calls]
        return says("done") if asked else asks(("recall", '{"query": "yesterday"}'))

    agents.define(timezone=zone)
    path = tmp_path / "data" / "agents" / "default" / "watch" / "MEMORY.md"
    path.parent.mkdir(parents=True)
    path.write_text(MEMORIES)
    model, clock = Model(decide), ManualClock(datetime(2026, 5, 9, 20, 30, tzinfo=UTC))
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        seen = await runtime.memory.search(WATCH, "yesterday", 5)
        run = await runtime.outcome(await runtime.submit(WATCH, Trigger(TriggerKind.API, focus="yesterday")))
        entries = await runtime.store.read(JournalOfRun(WATCH.tenant, run.run_id))
        await runtime.memory.archive(WATCH, ["mem_noon", "mem_late"])
        archived = await runtime.memory.search(WATCH, "yesterday", 5, archived=True)

    (told,) = [each.data["content"] for each in entries if each.kind is EntryKind.TOOL_FINISHED]
    (built,) = [str(each.data) for each in entries if each.kind is EntryKind.PROMPT_BUILT]
    shown = {name for name, text in {"mem_noon": "A pump failed", "mem_late": "A crate fell"}.items() if text in built}
    assert {each.memory.memory_id for each in seen.memories} == shown == found
    assert {each["memory_id"] for each in told["memories"]} == found
    assert {each.memory.memory_id for each in archived.memories} == found


@pytest.mark.parametrize("memories", MemoryHomeKind)
async def test_what_fits_a_trigger_is_shown_at_the_start_of_its_run_from_either_home(agents, tmp_path, memories):
    model = Model(lambda _: says("ok"))
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], memories=memories
    ) as runtime:
        await runtime.memory.remember(WATCH, "The pump fails at nine.")
        await runtime.trigger("watch", focus="the pump")
        await runtime.trigger("watch:other", focus="the pump")

    shown = ["The pump fails at nine." in str(request.messages) for request in model.requests]
    assert shown == [True, False]
    assert (tmp_path / "data" / "agents" / WATCH.folder / "MEMORY.md").exists() is (memories is MemoryHomeKind.FILES)


@pytest.mark.parametrize("memories", MemoryHomeKind)
async def test_an_edited_text_is_what_the_agent_recalls_and_its_import_is_in_the_ledger(agents, tmp_path, memories):
    agents.define()
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", memories=memories) as runtime:
        memory = runtime.memory
        stored = await memory.remember(WATCH, "The pump fails at nine.")
        text = await memory.text(WATCH)
        version = MemoryTextVersion.of(text)
        for _ in range(2):  # the same again, as a client does whose answer got lost
            assert await memory.put_text(WATCH, text.replace(b"nine", b"ten"), version, by="ana") == ()
        with pytest.raises(MemoryTextChangedError):
            await memory.put_text(WATCH, b"mine", version, by="ana")
        assert await memory.put_text(WATCH, b"", by="ana") == (replace(stored, content="The pump fails at ten."),)
        found = await memory.search(WATCH, "when does the pump fail", 5)
        records = await runtime.store.read(LedgerFilter(WATCH.tenant, WATCH))

    assert [each.memory.content for each in found.memories] == ["The pump fails at ten."]
    imports = [each.record.data for each in records if each.record.data.get("what") == "import"]
    assert [(each["by"], each.get("bytes"), "error" in each) for each in imports] == [
        ("ana", len(text) - 1, False),
        ("ana", len(text) - 1, False),
        ("ana", 4, False),
        ("ana", None, True),
        ("ana", 0, False),
    ]
