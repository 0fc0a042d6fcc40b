"""What is kept of heartbeats that had nothing to do, on the working set: the last one of each agent."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.schedule import Tick
from owlclaw_ray.store.commands import IdleHeartbeat
from owlclaw_ray.store.sql.working_set import RowChange, RunRow, WorkingSet


def keep_one_idle(store: WorkingSet, run: RunRow, beat: IdleHeartbeat) -> None:
    """Put an idle heartbeat in the place of the agent's last one; its due time joins that one's tick, if it follows it."""
    store.remove(RowChange.REMOVED_JOURNAL, (run.run_id,))
    if beat.replaces is None or beat.replaces == run.run_id:
        return
    store.remove(RowChange.REMOVED_RUN, (beat.replaces,))
    before, tick = store.run_ticks.pop(beat.replaces, None), store.run_ticks.get(run.run_id)
    if before is None:
        return
    if tick is None or not _follows(tick, before, timedelta(seconds=beat.every_seconds)):
        store.change_tick(replace(before, run_id=None))
        return
    joined = replace(
        before,
        at=tick.at,
        run_id=tick.run_id,
        last_due_at=tick.last_due_at or tick.due_at,
        count=before.count + tick.count,
    )
    store.change_tick(joined)
    store.remove(RowChange.REMOVED_TICK, (tick.firing_id,))
    store.run_ticks[run.run_id] = joined


def _follows(tick: Tick, before: Tick, every: timedelta) -> bool:
    return (tick.schedule_id, tick.outcome, tick.reason, tick.due_at) == (
        before.schedule_id,
        before.outcome,
        before.reason,
        (before.last_due_at or before.due_at) + every,
    )
