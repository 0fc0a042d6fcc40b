"""What the numbers of a cluster say when parts of it do not answer; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from actors import fleet_metrics
from actors.fleet_metrics import FleetMetrics
from actors.fleet_nodes import RayNode
from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, ROOT, SCHEDULER
from actors.scheduler import SchedulerCounts
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.node import LeaseView, NodeLoad
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.store.queries import ActiveRunCounts, BudgetUses, PendingCallbackCount, TenantPage
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.telemetry.metrics.exposition import text_of
from owlclaw_ray.telemetry.trace_export import ExportCounts
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.webhooks.outbox import CallbackCounts, CallbackOptions
from tests.actors.plans import plan_in
from tests.actors.steered import SteeredActors


def ray_node(node_id, host, *, alive=True):
    slots, free = {"tool_slots": 8.0}, {"tool_slots": 5.0}
    return RayNode(node_id, host, "10.0.0.1", alive, slots, free, draining=False, death="")


NODES = (
    ray_node("node-a-1", "alpha"),
    ray_node("node-b-1", "beta"),
    ray_node("node-b-2", "beta"),
    ray_node("node-c-1", "gamma", alive=False),
)
AT = datetime(2026, 11, 29, tzinfo=UTC)
LOAD = NodeLoad(
    hosts=2,
    agents=9,
    running=4,
    memory_used=0.5,
    store_seconds=0.002,
    store_problem="",
    waiting_calls={"tool_slots": 12},
)


class Cluster(SteeredActors):
    def __init__(self):
        super().__init__()
        self.lease = LeaseView("east", held=True, generation=1, holder="")
        self.scheduled = SchedulerCounts(callbacks=None, alarms=None)

    def answer(self, part, method, query=None):
        return {
            "metrics": CommitMetrics().families(),
            ActiveRunCounts: {RunStatus.QUEUED: 2},
            PendingCallbackCount: 7,
            TenantPage: [Tenant(TenantId("acme"), "Acme", AT, "ada", quotas=Quotas(open_runs=100, agents=9))],
            BudgetUses: [BudgetUse("quota.open_runs@acme", 40, 2)],
            "slots": (SlotCounts("openai", 48, 40, 7),),
            "load": LOAD,
            "lease": self.lease,
            "hosts": {"host_1": 0, "host_2": 3},
            "counts": self.scheduled if part == SCHEDULER else ExportCounts(exported=5),
        }[method if query is None else type(query)]


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()

    monkeypatch.setattr(fleet_metrics, "NamedActor", made.named_actor)
    monkeypatch.setattr(fleet_metrics, "ray_nodes", lambda: NODES)
    return made


@pytest.fixture
def read(cluster):
    """Returns the lines of the text that Prometheus gets."""
    plan = plan_in()

    async def read(**changes):
        families = await FleetMetrics(replace(plan, **changes), ManualClock()).families()
        return text_of(families).decode().splitlines()

    return read


TRACING = TracingOptions(Destination.OTLP, "http://127.0.0.1:4318/v1/traces")
CALLBACKS = CallbackOptions(("${KEY_OF_THE_TEST}",), RetryPolicy())


async def test_each_node_is_counted_under_a_name_of_its_own(read):
    lines = await read(tracing=TRACING)

    nodes = {
        line.partition('node="')[2].partition('"')[0] for line in lines if line.startswith("owlclaw_commands_total")
    }
    assert nodes == {"alpha", "beta-node-b-1", "beta-node-b-2"}
    assert [line for line in lines if line.startswith("owlclaw_up{")] == [
        'owlclaw_up{part="keeper@alpha"} 1.0',
        'owlclaw_up{part="keeper@beta-node-b-1"} 1.0',
        'owlclaw_up{part="keeper@beta-node-b-2"} 1.0',
        'owlclaw_up{part="gateway@alpha"} 1.0',
        'owlclaw_up{part="gateway@beta-node-b-1"} 1.0',
        'owlclaw_up{part="gateway@beta-node-b-2"} 1.0',
        'owlclaw_up{part="directory"} 1.0',
        'owlclaw_up{part="scheduler"} 1.0',
        'owlclaw_up{part="exporter"} 1.0',
    ]
    assert "owlclaw_traces_exported_total 5.0" in lines


async def test_what_a_dead_or_stuck_part_knows_is_missing_and_said_to_be(read, cluster, monkeypatch):
    monkeypatch.setattr(fleet_metrics, "_PART_SECONDS", 0.01)
    cluster.dead = {(DIRECTORY, ""), (KEEPER, "node-a-1"), (GATEWAY, "node-b-1"), (SCHEDULER, "")}
    cluster.stuck = {(EXPORTER, "")}

    lines = await read(tracing=TRACING, callbacks=CALLBACKS)

    down = {line.split('"')[1] for line in lines if line.startswith("owlclaw_up{") and line.endswith(" 0.0")}
    assert down == {"keeper@alpha", "gateway@beta-node-b-1", "directory", "scheduler", "exporter"}
    assert 'owlclaw_runs{status="queued"} 2.0' in lines
    missing = ("owlclaw_actors", "owlclaw_traces", "owlclaw_callback_attempts", "owlclaw_hatchet")
    assert not [line for line in lines if any(name in line for name in missing)]


async def test_each_nodes_gateway_tells_how_many_calls_each_provider_bears_and_how_many_wait(read, cluster):
    cluster.dead = {(GATEWAY, "node-b-1")}

    lines = {line for line in await read() if line.startswith("owlclaw_provider_")}

    assert lines == {
        line
        for node in ("alpha", "beta-node-b-2")
        for line in (
            f'owlclaw_provider_slots{{node="{node}",provider="openai"}} 48.0',
            f'owlclaw_provider_calls{{node="{node}",provider="openai",state="running"}} 40.0',
            f'owlclaw_provider_calls{{node="{node}",provider="openai",state="waiting"}} 7.0',
        )
    }


async def test_each_node_tells_its_load_and_one_whose_root_is_dead_only_its_slots(read, cluster):
    cluster.dead = {(ROOT, "node-b-1")}

    lines = {line for line in await read() if line.startswith("owlclaw_node_")}

    sound = {
        'owlclaw_node_up{node="%s"} 1.0',
        'owlclaw_node_actors{node="%s"} 2.0',
        'owlclaw_node_agents{node="%s"} 9.0',
        'owlclaw_node_running{node="%s"} 4.0',
        'owlclaw_node_memory_ratio{node="%s"} 0.5',
        'owlclaw_node_store_seconds{node="%s"} 0.002',
        'owlclaw_node_waiting_calls{node="%s",slots="tool_slots"} 12.0',
    }
    slots = {
        f'owlclaw_node_slots{{node="{node}",slots="tool_slots",state="{state}"}} {number}'
        for node in ("alpha", "beta-node-b-1", "beta-node-b-2")
        for state, number in (("all", 8.0), ("used", 3.0))
    }
    told = {line % node for line in sound for node in ("alpha", "beta-node-b-2")}
    assert {line for line in lines if 'slots="' not in line or "tool_slots" in line} == told | slots | {
        'owlclaw_node_up{node="beta-node-b-1"} 0.0'
    }


async def test_the_lease_is_told_where_there_is_one(read, cluster):
    held = await read()
    cluster.lease = LeaseView("east", held=False, generation=2, holder="west")
    away = await read()
    cluster.lease = None

    assert "owlclaw_cluster_lease_held 1.0" in held
    assert "owlclaw_cluster_lease_held 0.0" in away
    assert not [line for line in await read() if "lease" in line]


async def test_without_tracing_there_is_no_exporter_to_miss(read):
    assert not [line for line in await read() if "exporter" in line or "owlclaw_traces" in line]


async def test_callbacks_and_hatchet_are_counted_where_they_are_in_use(read, cluster):
    neither = await read()
    cluster.scheduled = SchedulerCounts(CallbackCounts(delivered=3, failed=2, dead=1), AlarmCounts(True, 4, 9, 1, 6))
    both = await read(callbacks=CALLBACKS)

    names = ("owlclaw_callback", "owlclaw_hatchet")
    assert not [line for line in neither if any(name in line for name in names)]
    assert {line for line in both if line.startswith(names)} == {
        "owlclaw_callbacks_pending 7.0",
        'owlclaw_callback_attempts_total{outcome="delivered"} 3.0',
        'owlclaw_callback_attempts_total{outcome="failed"} 2.0',
        'owlclaw_callback_attempts_total{outcome="dead"} 1.0',
        "owlclaw_hatchet_reachable 1.0",
        "owlclaw_hatchet_alarms 4.0",
        "owlclaw_hatchet_alarms_set_total 9.0",
        "owlclaw_hatchet_refusals_total 1.0",
        "owlclaw_hatchet_rings_total 6.0",
    }


async def test_callbacks_that_nothing_sends_are_seen_to_pile_up(read, cluster):
    cluster.scheduled = SchedulerCounts(callbacks=None, alarms=None)

    lines = [line for line in await read(callbacks=CALLBACKS) if line.startswith("owlclaw_callback")]

    assert lines == ["owlclaw_callbacks_pending 7.0"]


async def test_what_tenants_use_of_their_quotas_is_told_beside_them(read, cluster):
    lines = {line for line in await read() if line.startswith("owlclaw_quota_")}
    cluster.dead = {(KEEPER, node) for node in ("node-a-1", "node-b-1", "node-b-2")}

    assert lines == {
        'owlclaw_quota_used{quota="open_runs",tenant="acme"} 42.0',
        'owlclaw_quota_used{quota="agents",tenant="acme"} 0.0',
        'owlclaw_quota_limit{quota="open_runs",tenant="acme"} 100.0',
        'owlclaw_quota_limit{quota="agents",tenant="acme"} 9.0',
    }
    assert not [line for line in await read() if line.startswith("owlclaw_quota_used")]
