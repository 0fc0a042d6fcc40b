"""What a provider of models takes as tools."""

from __future__ import annotations

from msgspec import Struct


class ProviderLimits(Struct, frozen=True):
    """What some models take; None, and the empty text, mean that there is no limit."""

    models: tuple[str, ...]
    """Patterns of model names, as in a shell: `openai/*`."""
    tools: int | None = None
    """How many in one request."""
    name_characters: int | None = None
    """Of a tool's name as it is sent, where a dot counts as two."""
    description_characters: int | None = None
    """Of a tool's description."""
    property_names: str = ""
    """A regular expression that the names of a tool's parameters match as a whole."""
    refused: tuple[str, ...] = ()
    """Keywords of schemas."""
    typed: bool = False
    """Whether an `enum` needs a `type` beside it."""
