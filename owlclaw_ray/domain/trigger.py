"""Triggers: why a run starts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from owlclaw_ray.domain.json import JsonValue


class TriggerKind(Enum):
    """Where a trigger comes from."""

    API = "api"
    WEBHOOK = "webhook"
    EVENT = "event"
    SCHEDULE_ONCE = "schedule_once"
    SCHEDULE_CRON = "schedule_cron"
    HEARTBEAT = "heartbeat"
    AGENT = "agent"
    """Another agent asked for the run."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a run starts, and with what."""

    kind: TriggerKind
    payload: JsonValue = None
    focus: str = ""
    source: str = ""
    """What fired: a schedule id, a parent run id; empty for a plain request."""
