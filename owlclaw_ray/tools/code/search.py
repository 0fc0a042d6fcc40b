"""code.search: this module chooses the files, a Matcher says which of their lines match."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.code.arguments import Search
from owlclaw_ray.tools.code.matchers import LineQuery, Matcher
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.expression import Expression, whole_text
from owlclaw_ray.tools.failure import ToolFailureError

_GLOB_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[(?>[!^]?)[^/][^\]/]*\]|\{[^{}]*\}|.", re.DOTALL)


def glob_pattern(glob: str) -> Expression:
    """Return what matches a whole path below the folder, with slashes; a glob without a slash is about the name alone."""
    body = "".join(map(_translated, _GLOB_PART.findall(glob.removeprefix("/").removeprefix("./"))))
    anywhere = "" if "/" in glob else "(?:.*/)?"
    return whole_text(f"{anywhere}{body}")


_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translated(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if part.startswith("[") and len(part) > 1:
        negated = "^" if part[1] in "!^" else ""
        ranges = _RANGE.findall(part[1 + bool(negated) : -1])
        if any(low > high for low, high, _ in ranges if low):
            return "".join(map(_glob_literal, part))
        inside = "".join(
            f"{_glob_literal(low)}-{_glob_literal(high)}" if low else _glob_literal(one) for low, high, one in ranges
        )
        return f"[[{negated}{inside}]&&[^/]]"
    if part.startswith("{") and len(part) > 1:
        choices = part[1:-1].split(",")
        return "(?:" + "|".join("".join(map(_translated, _GLOB_PART.findall(one))) for one in choices) + ")"
    return "".join(map(_glob_literal, part))


def _glob_literal(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


LINE_CHARACTERS = 500
_NOT_ENTERED = frozenset({".git"})
_SNIFFED_BYTES = 8 * 1024


def search(arguments: Search, policy: PathPolicy, matcher: Matcher, most_bytes: int) -> JsonObject:
    """Return the lines of text files that match, by path and line. Secrets, links of any kind, binary and huge files are passed by."""
    query = LineQuery.of(arguments.query, is_regex=arguments.regex)
    start = policy.permitted(arguments.path, Access.READ)
    shown = policy.shown(start)
    if not start.exists():
        raise ToolFailureError("file_not_found", f"{shown}: there is no such file or folder", details={"path": shown})
    glob = glob_pattern(arguments.glob) if arguments.glob else None
    files = (path for path in _files(start, policy, glob) if _is_text(path, most_bytes))
    matches: list[JsonObject] = []
    for path, numbers in matcher.lines(query, files, arguments.limit + 1):
        for number, text in _texts(path, numbers):
            matches.append({"path": policy.shown(path), "line": number, "text": text})
        if len(matches) > arguments.limit:
            break
    return {"path": shown, "matches": matches[: arguments.limit], "truncated": len(matches) > arguments.limit}


def _files(start: Path, policy: PathPolicy, glob: Expression | None) -> Iterator[Path]:
    """Yield the file, or all files below the folder that may be searched, by name; folders that cannot be read are skipped."""
    if not start.is_dir():
        yield start
        return
    pending = _children(start, policy)
    while pending:
        path = pending.pop()
        if path.is_dir():
            if path.name not in _NOT_ENTERED:
                pending += _children(path, policy)
        elif glob is None or glob.found_in(path.relative_to(start).as_posix()):
            yield path


def _children(folder: Path, policy: PathPolicy) -> list[Path]:
    """Return what is in a folder, the last name first."""
    try:
        with os.scandir(folder) as scanned:
            names = sorted((each.name for each in scanned), reverse=True)
    except OSError:
        return []
    return [path for path in (folder / name for name in names) if not policy.skipped(path)]


def _is_text(path: Path, most_bytes: int) -> bool:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(_SNIFFED_BYTES)
    except OSError:
        return False


def _texts(path: Path, numbers: list[int]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file, shortened."""
    with path.open("rb") as file:
        lines = islice(file, numbers[-1])
        wanted = set(numbers)
        for number, line in enumerate(lines, 1):
            if number in wanted:
                text = line.rstrip(b"\r\n").decode("utf-8", "replace")
                yield number, text if len(text) <= LINE_CHARACTERS else f"{text[:LINE_CHARACTERS]}…"
