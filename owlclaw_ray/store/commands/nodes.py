"""Commands about the nodes of a cluster: which of them may run agents."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonValue


class NodeState(StrEnum):
    """What a node may do."""

    ACTIVE = "active"
    """It runs agents."""
    DRAINING = "draining"
    """It ends what it has begun, and takes up nothing new. It stays so when its Keeper starts again."""
    LOST = "lost"
    """It has not been heard from, and its agents run elsewhere. It has to join again."""


class ClusterNode(Struct, frozen=True):
    """A node as the store knows it. One whose Keeper does not renew its row stands still, which others see."""

    node_id: str
    cluster: str
    machine: str
    generation: int = 0
    """How often it has joined."""
    beats: int = 0
    """How often it was renewed since it joined."""
    state: NodeState = NodeState.ACTIVE
    details: dict[str, JsonValue] = field(default_factory=dict)
    """What it says about itself when it joins; a few hundred bytes."""


class JoinNode(Struct, frozen=True):
    """Have a node's Keeper take up its row, made if it is new: the generation grows, and a lost node is active again. Outcome:
    NodeHeld, or NodeExcluded.

    Lost nodes of other clusters are forgotten.
    """

    node_id: str
    cluster: str
    machine: str
    details: dict[str, JsonValue] = field(default_factory=dict)
    drained: bool = False
    """It was drained when it last held its row: it stays so, even if the row was forgotten."""


class HoldNode(Struct, frozen=True):
    """Renew the row of a node that joined as this generation. Outcome: NodeHeld, or NodeLost if it has to join again."""

    node_id: str
    generation: int


class MarkNode(Struct, frozen=True):
    """Say what a node may do from now on. Outcome: NodeMarked, or NodeChanged if it is not as `seen`, or not there.

    With `seen` it is marked only if its generation and beats are still these: it was watched standing still.
    """

    node_id: str
    state: NodeState
    seen: ClusterNode | None = None


class ForgetNode(Struct, frozen=True):
    """Remove the row of a drained node that was watched standing still. Outcome: NodeForgotten, or NodeChanged if it is not as `seen`."""

    node_id: str
    seen: ClusterNode


class NodeForgotten(Struct, frozen=True):
    """The node has no row any more."""


class NodeHeld(Struct, frozen=True):
    """The node has its row, and does what its state says."""

    node: ClusterNode


class NodeExcluded(Struct, frozen=True):
    """A newer version has migrated the database while this node's cluster was not there: it takes runtimes of newer schemas only."""

    oldest: str
    """The oldest schema that it takes."""


class NodeLost(Struct, frozen=True):
    """The row is marked as lost, or another generation has it, or it is gone: the node runs no agents until it has joined again."""


class NodeMarked(Struct, frozen=True):
    """The node is in this state."""

    node: ClusterNode


class NodeChanged(Struct, frozen=True):
    """The node is as it was: it is not the one that was seen."""

    node: ClusterNode | None
