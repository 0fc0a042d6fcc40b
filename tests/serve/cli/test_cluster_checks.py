"""Broken clusters, and what is said of them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from actors.environment import HA_PROXY, node_environment
from actors.node_variables import shared_variables
from owlclaw_ray.domain.node import (
    ClusterView,
    Disk,
    LeaseView,
    NodeClock,
    NodeCondition,
    NodeVariable,
    OtherCluster,
    Slots,
    Versions,
)
from serve.cli.cluster_checks import check_cluster
from serve.cli.findings import Level
from serve.representations import nodes_body
from tests.serve.double import LOST, node_view

PARTS = ("root", "keeper", "gateway", "directory", "scheduler")
GIB = 1024**3


def found(*others, lease=None, head=None, missing=()):
    """What is said of a cluster of a sound head and these nodes, as (level, subject, message, fix)."""
    view = ClusterView((head or node_view("alpha", parts=PARTS), *others), lease, missing)
    return [(each.level, each.subject, each.message, each.fix) for each in check_cluster(nodes_body(view))]


def test_of_a_sound_cluster_each_node_is_told_to_be_good():
    said = found(node_view("beta"), node_view("gamma"))

    assert [(level, subject) for level, subject, _, _ in said] == [
        (Level.OK, "node alpha"),
        (Level.OK, "node beta"),
        (Level.OK, "node gamma"),
    ]
    assert said[1][2] == "4 CPUs; root, keeper, gateway; 5 agents on 2 hosts; store 1.0 ms"


SLOTLESS = (Slots("tool_slots", 4.0, 4.0), Slots("quick_slots", 0.0, 0.0))
RAY_260, RAY_261 = (Versions("3.11.9", ray, "1.0.0", "Linux x86_64") for ray in ("2.60.0", "2.61.0"))


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        ({"versions": RAY_261}, Level.FAIL, "has Ray 2.61.0, the others have 2.60.0"),
        ({"versions": replace(RAY_260, python="3.12.1")}, Level.FAIL, "has Python 3.12.1, the others have 3.11.9"),
        ({"versions": replace(RAY_260, owlclaw="0.9")}, Level.FAIL, "has OwlClaw 0.9, the others have 1.0.0"),
        ({"versions": replace(RAY_260, platform="Linux aarch64")}, Level.WARN, "is Linux aarch64"),
        ({"slots": SLOTLESS}, Level.FAIL, "does not offer quick_slots"),
        ({"variables": (NodeVariable("RAY_AUTH_MODE", None),)}, Level.WARN, "RAY_AUTH_MODE is not set"),
        (
            {"variables": (NodeVariable("RAY_AUTH_MODE", "token"), NodeVariable("RAY_AUTH_TOKEN", "hash 2"))},
            Level.WARN,
            "RAY_AUTH_TOKEN is hash 2, on others hash 1",
        ),
        ({"store_seconds": None, "store_problem": "no route"}, Level.FAIL, "does not reach the store: no route"),
        ({"store_seconds": 0.2}, Level.WARN, "a small read of the store takes 200 ms"),
        ({"clock": NodeClock(2.5, 0.01)}, Level.WARN, "its clock is 2.5 s (±0.010 s) ahead of the server's"),
        ({"clock": NodeClock(-1.5, 0.01)}, Level.WARN, "its clock is 1.5 s (±0.010 s) behind the server's"),
        ({"data_dir": Disk("/srv", 3 * GIB, 100 * GIB)}, Level.WARN, "3.0 of 100.0 GiB are free"),
        ({"ray_dir": Disk("/srv", GIB // 8, 100 * GIB)}, Level.FAIL, "0.1 of 100.0 GiB are free"),
        ({"data_dir": Disk("/srv", 0, 0)}, Level.FAIL, "the data folder /srv is not there"),
        ({"memory_used": 0.97}, Level.WARN, "97% of its memory is used"),
        ({"application": ""}, Level.FAIL, "finds neither definitions nor Python files"),
        ({"application": "other"}, Level.WARN, "has other definitions or other Python files"),
        ({"shared_files": True, "folder_mark": ""}, Level.FAIL, "what the Directory wrote is not in its /srv/shop"),
        ({"shared_files": True, "folder_mark": "another"}, Level.FAIL, "what the Directory wrote is not in its"),
        ({"missing": ("keeper",)}, Level.FAIL, "has no keeper"),
        ({"missing": ("mcp_pool",)}, Level.FAIL, "has no mcp_pool"),
        ({"state": NodeCondition.DRAINING, "problem": "Ray drains it"}, Level.WARN, "leaves: Ray drains it"),
        ({"state": NodeCondition.JOINING, "report": None, "clock": None}, Level.WARN, "joins"),
        ({"state": NodeCondition.SILENT, "problem": "no answer", "report": None}, Level.FAIL, "no answer"),
        (
            {"state": NodeCondition.NO_ROOT, "problem": "the store is SQLite", "report": None},
            Level.FAIL,
            "the store is SQLite",
        ),
        (LOST, Level.WARN, "was lost: missed heartbeats"),
    ],
)
def test_a_node_that_differs_or_lacks_something_is_told_with_how_to_mend_it(changes, level, told):
    said = [each for each in found(node_view("beta", **changes), node_view("gamma")) if each[0] is not Level.OK]

    [(found_level, subject, message, fix)] = said
    assert (found_level, subject) == (level, "node beta")
    assert told in message
    assert fix


def test_a_data_folder_of_its_own_is_no_fault_where_nothing_in_it_is_shared():
    assert {each[0] for each in found(node_view("beta", shared_files=False, folder_mark=""))} == {Level.OK}


def test_no_data_folder_is_taken_for_the_shared_one_where_none_has_the_mark_of_the_directory():
    unmarked = {"shared_files": True, "folder_mark": ""}

    said = found(node_view("beta", **unmarked), head=node_view("alpha", parts=PARTS, **unmarked))

    assert [(level, subject) for level, subject, _, _ in said] == [
        (Level.FAIL, "node alpha"),
        (Level.FAIL, "node beta"),
    ]


def test_the_folder_of_the_node_with_the_directory_is_the_right_one_whatever_the_others_see():
    stale = {"shared_files": True, "folder_mark": "old"}
    home = node_view("beta", shared_files=True, folder_mark="new", parts=("root", "keeper", "gateway", "directory"))

    said = found(home, node_view("gamma", **stale), head=node_view("alpha", **stale))

    assert [subject for level, subject, _, _ in said if level is Level.FAIL] == ["node alpha", "node gamma"]


def test_a_clock_that_is_off_by_less_than_is_known_of_it_is_not_told():
    assert {each[0] for each in found(node_view("beta", clock=NodeClock(1.4, 0.6)))} == {Level.OK}


def test_of_two_nodes_that_differ_the_head_is_right():
    said = [each for each in found(node_view("beta", versions=RAY_261)) if each[0] is not Level.OK]

    assert [subject for _, subject, _, _ in said] == ["node beta"]


def test_a_cluster_that_lacks_a_part_of_which_it_has_one_is_told():
    said = found(missing=("directory", "exporter"))

    assert [(level, message) for level, subject, message, _ in said if subject == "cluster"] == [
        (Level.FAIL, "has no directory"),
        (Level.FAIL, "has no exporter"),
    ]


def told_by(*nodes):
    """What is said of a cluster whose nodes, the head first, have these variables and no other ones."""
    views = []
    for number, values in enumerate(nodes):
        told = shared_variables(values, b"salt")
        views.append(node_view(f"node-{number}", head=not number, variables=told, parts=PARTS))
    said = [*check_cluster(nodes_body(ClusterView(tuple(views), None)))]
    return [(each.level, each.subject, each.message) for each in said if each.level is not Level.OK]


SOUND = node_environment(2, json_logs=False) | {"RAY_AUTH_TOKEN": "hush"}


def without(*names):
    return {name: value for name, value in SOUND.items() if name not in names}


def test_nodes_that_have_what_each_machine_needs_are_sound_with_values_of_their_own_and_haproxy_too():
    own = SOUND | HA_PROXY | {"RAY_task_events_report_interval_ms": "1000"}

    assert [told_by(SOUND, SOUND), told_by(own, own), told_by(SOUND)] == [[], [], []]


@pytest.mark.parametrize("mode", [{}, {"RAY_AUTH_MODE": "disabled"}])
@pytest.mark.parametrize("number", [1, 2])
def test_nodes_none_of_which_asks_for_a_token_fail(mode, number):
    [(level, subject, message)] = told_by(*[without("RAY_AUTH_MODE", "RAY_AUTH_TOKEN") | mode] * number)

    assert (level, subject) == (Level.FAIL, "cluster")
    assert "no node asks for Ray's token (RAY_AUTH_MODE)" in message


@pytest.mark.parametrize("name", ["RAY_health_check_period_ms", "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"])
def test_a_variable_that_no_machine_has_though_each_needs_it_is_told_of_the_cluster(name):
    [(level, subject, message)] = told_by(without(name), without(name))

    assert (level, subject) == (Level.WARN, "cluster")
    assert f"{name} is not set on any node" in message


def test_a_node_that_is_alone_needs_the_token_only():
    assert told_by({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "hush"}) == []


def test_of_nodes_that_differ_those_are_told_that_lack_what_each_needs_though_they_are_the_most_and_the_head():
    lacking = without("RAY_health_check_period_ms")

    said = told_by(lacking, lacking, SOUND)

    assert [subject for _, subject, _ in said] == ["node node-0", "node node-1"]
    assert "RAY_health_check_period_ms is not set, on others 500" in said[0][2]


@pytest.mark.parametrize("name", [*HA_PROXY])
def test_nodes_with_another_haproxy_are_told(name):
    [(level, subject, message)] = told_by(SOUND | HA_PROXY, SOUND | HA_PROXY | {name: "7"})

    assert (level, subject) == (Level.WARN, "node node-1")
    assert f"{name} is 7, on others {HA_PROXY[name]}" in message


def test_a_node_of_a_version_that_does_not_tell_of_a_variable_is_not_said_to_lack_it():
    old = (NodeVariable("RAY_AUTH_MODE", "token"),)
    head = node_view("alpha", parts=PARTS, variables=shared_variables(SOUND, b"salt"))

    assert {each[0] for each in found(node_view("beta", variables=old), head=head)} == {Level.OK}


@pytest.mark.parametrize(
    ("lease", "level", "told"),
    [
        (LeaseView("east", held=True, generation=3, holder=""), Level.OK, "(east) runs the agents, generation 3"),
        (
            LeaseView("east", held=False, generation=4, holder="west"),
            Level.OK,
            "stands by: west runs the agents, generation 4",
        ),
        (LeaseView("east", held=False, generation=0, holder=""), Level.WARN, "does not know who does"),
    ],
)
def test_the_lease_is_told(lease, level, told):
    (found_level, subject, message, _), *_ = found(lease=lease)

    assert (found_level, subject) == (level, "lease")
    assert told in message


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            OtherCluster("west", ("omega",), "0.0.9", "0015", "2026-11-20"),
            "west has nodes in the store, too: owlclaw-ray 0.0.9, schema 0015, since 2026-11-20, omega",
        ),
        (OtherCluster("west", (), "", "", ""), "too: a version that does not name its schema"),
    ],
)
def test_other_clusters_of_the_store_are_told_with_their_versions(other, told):
    _, (level, subject, message, _), *_ = found(
        lease=LeaseView("east", held=True, generation=3, holder="", others=(other,))
    )

    assert (level, subject) == (Level.OK, "lease")
    assert told in message


def test_the_command_asks_the_runtime_and_prints_what_it_finds(owlclaw):
    result = owlclaw("doctor", "--cluster")
    listed = owlclaw("doctor", "--cluster", "--json")

    assert result.exit_code == 1
    assert "lease: this cluster (east) runs the agents" in result.output
    assert "node beta: was lost: missed heartbeats" in result.output
    assert "→" in result.output
    assert [each["level"] for each in json.loads(listed.output)] == ["OK", "OK", "FAIL", "FAIL", "OK", "WARN"]


def test_without_a_runtime_the_command_says_how_to_start_one(cli):
    result = cli("doctor", "--cluster", "--url", "http://127.0.0.1:9")

    assert result.exit_code == 1
    assert "owlclaw up" in result.output
