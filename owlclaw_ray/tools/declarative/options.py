"""Where declarative tools are, and what their programs may take. Plain facts: they travel to every worker."""

from __future__ import annotations

from msgspec import Struct

OUTPUT_BYTES = 256 * 1024


class DeclarativeOptions(Struct, frozen=True):
    """All paths are absolute."""

    folder: str
    """One file a tool, `*.json`."""
    project: str
    """Where programs run whose file names no working_dir."""
    roots: tuple[str, ...] = ()
    """Folders that a working_dir may be below, beside the project."""
    seconds: float = 120.0
    """How long a program may run whose file says no timeout_ms."""
    most_seconds: float = 600.0
    """What a timeout_ms may say at most."""
