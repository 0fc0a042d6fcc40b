"""Which agents are chosen to leave a machine."""

from __future__ import annotations

from owlclaw_ray.placement.balance import plan_moves
from owlclaw_ray.placement.host import HostStatus
from tests.placement.test_table import place, refs, table_of


def crowded(agents, *, idle=()):
    """Two machines of one size, of which the first has all agents, on one host."""
    table = table_of({"a": 1.0}, {"a": 1}, capacity=100)
    place(table, agents)
    [seat] = table
    seat.arrived(agents)
    table.note(seat, HostStatus(len(agents), tuple((agent, 5.0) for agent in idle), 0.1))
    other = table_of({"b": 1.0}, {"b": 1})
    return [*table.nodes(), *other.nodes()]


def plan(nodes, number=100, settled=()):
    return plan_moves(nodes, number, capacity=100, most_hosts=4, spread=True, settled=settled)


def test_nobody_who_has_moved_is_chosen_again():
    agents = refs(8)

    moves = plan(crowded(agents), settled=set(agents[:3]))

    assert [agent for _, agent in moves.busy] == agents[3:7]


def test_idle_agents_count_what_they_weigh_before_others_are_chosen():
    agents = refs(16)

    moves = plan(crowded(agents, idle=agents[:8]))

    assert [chosen for _, chosen in moves.idle] == [agents[:8]]
    assert [agent for _, agent in moves.busy] == agents[8:11]


def test_no_more_are_chosen_than_may_move_at_once():
    agents = refs(16)

    moves = plan(crowded(agents, idle=agents[:2]), number=3)

    assert (len(moves.idle[0][1]), len(moves.busy)) == (2, 1)
