"""Limits of a run, as settings and definitions write them (R5, T8)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec.structs import replace
from pydantic import Field

from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.agent import Limits

Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]


class LimitOverrides(Section):
    """The fields of Limits, each optional: what is absent comes from elsewhere."""

    tool_calls: Count | None = None
    turns: Count | None = None
    model_timeout: Seconds | None = None
    run_timeout: Seconds | None = None
    tool_timeout: Seconds | None = None
    short_term_tokens: Count | None = None
    memory_tokens: Annotated[int, Field(ge=0)] | None = None
    skill_tokens: Annotated[int, Field(ge=0)] | None = None
    skill_list_tokens: Annotated[int, Field(ge=0)] | None = None
    schedules_per_run: Annotated[int, Field(ge=0)] | None = None
    active_schedules: Annotated[int, Field(ge=0)] | None = None
    queued_runs: Count | None = None
    children_per_run: Annotated[int, Field(ge=0)] | None = None

    def over(self, base: Limits) -> Limits:
        """Return `base` with what is written here."""
        return replace(base, **self.model_dump(exclude_none=True))
