"""How far the export of traces has come, on the working set."""

from __future__ import annotations

from owlclaw_ray.domain.ledger import Chain
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import ExportNoted, NoteExported
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet

BEGUN = Chain(TenantId(""), "")
"""The row of no chain: an export that begins before anything is in the ledger has begun all the same."""


@applies(NoteExported, needs=lambda _needs, _command: None)
def note(store: WorkingSet, command: NoteExported) -> ExportNoted:
    """Write the positions; the statement lets none go back, and here none goes back within a batch."""
    noted = store.changes[RowChange.EXPORT_POSITION]
    for chain, position in {BEGUN: 0, **command.positions}.items():
        row = (chain.tenant, chain.writer, position)
        noted[chain] = max(row, noted.get(chain, row))
    return ExportNoted()
