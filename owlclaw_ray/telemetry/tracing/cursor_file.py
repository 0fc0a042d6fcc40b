"""The place up to which traces are exported, in a file of the data folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.durable_files import make_folder, replace
from owlclaw_ray.store.run_ends import Chain

NAME = "tracing.json"


class CursorFile:
    """Implements Cursor. One process at a time writes it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def load(self) -> Mapping[Chain, int] | None:
        """See Cursor.load; raises ConfigurationError for a damaged file."""
        try:
            written = orjson.loads(self._path.read_bytes())
            return {Chain(TenantId(tenant), writer): int(position) for tenant, writer, position in written}
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            fix = "remove it: then traces of what ended meanwhile are not exported"
            raise ConfigurationError([Problem(str(self._path), f"cannot be read: {error}", fix)]) from error

    def save(self, positions: Mapping[Chain, int]) -> None:
        """See Cursor.save."""
        written = [[chain.tenant, chain.writer, position] for chain, position in sorted(positions.items())]
        make_folder(self._path.parent)
        replace(self._path, orjson.dumps(written))
