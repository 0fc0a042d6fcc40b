"""The list of runs, and what is done with several of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.badge import ApprovalBadge
from console.charts import Chart, last, runs_chart
from console.jinja import Templates
from console.live_parts import SharedAnswers
from console.pages import FRAGMENT, PREFIX, Pages, back, known, own_path, page, see
from console.run_filter import FIELDS, OPEN, RunsFilter, recent_spans
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.trigger import Admission, Trigger, TriggerKind
from owlclaw_ray.domain.usage import Grain
from owlclaw_ray.errors import NotFoundError, OwlClawError, Problem
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime, TriggerRequest
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.usage import RunUsage
from serve.errors import InvalidRequestError
from serve.parameters import agent_of, check_owner, principal_of, tenant_of
from serve.request_bodies import checked
from serve.surfaces import Surroundings
from serve.trigger_request import request_of, trigger_of
from serve.visible_agents import visible_agents

PAGE = 50
_MOST_NEWS = 50
_MOST_AT_ONCE = 50
_COMMITTED_TOGETHER = 25
_OFFERED = 100
"""Agents that are offered before one types."""
_MINUTES = 120
_FRESH_SECONDS = 10.0
"""How old what surrounds the list may be."""
_DID = re.compile(r"(cancel|rerun)-(\d{1,9})(?:-(\d{1,9}))?")
_NOTHING = "nothing"
"""What the list of runs is told if none was chosen."""
_SEQ = re.compile(r"[1-9]\d{0,17}")
_PLACE = re.compile(r"(.+)\.(\d{1,17})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class RunList(Struct, frozen=True):
    """A page of runs."""

    runs: Sequence[Run]
    newer: int = 0
    """How many came since the page was opened."""
    before: str | None = None
    """The place behind which the next page begins; None if there is none."""
    searched_to: datetime | None = None
    """How far back was looked, if that was too far to find as many as a page has."""


class _Names(Struct, frozen=True):
    """What is offered to who filters, or begins a run: the first agents that have no problem, and all definitions."""

    agents: Sequence[str] = ()
    definitions: Sequence[str] = ()


class RunsPages(Pages):
    """`/console/runs`."""

    place: ClassVar[str] = "runs"

    def __init__(self, surroundings: Surroundings, templates: Templates, badge: ApprovalBadge) -> None:
        super().__init__(surroundings, templates, badge)
        self._charts: SharedAnswers[TenantId, Chart | None] = SharedAnswers(surroundings.clock)
        self._usable: SharedAnswers[tuple[TenantId, tuple[str, ...]], _Names] = SharedAnswers(surroundings.clock)

    @page(
        "GET /console/runs",
        "runs:read",
        *FIELDS,
        "before",
        "empty",
        "upto",
        "did",
        FRAGMENT,
        live={"rows": 3.0, "chart": 30.0},
    )
    async def console_runs(self, request: Request) -> Response:
        """Show a page of runs; what comes while it is looked at is counted above, and moves nothing. The very first runs appear."""
        asked = request.query_params
        chosen = RunsFilter.of(asked)
        narrowed = bool(principal_of(request).patterns) and not chosen.agent
        part = asked.get(FRAGMENT, "")
        found, minutes, names = await asyncio.gather(
            known(RunList(())) if narrowed or part == "chart" else self._found(request, chosen),
            known(None) if narrowed or chosen or part == "rows" else self._minutes(request),
            known(_Names()) if part in {"rows", "chart"} else self._names(request),
        )
        arriving = part == "rows" and not asked.get("upto")
        if arriving and chosen and asked.get("empty"):  # so it was when it was opened
            found = RunList((), 0 if asked.get("before") else len(found.runs), searched_to=found.searched_to)
        did = _DID.fullmatch(asked.get("did", ""))
        upto = asked.get("upto", "") or (place_of(found.runs[0]) if found.runs else "")
        return await self.shown(
            request,
            "runs.html",
            "rows",
            "chart",
            found=found,
            minutes=minutes,
            narrowed=narrowed,
            chosen=chosen,
            before=asked.get("before", ""),
            upto=upto,
            grows=arriving,
            spans={} if part in {"rows", "chart"} else recent_spans(self._now()),
            statuses=[OPEN, *(each.value for each in RunStatus)],
            kinds=list(TriggerKind),
            unchosen=asked.get("did") == _NOTHING,
            did=did and (did[1], int(did[2]), int(did[3] or 0)),
            agents=names.agents,
            definitions=names.definitions,
            here=f"{PREFIX}/runs{chosen.address()}",
            listed=f"{PREFIX}/runs{chosen.address(before=asked.get('before', ''))}",
        )

    @page("POST /console/triggers", "runs:write", form=console_runs)
    async def console_trigger_chosen(self, request: Request) -> Response:
        """Trigger the agent that is chosen in the form."""
        form = await read_form(request)
        return await triggered(self._runtime, request, form, form.text("agent").strip())

    async def _minutes(self, request: Request) -> Chart | None:
        """Return how many runs ended how in the last minutes, some seconds ago."""
        tenant = tenant_of(request)

        async def drawn() -> Chart | None:
            since, until = last(self._now(), Grain.MINUTE, _MINUTES)
            buckets = await self._runtime.run_usage(RunUsage(tenant, since, until, Grain.MINUTE))
            return runs_chart("Runs by minute in which they ended", buckets, since, until, Grain.MINUTE)

        return await self._charts.answer(tenant, _FRESH_SECONDS, drawn)

    async def _found(self, request: Request, chosen: RunsFilter) -> RunList:
        places = {name: request.query_params.get(name, "") for name in ("before", "upto")}
        before = await below(self._runtime, request, places["before"]) if places["before"] else None
        newer, end = 0, None
        if places["upto"] and before is None:
            with suppress(NotFoundError):
                end = await below(self._runtime, request, places["upto"], included=True)
        where = replace(chosen.search(request), before_seq=before, limit=PAGE)
        if end is not None:
            newest, found = await asyncio.gather(
                self._runtime.search_runs(replace(where, after_seq=end - 1, limit=_MOST_NEWS)),
                self._runtime.search_runs(replace(where, before_seq=end)),
            )
            newer = len(newest.runs)
        else:
            found = await self._runtime.search_runs(where)
        return RunList(found.runs, newer, following_place(found), found.searched_to)

    async def _names(self, request: Request) -> _Names:
        """Return the agents that a first run can be of, and the definitions, as they were some seconds ago."""
        principal = principal_of(request)
        if not principal.may("agents:read"):
            return _Names()

        async def usable() -> _Names:
            found = await visible_agents(self._runtime, principal, _OFFERED)
            agents = [each.agent.agent_id for each in found.agents if not each.problem]
            names = await self._runtime.definition_names(principal.tenant)
            return _Names(agents, list(filter(principal.sees_definition, sorted(names))))

        return await self._usable.answer((principal.tenant, principal.patterns), _FRESH_SECONDS, usable)

    @page("GET /console/runs/selection", "runs:write", "action", "run", "back")
    async def console_selection(self, request: Request) -> Response:
        """Show what an action would do to each of the runs that are chosen; nothing is done. Of none: lead back to the list."""
        action = action_of(request.query_params.get("action", ""))
        if not request.query_params.getlist("run"):
            return back(request.query_params.get("back", ""), "/runs", did=_NOTHING)
        chosen = await self._chosen(request, request.query_params.getlist("run"))
        return await self.shown(
            request,
            "selection.html",
            action=action,
            back=own_path(request.query_params.get("back", ""), f"{PREFIX}/runs"),
            affected=[run for run in chosen if _concerns(action, run)],
            spared=[run for run in chosen if not _concerns(action, run)],
        )

    @page("POST /console/runs/selection", "runs:write")
    async def console_act_on_selection(self, request: Request) -> Response:
        """Do it, and lead back to the list."""
        form = await read_form(request)
        action = action_of(form.text("action"))
        chosen = [run for run in await self._chosen(request, form.all("run")) if _concerns(action, run)]
        if action == "cancel":
            done, refused = await cancel_all(self._runtime, chosen, str(principal_of(request))), 0
        else:
            done, refusals = await run_all_again(self._runtime, request, chosen, form.text("once"))
            refused = len(refusals)
            if refusals and not done:
                raise refusals[0]
        return back(form.text("back"), "/runs", did=outcome(action, done, refused))

    async def _chosen(self, request: Request, run_ids: Sequence[str]) -> Sequence[Run]:
        chosen = list(dict.fromkeys(run_ids))
        if not 0 < len(chosen) <= _MOST_AT_ONCE:
            what = "no run is chosen" if not chosen else f"{len(chosen)} runs are chosen"
            raise InvalidRequestError([Problem("run", what, f"choose 1 to {_MOST_AT_ONCE}")])
        return [await run_of(self._runtime, request, each) for each in chosen]


async def cancel_all(runtime: Runtime, runs: Sequence[Run], by: str) -> int:
    """Ask each of the runs to stop, for the principal `by`, some at once so that commits are shared; return how many there were to ask."""

    async def cancel(run: Run) -> bool:
        try:
            await runtime.cancel(run.agent.tenant, run.run_id, by)
        except NotFoundError:  # an idle heartbeat that has given way
            return False
        return True

    done = 0
    for at in range(0, len(runs), _COMMITTED_TOGETHER):
        done += sum(await asyncio.gather(*map(cancel, runs[at : at + _COMMITTED_TOGETHER])))
    return done


async def run_all_again(
    runtime: Runtime, request: Request, runs: Sequence[Run], once: str
) -> tuple[int, Sequence[OwlClawError]]:
    """Return how many were triggered again, and why others were not. Twice with one `once` it makes one run of each."""
    outcomes = await runtime.submit_all([again(request, run, f"{once}-{run.run_id}") for run in runs])
    refused = [each for each in outcomes if isinstance(each, OwlClawError)]
    return len(runs) - len(refused), refused


def outcome(action: str, done: int, refused: int) -> str:
    """Return what the list of runs is told of an action, see _DID."""
    return f"{action}-{done}" + (f"-{refused}" if refused else "")


async def run_of(runtime: Runtime, request: Request, run_id: str) -> Run:
    """Return a run of the tenant that the principal may have to do with; raises NotFoundError, AccessDeniedError."""
    if "\0" in run_id:
        raise NotFoundError("run", run_id)
    run = await runtime.run(tenant_of(request), RunId(run_id))

    async def owner() -> AgentRef:
        return run.agent

    await check_owner(request, owner)
    return run


def place_of(run: Run) -> str:
    """Return where a run is in the order of acceptance, in a form that holds when the run is gone: idle heartbeats are not kept for long.

    Its number is shown to nobody: it counts the runs of all tenants.
    """
    return _place(run.run_id, run.created_at)


def following_place(found: RunPage) -> str | None:
    """Return the place behind which a search goes on, None if there is nothing more to be found."""
    if found.following is None or not (found.runs or found.searched_to):
        return found.following
    last = found.runs[-1] if found.runs else None
    at = last.created_at if last and last.run_id == found.following else found.searched_to
    return found.following if at is None else _place(found.following, at)


def _place(run_id: RunId, at: datetime) -> str:
    return f"{run_id}.{(at - _EPOCH) // _MICROSECOND}"


async def below(runtime: Runtime, request: Request, place: str, *, included: bool = False) -> int:
    """Return the number below which the runs behind a place have theirs, or with `included` the one at it and those behind it.

    Raises NotFoundError for a run that is gone and has no time beside it, AccessDeniedError.
    """
    named = _PLACE.fullmatch(place)
    try:
        return (await run_of(runtime, request, named[1] if named else place)).seq + included
    except NotFoundError:
        if named is None:
            raise
    until = _EPOCH + (int(named[2]) + 1) * _MICROSECOND
    earlier = await runtime.search_runs(RunSearch(tenant_of(request), until=until, limit=1))
    return earlier.runs[0].seq + 1 if earlier.runs else 1


def again(request: Request, run: Run, key: str) -> TriggerRequest:
    """Return the request for another run with what a run was triggered with, its source, and of its priority: once for each key."""
    was = run.trigger
    trigger = Trigger(
        TriggerKind.API,
        was.content,
        was.focus,
        run.run_id,
        task_type=was.task_type,
        session=was.session,
        user=was.user,
    )
    return request_of(request, run.agent, trigger, Admission(priority=run.priority), key)


async def triggered(runtime: Runtime, request: Request, form: SentForm, agent: str) -> Response:
    """Trigger the agent as a form says, and lead to its run; raises as Runtime.submit, InvalidRequestError, AccessDeniedError."""
    ref = agent_of(request, agent)
    asked: JsonObject = {"focus": form.text("focus").strip()}
    if form.text("payload").strip():
        asked["payload"] = form.json(
            "payload", 'write JSON, such as {"symbol": "600519"}; a text needs quotation marks'
        )
    trigger, admission = trigger_of(checked(asked, wire.TriggerRequest))
    key = form.text("once")[:255] or None
    accepted = await begun(runtime, request_of(request, ref, trigger, admission, key))
    return see(f"/runs/{accepted.run_id}")


async def begun(runtime: Runtime, asked: TriggerRequest) -> RunAccepted:
    """Submit a trigger; raises as Runtime.submit."""
    (outcome,) = await runtime.submit_all([asked])
    if isinstance(outcome, OwlClawError):
        raise outcome
    return outcome


def seq_of(request: Request, name: str) -> int | None:
    """Return the number of a query parameter, None without one; raises InvalidRequestError."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not _SEQ.fullmatch(text):
        raise InvalidRequestError([Problem(f"query {name}", f"is {text!r}", "a number from a page of the console")])
    return int(text)


def action_of(text: str) -> str:
    """Return what is to be done; raises InvalidRequestError."""
    if text not in {"cancel", "rerun"}:
        raise InvalidRequestError([Problem("action", f"is {text!r}", "cancel or rerun")])
    return text


def _concerns(action: str, run: Run) -> bool:
    return action == "rerun" or not (run.status.final or run.cancel_requested)
