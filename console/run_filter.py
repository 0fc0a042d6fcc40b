"""The filter of a list of runs: in an address, in a form, and as what is asked of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import asdict
from starlette.requests import Request

from console.filters import chosen
from console.jinja import query
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import MAX_FOCUS
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import Problem
from owlclaw_ray.store.run_search import RunSearch
from serve.errors import InvalidRequestError
from serve.parameters import only_agent_of, tenant_of

OPEN = "open"
"""What a filter calls runs that are not over."""


class RunsFilter(Struct, frozen=True):
    """What is filtered by, as it is written in addresses and forms; empty texts filter nothing."""

    status: str = ""
    agent: str = ""
    definition: str = ""
    trigger: str = ""
    since: str = ""
    until: str = ""
    text: str = ""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> RunsFilter:
        """Return what an address or a form says."""
        return cls(**{name: values.get(name, "").strip().replace("\0", "") for name in cls.__struct_fields__})

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    @property
    def fields(self) -> dict[str, str]:
        """What is filtered by, by name."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def more(self) -> bool:
        """Whether it filters by what is asked for more seldom."""
        return bool(self.definition or self.trigger or self.since or self.until)

    def local(self, name: str) -> str:
        """Return a time as a browser's field for it takes it: in UTC, without a zone."""
        at = _moment(name, getattr(self, name))
        if at is None:
            return ""
        rest = "milliseconds" if at.microsecond else "seconds" if at.second else "minutes"
        return at.replace(tzinfo=None).isoformat(timespec=rest)

    def address(self, **others: object) -> str:
        """Return `?…` of the filter with others of its fields, or more beside them."""
        return query(**{**self.fields, **others})

    def search(self, request: Request) -> RunSearch:
        """Return what to ask the runtime; raises InvalidRequestError, and AccessDeniedError as only_agent_of."""
        return RunSearch(
            tenant_of(request),
            only_agent_of(request, self.agent or None),
            self.definition or None,
            None if self.status == OPEN else chosen("status", self.status, RunStatus),
            self.status == OPEN,
            chosen("trigger", self.trigger, TriggerKind),
            _moment("since", self.since),
            _moment("until", self.until),
            self.text[:MAX_FOCUS] or None,
        )


def recent_spans(now: datetime) -> Mapping[str, str]:
    """Return since when runs were accepted that are recent, as `since` says it, by what that is called: in minutes and days of UTC."""
    minute = now.astimezone(UTC).replace(second=0, microsecond=0, tzinfo=None)
    today = minute.replace(hour=0, minute=0)
    begins = {"last hour": minute - timedelta(hours=1), "today": today, "last 7 days": today - timedelta(days=6)}
    return {name: at.isoformat(timespec="minutes") for name, at in begins.items()}


FIELDS = RunsFilter.__struct_fields__


def _moment(name: str, text: str) -> datetime | None:
    """Return the time, in UTC unless it has a zone: what a browser's field for it says has none."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequestError([Problem(f"query {name}", f"is {text!r}", "2026-11-03T09:30")]) from None
