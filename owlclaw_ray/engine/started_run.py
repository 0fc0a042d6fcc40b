"""Runs of other agents that calls of a run started, as its journal has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import RunId, ToolCallId


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A call started a run that is not over."""

    call_id: ToolCallId
    run_id: RunId


def started_data(runs: Sequence[StartedRun]) -> JsonObject:
    """Return what the entry of a run that waits says of the runs that it started."""
    return {"runs": {each.call_id: each.run_id for each in runs}} if runs else {}


def started_runs(data: JsonObject) -> dict[ToolCallId, StartedRun]:
    """Return the runs that such an entry names, by the calls that started them."""
    return {
        ToolCallId(call_id): StartedRun(ToolCallId(call_id), RunId(run_id))
        for call_id, run_id in data.get("runs", {}).items()
    }
