"""Where a run stands in its agent's queue: by its rank, the lowest first, then by its seq."""

from __future__ import annotations

from owlclaw_ray.domain.trigger import BusyPolicy

_INTERRUPTS = 1_000
"""Ranks of interrupts are lower than those of all other runs by so much."""


def rank_of(busy: BusyPolicy, priority: int) -> int:
    """Return the rank of a run that is submitted with this policy and priority."""
    return -priority - _INTERRUPTS if busy is BusyPolicy.INTERRUPT else -priority


def priority_of(rank: int) -> int:
    """Return the priority that a rank was made of."""
    return -rank - _INTERRUPTS if rank < -_INTERRUPTS // 2 else -rank
