"""The command by which the export of traces remembers how far it has come."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from owlclaw_ray.domain.ledger import Chain


class NoteExported(Struct, frozen=True):
    """Remember up to which position of each chain traces are exported, and that the export has begun; a position never goes back, and
    chains that are not named stay where they are. Outcome: ExportNoted.
    """

    positions: Mapping[Chain, int]


class ExportNoted(Struct, frozen=True):
    """It is remembered."""
