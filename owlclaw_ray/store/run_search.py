"""Searching runs: by what they are of, how they stand, when they were accepted, and the text of their focus."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.queries import Query


class RunPage(Struct, frozen=True):
    """Runs that a search has found, newest first."""

    runs: Sequence[Run]
    following: RunId | None = None
    """The run before which to go on; None if there is nothing more to be found."""
    searched_to: datetime | None = None
    """How far back it has looked, if it stopped before it had as many as were wanted: text that few of many runs have is searched for in
    several pages, so that none takes long. They may be empty.
    """


class RunSearch(Query[RunPage], frozen=True):
    """The runs that match, newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    definition: str | None = None
    status: RunStatus | None = None
    open: bool = False
    """Only runs that are not over."""
    kind: TriggerKind | None = None
    since: datetime | None = None
    """Only runs accepted then or later."""
    until: datetime | None = None
    """Only runs accepted before then."""
    text: str | None = None
    """Only runs whose focus has these words, see `FocusQuery`. Heartbeats, whose focus is their definition's, only together with their
    kind.
    """
    before_seq: int | None = None
    after_seq: int | None = None
    limit: int = 50
    payloads: bool = False
    """Whether to read what the runs were triggered with; without it their payloads are None."""
