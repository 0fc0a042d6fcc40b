"""What recalling does to a run: what it is shown at its start, what it costs, and what the ledger says of it."""

from __future__ import annotations

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ports.store import LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.engine.conftest import Model, asks, says
from tests.paid_embeddings import Provider

WATCH = AgentRef.parse("watch")
FRIDAYS = "the disk fills on Fridays"


def remembers(*contents):
    return asks(*(("remember", f'{{"content":"{content}"}}') for content in contents))


async def records(runtime, kind):
    page = await runtime.store.ledger(LedgerFilter(DEFAULT_TENANT, limit=100))
    return [each.record.data for each in page if each.record.kind is kind]


@pytest.fixture
def runtime_of(agents, tmp_path):
    def start(*replies, limits=None, **options):
        agents.define(limits=limits or {})
        answers = iter(replies)
        model = Model(lambda _: next(answers))
        folder = {"agents_dir": agents.folder, "data_dir": tmp_path / "data"}
        return model, in_process_runtime(**folder, models=[model], **options)

    return start


async def test_what_recalling_costs_counts_as_the_runs_own(runtime_of):
    _, running = runtime_of(
        remembers(FRIDAYS),
        says("ok"),
        asks(("recall", '{"query":"when does it fill"}')),
        says("on Fridays"),
        embedder="litellm:openai/x",
        embedding=Provider(),
    )

    async with running as runtime:
        await runtime.trigger("watch", "disk")
        run = await runtime.trigger("watch", {"question": "why does the disk fill"})
        built = (await runtime.store.journal(DEFAULT_TENANT, run.run_id))[2]
        found = [each for each in await records(runtime, LedgerKind.MODEL_CALL) if each.get("purpose") == "recall"]

    assert run.result.usage.cost == pytest.approx(0.5)
    assert built.kind is EntryKind.PROMPT_BUILT
    assert built.data["usage"]["cost"] == 0.25
    assert len(found) == 2


async def test_a_preload_without_its_index_is_shown_and_recorded(runtime_of, tmp_path):
    model, running = runtime_of(remembers(FRIDAYS), says("ok"), says("I knew"))

    async with running as runtime:
        await runtime.trigger("watch", "disk")
        folder = tmp_path / "data" / "agents" / WATCH.folder
        if (folder / "index").exists():
            (folder / "index").rename(folder / "gone")
        (folder / "index").write_text("a file where the folder should be")
        await runtime.trigger("watch", {"question": "why does the disk fill"})
        found = await records(runtime, LedgerKind.WARNING)

    assert FRIDAYS in model.requests[2].messages[0].content
    assert [each["what"] for each in found] == ["recall without its index"]


async def test_a_memory_that_is_too_long_to_be_shown_ends_no_run(runtime_of, tmp_path):
    _, running = runtime_of(remembers(FRIDAYS), says("ok"), says("I knew"))

    async with running as runtime:
        await runtime.trigger("watch", "disk")
        file = tmp_path / "data" / "agents" / WATCH.folder / "MEMORY.md"
        file.write_text(file.read_text() + "\nthe disk fills, by hand\n" + "disk " * 80_000)
        run = await runtime.trigger("watch", {"question": "why does the disk fill"})
        found = await records(runtime, LedgerKind.WARNING)

    assert run.result.final_text == "I knew"
    assert [each["why"] for each in found if each["what"] == "preloading memories"] == ["what was found is too long"]


async def test_preloaded_memories_keep_within_their_tokens(runtime_of):
    long = "the disk of host seven fills on Fridays because of backups " * 8
    model, running = runtime_of(remembers(long, FRIDAYS), says("ok"), says("I knew"), limits={"memory_tokens": 60})

    async with running as runtime:
        await runtime.trigger("watch", "disk")
        await runtime.trigger("watch", {"question": "why does the disk fill on Fridays"})

    shown = model.requests[2].messages[0].content
    assert FRIDAYS in shown
    assert "backups" not in shown


async def test_a_hundred_thousand_chinese_characters_are_cut_to_the_tokens_of_short_term_memory(runtime_of):
    model, running = runtime_of(says("ok"))

    async with running as runtime:
        await runtime.trigger("watch", {"text": "市场波动" * 25_000})

    shown = model.requests[0].messages[0].content
    assert 900 < shown.count("市") * 4 < 2_000
    assert "characters cut" in shown
