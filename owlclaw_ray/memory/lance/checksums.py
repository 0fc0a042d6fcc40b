"""Noticing bytes that changed: LanceDB has no checksums, and a flipped bit in a vector is a wrong vector, not an error."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson

_CHUNK = 1024 * 1024


class ChangedFileError(Exception):
    """A file of the index is not what was written."""


class Checksums:
    """The lengths and checksums of a table's files, which are written once and never changed, in a file beside the table.

    A file that is not listed, because a process died after writing it, is not judged until it is.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._path = table.with_suffix(".sums")

    def verify(self) -> None:
        """Raise ChangedFileError for a file that is there and not what it was."""
        known = self._known()
        for name, path in self._files().items():
            if name in known and known[name] != _checksum(path):
                raise ChangedFileError(f"{name} of the index is not what was written")

    def update(self) -> None:
        """List the files that are new, and no more those that are gone; have the new ones for this user only. For one writer
        at a time.
        """
        known, files = self._known(), self._files()
        if known.keys() == files.keys():
            return
        self._restrict_permissions(path for name, path in files.items() if name not in known)
        listed = {name: known.get(name) or _checksum(path) for name, path in files.items()}
        draft = self._path.with_suffix(".sums.new")
        draft.touch(0o600)
        draft.write_bytes(orjson.dumps(listed))
        draft.replace(self._path)

    def remove(self) -> None:
        """Forget everything."""
        self._path.unlink(missing_ok=True)

    def _restrict_permissions(self, new: Iterable[Path]) -> None:
        """LanceDB makes its files with the rights that the umask leaves. Those that no checksum is kept of are few."""
        unlisted = (*self._table.rglob("*.json"), *(self._table / "_transactions").glob("*"))
        for path in (*new, *unlisted):
            with suppress(FileNotFoundError):
                path.chmod(0o600)
                for folder in path.relative_to(self._table).parents:
                    (self._table / folder).chmod(0o700)

    def _files(self) -> dict[str, Path]:
        return {
            str(path.relative_to(self._table)): path
            for folder in ("data", "_indices", "_deletions", "_versions")
            for path in (self._table / folder).rglob("*")
            if path.is_file() and path.suffix != ".json"
        }

    def _known(self) -> dict[str, list[int]]:
        with suppress(FileNotFoundError, orjson.JSONDecodeError):
            known = orjson.loads(self._path.read_bytes())
            return known if isinstance(known, dict) else {}
        return {}


def _checksum(path: Path) -> list[int]:
    checksum = length = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum, length = zlib.crc32(chunk, checksum), length + len(chunk)
    return [length, checksum]
