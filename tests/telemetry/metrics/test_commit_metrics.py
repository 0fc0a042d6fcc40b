"""What a Keeper counts of real runs and real commits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import yaml
from msgspec.structs import replace

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose
from owlclaw_ray.domain.entries import embedding_record
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.quota import KeyQuota, Quotas
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, Tick, TickOutcome
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import DeliveryId, FiringId, KeyId, RecordId, RunId, ScheduleId, TenantId
from owlclaw_ray.store.commands import (
    AppendLedger,
    CancelRun,
    CancelSchedule,
    ChangeMemories,
    ClaimRun,
    CreateSchedule,
    DocumentChange,
    FireSchedule,
    PutTenant,
    ReceiveDelivery,
)
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import RunById
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.telemetry.metrics import commit_metrics, exposition
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.testing.store_file import create_store
from tests.contracts.store_commands import AGENT, NOW, activation, ending, submission


def numbers(families):
    return {(one.name, *(value for _, value in one.labels)): one.value for each in families for one in each.samples}


@pytest.fixture
async def counted(tmp_path):
    """A group commit, and a function that returns what was counted of it."""
    await asyncio.to_thread(create_store, tmp_path / "owlclaw.db")
    store, metrics = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="keeper"), CommitMetrics()
    commits = GroupCommit(store, observer=metrics)
    yield commits, lambda: numbers(metrics.families())
    await commits.close()
    await store.close()


def told(number, kind, **data):
    return LedgerRecord(RecordId(f"rec_{number}"), AGENT.tenant, AGENT.agent_id, RunId("run_1"), kind, NOW, data)


async def test_a_run_is_counted_with_its_model_calls_its_tool_calls_and_its_waits(tmp_path):
    folder = tmp_path / "agents" / "watch"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Watch\n\n## My Capabilities\n- look\n")
    (folder / "agent.yaml").write_text(yaml.safe_dump({"model": "scripted:script.yaml"}))
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4, "cost": 0.25}
    call = {"name": "shop__look", "arguments": {}}
    turns = [{"tool_calls": [call, {"name": "made_up"}], "usage": usage}, {"text": "done", "usage": usage}]
    (folder / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": turns}]}))
    app = OwlClaw("shop")
    app.tool("shop.look", description="Look.")(lambda: "fine")

    async with in_process_runtime(agents_dir=folder.parent, data_dir=tmp_path / "data", app=app) as runtime:
        await runtime.trigger("watch")
        found = numbers(await runtime.metrics())

    model = "scripted:script.yaml"
    assert found["owlclaw_triggers_total", "api"] == 1
    assert found["owlclaw_runs_ended_total", "completed"] == 1
    assert found["owlclaw_run_seconds_count", "completed"] == 1
    assert found["owlclaw_queue_seconds_count",] == found["owlclaw_activation_seconds_count",] == 1
    assert found["owlclaw_model_calls_total", model, "ok"] == 2
    assert found["owlclaw_model_call_seconds_count", model] == 2
    assert [found["owlclaw_tokens_total", model, kind] for kind in ("prompt", "completion", "cached")] == [20, 6, 8]
    assert found["owlclaw_cost_dollars_total", model] == 0.5
    assert found["owlclaw_tool_calls_total", "shop.look", "ok"] == 1
    assert found["owlclaw_tool_calls_total", "unknown", "tool_not_available"] == 1
    assert [found["owlclaw_runs", status] for status in ("queued", "running", "waiting")] == [0, 0, 0]
    assert found["owlclaw_agents_in_memory",] == 1
    assert found["owlclaw_actors", "occupied"] == 1
    assert not [name for name in found if "made_up" in name or "watch" in name]


async def test_a_run_that_waited_is_counted_once_however_often_it_is_taken_up(counted):
    commits, found = counted
    later = NOW + timedelta(seconds=3)
    await commits.apply([submission("run_1"), activation("act_1")])
    await commits.apply([ClaimRun(AGENT, 1, later)])
    await commits.apply([ClaimRun(AGENT, 1, later + timedelta(seconds=9))])
    await commits.apply([activation("act_2")])
    await commits.apply([ClaimRun(AGENT, 2, later + timedelta(seconds=20))])

    assert (found()["owlclaw_queue_seconds_count",], found()["owlclaw_queue_seconds_sum",]) == (1, 3)
    assert found()["owlclaw_activations_total",] == 2


async def test_a_write_of_an_activation_that_lost_its_agent_is_a_fencing_rejection(counted):
    commits, found = counted
    await commits.apply([submission("run_1"), activation("act_1"), activation("act_2")])
    await commits.apply([ending("run_1", epoch=1)])

    assert found()["owlclaw_fencing_rejections_total",] == 1
    assert ("owlclaw_runs_ended_total", "completed") not in found()


async def test_runs_that_are_refused_for_a_quota_are_counted_by_quota(counted):
    commits, found = counted
    limited = [replace(submission(f"run_{number}"), quota=KeyQuota(KeyId("key1"), 1)) for number in range(3)]
    delivery = Delivery(DeliveryId("d"), AGENT.tenant, "shop", "r", NOW, DeliveryStatus.TRIGGERED, agent=AGENT)
    await commits.apply([*limited[:2], ReceiveDelivery(delivery, limited[2])])

    assert found()["owlclaw_quota_refusals_total", "starts_a_minute", "key"] == 2
    assert found()["owlclaw_triggers_total", "api"] == 1


async def test_whatever_else_is_refused_for_a_quota_is_counted_by_quota(counted):
    commits, found = counted
    clerk = AgentRef.parse("clerk", TenantId("acme"))
    acme = Tenant(clerk.tenant, "Acme", NOW, "system:local", quotas=Quotas(schedules=0, memory_bytes=0))
    plan = Schedule(ScheduleId("sch_1"), clerk, ScheduleKind.CRON, "look", NOW, NOW, "*/5 * * * *", "UTC")
    await commits.apply([PutTenant(acme)])
    await commits.apply(
        [CreateSchedule(plan, 9), ChangeMemories(clerk, 0, "change_1", (DocumentChange("MEMORY.md", b"1"),), NOW)]
    )

    assert found()["owlclaw_quota_refusals_total", "schedules", "tenant"] == 1
    assert found()["owlclaw_quota_refusals_total", "memory_bytes", "tenant"] == 1


async def test_a_queued_run_that_is_cancelled_is_counted_once(counted):
    commits, found = counted
    await commits.apply([submission("run_1")])
    await commits.apply([CancelRun(AGENT.tenant, RunId("run_1"), NOW)])
    await commits.apply([CancelRun(AGENT.tenant, RunId("run_1"), NOW + timedelta(seconds=1))])

    assert found()["owlclaw_runs_ended_total", "cancelled"] == 1


async def test_queued_runs_that_their_schedule_cancels_are_counted(counted):
    commits, found = counted
    schedule_id, second = ScheduleId("sch_1"), NOW + timedelta(seconds=60)
    schedule = Schedule(schedule_id, AGENT, ScheduleKind.INTERVAL, "看", NOW, NOW, interval_seconds=60)

    def firing(number, due, following):
        tick = Tick(FiringId(f"fire_{number}"), schedule_id, due, TickOutcome.FIRED, due, RunId(f"run_{number}"))
        run = submission(f"run_{number}")
        return FireSchedule(schedule_id, due, (tick,), following, run, OverlapPolicy.CANCEL_PREVIOUS)

    await commits.apply([CreateSchedule(schedule, 100), firing(1, NOW, second)])
    await commits.apply([firing(2, second, second + timedelta(seconds=60))])
    by_overlap = found()["owlclaw_runs_ended_total", "cancelled"]
    for _ in range(2):
        await commits.apply([CancelSchedule(AGENT, schedule_id, second)])

    assert by_overlap == 1
    assert found()["owlclaw_runs_ended_total", "cancelled"] == 2


async def test_ticks_are_counted_with_how_late_they_fired(counted):
    commits, found = counted
    schedule_id = ScheduleId("sch_1")
    schedule = Schedule(schedule_id, AGENT, ScheduleKind.ONCE, "看", NOW, NOW)
    at = NOW + timedelta(seconds=2)
    tick = Tick(FiringId("fire_1"), schedule_id, NOW, TickOutcome.FIRED, at, RunId("run_1"))
    await commits.apply([CreateSchedule(schedule, 100)])
    await commits.apply([FireSchedule(schedule_id, NOW, (tick,), None, submission("run_1"))])

    assert found()["owlclaw_schedule_ticks_total", "fired"] == 1
    assert found()["owlclaw_schedule_lateness_seconds_sum",] == 2
    assert found()["owlclaw_triggers_total", "api"] == 1


async def test_a_firing_whose_run_is_refused_is_a_skipped_tick_and_no_trigger(counted):
    commits, found = counted
    schedule_id = ScheduleId("sch_1")
    schedule = Schedule(schedule_id, AGENT, ScheduleKind.INTERVAL, "看", NOW, NOW, interval_seconds=60)
    at = NOW + timedelta(seconds=1)
    tick = Tick(FiringId("fire_1"), schedule_id, NOW, TickOutcome.FIRED, at, RunId("run_2"))
    full = replace(submission("run_2"), queue_limit=1)
    await commits.apply([submission("run_1"), CreateSchedule(schedule, 100)])
    await commits.apply([FireSchedule(schedule_id, NOW, (tick,), NOW + timedelta(seconds=60), full)])

    assert found()["owlclaw_schedule_ticks_total", "skipped"] == 1
    assert ("owlclaw_schedule_ticks_total", "fired") not in found()
    assert found()["owlclaw_triggers_total", "api"] == 1
    assert found()["owlclaw_schedule_lateness_seconds_count",] == 0


async def test_lateness_is_counted_from_the_moment_that_jitter_chose_and_of_what_was_caught_up_too(counted):
    commits, found = counted
    schedule_id, chosen = ScheduleId("sch_1"), NOW + timedelta(seconds=40)
    schedule = Schedule(schedule_id, AGENT, ScheduleKind.ONCE, "看", NOW, chosen)
    at = chosen + timedelta(seconds=90)
    skipped = Tick(FiringId("fire_1"), schedule_id, NOW, TickOutcome.SKIPPED, at, reason="superseded", count=3)
    late = Tick(FiringId("fire_2"), schedule_id, NOW, TickOutcome.CAUGHT_UP, at, RunId("run_1"))
    await commits.apply([CreateSchedule(schedule, 100)])
    await commits.apply([FireSchedule(schedule_id, chosen, (skipped, late), None, submission("run_1"))])

    assert found()["owlclaw_schedule_lateness_seconds_sum",] == 90
    assert found()["owlclaw_schedule_ticks_total", "skipped"] == 3
    assert found()["owlclaw_schedule_ticks_total", "caught_up"] == 1


async def test_a_webhook_that_triggers_is_a_trigger_and_what_comes_after_an_embedding_is_counted_too(counted):
    commits, found = counted
    delivery = Delivery(
        DeliveryId("whd_1"), AGENT.tenant, "github", "rcp_1", NOW, DeliveryStatus.TRIGGERED, agent=AGENT
    )
    call = EmbeddedCall("e5", Usage(prompt_tokens=7, cost=0.5), NOW, 20)
    embedded = told(1, LedgerKind.MODEL_CALL, **embedding_record(call, EmbeddingPurpose.INDEX))
    await commits.apply([AppendLedger((embedded,)), ReceiveDelivery(delivery, submission("run_1"))])
    await commits.apply([ReceiveDelivery(replace(delivery, receipt="rcp_2"), submission("run_1"))])

    assert found()["owlclaw_triggers_total", "api"] == 1
    assert found()["owlclaw_tokens_total", "e5", "prompt"] == 7
    assert found()["owlclaw_cost_dollars_total", "e5"] == 0.5


async def test_failed_attempts_and_failed_calls_of_models_are_counted(counted):
    commits, found = counted
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "cost": 0.0}
    attempts = [{"model": "a", "error": "late", "retryable": True}] * 2
    answered = told(1, LedgerKind.MODEL_CALL, model="b", usage=usage, duration_ms=5, failed_attempts=attempts)
    unanswered = [told(2, LedgerKind.MODEL_CALL, error="gone"), told(3, LedgerKind.MODEL_CALL, model="c", error="late")]
    await commits.apply([AppendLedger((answered, *unanswered))])

    assert found()["owlclaw_model_attempts_failed_total", "a"] == 2
    assert found()["owlclaw_model_calls_total", "b", "ok"] == 1
    assert found()["owlclaw_model_calls_total", "unknown", "failed"] == 1
    assert found()["owlclaw_model_calls_total", "c", "failed"] == 1
    assert ("owlclaw_model_calls_total", "c", "ok") not in found()


async def test_of_a_label_there_are_so_many_values_and_then_other(counted, monkeypatch):
    monkeypatch.setattr(commit_metrics, "LABELS", 2)
    commits, found = counted
    records = [told(at, LedgerKind.TOOL_CALL, tool=f"t{at}", duration_ms=1, content="") for at in range(4)]
    await commits.apply([AppendLedger(tuple(records))])

    counts = {key[1]: value for key, value in found().items() if key[0] == "owlclaw_tool_calls_total"}
    assert counts == {"t0": 1, "t1": 1, "other": 2}


async def test_an_observer_that_fails_costs_nobody_his_commit(tmp_path, caplog):
    class Failing:
        def committed(self, commands, outcomes, seconds):
            raise ZeroDivisionError

    store = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="keeper")
    commits = GroupCommit(store, observer=Failing())
    await commits.apply([submission("run_1")])
    await commits.apply([submission("run_2")])
    await commits.close()

    assert await store.read(RunById(AGENT.tenant, RunId("run_2")))
    assert "could not be observed" in caplog.text
    await store.close()


async def test_numbers_of_several_nodes_are_one_text_that_prometheus_reads(counted):
    commits, _ = counted
    await commits.apply([submission("run_1")])
    families = commits._observer.families()
    nodes = [*exposition.labelled(families, "node", "一"), *exposition.labelled(families, "node", "b")]

    text = exposition.text_of(nodes).decode()

    assert text.count("# TYPE owlclaw_triggers_total counter") == 1
    assert {key for key in numbers(exposition.read(text)) if key[0] == "owlclaw_triggers_total"} == {
        ("owlclaw_triggers_total", "api", "一"),
        ("owlclaw_triggers_total", "api", "b"),
    }
