"""Which lines of files match: with ripgrep, or in Python where it is not installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.tools.code.query import LineQuery
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import Program, ProgramLimits, run_program

_FILES_AT_ONCE = 500
_ARGUMENT_BYTES = 256 * 1024
"""Of paths that one command line holds."""
_RECORD_BYTES = 8 * 1024 * 1024
"""Of ripgrep's output for so many files: paths and numbers only."""
_RECORD = re.compile(rb"([^\0]*)\0(\d+):[^\n]*\n")


class Matcher(Protocol):
    """Finds matching lines. All implementations find the same."""

    def lines(self, query: LineQuery, files: Iterable[Path], most: int) -> Iterator[tuple[Path, list[int]]]:
        """Yield the files that match, in the order given, with the numbers of their first `most` matching lines, ascending.

        Lines end with LF; a file that cannot be read matches nothing.
        """
        ...


class PythonMatcher:
    """Implements Matcher by reading each file."""

    def lines(self, query: LineQuery, files: Iterable[Path], most: int) -> Iterator[tuple[Path, list[int]]]:
        """See Matcher.lines."""
        for path in files:
            try:
                content = path.read_bytes()
            except OSError:
                continue
            numbers = list(islice(_matching(query, content), most))
            if numbers:
                yield path, numbers


class Ripgrep(Struct, frozen=True):
    """Implements Matcher with the program `rg`. The files are given to it one by one: it decides nothing but which lines match."""

    program: str
    environment: Mapping[str, str]
    seconds: float

    def lines(self, query: LineQuery, files: Iterable[Path], most: int) -> Iterator[tuple[Path, list[int]]]:
        """See Matcher.lines; raises ToolFailureError if ripgrep does not work."""
        for batch in _batches(files):
            found = self._found(query, batch, most)
            for path in batch:
                numbers = found.get(os.fsencode(path))
                if numbers:
                    yield path, sorted(numbers)[:most]

    def _found(self, query: LineQuery, batch: Sequence[Path], most: int) -> dict[bytes, list[int]]:
        argv = [self.program, *_OPTIONS, f"--max-count={most}"]
        argv += [f"--regexp={query.expression}", "--", *(str(path) for path in batch)]
        limits = ProgramLimits(self.seconds, _RECORD_BYTES, _RECORD_BYTES // 100)
        end = run_program(Program(argv, batch[0].parent, self.environment), limits)
        output = end.stdout.whole()
        if end.exit_code is None:
            raise ToolFailureError("timeout", f"the search took longer than {self.seconds:g} s: search fewer files")
        if output is None or (end.exit_code not in {0, 1} and not output and b"regex" in (end.stderr.whole() or b"")):
            raise ToolFailureError("execution_failed", f"ripgrep failed: {end.stderr.text().strip()[:500]}")
        return _records(output)


_OPTIONS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--line-number", "--null", "--no-messages"),
    *("--text", "--encoding=none", "--no-unicode", "--no-crlf", "--no-mmap", "--max-columns=1", "--case-sensitive"),
)


def _batches(files: Iterable[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    size = 0
    for path in files:
        batch.append(path)
        size += len(os.fsencode(path))
        if len(batch) == _FILES_AT_ONCE or size > _ARGUMENT_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _records(output: bytes) -> dict[bytes, list[int]]:
    """Read `path NUL number : … LF`. Paths may hold line feeds."""
    found: dict[bytes, list[int]] = {}
    for record in _RECORD.finditer(output):
        found.setdefault(record[1], []).append(int(record[2]))
    return found


def _matching(query: LineQuery, content: bytes) -> Iterator[int]:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        if query.compiled.search(line):
            yield number
