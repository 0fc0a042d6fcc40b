"""What nodes, and those who watch them, do with the rows of nodes, on the working set."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.commands import (
    ClusterNode,
    ForgetNode,
    HoldNode,
    JoinNode,
    MarkNode,
    NodeChanged,
    NodeExcluded,
    NodeForgotten,
    NodeHeld,
    NodeLost,
    NodeMarked,
    NodeState,
)
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.migrations import HEAD
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import WorkingSet


def _need_node(needs: RowNeeds, command: JoinNode | HoldNode | MarkNode | ForgetNode) -> None:
    needs.nodes.add(command.node_id)
    needs.joins |= isinstance(command, JoinNode)


@applies(JoinNode, needs=_need_node)
def join(store: WorkingSet, command: JoinNode) -> NodeHeld | NodeExcluded:
    """Give the node its row, under the next generation, if the database still takes runtimes of this schema."""
    if store.oldest_schema > HEAD:
        return NodeExcluded(store.oldest_schema)
    known = store.nodes.get(command.node_id)
    drained = command.drained if known is None else known.state is NodeState.DRAINING
    state = NodeState.DRAINING if drained else NodeState.ACTIVE
    generation = 1 if known is None else known.generation + 1
    node = ClusterNode(command.node_id, command.cluster, command.machine, generation, 0, state, command.details)
    store.changed_node(node)
    store.forget_lost_nodes(command.cluster)
    return NodeHeld(node)


@applies(HoldNode, needs=_need_node)
def hold(store: WorkingSet, command: HoldNode) -> NodeHeld | NodeLost:
    """Renew the row, if this generation has it."""
    node = store.nodes.get(command.node_id)
    if node is None or node.generation != command.generation or node.state is NodeState.LOST:
        return NodeLost()
    node = replace(node, beats=node.beats + 1)
    store.changed_node(node)
    return NodeHeld(node)


@applies(MarkNode, needs=_need_node)
def mark(store: WorkingSet, command: MarkNode) -> NodeMarked | NodeChanged:
    """Change the state of the row, if it is the one that was seen."""
    node, seen = store.nodes.get(command.node_id), command.seen
    if node is None or (seen is not None and (seen.generation, seen.beats) != (node.generation, node.beats)):
        return NodeChanged(node)
    if command.state is NodeState.LOST and node.state is NodeState.DRAINING:
        return NodeChanged(node)  # it would be active when it joins again
    if node.state is not command.state:
        node = replace(node, state=command.state)
        store.changed_node(node)
    return NodeMarked(node)


@applies(ForgetNode, needs=_need_node)
def forget(store: WorkingSet, command: ForgetNode) -> NodeForgotten | NodeChanged:
    """Remove the row, if it is the one that was seen, and drained."""
    node = store.nodes.get(command.node_id)
    if node is None:
        return NodeForgotten()
    if node != command.seen or node.state is not NodeState.DRAINING:
        return NodeChanged(node)
    store.forget_node(command.node_id)
    return NodeForgotten()
