"""Heartbeats, as definitions write them (R7)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.heartbeat import EventSourceKind, Heartbeat
from owlclaw_ray.domain.schedule import MAX_FOCUS, MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS

_DEFAULT = Heartbeat()


class HeartbeatFile(Section):
    """The section `heartbeat` of agent.yaml; to write it, be it empty, turns heartbeats on."""

    every_seconds: Annotated[int, Field(ge=MIN_INTERVAL_SECONDS, le=MAX_INTERVAL_SECONDS)] = _DEFAULT.every_seconds
    sources: Annotated[tuple[EventSourceKind, ...], Field(min_length=1)] = _DEFAULT.sources
    focus: Annotated[str, Field(min_length=1, max_length=MAX_FOCUS, pattern=r"\S")] = _DEFAULT.focus
    max_per_day: Annotated[int, Field(ge=1)] | None = _DEFAULT.max_per_day
    pause_after_idle_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = _DEFAULT.pause_after_idle_days
    query: str = _DEFAULT.query
    url_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$")] = _DEFAULT.url_variable

    @model_validator(mode="after")
    def _whole_database(self) -> HeartbeatFile:
        wanted = EventSourceKind.DATABASE in self.sources
        if wanted and not (self.query.strip() and self.url_variable):
            raise ValueError(
                "has the source database: write its query, and url_variable, the variable with the database's URL"
            )
        if not wanted and (self.query or self.url_variable):
            raise ValueError("has a query or url_variable, but not the source database: add it to sources")
        return self

    def heartbeat(self) -> Heartbeat:
        """Return it as the domain says it."""
        return Heartbeat(**self.model_dump())
