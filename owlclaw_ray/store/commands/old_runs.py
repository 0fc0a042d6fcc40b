"""Commands by which runs are removed that ended long ago, and their outcome."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.ids import CallbackId, RunId, TenantId


class OldRun(Struct, frozen=True):
    """A run that may be removed, and what goes with it."""

    run_id: RunId
    seq: int
    entries: int = 0
    """How many journal entries it has, about."""
    callbacks: tuple[CallbackId, ...] = ()
    terms: tuple[int, ...] = ()
    """Of its focus, in the index of words."""


class ForgetRuns(Struct, frozen=True):
    """Remove these runs with their journals, approvals, callbacks and words, and Idempotency-Keys that expired before `expired`.

    A run stays, with all that is its, if it is not the tenant's, did not end before `before`, or has a callback that is still to be
    sent. What others need it for is not looked at: `OldRuns` and `ParentsOfOpenRuns` say. Outcome: RunsForgotten.
    """

    tenant: TenantId
    runs: tuple[OldRun, ...]
    before: datetime
    expired: datetime


class ForgetEntries(Struct, frozen=True):
    """Remove the entries up to this number from the journal of a run that is to be removed, because they are too many for one commit.

    Nothing is removed of a run that `ForgetRuns` would leave. Outcome: RunsForgotten.
    """

    tenant: TenantId
    run: OldRun
    up_to: int
    before: datetime


class RunsForgotten(Struct, frozen=True):
    """What could be removed is not there any more; so many runs were."""

    runs: int = 0
