"""Putting back a MEMORY.md that a person had open in an editor, while its agent may have gone on remembering."""

from __future__ import annotations

from pathlib import Path

from owlclaw_ray.memory import durable
from owlclaw_ray.memory.lock import FileLock

_KEPT = "MEMORY.edited.md"


def put_back(folder: Path, before: bytes, after: bytes) -> Path | None:
    """Make `after` the MEMORY.md of a folder that was `before` when it was opened; what was appended since then stays at its end.

    If it was changed in another way, nothing of it is replaced, and `after` is written beside it: to the path that is returned.
    Raises OSError if it cannot be written.
    """
    path = folder / "MEMORY.md"
    with FileLock(folder / ".lock"):
        now = path.read_bytes() if path.exists() else b""
        if not now.startswith(before):
            kept = folder / _KEPT
            durable.replace(kept, after)
            return kept
        appended = now[len(before) :]
        if appended and not after.endswith(b"\n"):
            after += b"\n"
        durable.replace(path, after + appended)
        return None
