"""The ledger: its records, newest first, each whole, and whether its chains hold."""

from __future__ import annotations

import re
from datetime import datetime
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.filters import filter_of
from console.pages import Pages, name_in, page
from console.text import bytes_of, pretty
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.store.queries import LedgerFilter, LedgerPlace
from serve.disconnects import while_connected
from serve.ledger import SinceQuery, TenantLedgerQuery, verified
from serve.parameters import only_agent_of, principal_of, tenant_of
from serve.representations import PLACE_PATTERN, place_of, place_text, record_body

PAGE = 50
_PLACE = re.compile(PLACE_PATTERN)
_MINUTE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
_TELLING = ("what", "tool", "model", "status", "decision", "reasoning", "why")
"""What of a record's data says what it is about, in this order."""


class ShownRecord(Struct, frozen=True):
    """A record as a row."""

    chained: ChainedRecord
    place: str
    told: str
    by: str
    error: str
    whole: str
    """All of it, as JSON."""


class LedgerPages(Pages):
    """`/console/ledger`."""

    place: ClassVar[str] = "ledger"

    @page("GET /console/ledger", "ledger:read", "kind", "agent", "run", "tool", "since", "until", "after")
    async def console_ledger(self, request: Request) -> Response:
        """Show a page of records. Times are those of UTC: without scripts nobody knows the visitor's zone."""
        asked = {name: request.query_params.get(name, "").strip() for name in ("since", "until")}
        times = {name: _with_zone(text) for name, text in asked.items() if text}
        wanted = filter_of(request, TenantLedgerQuery, limit=PAGE + 1, **times)
        narrowed = bool(principal_of(request).patterns) and not wanted.agent
        found: list[ChainedRecord] = []
        if not narrowed:
            where = wanted.of(tenant_of(request), only_agent_of(request, wanted.agent))
            found = [*await while_connected(request, self._runtime.ledger(replace(where, newest_first=True)))]
        return await self.shown(
            request,
            "ledger.html",
            records=[_shown(each) for each in found[:PAGE]],
            following=place_text(LedgerPlace.of(found[PAGE - 1])) if len(found) > PAGE else None,
            narrowed=narrowed,
            kinds=[each.value for each in LedgerKind],
            filters={
                "kind": wanted.kind.value if wanted.kind else "",
                "agent": wanted.agent or "",
                "run": wanted.run or "",
                "tool": wanted.tool or "",
                **asked,
            },
            times=[(name, _field(getattr(wanted, name))) for name in asked],
            filtered=wanted.model_fields_set - {"limit", "after"},
            after=wanted.after,
        )

    @page("GET /console/ledger/verification", "ledger:read", "tenant")
    async def console_verify_ledger(self, request: Request) -> Response:
        """Verify all chains of the tenant, record by record, and show what was found."""
        began = self._surroundings.clock.monotonic()
        asked = filter_of(request, SinceQuery)
        tenant, verification = await verified(self._runtime, request, asked)
        return await self.shown(
            request,
            "verification.html",
            tenant=tenant,
            own=tenant == tenant_of(request),
            verification=verification,
            records=sum(each.position for each in verification.chains),
            took=1_000 * (self._surroundings.clock.monotonic() - began),
        )

    @page("GET /console/ledger/{place}", "ledger:read")
    async def console_record(self, request: Request) -> Response:
        """Return all of the record at a place, as JSON in a page of plain text."""
        text = name_in(request, "place", "record")
        if not _PLACE.fullmatch(text):
            raise NotFoundError("record", text)
        wanted = place_of(text)
        before = replace(wanted, position=wanted.position - 1)
        found = await self._runtime.ledger(LedgerFilter(tenant_of(request), limit=1, after=before))
        if not found or LedgerPlace.of(found[0]) != wanted:
            raise NotFoundError("record", text)
        principal = principal_of(request)
        if principal.patterns:
            only_agent_of(request, found[0].record.agent_id or None)
        return Response(bytes_of(pretty(dict(record_body(found[0])))), media_type="text/plain; charset=utf-8")


def _shown(chained: ChainedRecord) -> ShownRecord:
    data = chained.record.data
    return ShownRecord(
        chained,
        place_text(LedgerPlace.of(chained)),
        _told(chained.record.kind, data),
        str(data.get("by") or ""),
        _error(data),
        pretty(dict(record_body(chained))),
    )


def _told(kind: LedgerKind, data: JsonObject) -> str:
    if kind is LedgerKind.VISIBILITY:
        withheld = sum(len(each.get("tools", ())) for each in data.get("hidden", ()))
        return f"{counted(data.get('visible', 0), 'tool')}" + (f", {withheld:,} withheld" if withheld else "")
    return " · ".join(str(data[name]) for name in _TELLING if data.get(name))


def _error(data: JsonObject) -> str:
    error = data.get("error")
    if isinstance(error, dict):
        return ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    return str(error or "")


def _field(at: datetime | None) -> str:
    """Return a time as a browser's field of a time takes it."""
    return "" if at is None else f"{at:%Y-%m-%dT%H:%M:%S}"


def _with_zone(text: str) -> str:
    """Return a time as the API takes it: a browser's field of a time has no zone, and no seconds if they are none."""
    if _MINUTE.fullmatch(text):
        return f"{text}:00Z"
    return f"{text}Z" if _SECOND.fullmatch(text) else text
