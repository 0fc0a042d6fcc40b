"""What models take as tools, as settings write it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from owlclaw_ray.configuration.limits import Count
from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.provider import ProviderLimits

_NonEmpty = Annotated[str, Field(min_length=1)]


class ProviderLimitsFile(Section):
    """An entry of `models.limits`: it holds for its models in the place of what is known of them."""

    models: Annotated[tuple[_NonEmpty, ...], Field(min_length=1)]
    """Patterns of model names."""
    tools: Annotated[int, Field(ge=0)] | None = None
    name_characters: Count | None = None
    description_characters: Count | None = None
    property_names: _NonEmpty | None = None
    """A regular expression that the names of parameters match as a whole."""
    refused: tuple[_NonEmpty, ...] = ()
    """Keywords of schemas."""
    typed: bool = False
    """Whether an `enum` needs a `type` beside it."""

    @field_validator("property_names")
    @classmethod
    def _expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is {pattern!r}, which is no regular expression: {error}") from error
        return pattern

    def limits(self) -> ProviderLimits:
        """Return it as the domain says it."""
        return ProviderLimits(**{**self.model_dump(), "property_names": self.property_names or ""})
