"""What recalling does to a run: what it is shown at its start, what it costs, and what the ledger says of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.ids import DEFAULT_TENANT, ScheduleId
from owlclaw_ray.store.commands import CreateSchedule
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.paid_embeddings import Provider
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")
FRIDAYS = "the disk fills on Fridays"


def remembers(*contents):
    return asks(*(("remember", f'{{"content":"{content}"}}') for content in contents))


async def records(runtime, kind):
    page = await runtime.store.read(LedgerFilter(DEFAULT_TENANT, limit=100))
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
        built = (await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id)))[2]
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


FIELDS = "schedule_id and due_at, placed_at and message"
PUMPS = [("look at the pump", "the pump of crane two leaks"), ("看看水泵", "二号吊车的水泵漏水")]


@pytest.fixture
def shown_of(agents, tmp_path):
    """Returns what the model is shown at the start of a run: of two memories the one that fits the run's query better."""

    async def show(memory, start, *, app=None, **options):
        agents.define(preload_memories=1, **options)
        clock, answers = ManualClock(), iter([remembers(memory), remembers(FIELDS), *[says("ok")] * 3])
        model = Model(lambda _: next(answers))
        folder = {"agents_dir": agents.folder, "data_dir": tmp_path / "data"}
        async with in_process_runtime(**folder, models=[model], clock=clock, app=app) as runtime:
            await runtime.trigger("watch", "note this")
            await start(runtime, clock)
            [run, *_] = await runtime.runs(RunFilter(DEFAULT_TENANT))
            while not (await runtime.run(DEFAULT_TENANT, run.run_id)).status.final:
                await runtime.watch(DEFAULT_TENANT, run.run_id, 99, 5)
        return model.requests[3].messages[0].content

    return show


@pytest.mark.parametrize(("focus", "memory"), PUMPS)
async def test_a_scheduled_run_is_reminded_of_what_its_focus_is_about(shown_of, focus, memory):
    async def start(runtime, clock):
        now = clock.now()
        schedule = Schedule(ScheduleId("sch_1"), WATCH, ScheduleKind.ONCE, focus, now, now + timedelta(minutes=5))
        await runtime.store.apply([CreateSchedule(schedule, 5)])
        await clock.advance(301)
        assert await runtime.schedule_firer.fire_all_due() == 1

    shown = await shown_of(memory, start)

    assert "schedule_id" in shown, "the model is told the payload as before"
    assert memory in shown
    assert FIELDS not in shown


async def test_a_heartbeat_is_reminded_of_what_woke_it(shown_of):
    app, (said, memory) = OwlClaw("cranes"), PUMPS[1]

    @app.event_source("complaints")
    def complaints(agent: AgentRef) -> list[dict[str, str]]:
        return [{"schedule_id": "run_01m83kq9v8w7x6y5z4t3s2r1q0", "due_at": "2026-11-23T09:00:00Z", "message": said}]

    async def start(runtime, clock):
        assert await runtime.heartbeats.tick() == 1
        await clock.advance(301)
        assert await runtime.schedule_firer.fire_all_due() == 1

    shown = await shown_of(memory, start, app=app, heartbeat={})

    assert "pending" in shown
    assert memory in shown
    assert FIELDS not in shown


async def test_a_run_is_reminded_of_what_its_payload_says_and_not_of_how_its_fields_are_called(shown_of):
    said, memory = PUMPS[0]
    payload = {"source": 17, "message": said, "placed_at": "2026-11-23T09:00:00Z", "due_at": None}
    shown = await shown_of(memory, lambda runtime, _: runtime.trigger("watch", payload))

    assert "placed_at" in shown
    assert memory in shown
    assert FIELDS not in shown
