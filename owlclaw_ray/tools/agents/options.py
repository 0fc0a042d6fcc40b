"""What the agent tools may do, as the settings say it. Plain facts: they travel to every worker."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct


class AgentOptions(Struct, frozen=True):
    """Patterns are of names, with `*` and `?`."""

    definitions: tuple[str, ...] = ("*",)
    """The definitions whose agents may be started by others."""
    grant: tuple[str, ...] = ("*",)
    """The tools with a dot in their name that started agents may be given at most."""
    child_seconds: float = 3_600.0
    """How long after the call a started run may end; then it is stopped. Its own `limits.run_timeout` holds too."""
    context_characters: int = 20_000
    """How much of its parent's conversation a fork is told: the newest."""

    def allows(self, definition: str) -> bool:
        """Return whether agents of the definition may be started."""
        return any(fnmatchcase(definition, pattern) for pattern in self.definitions)
