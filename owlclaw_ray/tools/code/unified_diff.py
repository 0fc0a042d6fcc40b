"""Unified diffs of one file, applied exactly: every line of context and every removed line must be there.

A hunk is looked for at its line number, and if it is not there, in the rest of the file: it must be in one place only. The
counts of its header are not trusted, because models miscount. Lines are compared without the CR of a CRLF; lines that are
added end as the file's lines do.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from owlclaw_ray.tools.failure import ToolFailureError

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@.*")
_REFUSED = (
    ("rename ", "renames a file"),
    ("copy ", "copies a file"),
    ("deleted file ", "deletes a file"),
    ("Binary files ", "is binary"),
    ("GIT binary patch", "is binary"),
)
_KEPT, _ADDED, _REMOVED = " +-"
_SEVERAL = "it changes several files: call the tool once for each"


class _Hunk(Struct):
    line: int
    """Where it begins in the old file, counted from 1."""
    old_count: int
    new_count: int
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Sign and text of each of its lines."""
    unended: set[str] = field(default_factory=set)
    """The signs of the lines that no newline follows."""

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.steps if sign != _ADDED]

    @property
    def is_full(self) -> bool:
        return len(self.old) >= self.old_count and sum(sign != _REMOVED for sign, _ in self.steps) >= self.new_count


def patched(text: str, diff: str, names: frozenset[str]) -> tuple[str, int]:
    """Return the text with the diff applied, and how many hunks it has. `names` are what the diff may call the file.

    Raises ToolFailureError: `patch_apply_failed` unless every hunk applies cleanly; `unsupported_patch` for diffs of other or
    several files, renames, deletions and binary content.
    """
    hunks = _parsed(diff, names)
    lines = text.split("\n")
    start = moved = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(hunk, number, lines, start, moved)
        length = len(lines)
        start = _apply(hunk, number, lines, at)
        moved += len(lines) - length
    return "\n".join(lines), len(hunks)


def _place(hunk: _Hunk, number: int, lines: list[str], start: int, moved: int) -> int:
    """Return the index of the hunk's first old line, at `start` or after it."""
    old = hunk.old
    expected = hunk.line + moved - bool(old)
    if start <= expected and _is_at(hunk, old, lines, expected):
        return expected
    places = [at for at in range(start, len(lines)) if _is_at(hunk, old, lines, at)] if old else []
    if len(places) == 1:
        return places[0]
    what = "is in several places" if places else "is not in the file"
    raise ToolFailureError(
        "patch_apply_failed",
        f"hunk {number}: what it replaces {what} (it says line {hunk.line}). Read the file again.",
        details={"hunk": number, "line": hunk.line, "places": len(places)},
    )


def _is_at(hunk: _Hunk, old: list[str], lines: list[str], at: int) -> bool:
    end = at + len(old)
    if at < 0 or end > len(lines) or (not old and at == len(lines)):
        return False
    if any(line.removesuffix("\r") != wanted for line, wanted in zip(lines[at:end], old, strict=True)):
        return False
    past_the_end = end == len(lines) and lines[-1] == ""
    if hunk.unended & {_KEPT, _REMOVED}:
        return end == len(lines) and not past_the_end
    return not past_the_end


def _apply(hunk: _Hunk, number: int, lines: list[str], at: int) -> int:
    """Make the hunk's change and return the index after it. Lines that it keeps stay as they are."""
    end = at + len(hunk.old)
    carriage = "\r" if lines[0].endswith("\r") else ""
    new: list[str] = []
    index = at
    for sign, text in hunk.steps:
        if sign == _KEPT:
            new.append(lines[index])
        elif sign == _ADDED:
            new.append(text + carriage)
        index += sign != _ADDED
    if _REMOVED in hunk.unended and _ADDED not in hunk.unended and (new or at):
        new.append("")
    if _ADDED in hunk.unended and _REMOVED not in hunk.unended:
        if lines[end:] not in ([], [""]):
            what = f"hunk {number}: a line without a newline is not the file's last"
            raise ToolFailureError("patch_apply_failed", what, details={"hunk": number})
        end = len(lines)
    if carriage and end == len(lines) and new and hunk.steps[-1][0] == _ADDED and new[-1]:
        new[-1] = new[-1].removesuffix(carriage)
    lines[at:end] = new
    return at + len(new)


def _parsed(diff: str, names: frozenset[str]) -> list[_Hunk]:
    hunks: list[_Hunk] = []
    lines = diff.replace("\r\n", "\n").rstrip("\n").split("\n")
    files = index = 0
    while index < len(lines):
        line, following = lines[index], lines[index + 1] if index + 1 < len(lines) else ""
        between = not hunks or hunks[-1].is_full
        header = _HEADER.fullmatch(line)
        if between and line.startswith("--- ") and following.startswith("+++ "):
            files += 1
            _check_name(line, names)
            _check_name(following, names)
            index += 1
        elif header is not None:
            hunks.append(_Hunk(int(header[1]), int(header[2] or 1), int(header[3] or 1)))
        elif hunks:
            _take(hunks[-1], line)
        else:
            for start, what in _REFUSED:
                if line.startswith(start):
                    raise _unsupported(f"it {what}")
        index += 1
    if files > 1:
        raise _unsupported(_SEVERAL)
    if not hunks:
        raise ToolFailureError("patch_apply_failed", "the diff has no hunk: none of its lines is like @@ -1,3 +1,4 @@")
    return hunks


def _take(hunk: _Hunk, line: str) -> None:
    if line.startswith("diff --git "):
        raise _unsupported(_SEVERAL)
    if line.startswith("\\"):
        hunk.unended.add(hunk.steps[-1][0] if hunk.steps else _KEPT)
        return
    sign, text = (line[0], line[1:]) if line else (_KEPT, "")
    if sign not in {_KEPT, _ADDED, _REMOVED}:
        what = f"a line of a hunk begins with {sign!r}: it must begin with a space, '+' or '-'"
        raise ToolFailureError("patch_apply_failed", what)
    hunk.steps.append((sign, text))


def _check_name(line: str, names: frozenset[str]) -> None:
    name = line[4:].split("\t", 1)[0].strip().strip('"')
    if name == "/dev/null" and line.startswith("+++"):
        raise _unsupported("it deletes a file")
    if name != "/dev/null" and name not in names and re.sub(r"^[ab]/", "", name) not in names:
        raise _unsupported(f"it is of {name!r}, not of the given path")


def _unsupported(why: str) -> ToolFailureError:
    return ToolFailureError("unsupported_patch", f"the diff cannot be used: {why}")
