"""What is done with all runs that match a filter: shown before, then done in steps that each take little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.pages import Pages, page, see
from console.run_filter import FIELDS, RunsFilter
from console.runs import action_of, below, cancel_all, following_place, outcome, place_of, run_all_again
from console.visits import read_form
from owlclaw_ray.domain.run import Run
from owlclaw_ray.errors import Problem
from owlclaw_ray.store.run_search import RunPage, RunSearch
from serve.errors import InvalidRequestError
from serve.parameters import principal_of

SHOWN = 50
COUNTED = 1_000
STEP = 200
"""How many runs one request acts on at most."""
_LOOKS = 10
"""How many pages of a search that finds little one request reads at most."""
_DONE = re.compile(r"\d{1,9}")


class _Progress(Struct, frozen=True):
    """How far it has come."""

    upto: str = ""
    """The place of the newest run that matched when it was shown: whatever comes later is left alone."""
    before: str = ""
    """The place down to which all is done."""
    done: int = 0
    refused: int = 0


class MatchingPages(Pages):
    """`/console/runs/matching`."""

    place: ClassVar[str] = "runs"

    @page("GET /console/runs/matching", "runs:write", "action", "upto", "before", "done", "refused", "once", *FIELDS)
    async def console_matching(self, request: Request) -> Response:
        """Show what an action would do to all runs that match, how many they are, and the newest of them; nothing is done. On the way
        through many: how far it has come.

        A script goes on by itself only behind the form that began it: an address that somebody opens, or a link elsewhere, needs a person.
        """
        asked = request.query_params
        action, chosen, progress = action_of(asked.get("action", "")), _chosen(asked), _progress(asked)
        found = (
            RunPage(()) if progress.before else await self._found(request, _concerned(action, chosen.search(request)))
        )
        upto = progress.upto or (place_of(found.runs[0]) if found.runs else following_place(found) or "")
        again_asked = {"once": asked.get("once", "")} if progress.before else {}
        return await self.shown(
            request,
            "matching.html",
            action=action,
            chosen=chosen,
            found=found,
            shown=found.runs[:SHOWN],
            progress=replace(progress, upto=upto),
            ours=request.headers.get("sec-fetch-site") == "same-origin",
            **again_asked,
        )

    async def _found(self, request: Request, search: RunSearch) -> RunPage:
        """Return the runs that match, up to COUNTED of them."""
        runs: list[Run] = []
        found, before = RunPage((), None), None
        for _ in range(_LOOKS):
            found = await self._runtime.search_runs(replace(search, before_seq=before, limit=COUNTED - len(runs)))
            runs += found.runs
            following = following_place(found)
            if following is None or len(runs) >= COUNTED:
                break
            before = await below(self._runtime, request, following)
        return replace(found, runs=runs)

    @page("POST /console/runs/matching", "runs:write")
    async def console_act_on_matching(self, request: Request) -> Response:
        """Do it to the next ones, and lead on to those behind them, or back to the list. Sent twice it does nothing twice."""
        form = await read_form(request)
        said = {name: form.text(name) for name in ("action", "upto", "before", "done", "refused", "once", *FIELDS)}
        action, chosen, progress = action_of(said["action"]), _chosen(said), _progress(said)
        end = await below(self._runtime, request, progress.upto, included=True)
        if progress.before:
            end = min(end, await below(self._runtime, request, progress.before))
        search = _concerned(action, chosen.search(request))
        search = replace(search, before_seq=end, limit=STEP, payloads=action == "rerun")
        found = await self._runtime.search_runs(search)
        if action == "cancel":
            done, refused = await cancel_all(self._runtime, found.runs, str(principal_of(request))), 0
        else:
            done, refusals = await run_all_again(self._runtime, request, found.runs, said["once"])
            refused = len(refusals)
        progress = replace(progress, done=progress.done + done, refused=progress.refused + refused)
        following = following_place(found)
        if following is None:
            result = outcome(action, progress.done, progress.refused)
            return see(f"/runs{chosen.address(did=result)}")
        further = {"before": following, "done": progress.done, "refused": progress.refused or ""}
        return see(f"/runs/matching{chosen.address(action=action, upto=progress.upto, once=said['once'], **further)}")


def _chosen(values: Mapping[str, str]) -> RunsFilter:
    """Return the filter; raises InvalidRequestError for one that filters nothing: that is no choice."""
    chosen = RunsFilter.of(values)
    if not chosen:
        raise InvalidRequestError([Problem("filter", "is missing", "filter the list before")])
    return chosen


def _progress(values: Mapping[str, str]) -> _Progress:
    said = {name: values.get(name, "") for name in _Progress.__struct_fields__}
    numbers = {name: int(said[name]) if _DONE.fullmatch(said[name]) else 0 for name in ("done", "refused")}
    return _Progress(said["upto"], said["before"], **numbers)


def _concerned(action: str, search: RunSearch) -> RunSearch:
    """Return the search for those runs that match and that the action can do something with."""
    return replace(search, open=True) if action == "cancel" else search
