"""What each command needs of the store and what it does: two functions in the file of its subject, registered by its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from owlclaw_ray.store.commands import Command
from owlclaw_ray.store.sql.answers import Answer
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import WorkingSet

_C = TypeVar("_C", bound=Command)
_A = TypeVar("_A", bound=Answer)
_NEEDS: dict[type[object], Callable[[RowNeeds, Any], object]] = {}
_EFFECTS: dict[type[object], Callable[[WorkingSet, Any], Answer]] = {}


def applies(
    command: type[_C], *, needs: Callable[[RowNeeds, _C], object]
) -> Callable[[Callable[[WorkingSet, _C], _A]], Callable[[WorkingSet, _C], _A]]:
    """Have the function apply commands of this type to a working set that has the rows which `needs` notes.

    `needs` is called with all commands of a batch before any is applied; it knows the commands alone.
    """

    def register(function: Callable[[WorkingSet, _C], _A]) -> Callable[[WorkingSet, _C], _A]:
        _NEEDS[command], _EFFECTS[command] = needs, function
        return function

    return register


def needs_of(commands: Sequence[Command]) -> RowNeeds:
    """Return what these commands need."""
    needs = RowNeeds()
    for command in commands:
        _NEEDS[type(command)](needs, command)
    return needs


def apply(store: WorkingSet, command: Command) -> Answer:
    """Apply the command to the rows that it needs."""
    return _EFFECTS[type(command)](store, command)
