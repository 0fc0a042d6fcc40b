"""Putting back a MEMORY.md that a person had open in an editor, while its agent may have gone on remembering."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from owlclaw_ray.kernel import durable_files
from owlclaw_ray.kernel.durable_files import FileChangedError
from owlclaw_ray.memory.entries import EntryFile
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.memory.markdown import HEADER

_KEPT = "MEMORY.edited.md"


def put_back(folder: Path, before: bytes, after: bytes) -> Path | None:
    """Make `after` the MEMORY.md of a folder that was `before` when it was opened; what was appended since then stays at its end.

    If it was changed in another way, nothing of it is replaced, and `after` is written beside it: to the path that is returned.
    Raises OSError if it cannot be written.
    """
    file = EntryFile(folder / "MEMORY.md", HEADER)
    with FileLock(folder / ".lock"):
        with suppress(FileChangedError):
            file.settle()
            now = file.path.read_bytes() if file.path.exists() else b""
            if now.startswith(before):
                appended = now[len(before) :]
                file.overwrite(after + (b"\n" if appended and not after.endswith(b"\n") else b"") + appended)
                return None
        kept = folder / _KEPT
        durable_files.replace(kept, after)
        return kept
