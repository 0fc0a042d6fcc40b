"""Heads of ledger chains, noted outside the store: lines of JSON in files that grow, one file for each writer.

A line says that a chain had this hash at this position at this time. Who cuts off the end of a chain together with its recorded end
leaves a store that agrees with itself, but not with what was noted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from owlclaw_ray.domain.ledger import NotedHead, NotedHeads
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.durable_files import FileChangedError, append, create, make_folder, replace

FOLDER = "ledger-heads"
_LARGEST = 1 << 20
"""A file that has grown beyond this begins again with the last head of each chain."""
_MAXIMUM = 4 * _LARGEST
"""Bytes that are read of a file at most."""


def written(heads: Iterable[NotedHead]) -> bytes:
    """Return the heads as lines."""
    return b"".join(msgspec.json.encode(head) + b"\n" for head in heads)


def read_heads(path: Path) -> NotedHeads:
    """Return what a file of heads says, and which lines say nothing; raises OSError."""
    with path.open("rb") as file:
        data = file.read(_MAXIMUM + 1)
    heads, problems = list[NotedHead](), list[str]()
    if len(data) > _MAXIMUM:
        problems.append(f"{path} is larger than {_MAXIMUM:,} bytes: what is beyond was not compared")
        data = data[: data.rfind(b"\n", 0, _MAXIMUM) + 1]
    wrong = list[int]()
    for number, line in enumerate(data.splitlines(), 1):
        try:
            heads.append(msgspec.json.decode(line, type=NotedHead))
        except (msgspec.DecodeError, UnicodeDecodeError):
            if line.strip():
                wrong.append(number)
    if wrong:
        shown = ", ".join(map(str, wrong[:5])) + (", …" if len(wrong) > 5 else "")
        problems.append(f"{path} is damaged: no head can be read in line {shown}")
    return NotedHeads(tuple(heads), tuple(problems))


class ChainHeadFolder:
    """The files of heads of a data folder, for this user only."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def load(self) -> NotedHeads:
        """Return all noted heads. What cannot be read is among the problems; it never raises."""
        try:
            paths = sorted(self._folder.glob("*.jsonl"))
        except OSError as error:
            return NotedHeads((), (f"{self._folder} cannot be read: {error.strerror}",))
        if not paths:
            return NotedHeads(
                (), (f"no heads are noted in {self._folder}: the end of a chain that is cut off is not found",)
            )
        heads, problems = list[NotedHead](), list[str]()
        for path in paths:
            try:
                noted = read_heads(path)
            except OSError as error:
                problems.append(f"{path} cannot be read: {error.strerror}")
                continue
            heads += noted.heads
            problems += noted.problems
        return NotedHeads(tuple(heads), tuple(problems))

    def writer(self, name: str) -> ChainHeadFile:
        """Return the file of a writer of chains."""
        return ChainHeadFile(self._folder / f"{quote(name, safe='@ ')}.jsonl")


class ChainHeadFile:
    """The file to which one writer of chains adds their heads. When `note` returns, they are on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[TenantId, NotedHead] | None = None
        self._turn = threading.Lock()

    def note(self, heads: Sequence[NotedHead]) -> None:
        """Add those that are not the last of their chain already; raises OSError."""
        with self._turn:
            if self._last is None:
                self._last = self._known()
            new = {}
            for head in heads:
                last = self._last.get(head.tenant)
                if last is None or (last.position, last.hash) != (head.position, head.hash):
                    new[head.tenant] = head
            if not new:
                return
            lines = written(new.values())
            try:
                if self._path.stat().st_size + len(lines) > _LARGEST:
                    replace(self._path, written((self._last | new).values()))
                else:
                    append(self._path, lines)
            except FileNotFoundError:
                make_folder(self._path.parent)
                try:
                    create(self._path, lines)
                except FileChangedError as error:
                    raise OSError(f"{self._path} was made by another process meanwhile") from error
            self._last |= new

    def _known(self) -> dict[TenantId, NotedHead]:
        """Return the last head of each chain in the file. A torn last line is ended, so that the next head has its own line."""
        try:
            noted = read_heads(self._path)
            with self._path.open("rb") as file:
                torn = file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
        except FileNotFoundError:
            return {}
        if torn:
            append(self._path, b"\n")
        return {head.tenant: head for head in noted.heads}
