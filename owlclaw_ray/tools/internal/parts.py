"""Reading a long text in parts, as models do."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from owlclaw_ray.domain.json import JsonObject

_MAX_CHARACTERS = 10_000
PART_BYTES = 6 * _MAX_CHARACTERS + 4_096
"""What so many characters take as JSON, each of them escaped: a part never becomes an artifact."""


class Part(BaseModel):
    """Which part of a text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offset: Annotated[int, Field(ge=0, description="The first character to read.")] = 0
    limit: Annotated[int, Field(ge=1, le=_MAX_CHARACTERS, description="How many characters to read at most.")] = 4_000

    def of(self, text: str) -> JsonObject:
        """Return the part, and where to go on."""
        part = text[self.offset : self.offset + self.limit]
        end = self.offset + len(part)
        return {
            "text": part,
            "total_characters": len(text),
            "next_offset": end if part and end < len(text) else None,
        }
