"""Scores: what somebody thinks of a run, beside its trace."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tracing import span_of_run
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId, derived_id

ScoreValue: TypeAlias = float | bool | str
"""How much of something, whether at all, or which of several."""
MAX_NAME_CHARACTERS, MAX_WORD_CHARACTERS, MAX_COMMENT_CHARACTERS = 100, 500, 4_000
LARGEST = 1e15


class Judgement(Struct, frozen=True):
    """What somebody says of a run."""

    name: str
    value: ScoreValue
    comment: str = ""


class Score(Struct, frozen=True):
    """A judgement, with its place in the trace of its run. The same name for the same run is the same score."""

    score_id: str
    trace_id: str
    span_id: str
    """The run's span, in a trace that somebody else began; empty: the score is that of the whole trace."""
    at: datetime
    judgement: Judgement
    tenant: TenantId = DEFAULT_TENANT


def score_of(run: Run, judgement: Judgement) -> Score:
    """Return the score that the judgement is, of this run."""
    span = span_of_run(run)
    place = span.span_id if run.trigger.traceparent else ""
    return Score(
        derived_id("score", run.run_id, judgement.name),
        span.trace_id,
        place,
        run.created_at,
        judgement,
        run.agent.tenant,
    )
