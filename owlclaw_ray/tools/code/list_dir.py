"""code.list_dir."""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.code.arguments import ListDir
from owlclaw_ray.tools.code.files import told
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.failure import ToolFailureError

_NOT_ENTERED = frozenset({".git"})


def list_dir(arguments: ListDir, policy: PathPolicy) -> JsonObject:
    """Return the entries of a folder by name; links are shown, never followed, and secrets are shown, never entered."""
    folder = policy.permitted(arguments.path, Access.READ)
    shown = policy.shown(folder)
    if not folder.exists():
        raise ToolFailureError("file_not_found", f"{shown}: there is no such folder", details={"path": shown})
    if not folder.is_dir():
        raise ToolFailureError("not_a_directory", f"{shown} is no folder", details={"path": shown})
    with told(shown):
        found = list(islice(_entries(folder, arguments, policy), arguments.limit + 1))
    entries = [_entry(path, policy) for path in found[: arguments.limit]]
    return {"path": shown, "entries": entries, "truncated": len(found) > arguments.limit}


def _entries(folder: Path, arguments: ListDir, policy: PathPolicy) -> Iterator[Path]:
    pending = _children(folder, arguments.limit, policy)
    while pending:
        path = pending.pop()
        yield path
        if arguments.recursive and path.name not in _NOT_ENTERED and not policy.skipped(path) and path.is_dir():
            with suppress(PermissionError):
                pending += _children(path, arguments.limit, policy)


def _children(folder: Path, limit: int, policy: PathPolicy) -> list[Path]:
    """Return what is in a folder, the last name first, at most one more than the limit: memory does not grow with its size."""
    with os.scandir(folder) as scanned:
        paths = (folder / each.name for each in scanned)
        return heapq.nsmallest(limit + 1, (path for path in paths if not policy.is_own(path)))[::-1]


def _entry(path: Path, policy: PathPolicy) -> JsonObject:
    entry: JsonObject = {"path": policy.shown(path)}
    try:
        found = path.lstat()
    except FileNotFoundError:
        return {**entry, "type": "gone"}
    if stat.S_ISLNK(found.st_mode):
        entry["type"] = "link"
    elif stat.S_ISDIR(found.st_mode):
        entry["type"] = "folder"
    elif stat.S_ISREG(found.st_mode):
        entry |= {"type": "file", "size_bytes": found.st_size}
    else:
        entry["type"] = "other"
    if policy.sensitive(path):
        entry["sensitive"] = True
    return entry
