"""What models cost, as owlclaw.yaml writes it (G2)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.model import Price

_Dollars: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PriceFile(Section):
    """An entry of `models.prices`, in US dollars for a million tokens."""

    prompt: _Dollars
    completion: _Dollars
    cached: _Dollars | None = None
    """Of a prompt, those that the provider had in its cache; none: as all others."""

    def price(self) -> Price:
        """Return it as the domain says it."""
        return Price(**self.model_dump())
