"""One run: its conversation, its times and its journal, live; and what can be done about it."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from console.badge import ApprovalBadge
from console.entries import EntryViews
from console.family import family
from console.jinja import Templates, query, segment
from console.pages import FRAGMENT, Pages, known, page, see
from console.runs import again, begun, run_of, seq_of
from console.text import bytes_of, json_text, pretty
from console.timeline import RunTimeline, Zoom, flame, timeline
from console.visits import read_form
from console.whole_runs import WholeRuns
from console.withheld import WithheldOfRuns
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import DefinitionError, NotFoundError, Problem, UnknownAgentError
from owlclaw_ray.store.queries import RunProgress
from owlclaw_ray.store.run_search import RunSearch
from serve.errors import InvalidRequestError
from serve.events import EventStream, last_event_id
from serve.parameters import principal_of
from serve.streams import KeepAliveTimer
from serve.surfaces import Surroundings

PAGE = 200
_DID = re.compile(r"cancel-(\d)")
_MOST_CURL = 4_000
VIEWS = ("conversation", "journal")
PICTURES = ("", "cost", "time")
_CONTEXT = 10
"""How many entries before those that are shown are read: they say what failed before the first reply."""
_LOOKED_AT_FOR_REPEATS = 100
"""How many of the newest runs of an agent that were asked for are looked at."""
_FIRST_ENTRIES = 12
"""Among the first ones is how the prompt was built."""


class UsedDefinition(Struct, frozen=True):
    """The definition of an agent as a run has it."""

    version: str
    changed: bool
    """Whether it is another one by now."""
    model: str
    """The first that the run was to ask."""


class RunPages(Pages):
    """`/console/runs/{run_id}`."""

    place: ClassVar[str] = "runs"

    def __init__(self, surroundings: Surroundings, templates: Templates, badge: ApprovalBadge) -> None:
        super().__init__(surroundings, templates, badge)
        self._pulse = KeepAliveTimer(surroundings.keep_alive)
        self._whole = WholeRuns(surroundings.runtime)
        self._withheld = WithheldOfRuns(surroundings.runtime)

    @page("GET /console/runs/{run_id}", "runs:read", "view", "before", "did", "picture", "zoom", FRAGMENT)
    async def console_run(self, request: Request) -> Response:
        """Show the run, from its newest 200 entries; earlier ones are pages of their own."""
        run, principal = await run_of(self._runtime, request, request.path_params["run_id"]), principal_of(request)
        server = f"{request.base_url.scheme}://{request.base_url.netloc}"
        before = seq_of(request, "before")
        view = request.query_params.get("view") or VIEWS[0]
        if view not in VIEWS:
            raise InvalidRequestError([Problem("query view", f"is {view!r}", f"one of {', '.join(VIEWS)}")])
        picture, zoom = _picture_of(request)
        found = await self._runtime.journal(run.agent.tenant, run.run_id, before, PAGE + _CONTEXT)
        entries, earlier = found[-PAGE:], found[:-PAGE]
        now = self._surroundings.clock.now()
        only_head = request.query_params.get(FRAGMENT) == "head"
        first, last = (entries[0].seq, entries[-1].seq) if entries else (1, 0)
        definition, of_family, used, repeats, withheld = await asyncio.gather(
            self._definition(run, found),
            family(self._runtime, self._whole, principal, run),
            self._whole.usage(run),
            known(()) if only_head else self._repeats(run),
            self._withheld.of(principal, run) if before is None and _is_prompted(found) else known(()),
        )
        return await self.shown(
            request,
            "run.html",
            "head",
            run=run,
            view=view,
            here=partial(
                _address, run, view=view if view != VIEWS[0] else "", before=before, picture=picture, zoom=str(zoom)
            ),
            did=_DID.fullmatch(request.query_params.get("did", "")),
            before=before,
            first_page=PAGE + 1,
            first=first,
            last=last,
            entries=() if only_head else EntryViews(earlier).of(entries),
            picture=picture,
            zoom=zoom,
            times=_drawn(picture, entries, now, over=run.status.final or before is not None, zoom=zoom),
            usage=used,
            repeats=repeats,
            part=before is not None or first > 1,
            entry_page=partial(_entry_page, run, view, before),
            definition=definition,
            withheld=withheld,
            payload="" if run.trigger.content is None else pretty(run.trigger.payload),
            family=of_family,
            curl=_curl(run, server, keyed=principal is not LOCAL),
            entry_curl=_entry_curl(run, server, keyed=principal is not LOCAL),
            took=_milliseconds(run, now),
        )

    async def _repeats(self, run: Run) -> Sequence[Run]:
        """Return the runs that this one was run again as, among the newest of its agent."""
        where = RunSearch(
            run.agent.tenant, run.agent, kind=TriggerKind.API, after_seq=run.seq, limit=_LOOKED_AT_FOR_REPEATS
        )
        return [each for each in (await self._runtime.search_runs(where)).runs if each.trigger.source == run.run_id]

    async def _definition(self, run: Run, entries: Sequence[JournalEntry]) -> UsedDefinition | None:
        """Return the agent's definition that the run has; None: it is not known."""
        if not entries or entries[0].seq > 1:
            entries = await self._runtime.journal(run.agent.tenant, run.run_id, _FIRST_ENTRIES + 1, _FIRST_ENTRIES)
        built = [each.data for each in entries if each.kind is EntryKind.PROMPT_BUILT]
        version = str(built[0].get("definition", "")) if built else ""
        if not version:
            return None
        try:
            present = (await self._runtime.definition(run.agent)).version
        except (DefinitionError, UnknownAgentError):
            present = ""
        return UsedDefinition(version, present != version, str(built[0].get("model", "")))

    @page("GET /console/runs/{run_id}/entries/{seq}", "runs:read")
    async def console_entry(self, request: Request) -> Response:
        """Return all that an entry says, as JSON in a page of plain text."""
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        text = request.path_params["seq"]
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise NotFoundError("entry", text)
        found = await self._runtime.journal(run.agent.tenant, run.run_id, int(text) + 1, 1)
        if not found or found[0].seq != int(text):
            raise NotFoundError("entry", text)
        entry = {"seq": found[0].seq, "kind": found[0].kind.value, "at": found[0].at, "data": found[0].data}
        return Response(bytes_of(pretty(entry)), media_type="text/plain; charset=utf-8")

    @page("GET /console/runs/{run_id}/payload", "runs:read")
    async def console_payload(self, request: Request) -> Response:
        """Return what the run was triggered with, as JSON in a page of plain text."""
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        return Response(bytes_of(pretty(run.trigger.payload)), media_type="text/plain; charset=utf-8")

    @page("GET /console/runs/{run_id}/stream", "runs:read", "after", "view")
    async def console_stream(self, request: Request) -> Response:
        """Stream the entries of the run as parts of its page, as they are committed, then `event: end`."""
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        after = last_event_id(request) or seq_of(request, "after") or 0
        view = "journal" if request.query_params.get("view") == "journal" else VIEWS[0]
        earlier = await self._runtime.journal(run.agent.tenant, run.run_id, after + 1, _CONTEXT) if after else ()
        return EventStream(
            self._runtime,
            run.agent.tenant,
            run.run_id,
            after,
            places=self._surroundings.places,
            pulse=self._pulse,
            form=partial(self._events, run, view, EntryViews(earlier), principal_of(request)),
        )

    def _events(self, run: Run, view: str, made: EntryViews, principal: Principal, watched: RunProgress) -> bytes:
        body = b""
        if watched.entries:
            context = {
                "entries": made.of(watched.entries),
                "run": run,
                "view": view,
                "principal": principal,
                "may": principal.may,
                "entry_page": partial(_entry_page, run, view, None),
            }
            lines = bytes_of(self._templates.part("run.html", "entry_list", context)).splitlines()
            data = b"\n".join(b"data: " + line for line in lines)
            body = b"id: %d\nevent: entries\n%s\n\n" % (watched.entries[-1].seq, data)
        return body + (b"event: end\ndata: %s\n\n" % watched.status.value.encode() if watched.over else b"")

    @page("GET /console/runs/{run_id}/rerun", "runs:write")
    async def console_confirm_rerun(self, request: Request) -> Response:
        """Show what running it again would do; nothing is done."""
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        return await self.shown(request, "rerun.html", run=run)

    @page("POST /console/runs/{run_id}/rerun", "runs:write")
    async def console_rerun(self, request: Request) -> Response:
        """Trigger the agent with the same again; the same form twice makes one run."""
        form = await read_form(request)
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        accepted = await begun(self._runtime, again(request, run, f"{form.text('once')}-{run.run_id}"))
        return see(f"/runs/{accepted.run_id}")


