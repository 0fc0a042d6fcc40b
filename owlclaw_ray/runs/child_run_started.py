"""Runs of other agents that calls of a run started, as its journal has them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import RunId, ToolCallId


class ChildRunStarted(Struct, frozen=True):
    """A call started a run that is not over."""

    call_id: ToolCallId
    run_id: RunId
    executed: str | None = None
    """The arguments that it was started with, if a hook or a person changed them."""
    hooks: tuple[JsonObject, ...] = ()
    """What the hooks before the call did to it: they had their say."""


def started_data(runs: Sequence[ChildRunStarted]) -> JsonObject:
    """Return what the entry of a run that waits says of the runs that it started."""
    if not runs:
        return {}
    ids = {each.call_id: each.run_id for each in runs}
    hooked = [each for each in runs if each.hooks or each.executed is not None]
    passed = {each.call_id: {"executed": each.executed, "hooks": list(each.hooks)} for each in hooked}
    return {"runs": ids, "passed": passed} if passed else {"runs": ids}


def started_runs(data: JsonObject) -> dict[ToolCallId, ChildRunStarted]:
    """Return the runs that such an entry names, by the calls that started them."""
    passed = data.get("passed", {})
    untouched: JsonObject = {"executed": None, "hooks": []}
    found = ((call_id, run_id, passed.get(call_id, untouched)) for call_id, run_id in data.get("runs", {}).items())
    runs = (
        ChildRunStarted(ToolCallId(call), RunId(run), did["executed"], tuple(did["hooks"])) for call, run, did in found
    )
    return {each.call_id: each for each in runs}
