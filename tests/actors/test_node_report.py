"""What a node finds out about itself, without Ray."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors import node_report
from actors.environment import HA_PROXY, node_environment
from actors.fleet_nodes import RayNode, clock_of, node_names
from actors.node_report import NodeInspector, application_hash, needs_shared_files, read_latency
from actors.node_variables import SHARED_VARIABLES, shared_variables
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.node import NodeClock
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from tests.actors.plans import plan_in


def ray_node(node_id, host, *, alive=True):
    return RayNode(node_id, host, "10.0.0.1", alive, {"tool_slots": 8.0}, {"tool_slots": 3.0}, draining=False, death="")


async def test_a_clock_elsewhere_is_known_to_half_of_the_shortest_round_trip():
    here = iter([0.0, 4.0, 10.0, 10.5, 20.0, 22.0])
    there = iter([102.0, 110.3, 121.0])

    async def remote():
        return next(there)

    clock = await clock_of(remote, lambda: next(here))

    assert clock == NodeClock(pytest.approx(100.05), 0.25)


async def test_the_time_of_a_read_is_the_median_of_some():
    moments = iter([0, 0.5, 1, 1.1, 2, 2.1, 3, 3.1, 4, 4.3])

    async def read():
        return None

    assert await read_latency(read, lambda: next(moments)) == (pytest.approx(0.1), "")


async def test_a_store_that_fails_or_hangs_is_told(monkeypatch):
    async def fails():
        raise StoreUnavailableError("no route to it")

    async def hangs():
        await asyncio.Event().wait()

    monkeypatch.setattr(node_report, "_ANSWER_SECONDS", 0.01)

    assert await read_latency(fails, lambda: 0.0) == (None, "no route to it")
    assert await read_latency(hangs, lambda: 0.0) == (None, "no answer within 0.01 s")


class Host:
    """A host with so many agents; dead, or stuck, if it is said to be."""

    def __init__(self, agents=0, trouble=""):
        self._agents, self.trouble = agents, trouble

    async def hosted(self):
        if self.trouble == "stuck":
            await asyncio.Event().wait()
        if self.trouble == "dead":
            raise RuntimeUnavailableError("hosted")
        return range(self._agents)


@pytest.fixture
def inspector(monkeypatch):
    async def registered(host):
        return None if host.trouble == "dead" else host

    monkeypatch.setattr(node_report, "calls", lambda host: host)
    monkeypatch.setattr(node_report, "registered", registered)
    monkeypatch.setattr(node_report, "_ANSWER_SECONDS", 0.01)
    return NodeInspector(plan_in(), dict)


async def test_the_agents_of_a_node_are_those_that_its_hosts_name(inspector):
    assert await inspector.agents([Host(2), Host(), Host(3)]) == 5
    assert await inspector.agents([]) == 0


async def test_a_dead_host_has_no_agents_and_of_one_that_is_stuck_it_is_not_known(inspector):
    assert await inspector.agents([Host(2), Host(7, "dead")]) == 2
    with pytest.raises(RuntimeUnavailableError, match="did not answer"):
        await inspector.agents([Host(2), Host(7, "stuck")])


def test_secrets_are_compared_and_not_told():
    environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "hush"}

    def told(token, salt):
        return {each.name: each.value for each in shared_variables(environ | {"RAY_AUTH_TOKEN": token}, salt)}

    assert told("hush", b"1")["RAY_AUTH_MODE"] == "token"
    assert told("hush", b"1")["RAY_health_check_period_ms"] is None
    assert "hush" not in repr(told("hush", b"1"))
    assert told("hush", b"1") == told("hush", b"1")
    assert told("hush", b"1") != told("other", b"1")
    assert told("hush", b"1") != told("hush", b"2")


def test_a_token_in_a_file_is_compared_as_one_in_a_variable(tmp_path):
    path = tmp_path / "token"
    path.write_text("hush\n")

    def told(**environ):
        environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path), **environ}
        return {each.name: each.value for each in shared_variables(environ, b"1")}["RAY_AUTH_TOKEN"]

    assert told() == told(RAY_AUTH_TOKEN="hush")
    assert told(RAY_AUTH_MODE="disabled") is None
    path.write_text("other")
    assert told() not in {None, told(RAY_AUTH_TOKEN="hush")}
    path.unlink()
    assert told() is None


def test_nodes_are_compared_by_variables_that_they_are_started_with():
    known = node_environment(2, json_logs=False).keys() | HA_PROXY.keys() | {"RAY_AUTH_TOKEN"}

    assert {each.name for each in SHARED_VARIABLES} <= known


def test_the_hash_of_an_application_is_that_of_its_files_wherever_they_are(tmp_path):
    def application(name, **files):
        for path, text in {"shop.py": "a = 1", "agents/clerk/SOUL.md": "Be kind.", **files}.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        root = tmp_path / name
        return application_hash(str(root), str(root / "agents"), str(root / ".owlclaw"))

    one = application("one")
    assert one
    assert application("two") == one
    unseen = {".owlclaw/cache.py": "1", "venv/x.py": "2", "__pycache__/y.py": "3", "notes.txt": "4"}
    assert application("three", **unseen) == one
    assert application("four", **{"shop.py": "a = 2"}) != one
    assert application("five", **{"agents/clerk/SOUL.md": "Be quick."}) != one
    assert application_hash(str(tmp_path / "absent"), str(tmp_path / "absent/agents"), "") == ""


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, False),
        ({"memory_home": MemoryHomeKind.FILES}, True),
        ({"stored_attempts": False}, True),
        ({"stored_artifact_bytes": None}, True),
    ],
)
def test_the_data_folder_must_be_shared_if_anything_that_others_need_is_a_file_in_it(changes, needed):
    stored = {"memory_home": MemoryHomeKind.DATABASE, "stored_attempts": True, "stored_artifact_bytes": 1}

    assert needs_shared_files(replace(plan_in().worker, **(stored | changes))) is needed


def test_nodes_are_called_as_their_machines_where_these_have_one():
    nodes = [
        ray_node("a" * 40, "alpha"),
        ray_node("b" * 40, "beta"),
        ray_node("c" * 40, "beta"),
        ray_node("d" * 40, "alpha", alive=False),
    ]

    assert [*node_names(nodes).values()] == ["alpha", "beta-bbbbbbbb", "beta-cccccccc", "alpha-dddddddd"]


def test_slots_that_a_node_does_not_offer_are_told_as_none():
    slots = {each.name: (each.total, each.available) for each in ray_node("a", "alpha").slots}

    assert slots == {
        "tool_slots": (8.0, 3.0),
        "quick_slots": (0.0, 0.0),
        "memory_slots": (0.0, 0.0),
        "state_slots": (0.0, 0.0),
    }
