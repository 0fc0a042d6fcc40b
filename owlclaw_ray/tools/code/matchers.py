"""Which lines of files match: with ripgrep, or in Python where it is not installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import Program, ProgramLimits, run_program

_MAX_REPEATS = 1_000
_ESCAPE = "\\"
_TOKEN = re.compile(
    r"(?P<class>\[\^?(?:\\.|[^\]\\\[])+\])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>(?:[*+?]|\{\d{1,4}(?:,(?:\d{1,4})?)?\})\??)"
    r"|(?P<anchor>[\^$]|\\[bB])"
    r"|(?P<one>\\[dDwWsSt]|\\[^\w\s]|[^\\\[\](){}*+?|^$])",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"\\[dDwWsSt]|\\[^\w\s]|[^\\]", re.DOTALL)


class LineQuery(Struct, frozen=True):
    """What to look for in a line."""

    expression: str
    """Both engines take it; it is ASCII. Characters beyond that are written as their bytes, which all versions read alike."""
    compiled: re.Pattern[bytes]
    """Finds it in the bytes of a line."""

    @classmethod
    def of(cls, text: str, *, is_regex: bool) -> LineQuery:
        """Return the query; raises ToolArgumentsError for what only one of the engines understands."""
        if "\n" in text or "\r" in text:
            raise _refused("it must be one line")
        expression = _checked(text) if is_regex else _as_bytes(text)
        try:
            return cls(expression, re.compile(expression.encode()))
        except (re.error, OverflowError, RecursionError) as error:
            raise _refused(f"it is no regular expression: {error}") from error


def _as_bytes(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _checked(text: str) -> str:
    """Return the expression with every character beyond ASCII as a group of its bytes."""
    parts: list[str] = []
    at, before = 0, "open"
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _refused(
                f"{text[at : at + 10]!r} is not supported (escape it with a backslash if it is meant literally)"
            )
        kind, part = found.lastgroup, found[0]
        if kind == "repeat":
            if before in {"open", "or", "anchor", "repeat"}:
                raise _refused(f"{part!r} has nothing to repeat")
            if any(int(number) > _MAX_REPEATS for number in re.findall(r"\d+", part)):
                raise _refused(f"{part!r} repeats more than {_MAX_REPEATS} times")
        if kind == "class":
            inside = part[1:-1].removeprefix("^")
            if not inside.isascii():
                raise _refused(f"{part!r} has characters beyond ASCII: write (?:a|b) for [ab]")
            if any(pair in inside for pair in ("&&", "--", "~~", "||")) or "".join(_IN_CLASS.findall(inside)) != inside:
                raise _refused(f"{part!r} is a set that is not supported")
        if (part == "^" and before not in {"open", "or"}) or (parts[-1:] == ["$"] and kind not in {"close", "or"}):
            raise _refused("^ must begin a choice, and $ must end one")
        if kind == "open" and text.startswith("(?", at) and part == "(":
            raise _refused("groups like (?=, (?!, (?P< and flags are not supported")
        parts.append(part if part.isascii() else f"(?:{_as_bytes(part.removeprefix(_ESCAPE))})")
        at, before = found.end(), kind
    return "".join(parts)


def _refused(why: str) -> ToolArgumentsError:
    return ToolArgumentsError("code.search", [f"query: {why}"])


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
            lines = content.removesuffix(b"\n").split(b"\n") if content else []
            matching = (number for number, line in enumerate(lines, 1) if query.compiled.search(line))
            numbers = list(islice(matching, most))
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
            argv = [self.program, *_OPTIONS, f"--max-count={most}"]
            argv += [f"--regexp={query.expression}", "--", *(str(path) for path in batch)]
            limits = ProgramLimits(self.seconds, _RECORD_BYTES, _RECORD_BYTES // 100)
            end = run_program(Program(argv, batch[0].parent, self.environment), limits)
            output = end.stdout.whole()
            if end.exit_code is None:
                raise ToolFailureError("timeout", f"the search took longer than {self.seconds:g} s: search fewer files")
            refused = end.exit_code not in {0, 1} and not output and b"regex" in (end.stderr.whole() or b"")
            if output is None or refused:
                raise ToolFailureError("execution_failed", f"ripgrep failed: {end.stderr.text().strip()[:500]}")
            # A record is `path NUL number : … LF`; paths may hold line feeds.
            found: dict[bytes, list[int]] = {}
            for record in _RECORD.finditer(output):
                found.setdefault(record[1], []).append(int(record[2]))
            for path in batch:
                numbers = found.get(os.fsencode(path))
                if numbers:
                    yield path, sorted(numbers)[:most]


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
