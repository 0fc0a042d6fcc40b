"""The Grafana dashboard and the table of docs/observability.md name what there is, and all of it."""

from __future__ import annotations

import json
import re

import pytest

from owlclaw_ray.access.quota_use import TenantQuotaUse
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.node import NodeLoad, Slots
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import Tick, TickOutcome
from owlclaw_ray.ids import FiringId, RecordId, RunId, ScheduleId, TenantId
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.store.commands import (
    AppendLedger,
    FireSchedule,
    LedgerAppended,
    QuotaReached,
    RunAccepted,
    RunFinished,
    ScheduleFired,
)
from owlclaw_ray.telemetry.metrics import gauges
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.telemetry.metrics.exposition import labelled, text_of
from owlclaw_ray.telemetry.trace_export import ExportCounts
from owlclaw_ray.webhooks.outbox import CallbackCounts
from tests.contracts.store_commands import AGENT, NOW, ending, submission
from tests.docs.snippets import ROOT, code, table

DASHBOARD = ROOT / "deploy" / "grafana" / "owlclaw.json"
_NAME = re.compile(r"\bowlclaw_[a-z_]+\b")
_GROUPS = re.compile(r"by \(([^)]*)\)")
_SELECTORS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GRAFANA = {"le"}


@pytest.fixture(scope="module")
def families():
    counted = CommitMetrics()
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "cost": 0.0}
    attempts = [{"model": "a", "error": "late", "retryable": True}]
    model = {"model": "b", "usage": usage, "duration_ms": 1, "failed_attempts": attempts}
    tool = {"tool": "remember", "duration_ms": 1, "content": ""}
    records = tuple(
        LedgerRecord(RecordId(kind.value), AGENT.tenant, AGENT.agent_id, RunId("run_1"), kind, NOW, data)
        for kind, data in ((LedgerKind.MODEL_CALL, model), (LedgerKind.TOOL_CALL, tool))
    )
    tick = Tick(FiringId("fire_1"), ScheduleId("sch_1"), NOW, TickOutcome.FIRED, NOW)
    fire = FireSchedule(ScheduleId("sch_1"), NOW, (tick,), None, None)
    commands = (submission("run_1"), submission("run_2"), ending("run_1"), AppendLedger(records), fire)
    accepted, refused = RunAccepted(RunId("run_1"), 1, AGENT), QuotaReached("open_runs", 1)
    outcomes = (accepted, refused, RunFinished(), LedgerAppended(), ScheduleFired(None))
    counted.committed(commands, outcomes, 0.001)
    return (
        *labelled(counted.families(), "node", "a"),
        gauges.up({"keeper@a": True}),
        gauges.active_runs({RunStatus.QUEUED: 1}),
        *gauges.pool({"host_1": 1}),
        *labelled(gauges.slots([SlotCounts("openai", 48, 40, 7)]), "node", "a"),
        gauges.lease_held(held=True),
        *labelled(
            [
                gauges.node_up(up=True),
                *gauges.node_load(NodeLoad(1, 1, 1, 0.5, 0.001, "", {"tool_slots": 1})),
                gauges.tool_slots([Slots("tool_slots", 8.0, 5.0)]),
            ],
            "node",
            "a",
        ),
        gauges.callbacks_pending(1),
        *gauges.quotas([TenantQuotaUse(TenantId("acme"), "open_runs", 4, 9)]),
        gauges.callback_attempts(CallbackCounts()),
        *gauges.hatchet(AlarmCounts()),
        *gauges.traces(ExportCounts()),
    )


@pytest.fixture(scope="module")
def samples(families):
    """The labels of every sample by its name."""
    found = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(label for label, _ in sample.labels)
    return found


def expressions():
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def test_the_dashboard_uses_only_metrics_and_labels_that_exist(samples):
    for expression in expressions():
        names = _NAME.findall(expression)
        assert set(names) <= samples.keys(), expression
        labels = {label.strip() for group in _GROUPS.findall(expression) for label in group.split(",")}
        labels |= set(_SELECTORS.findall(expression))
        assert labels - _GRAFANA <= set().union(*(samples[name] for name in names)), expression


def test_the_dashboard_shows_every_metric(families):
    shown = " ".join(expressions())
    assert [each.name for each in families if each.name not in shown] == []


def test_no_two_panels_have_one_id():
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len({*ids}) == len(ids)


def test_panels_do_not_lie_on_each_other():
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_every_metric_is_documented_with_its_labels(families, samples):
    documented = {
        code(name): (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in table("docs/observability.md", "metric")
    }
    exposed = {}
    for family in families:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        sample = f"{family.name}_count" if family.kind == "histogram" else name
        exposed[name] = (family.kind, samples[sample])
    assert documented == exposed


def test_no_metric_is_labelled_by_agent_or_run_and_only_quotas_by_tenant(samples):
    assert not set().union(*samples.values()) & {"agent", "agent_id", "run", "run_id", "definition"}
    assert {name for name, labels in samples.items() if "tenant" in labels} == {
        "owlclaw_quota_used",
        "owlclaw_quota_limit",
    }


def test_the_text_names_each_metric_once(families):
    text = text_of(families).decode()
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) == len(set(names)) == len(families)
