"""What the numbers of a cluster say when parts of it do not answer; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors import fleet_metrics
from actors.fleet_metrics import FleetMetrics
from actors.nodes import Node
from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, SCHEDULER
from actors.scheduler import SchedulerCounts
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.store.queries import ActiveRunCounts, PendingCallbackCount
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.telemetry.metrics.exposition import text_of
from owlclaw_ray.telemetry.trace_export import ExportCounts
from owlclaw_ray.webhooks.outbox import CallbackCounts, CallbackOptions
from tests.actors.plans import plan_in

NODES = (
    Node("node-a-1", "alpha", frozenset()),
    Node("node-b-1", "beta", frozenset()),
    Node("node-b-2", "beta", frozenset()),
)


class Cluster:
    """Answers for each part; those in `down` are dead, those in `stuck` never answer."""

    def __init__(self):
        self.down, self.stuck = set(), set()
        self.scheduled = SchedulerCounts(callbacks=None, alarms=None)

    async def ask(self, name, node_id, method):
        if (name, node_id) in self.stuck:
            await asyncio.Event().wait()
        if (name, node_id) in self.down:
            raise RuntimeUnavailableError(name)
        return {
            "metrics": CommitMetrics().families(),
            ActiveRunCounts: {RunStatus.QUEUED: 2},
            PendingCallbackCount: 7,
            "slots": (SlotCounts("openai", 48, 40, 7),),
            "hosts": {"host_1": 0, "host_2": 3},
            "counts": self.scheduled if name == SCHEDULER else ExportCounts(exported=5),
        }[method]


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()

    class NamedActor:
        def __init__(self, name, namespace, node_id=""):
            self._name, self._node_id = name, node_id

        @property
        def call(self):
            return self

        def __getattr__(self, method):
            async def asked(query=None):
                return await made.ask(self._name, self._node_id, method if query is None else type(query))

            return asked

    monkeypatch.setattr(fleet_metrics, "NamedActor", NamedActor)
    monkeypatch.setattr(fleet_metrics, "living_nodes", lambda: NODES)
    return made


@pytest.fixture
def read(cluster):
    """Returns the lines of the text that Prometheus gets."""
    plan = plan_in()

    async def read(**changes):
        families = await FleetMetrics(replace(plan, **changes)).families()
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
    cluster.down = {(DIRECTORY, ""), (KEEPER, "node-a-1"), (GATEWAY, "node-b-1"), (SCHEDULER, "")}
    cluster.stuck = {(EXPORTER, "")}

    lines = await read(tracing=TRACING, callbacks=CALLBACKS)

    down = {line.split('"')[1] for line in lines if line.startswith("owlclaw_up{") and line.endswith(" 0.0")}
    assert down == {"keeper@alpha", "gateway@beta-node-b-1", "directory", "scheduler", "exporter"}
    assert 'owlclaw_runs{status="queued"} 2.0' in lines
    missing = ("owlclaw_actors", "owlclaw_traces", "owlclaw_callback_attempts", "owlclaw_hatchet")
    assert not [line for line in lines if any(name in line for name in missing)]


async def test_each_nodes_gateway_tells_how_many_calls_each_provider_bears_and_how_many_wait(read, cluster):
    cluster.down = {(GATEWAY, "node-b-1")}

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
