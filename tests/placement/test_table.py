"""Which host and which machine gets an agent, from loads that a test sets."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.least_loaded import LeastLoaded
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.table import PlacementTable


class StillHost(Struct):
    host_id: str
    node_id: str


def table_of(nodes, hosts, *, capacity=1_000, seated=lambda *_: None):
    """A table with so many spare hosts on each machine."""
    table = PlacementTable(capacity, memory_limit=0.9, seated=seated)
    table.set_nodes(nodes)
    for node, number in hosts.items():
        for each in range(number):
            table.add(StillHost(f"{node}-{each}", node))
    return table


def refs(number):
    return [AgentRef.parse(f"watch:{each}") for each in range(number)]


def homes(table, agents):
    return Counter(table.host_entry_of(agent).node.node_id for agent in agents)


def status_of(table, node, memory):
    for seat in table:
        if seat.node.node_id == node:
            table.note(seat, HostStatus(len(seat.agents), (), memory))


def place(table, agents, isolation=Isolation.SHARED):
    return [table.place(agent, isolation) for agent in agents]


@pytest.mark.parametrize("isolation", Isolation)
def test_machines_get_agents_in_proportion_to_their_cpus(isolation):
    table, agents = table_of({"small": 2.0, "large": 6.0}, {"small": 40, "large": 40}), refs(40)

    place(table, agents, isolation)

    assert homes(table, agents) == {"small": 10, "large": 30}


def test_an_idle_agent_counts_less_than_one_with_work():
    table, agents = table_of({"a": 1.0, "b": 1.0}, {"a": 1, "b": 1}), refs(16)
    place(table, agents)
    first = next(iter(table))
    table.note(first, HostStatus(8, tuple((agent, 5.0) for agent in first.agents), 0.1))

    more = [AgentRef.parse(f"more:{each}") for each in range(6)]
    place(table, more)

    assert homes(table, more) == {first.node.node_id: 6}


def test_a_machine_whose_memory_is_full_gets_nothing_while_another_has_a_place():
    table, agents = table_of({"full": 64.0, "free": 1.0}, {"full": 2, "free": 2}, capacity=3), refs(7)
    status_of(table, "full", 0.95)

    placed = place(table, agents)

    assert homes(table, agents[:6]) == {"free": 6}
    assert placed[6] is None
    assert table.node_for_host(64, {}) == "free"
    assert table.room(3, {"free": 1}) == 0


def test_agents_are_placed_all_the_same_where_the_memory_of_all_machines_is_full():
    table, [agent] = table_of({"here": 1.0}, {"here": 1}), refs(1)
    status_of(table, "here", 0.95)

    assert place(table, [agent]) != [None]
    assert table.node_for_host(64, {}) == "here"


def test_a_machine_gets_agents_again_once_its_memory_has_fallen_well_below_the_limit():
    table = table_of({"a": 64.0, "b": 1.0}, {"a": 1, "b": 1})
    agents = refs(3)
    for agent, memory in zip(agents, (0.91, 0.88, 0.84), strict=True):
        status_of(table, "a", memory)
        place(table, [agent])

    assert [table.host_entry_of(agent).node.node_id for agent in agents] == ["b", "b", "a"]


def test_what_a_machine_without_hosts_last_said_of_its_memory_is_forgotten_after_a_minute():
    table = table_of({"a": 64.0, "b": 1.0}, {"a": 1, "b": 1})
    status_of(table, "a", 0.95)
    table.remove(next(seat for seat in table if seat.node.node_id == "a"))
    chosen = []
    for _ in range(62):
        chosen.append(table.node_for_host(64, {}))
        table.beat()

    assert chosen == ["b"] * 61 + ["a"]


def test_a_machine_where_no_host_can_be_made_any_more_gets_no_agent():
    table, agents = table_of({"left": 4.0, "stays": 1.0}, {"left": 2, "stays": 2}), refs(4)
    table.set_nodes({"stays": 1.0})

    place(table, agents)

    assert homes(table, agents) == {"stays": 4}


def test_hosts_are_made_in_proportion_to_cpus_and_no_machine_gets_more_than_the_limit():
    table, coming = table_of({"small": 2.0, "large": 6.0}, {}), Counter()
    chosen = []
    while (node := table.node_for_host(9, coming)) is not None:
        coming[node] += 1
        chosen.append(node)

    assert Counter(chosen[:8]) == {"small": 2, "large": 6}
    assert coming == {"small": 9, "large": 9}
    assert table.room(9, coming) == 0


def test_a_machine_that_comes_to_others_is_told_from_the_first_ones():
    table = PlacementTable(10)

    assert not table.set_nodes({"a": 1.0})
    assert not table.set_nodes({"a": 1.0})
    assert table.set_nodes({"a": 1.0, "b": 1.0})
    assert not table.set_nodes({"a": 1.0})


@pytest.mark.parametrize("seed", range(20))
def test_the_least_loaded_thing_is_the_one_that_a_search_of_all_finds(seed):
    chance, tree, loads = random.Random(seed), LeastLoaded(), {}
    for _ in range(500):
        number = chance.randrange(12)
        if chance.random() < 0.2:
            tree.drop(number)
            loads.pop(number, None)
        else:
            loads[number] = (chance.randrange(4), chance.random() // 0.5)
            tree.put(number, number, loads[number])

        assert tree.least() == (min(loads, key=lambda each: (loads[each], each)) if loads else None)
        assert len(tree._heap) <= 2 * 12 + 17


@pytest.mark.parametrize("seed", range(10))
def test_the_sums_of_a_machine_are_those_of_its_hosts_whatever_happens(seed):
    chance = random.Random(seed)
    held = Counter()
    table = table_of(
        {"a": 2.0, "b": 1.0}, {"a": 5, "b": 5}, capacity=4, seated=lambda *sat: held.update({sat[0]: sat[1]})
    )
    agents = [AgentRef.parse(f"watch:{each}", TenantId(f"tenant-{each % 3}")) for each in range(60)]
    for _ in range(400):
        agent = chance.choice(agents)
        seat = table.host_entry_of(agent)
        if seat is None:
            table.place(agent, chance.choice(list(Isolation)))
        elif chance.random() < 0.5:
            table.left(seat, [agent])
        elif chance.random() < 0.3:
            hosted = [each for each in agents if chance.random() < 0.1]
            table.learn(seat, frozenset(seat.agents), hosted, chance.choice([*Isolation, None]))
        elif chance.random() < 0.7:
            idle = tuple((each, 1.0) for each in seat.agents if chance.random() < 0.5)
            table.note(seat, HostStatus(len(seat.agents), idle, chance.choice([0.2, 0.95])))
        elif chance.random() < 0.9:
            table.close(seat, closing=chance.random() < 0.5)
        else:
            table.remove(seat)
            table.add(StillHost(f"new-{table._added}", seat.node.node_id))

        seen = Counter()
        for seat in table:
            seen.update(agent.tenant for agent in seat.agents for _ in range(seat.size))
        assert +held == seen
        for node in table._nodes.values():
            seats = [each for each in table if each.node is node]
            assert list(node.hosts.values()) == seats
            assert node.agents == sum(len(each.agents) for each in seats)
            assert node.idle == sum(len(each.idle) for each in seats)
            assert set(node.spare) == {each.host.host_id for each in seats if not each.agents}
