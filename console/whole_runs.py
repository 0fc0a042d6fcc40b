"""What is known of a whole run, however few of its entries a page shows: what it used so far, and the runs that it started."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import Run, Usage
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime

_USES = (EntryKind.PROMPT_BUILT, EntryKind.MODEL_REPLIED, EntryKind.TOOL_FINISHED)
_READ = 500
"""Entries that are read at once."""
_MOST_KEPT = 256
"""Runs whose usage is kept to go on from."""


class _UsedSoFar(Struct, frozen=True):
    usage: Usage = Usage()
    seq: int = 0
    """The last entry that it counts."""


class WholeRuns:
    """Runs that go on are asked for again and again: of each only what was written since is read."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._used: dict[tuple[TenantId, RunId], _UsedSoFar] = {}

    async def usage(self, run: Run) -> Usage:
        """Return what the run used: in the end what it says itself, else what all its entries say."""
        if run.result is not None:
            return run.result.usage
        key = (run.agent.tenant, run.run_id)
        used = self._used.get(key, _UsedSoFar())
        while True:
            found = await self._runtime.entries_of(*key, _USES, used.seq, _READ)
            if found:
                used = _UsedSoFar(used.usage + usage_of(found), found[-1].seq)
            if len(found) < _READ:
                break
        self._used.pop(key, None)
        self._used[key] = used
        while len(self._used) > _MOST_KEPT:
            del self._used[next(iter(self._used))]
        return used.usage

    async def started(self, tenant: TenantId, run_id: RunId) -> list[RunId]:
        """Return the runs that a run had other agents make and waited for."""
        runs, after = list[RunId](), 0
        while True:
            found = await self._runtime.entries_of(tenant, run_id, (EntryKind.RUN_WAITING,), after, _READ)
            for each in found:
                told = each.data.get("runs") or {}
                runs += [RunId(str(started)) for started in (told.values() if isinstance(told, dict) else told)]
                after = each.seq
            if len(found) < _READ:
                return [*dict.fromkeys(runs)]


def usage_of(entries: Iterable[JournalEntry]) -> Usage:
    """Return what replies used, and looking up memories in meaning: that is what a run's own sum counts."""
    used = Usage()
    for each in entries:
        counts = each.kind is EntryKind.MODEL_REPLIED or "embeddings" in each.data
        told = (each.data.get("usage") or {}) if counts else {}
        used += Usage(**{name: told.get(name, 0) for name in Usage.__struct_fields__})
    return used
