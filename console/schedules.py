"""Schedules: which there are, what became of their times, what comes, and what is done with them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import date, datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from msgspec import convert
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.filters import chosen
from console.jinja import query
from console.pages import FRAGMENT, Pages, page, see
from console.schedule_month import (
    bounds_of,
    coming_of_day,
    day_named,
    days_in,
    month_named,
    month_of,
    other_month,
)
from console.schedule_times import TickDay, by_day, days_of, instant, next_times, what_comes, zone_of
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleRequest, ScheduleStatus
from owlclaw_ray.errors import NotFoundError, Problem, ScheduleError
from owlclaw_ray.ids import ScheduleId, TenantId
from owlclaw_ray.schedules.cron import validate_cron
from owlclaw_ray.store.queries import ComingSchedules, ScheduleFilter
from serve.errors import InvalidRequestError
from serve.parameters import agent_of, check_owner, only_agent_of, principal_of, submitters_of, tenant_of
from serve.representations import exact_moment
from serve.request_bodies import checked

PAGE = 100
_TICKS = 200
_NEXT = 5
_SPANS = {6: "6 hours", 24: "24 hours", 72: "3 days", 168: "7 days"}
_MOST_LINES = 500
_LONGEST_ZONE = 200
_DID = re.compile(r"backfill-(\d{1,4})-(\d{1,4})-(\d{1,4})")
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?")


class SchedulePages(Pages):
    """`/console/schedules`."""

    place: ClassVar[str] = "schedules"

    @page("GET /console/schedules", "schedules:read", "status", "agent", "after", FRAGMENT, live={"rows": 5.0})
    async def console_schedules(self, request: Request) -> Response:
        """Show a page of schedules, by agent, oldest first."""
        asked = request.query_params
        status, agent, after = asked.get("status", ""), asked.get("agent", "").strip(), asked.get("after", "")
        narrowed = bool(principal_of(request).patterns) and not agent
        found: Sequence[Schedule] = ()
        if not narrowed:
            begin = (await self._schedule(request, after)).schedule_id if after else None
            where = ScheduleFilter(
                tenant_of(request),
                only_agent_of(request, agent or None),
                chosen("status", status, ScheduleStatus),
                begin,
                PAGE + 1,
            )
            found = await self._runtime.timetable.schedules(where)
        return await self.shown(
            request,
            "schedules.html",
            "rows",
            schedules=found[:PAGE],
            following=found[PAGE - 1].schedule_id if len(found) > PAGE else None,
            narrowed=narrowed,
            statuses=list(ScheduleStatus),
            status=status,
            agent=agent,
            after=after,
        )

    @page("GET /console/schedules/upcoming", "schedules:read", "hours", "agent", "heartbeats")
    async def console_upcoming(self, request: Request) -> Response:
        """Show what will run within some hours, of all schedules, in the order of time."""
        asked = request.query_params
        hours, agent, beats = asked.get("hours", "24"), asked.get("agent", "").strip(), asked.get("heartbeats") == "yes"
        if hours not in map(str, _SPANS):
            raise InvalidRequestError(
                [Problem("query hours", f"is {hours!r}", f"one of {', '.join(map(str, _SPANS))}")]
            )
        narrowed = bool(principal_of(request).patterns) and not agent
        now = self._now()
        until = now + timedelta(hours=int(hours))
        due, hidden = ((), False) if narrowed else await self._coming(request, agent, until, beats=beats)
        lines = await asyncio.to_thread(what_comes, due, until)
        return await self.shown(
            request,
            "upcoming.html",
            lines=lines[:_MOST_LINES],
            whole=len(lines) <= _MOST_LINES,
            hidden=hidden,
            narrowed=narrowed,
            hours=int(hours),
            spans=_SPANS,
            agent=agent,
            heartbeats=beats,
            now=now,
        )

    async def _coming(
        self, request: Request, agent: str, until: datetime, *, beats: bool
    ) -> tuple[Sequence[Schedule], bool]:
        """Return the schedules of the first lines and of one more, those of heartbeats only with `beats`; and whether any is left out."""
        ref, timetable = only_agent_of(request, agent or None), self._runtime.timetable
        where = ComingSchedules(tenant_of(request), until, ref, None if beats else False, _MOST_LINES + 1)
        due = await timetable.coming(where)
        return due, not beats and bool(await timetable.coming(replace(where, heartbeats=True, limit=1)))

    @page("GET /console/schedules/new", "schedules:write", "agent")
    async def console_new_schedule(self, request: Request) -> Response:
        """Show the form that makes a schedule."""
        return await self.shown(
            request, "new_schedule.html", agent=request.query_params.get("agent", ""), overlaps=list(OverlapPolicy)
        )

    @page("POST /console/schedules", "schedules:write", form=console_new_schedule)
    async def console_create_schedule(self, request: Request) -> Response:
        """Make a schedule, and lead to it; the same form twice makes one."""
        form = await read_form(request)
        asked = checked(_asked(form), wire.ScheduleRequest)
        wanted = convert(asked | {"at": wire.moment(asked["at"])} if "at" in asked else asked, ScheduleRequest)
        stored = await self._runtime.timetable.create(
            agent_of(request, form.text("agent").strip()),
            wanted,
            idempotency_key=form.text("once")[:255] or None,
            submitters=submitters_of(request),
            by=str(principal_of(request)),
        )
        return see(f"/schedules/{stored.schedule_id}")

    @page(
        "GET /console/schedules/{schedule_id}",
        "schedules:read",
        *("month", "day", "before", "did", FRAGMENT),
        live={"live": 5.0},
    )
    async def console_schedule(self, request: Request) -> Response:
        """Show a schedule: its rule, its next times, a month of its times, and what became of those of a month, of a day, or the newest."""
        schedule = await self._schedule(request)
        tenant, zone, timetable = schedule.agent.tenant, zone_of(schedule), self._runtime.timetable
        day, month = _named(request, "day", day_named), _named(request, "month", month_named)
        before = _moment_of(request, "before")
        since = until = None
        coming: Sequence[datetime] = ()
        if first := day or month:
            since, *_, until = bounds_of(first, 1 if day else days_in(first), zone)
            coming = await asyncio.to_thread(coming_of_day, schedule, since, until) if day else ()
        ends = [each for each in (before, until) if each is not None]
        found = await timetable.ticks(tenant, schedule.schedule_id, min(ends, default=None), _TICKS)
        ticks = [each for each in found if since is None or max(each.due_at, each.last_due_at or each.due_at) >= since]
        days = list(days_of(ticks, zone))
        if day and day not in {each.day for each in days}:
            days.insert(0, TickDay(day, ()))
        today = self._now().astimezone(zone).date()
        ended = days[0].day if days and schedule.status.final else today
        shown = (day or month or ended).replace(day=1)
        bounds = bounds_of(shown, days_in(shown), zone)
        sums = await timetable.tick_sums(tenant, schedule.schedule_id, bounds)
        calendar = await asyncio.to_thread(month_of, schedule, shown, bounds, sums)
        did = _DID.fullmatch(request.query_params.get("did", ""))
        return await self.shown(
            request,
            "schedule.html",
            "live",
            schedule=schedule,
            zone=zone,
            next_times=next_times(schedule, _NEXT),
            days=days,
            newest=ticks[0].at if ticks else "",
            calendar=calendar,
            month=shown,
            asked_month=f"{month:%Y-%m}" if month and not day else "",
            months=[other_month(shown, step) for step in (-1, 1)],
            day=day,
            coming=coming,
            today=today,
            before=request.query_params.get("before", ""),
            following=exact_moment(found[-1].due_at) if len(found) >= _TICKS and found[-1] in ticks else None,
            did=did and [int(each) for each in did.groups()],
            repeats=schedule.kind in {ScheduleKind.CRON, ScheduleKind.INTERVAL},
        )

    @page("POST /console/schedules/{schedule_id}/pause", "schedules:write")
    async def console_pause(self, request: Request) -> Response:
        """Have its times pass without runs."""
        return await self._change(request, self._runtime.timetable.pause)

    @page("POST /console/schedules/{schedule_id}/resume", "schedules:write")
    async def console_resume(self, request: Request) -> Response:
        """Have it go on with the next time that comes."""
        return await self._change(request, self._runtime.timetable.resume)

    @page("POST /console/schedules/{schedule_id}/cancel", "schedules:write")
    async def console_cancel_schedule(self, request: Request) -> Response:
        """End it, and the runs of its firings that are not over."""
        return await self._change(request, self._runtime.timetable.cancel)

    async def _change(
        self, request: Request, change: Callable[[TenantId, ScheduleId, str], Awaitable[object]]
    ) -> Response:
        """Make the change to the schedule that a form is for, and lead back to it."""
        await read_form(request)
        schedule = await self._schedule(request)
        await change(schedule.agent.tenant, schedule.schedule_id, str(principal_of(request)))
        return see(f"/schedules/{schedule.schedule_id}")

    @page("GET /console/schedules/{schedule_id}/backfill", "schedules:write", "since", "until")
    async def console_plan_backfill(self, request: Request) -> Response:
        """Ask for which times, and show which of them would get a run; nothing is done."""
        schedule, asked = await self._schedule(request), request.query_params
        zone, now = zone_of(schedule), self._now()
        since, until = now - timedelta(days=1), now
        plan, status = None, 200
        if "since" in asked or "until" in asked:
            try:
                since = _instant(asked.get("since", ""), zone, "since")
                until = _instant(asked.get("until", ""), zone, "until")
                plan = await self._runtime.timetable.plan_backfill(
                    schedule.agent.tenant, schedule.schedule_id, since, until
                )
            except (InvalidRequestError, ScheduleError) as error:
                status = self._refuse(request, SentForm(tuple(asked.multi_items())), error).status
        response = await self.shown(
            request,
            "backfill.html",
            schedule=schedule,
            zone=zone,
            since=since,
            until=until,
            plan=plan,
            missing=by_day(plan.missing, zone) if plan else (),
        )
        response.status_code = status
        return response

    @page("POST /console/schedules/{schedule_id}/backfill", "schedules:write")
    async def console_backfill(self, request: Request) -> Response:
        """Queue the runs, and lead back to the schedule; repeating it gives no time a second run."""
        form = await read_form(request)
        schedule = await self._schedule(request)
        asked = checked({"since": form.text("since"), "until": form.text("until")}, wire.BackfillRequest)
        done = await self._runtime.timetable.backfill(
            schedule.agent.tenant,
            schedule.schedule_id,
            wire.moment(asked["since"]),
            wire.moment(asked["until"]),
            quota=principal_of(request).quota,
            submitters=submitters_of(request),
            by=str(principal_of(request)),
        )
        did = f"backfill-{len(done.queued)}-{done.known}-{done.refused}"
        return see(f"/schedules/{schedule.schedule_id}{query(did=did)}")

    async def _schedule(self, request: Request, schedule_id: str = "") -> Schedule:
        """Return a schedule of the tenant, by default that of the path; raises NotFoundError, AccessDeniedError."""
        schedule_id = schedule_id or request.path_params["schedule_id"]
        if "\0" in schedule_id:
            raise NotFoundError("schedule", schedule_id)
        schedule = await self._runtime.timetable.schedule(tenant_of(request), ScheduleId(schedule_id))

        async def owner() -> AgentRef:
            return schedule.agent

        await check_owner(request, owner)
        return schedule


def _named(request: Request, name: str, named: Callable[[str], date]) -> date | None:
    """Return the day or month that a query parameter names; raises InvalidRequestError."""
    text = request.query_params.get(name, "")
    try:
        return named(text) if text else None
    except ValueError:
        right = "a month, such as 2026-11" if name == "month" else "a day, such as 2026-11-03"
        raise InvalidRequestError([Problem(f"query {name}", f"is {text!r}", right)]) from None


def _moment_of(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name, "")
    try:
        return wire.moment(text) if text else None
    except ValueError as error:
        raise InvalidRequestError([Problem(f"query {name}", f"is {text!r}", str(error))]) from None


def _instant(text: str, zone: ZoneInfo, where: str) -> datetime:
    """Return the time that was typed; raises InvalidRequestError."""
    try:
        return instant(text, zone)
    except ValueError:
        problem = Problem(where, f"is {text!r}", f"a date and a time of the clock in {zone.key}: 2026-11-03T09:30")
        raise InvalidRequestError([problem]) from None


def _asked(form: SentForm) -> JsonObject:
    """Return what a form says as the API's body: what is empty is not said. Raises InvalidRequestError, ScheduleError."""
    asked: JsonObject = {"focus": form.text("focus").strip(), "overlap": form.text("overlap") or "buffer_one"}
    zone = form.text("timezone").strip()[:_LONGEST_ZONE] or "UTC"
    if form.text("cron").strip():
        asked |= {"cron_expression": form.text("cron").strip(), "timezone": zone}
    if form.text("minutes").strip():
        asked["interval_seconds"] = 60 * _number(form, "minutes")
    if form.text("at").strip():
        validate_cron("@daily", zone)
        asked["at"] = exact_moment(_instant(form.text("at").strip(), ZoneInfo(zone), "at"))
    for name in ("jitter_seconds", "catch_up_seconds"):
        if form.text(name).strip():
            asked[name] = _number(form, name)
    if form.text("task_type").strip():
        asked["task_type"] = form.text("task_type").strip()
    return asked


def _number(form: SentForm, name: str) -> float:
    text = form.text(name).strip()
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError([Problem(name, f"is {text!r}", "a number")])
    return float(text)