def _entry_page(run: Run, view: str, before: int | None, seq: int) -> str:
    """Return the page at which an entry stays, to go before its `#e…`: the one that is shown, empty, unless others will push it off."""
    last = -(-seq // PAGE) * PAGE
    return (
        ""
        if before is not None or run.status.final
        else _address(run, view=view if view != VIEWS[0] else "", before=last + 1)
    )


def _milliseconds(run: Run, now: datetime) -> float | None:
    """Return for how long it ran, or has run."""
    if run.started_at is None:
        return None
    return float(((run.finished_at or now) - run.started_at).total_seconds() * 1_000)


def _address(run: Run, **state: object) -> str:
    """Return where the page of the run is that shows this."""
    return f"/console/runs/{segment(run.run_id)}{query(**state)}"


def _is_prompted(entries: Sequence[JournalEntry]) -> bool:
    """Return whether the run's prompt is built, by its newest entries."""
    return any(each.kind is EntryKind.PROMPT_BUILT or each.seq > _FIRST_ENTRIES for each in entries)


def _picture_of(request: Request) -> tuple[str, Zoom]:
    """Return what is drawn, and which part of it; raises InvalidRequestError."""
    picture, text = request.query_params.get("picture", ""), request.query_params.get("zoom", "")
    if picture not in PICTURES:
        raise InvalidRequestError([Problem("query picture", f"is {picture!r}", "cost or time, or leave it out")])
    try:
        return picture, Zoom.parse(text)
    except ValueError:
        what = "a part of the picture from 0 to 1000, such as 250-500"
        raise InvalidRequestError([Problem("query zoom", f"is {text!r}", what)]) from None


def _drawn(
    picture: str, entries: Sequence[JournalEntry], now: datetime, *, over: bool, zoom: Zoom
) -> RunTimeline | None:
    return flame(entries, picture, zoom) if picture else timeline(entries, now, over=over, zoom=zoom)


def _entry_curl(run: Run, server: str, *, keyed: bool) -> str:
    """Return the command that prints an entry of the run as JSON, with `{after}` for the number before its own."""
    key = ' -H "Authorization: Bearer $OWLCLAW_API_KEY"' if keyed else ""
    url = shlex.quote(f"{server}/v1/runs/{run.run_id}/events")
    return f"curl -sN {url}{key} -H 'Last-Event-ID: {{after}}' | grep -m1 '^data:'"


def _curl(run: Run, server: str, *, keyed: bool) -> str:
    """Return the command that triggers the agent with the same; empty if it would be too long to be one."""
    body: dict[str, Any] = {"focus": run.trigger.focus} if run.trigger.focus else {}
    if run.trigger.content is not None:
        body["payload"] = run.trigger.payload
    besides = {name: getattr(run.trigger, name) for name in ("task_type", "session", "user")}
    body |= {name: value for name, value in {**besides, "priority": run.priority}.items() if value}
    if run.trigger.kind is TriggerKind.EVENT:
        body["kind"] = run.trigger.kind.value
    said = json_text(body)
    if len(said) > _MOST_CURL:
        return ""
    key = ' -H "Authorization: Bearer $OWLCLAW_API_KEY"' if keyed else ""
    url = shlex.quote(f"{server}/v1/agents/{run.agent.agent_id}/triggers")
    return f"curl {url}{key} -H 'Content-Type: application/json' -d {shlex.quote(said)}"
