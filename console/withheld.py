"""What a run was not given, and by which rule: as the ledger says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import LedgerFilter

_KEPT = 256
"""Runs of which it is kept."""


class WithheldNames(Struct, frozen=True):
    """Tools, or skills, that a run may not use for one reason."""

    what: str
    """`tools` or `skills`."""
    names: tuple[str, ...]
    by: str
    reason: str


class WithheldOfRuns:
    """What runs were not given, kept in memory: it is written once, with how the prompt of a run was built."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[tuple[TenantId, RunId], Sequence[WithheldNames]] = {}

    async def of(self, principal: Principal, run: Run) -> Sequence[WithheldNames]:
        """Return it of a run whose prompt is built, as `withheld_from` does."""
        if not principal.may("ledger:read"):
            return ()
        key = run.agent.tenant, run.run_id
        if key not in self._known:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = await withheld_from(self._runtime, principal, run)
        return self._known[key]


async def withheld_from(runtime: Runtime, principal: Principal, run: Run) -> Sequence[WithheldNames]:
    """Return what the run was not given, as far as the ledger says so and the principal may read that."""
    if not principal.may("ledger:read"):
        return ()
    where = LedgerFilter(run.agent.tenant, run.agent, run.run_id, LedgerKind.VISIBILITY, limit=1)
    found = await runtime.ledger(where)
    return [*_told(found[0].record.data)] if found else ()


def _told(data: JsonObject) -> Iterator[WithheldNames]:
    for what, groups in (("tools", data.get("hidden", ())), ("skills", data.get("skills", ()))):
        for each in groups:
            names = tuple(map(str, each.get(what, ())))
            yield WithheldNames(what, names, str(each.get("by", "")), str(each.get("reason", "")))
