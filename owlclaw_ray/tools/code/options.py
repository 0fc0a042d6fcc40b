"""What the code tools may touch, as the settings say it. Plain facts: they travel to every worker."""

from __future__ import annotations

from msgspec import Struct

from owlclaw_ray.ids import TenantId

SENSITIVE_PATHS = ("~/.ssh", "~/.gnupg", "~/.aws", "~/.config/gcloud", "*.pem", "*.key", ".env", ".env.*")
COMMAND_SECONDS = 120.0
MAX_COMMAND_SECONDS = 600.0


class CodeOptions(Struct, frozen=True):
    """All paths are absolute."""

    project: str
    """The folder that agents work in: they may read and write below it."""
    read_roots: tuple[str, ...] = ()
    """Folders below which they may read too."""
    write_roots: tuple[str, ...] = ()
    """Folders below which they may read and write too."""
    sensitive_paths: tuple[str, ...] = SENSITIVE_PATHS
    """Folders (with a slash), and patterns of names of files and folders, wherever they are."""
    hidden: tuple[str, ...] = ()
    """The runtime's own data: never read, never written."""
    read_only: tuple[str, ...] = ()
    """What the runtime takes instructions from (definitions, settings, declarative tools): never written."""
    env: tuple[str, ...] = ()
    """Variables that commands get beside PATH, HOME, TMPDIR and LANG."""
    command_seconds: float = COMMAND_SECONDS
    output_bytes: int = 256 * 1024
    """Of a command's stdout, and of its stderr, that are kept."""
    file_bytes: int = 10 * 1024 * 1024
    """The largest file that is written, edited or searched."""
    tenants: frozenset[TenantId] = frozenset()
    """Whose agents have the tools; empty: everybody's."""
