"""Ledger records as files: JSON Lines and Parquet, written page by page, and complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from owlclaw_ray.errors import OwlClawError

if TYPE_CHECKING:
    from owlclaw_ray import wire

Pages = Iterable["list[wire.LedgerRecord]"]
_TEXTS = ("record_id", "agent", "run_id", "kind", "data", "writer", "previous_hash", "hash")


class LedgerFormat(Enum):
    """How records are written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class PyarrowMissingError(OwlClawError):
    """Parquet was asked for, and pyarrow is not installed."""


def write(pages: Pages, form: LedgerFormat, target: BinaryIO) -> int:
    """Write the records in their order, and return how many there were. At most one page is held at a time."""
    count = 0
    if form is LedgerFormat.JSONL:
        for page in pages:
            target.write(b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in page))
            count += len(page)
        return count
    pa = _pyarrow()
    from pyarrow import parquet

    text = {name: pa.string() for name in _TEXTS}
    schema = pa.schema({**text, "at": pa.timestamp("us", tz="UTC"), "position": pa.int64()}.items())
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for page in pages:
            rows = [
                {**each, "at": datetime.fromisoformat(each["at"]), "data": orjson.dumps(each["data"]).decode()}
                for each in page
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            count += len(page)
    return count


def check(form: LedgerFormat) -> None:
    """Raise PyarrowMissingError if the form cannot be written here."""
    if form is LedgerFormat.PARQUET:
        _pyarrow()


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces the path when the block succeeds, and is removed when it fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise PyarrowMissingError("Parquet needs pyarrow; install it with: pip install pyarrow") from error
    return pa
