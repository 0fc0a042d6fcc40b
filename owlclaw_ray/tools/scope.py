"""What a call aims at, and why a person should be asked about it (T7)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import Permission, ToolDefinition
from owlclaw_ray.errors import ToolExecutionError
from owlclaw_ray.tools.code.path_policy import Access, Concern, PathPolicy

RUN_COMMAND = "code.run_command"
PATH_ACCESS = {
    "code.read_file": Access.READ,
    "code.list_dir": Access.READ,
    "code.search": Access.READ,
    "code.write_file": Access.WRITE,
    "code.edit_file": Access.WRITE,
}
"""What the tools want that work on one path."""
_TAGS = {"dangerous": Concern.DANGEROUS, "network": Concern.NETWORK}


@dataclass(frozen=True, slots=True)
class TargetScope:
    """What one call aims at. Two calls with the same tool and scope aim at the same thing, however it was written."""

    scope: str
    """A path that every link was followed of; program and folder of a command; else the tool's name."""
    writes: bool
    concerns: frozenset[Concern]

    @property
    def asks(self) -> bool:
        """Whether a person should be asked: for all that writes, and for every concern."""
        return self.writes or bool(self.concerns)


def scope_of(tool: ToolDefinition, arguments: JsonObject, policy: PathPolicy | None = None) -> TargetScope:
    """Return what a call aims at. Reads the file system, changes nothing, and never raises: what the tool will refuse as no
    path has the tool's name as its scope. `policy` is that of the code tools; without it paths are not judged.
    """
    concerns = frozenset(concern for tag, concern in _TAGS.items() if tag in tool.tags)
    writes = tool.permission is Permission.WRITE
    scope, found = tool.name, frozenset[Concern]()
    if policy is not None:
        with suppress(ToolExecutionError):
            scope, found = _aim(tool, arguments, policy)
    return TargetScope(scope, writes, concerns | found)


def _aim(tool: ToolDefinition, arguments: JsonObject, policy: PathPolicy) -> tuple[str, frozenset[Concern]]:
    if tool.name in PATH_ACCESS:
        target = policy.target(_text(arguments.get("path")) or ".", PATH_ACCESS[tool.name])
        return str(target.path), target.concerns
    if tool.name == RUN_COMMAND:
        argv = arguments.get("argv")
        program = _text(argv[0]) if isinstance(argv, list) and argv else ""
        target = policy.target(_text(arguments.get("cwd")) or ".", Access.WRITE)
        return f"{program} in {target.path}", target.concerns
    return tool.name, frozenset()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
