"""What every Store promises about the nodes of its clusters, as tests."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ClusterNode,
    ForgetNode,
    HoldLease,
    HoldNode,
    JoinNode,
    MarkNode,
    NodeChanged,
    NodeForgotten,
    NodeHeld,
    NodeLost,
    NodeMarked,
    NodeState,
)
from owlclaw_ray.store.queries import ClusterNodes
from tests.contracts.store_commands import one

JOIN = JoinNode("n1", "east", "machine-1", {"version": "1.0", "slots": {"tool": 8}})
FIRST = ClusterNode("n1", "east", "machine-1", 1, 0, NodeState.ACTIVE, JOIN.details)


class NodeContract:
    """A node holds its row, and others say what it may do."""

    async def test_a_node_that_joins_holds_its_row_and_is_read_with_its_details(self, store: Store) -> None:
        assert await one(store, JOIN) == NodeHeld(FIRST)
        assert await one(store, HoldNode("n1", 1)) == NodeHeld(replace(FIRST, beats=1))
        await one(store, JoinNode("n0", "east", "machine-0"))

        assert await store.read(ClusterNodes()) == [
            ClusterNode("n0", "east", "machine-0", 1),
            replace(FIRST, beats=1),
        ]

    async def test_who_joins_takes_the_row_from_the_generation_before(self, store: Store) -> None:
        await one(store, JOIN)

        assert await one(store, JOIN) == NodeHeld(replace(FIRST, generation=2))
        assert await one(store, HoldNode("n1", 1)) == NodeLost()
        assert await one(store, HoldNode("n1", 2)) == NodeHeld(replace(FIRST, generation=2, beats=1))

    async def test_a_node_that_never_joined_holds_nothing_and_cannot_be_marked(self, store: Store) -> None:
        assert await one(store, HoldNode("n1", 1)) == NodeLost()
        assert await one(store, MarkNode("n1", NodeState.DRAINING)) == NodeChanged(None)
        assert await store.read(ClusterNodes()) == []

    async def test_a_node_that_stood_still_is_marked_as_lost_and_has_to_join_again(self, store: Store) -> None:
        await one(store, JOIN)
        await one(store, HoldNode("n1", 1))
        beaten = replace(FIRST, beats=1)

        assert await one(store, MarkNode("n1", NodeState.LOST, FIRST)) == NodeChanged(beaten)
        assert await one(store, MarkNode("n1", NodeState.LOST, beaten)) == NodeMarked(
            replace(beaten, state=NodeState.LOST)
        )
        assert await one(store, HoldNode("n1", 1)) == NodeLost()
        assert await one(store, JOIN) == NodeHeld(replace(FIRST, generation=2))

    async def test_a_drained_node_is_held_and_stays_drained_when_it_joins_again_until_it_is_made_active(
        self, store: Store
    ) -> None:
        await one(store, JOIN)
        drained = replace(FIRST, state=NodeState.DRAINING)

        assert await one(store, MarkNode("n1", NodeState.DRAINING)) == NodeMarked(drained)
        assert await one(store, HoldNode("n1", 1)) == NodeHeld(replace(drained, beats=1))
        assert await one(store, JOIN) == NodeHeld(replace(drained, generation=2))
        assert await one(store, MarkNode("n1", NodeState.ACTIVE)) == NodeMarked(replace(FIRST, generation=2))

    async def test_lost_nodes_of_another_cluster_are_forgotten_when_a_node_joins_and_all_others_are_kept(
        self, store: Store
    ) -> None:
        for node_id, cluster in (("old-1", "west"), ("old-2", "west"), ("own", "east")):
            await one(store, JoinNode(node_id, cluster, "machine"))
        await store.apply([MarkNode("old-1", NodeState.LOST), MarkNode("own", NodeState.LOST)])

        await one(store, JOIN)

        assert [node.node_id for node in await store.read(ClusterNodes())] == ["n1", "old-2", "own"]

    async def test_lost_nodes_of_the_cluster_that_runs_the_agents_are_kept_when_a_node_of_a_standby_joins(
        self, store: Store
    ) -> None:
        await one(store, JoinNode("theirs", "west", "machine"))
        await store.apply([HoldLease("west", "dir-west", 1), MarkNode("theirs", NodeState.LOST)])

        await one(store, JOIN)

        assert [node.node_id for node in await store.read(ClusterNodes())] == ["n1", "theirs"]

    async def test_a_drained_node_is_not_marked_as_lost(self, store: Store) -> None:
        await one(store, JOIN)
        drained = replace(FIRST, state=NodeState.DRAINING)
        await one(store, MarkNode("n1", NodeState.DRAINING))

        assert await one(store, MarkNode("n1", NodeState.LOST)) == NodeChanged(drained)

    async def test_the_row_of_a_drained_node_is_removed_if_it_is_as_it_was_seen_and_no_other_is(
        self, store: Store
    ) -> None:
        await one(store, JOIN)
        drained = replace(FIRST, state=NodeState.DRAINING)
        assert await one(store, ForgetNode("n1", FIRST)) == NodeChanged(FIRST)
        await one(store, MarkNode("n1", NodeState.DRAINING))
        beaten = replace(drained, beats=1)
        assert await one(store, HoldNode("n1", 1)) == NodeHeld(beaten)

        assert await one(store, ForgetNode("n1", drained)) == NodeChanged(beaten)
        assert await one(store, ForgetNode("n1", beaten)) == NodeForgotten()
        assert await store.read(ClusterNodes()) == []
        assert await one(store, HoldNode("n1", 1)) == NodeLost()

    async def test_a_row_that_is_removed_and_made_again_at_once_is_there(self, store: Store) -> None:
        await one(store, JOIN)
        await one(store, MarkNode("n1", NodeState.DRAINING))
        drained = replace(FIRST, state=NodeState.DRAINING)

        await store.apply([ForgetNode("n1", drained), JOIN])

        assert await store.read(ClusterNodes()) == [FIRST]

    async def test_a_drained_node_whose_row_was_removed_joins_as_drained_if_it_says_so(self, store: Store) -> None:
        drained = replace(FIRST, state=NodeState.DRAINING)

        assert await one(store, replace(JOIN, drained=True)) == NodeHeld(drained)
        await one(store, MarkNode("n1", NodeState.ACTIVE))
        assert await one(store, replace(JOIN, drained=True)) == NodeHeld(replace(FIRST, generation=2))
