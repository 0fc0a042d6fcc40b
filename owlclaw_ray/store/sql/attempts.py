"""Which attempts at tool calls have begun, on the working set: the loader has made the rows of those that nobody had named before."""

from __future__ import annotations

from owlclaw_ray.store.commands import (
    AttemptBegun,
    AttemptRevoked,
    AttemptsForgotten,
    BeginAttempt,
    ForgetAttempts,
    RevokeAttempt,
)
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet


def _need_attempt(needs: RowNeeds, command: BeginAttempt | RevokeAttempt) -> None:
    needs.attempts.setdefault(command.attempt, isinstance(command, BeginAttempt))


@applies(BeginAttempt, needs=_need_attempt)
def begin(store: WorkingSet, command: BeginAttempt) -> AttemptBegun | AttemptRevoked:
    """Say whether the attempt may run. One that others have forgotten meanwhile is over, and may not."""
    began = store.attempts.get(command.attempt)
    store.changes[RowChange.REMOVED_ATTEMPT].pop(command.attempt, None)
    return AttemptRevoked() if began is None else AttemptBegun(began)


@applies(RevokeAttempt, needs=_need_attempt)
def revoke(store: WorkingSet, command: RevokeAttempt) -> AttemptBegun | AttemptRevoked:
    """Say whether the attempt has begun."""
    return begin(store, BeginAttempt(command.attempt))


@applies(ForgetAttempts, needs=lambda _needs, _command: None)
def forget(store: WorkingSet, command: ForgetAttempts) -> AttemptsForgotten:
    """Have the rows removed."""
    for attempt in command.attempts:
        store.changes[RowChange.REMOVED_ATTEMPT][attempt] = (attempt,)
    return AttemptsForgotten()
