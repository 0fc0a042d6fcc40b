"""Where agents may be, and for how long."""

from __future__ import annotations

from msgspec import Struct


class Placement(Struct, frozen=True):
    """How many hosts a node has, and when agents leave them. Times in seconds."""

    warm: int = 1
    """Hosts made ahead of need."""
    most: int = 64
    agents_per_actor: int = 1_000
    """Capacity of a host with shared isolation."""
    idle: float = 60.0
    heartbeat: float = 1.0
    sweep: float = 5.0
    memory_limit: float = 0.9
    """The used share of a node's memory above which its idle agents are passivated at once, its others are handed over to nodes
    that have places, and it gets no agent and no host while another can take them."""
    most_nodes: int = 0
    """How many nodes Ray's autoscaler is asked for at most when agents wait for places; 0: it is asked for none."""
