"""Retention: for how long what a tenant has is kept."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

from msgspec import Struct
from msgspec.structs import asdict

MAX_DAYS = 36_500


class Kept(Enum):
    """What is removed when it is old, each by the name of a tenant's term for it."""

    ARTIFACTS = "artifact_days"
    WEBHOOKS = "webhook_days"
    """Deliveries that came in, and callbacks that went out."""
    MEMORIES = "memory_days"
    RUNS = "run_days"
    """Runs that are over, with their journals; then what they leave behind."""


class Retention(Struct, frozen=True, omit_defaults=True):
    """For how many days a tenant's things are kept. 0: for ever; None: as the settings of the runtime say."""

    artifact_days: float | None = None
    webhook_days: float | None = None
    memory_days: float | None = None
    run_days: float | None = None

    @property
    def given(self) -> dict[str, float]:
        """Those that the tenant has of its own, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def problem(self) -> tuple[str, float] | None:
        """Return the name and the value of one that cannot be; None if all can."""
        return next(((name, value) for name, value in self.given.items() if not 0 <= value <= MAX_DAYS), None)

    def keep(self, what: Kept, general: timedelta | None) -> timedelta | None:
        """Return how long it is kept where the runtime keeps it for `general`; None: for ever."""
        own = self.given.get(what.value)
        if own is None:
            return general
        return timedelta(days=own) if own else None


NO_RETENTION = Retention()
