"""What is told of nodes that do not answer; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actors import fleet_nodes
from actors.fleet_nodes import FleetNodes, RayNode
from actors.remote import DIRECTORY, EXPORTER, KEEPER, MCP_POOL, ROOT, SCHEDULER, ProcessLocation
from owlclaw_ray.domain.node import LeaseView, NodeCondition
from owlclaw_ray.kernel.system_clock import SystemClock
from tests.actors.plans import plan_in
from tests.actors.steered import SteeredActors
from tests.serve.double import node_view

SLOTS = {"tool_slots": 8.0, "CPU": 4.0}
ALPHA = RayNode(
    "a", "alpha", "10.0.0.1", True, SLOTS | {"node:__internal_head__": 1.0}, SLOTS, draining=False, death=""
)
BETA = replace(ALPHA, node_id="b", host="beta", address="10.0.0.2", resources=SLOTS)
LEASE = LeaseView("east", held=True, generation=1, holder="")


class Cluster(SteeredActors):
    """Two nodes that have everything; `missing` actors are not there, `unborn` ones have no process yet."""

    def __init__(self):
        super().__init__()
        self.nodes = [ALPHA, BETA]
        self.missing, self.unborn = set(), set()
        self.drained = ()

    @property
    def salts(self):
        return [salt for method, *arguments in self.asked if method == "inspect" for salt in arguments]

    def find(self, part, namespace, node_id=""):
        return None if (part, node_id) in self.missing else (part, node_id)

    async def registered(self, actor):
        _, node_id = actor
        return None if actor in self.unborn else ProcessLocation(node_id or "b", 1)

    def answer(self, part, method, *arguments):
        return {"now": 0.0, "inspect": node_view().report, "lease": LEASE, "drained": self.drained}[method]


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()

    monkeypatch.setattr(fleet_nodes, "NamedActor", made.named_actor)
    monkeypatch.setattr(fleet_nodes, "ray_nodes", lambda: tuple(made.nodes))
    monkeypatch.setattr(fleet_nodes, "find", made.find)
    monkeypatch.setattr(fleet_nodes, "registered", made.registered)
    monkeypatch.setattr(fleet_nodes, "ANSWER_SECONDS", 0.05)
    return made


async def seen(**changes):
    return await FleetNodes(replace(plan_in(), **changes), SystemClock())()


async def test_each_node_is_told_with_its_report_and_its_parts(cluster):
    view = await seen()
    alpha, beta = view.nodes

    assert [node.state for node in view.nodes] == [NodeCondition.ACTIVE] * 2
    assert (alpha.head, beta.head) == (True, False)
    assert KEEPER in alpha.parts
    assert DIRECTORY not in alpha.parts
    assert {DIRECTORY, SCHEDULER, KEEPER} <= {*beta.parts}
    assert alpha.report == node_view().report
    assert (alpha.cpus, alpha.slots[0].total) == (4.0, 8.0)
    assert view.lease == LEASE


async def test_parts_that_a_node_or_the_cluster_has_not_are_told_if_this_runtime_has_them(cluster):
    cluster.missing |= {(KEEPER, "a"), (MCP_POOL, "a"), (EXPORTER, "")}
    cluster.unborn.add((SCHEDULER, ""))

    plain, full = await seen(), await seen(mcp=object(), tracing=object())

    assert [each.missing for each in (plain, *plain.nodes)] == [("scheduler",), ("keeper",), ()]
    assert [each.missing for each in (full, *full.nodes)] == [("scheduler", "exporter"), ("keeper", "mcp_pool"), ()]


async def test_of_a_node_that_takes_no_part_nothing_is_said_to_be_missing(cluster):
    cluster.missing |= {(ROOT, "b"), (KEEPER, "b")}

    assert (await seen()).nodes[1].missing == ()


async def test_secrets_are_hashed_with_the_same_salt_on_all_nodes_and_another_each_time(cluster):
    await seen()
    await seen()

    first, second, third, fourth = cluster.salts
    assert first == second
    assert third == fourth
    assert first != third


@pytest.mark.parametrize("how", ["stuck", "dead"])
async def test_a_node_whose_root_does_not_answer_is_silent_and_the_others_are_told_all_the_same(cluster, how):
    getattr(cluster, how).add((ROOT, "b"))

    alpha, beta = (await seen()).nodes

    assert (alpha.state, beta.state) == (NodeCondition.ACTIVE, NodeCondition.SILENT)
    assert beta.report is None
    assert "did not answer" in beta.problem


async def test_a_node_without_a_root_is_told_with_the_reason(cluster):
    cluster.missing.add((ROOT, "b"))

    _, on_sqlite = (await seen(store_url="sqlite+aiosqlite:///x")).nodes
    _, on_postgres = (await seen(store_url="postgresql://x")).nodes

    assert (on_sqlite.state, on_postgres.state) == (NodeCondition.NO_ROOT, NodeCondition.NO_ROOT)
    assert "SQLite" in on_sqlite.problem
    assert "SQLite" not in on_postgres.problem


async def test_a_node_whose_root_is_being_started_joins(cluster):
    cluster.unborn.add((ROOT, "b"))

    assert (await seen()).nodes[1].state is NodeCondition.JOINING


async def test_a_node_that_ray_drains_is_told_as_such_with_its_report(cluster):
    cluster.nodes[1] = replace(BETA, draining=True)

    _, beta = (await seen()).nodes

    assert beta.state is NodeCondition.DRAINING
    assert beta.report is not None


async def test_a_node_that_was_drained_is_told_as_such_with_what_it_still_holds(cluster):
    cluster.drained = ("b",)

    alpha, beta = (await seen()).nodes

    assert (alpha.state, beta.state) == (NodeCondition.ACTIVE, NodeCondition.DRAINING)
    assert "--undo" in beta.problem
    assert beta.report is not None


async def test_a_lost_node_is_told_with_rays_reason_and_is_asked_nothing(cluster):
    cluster.nodes[1] = replace(BETA, alive=False, death="missed heartbeats", resources={})
    cluster.stuck.add((ROOT, "b"))

    _, beta = (await seen()).nodes

    assert (beta.state, beta.problem, beta.report) == (NodeCondition.LOST, "missed heartbeats", None)


async def test_a_directory_that_does_not_answer_hides_the_lease_alone(cluster):
    cluster.stuck.add((DIRECTORY, ""))

    view = await seen()

    assert view.lease is None
    assert [node.state for node in view.nodes] == [NodeCondition.ACTIVE] * 2
