"""What models cost: as the settings say, else as the table does that comes with litellm."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec.structs import replace

from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock

_PAUSE = 0.5

PriceRules: TypeAlias = Sequence[tuple[str, Price]]
"""Patterns of models' names, of which the first that fits holds."""

logger = logging.getLogger(__name__)


def written_price(rules: PriceRules, model: str) -> Price | None:
    """Return what the settings say that the model costs, if they do."""
    return next((price for pattern, price in rules if fnmatchcase(model, pattern)), None)


def priced(usage: Usage, rules: PriceRules, model: str) -> Usage:
    """Return what a call used, with its cost by the settings' price if there is one, else as it is."""
    price = written_price(rules, model)
    if price is None:
        return usage
    return replace(usage, cost=price.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens))


class Prices:
    """Prices of models by name. `ask` knows those that no rule names; while it cannot be asked, callers wait."""

    def __init__(self, ask: Callable[[str], Awaitable[Price | None]], clock: Clock, rules: PriceRules = ()) -> None:
        self._ask, self._clock, self._rules = ask, clock, tuple(rules)
        self._known: dict[str, Price | None] = {}

    async def of(self, model: str) -> Price | None:
        """Return the price of a model, or None if it is unknown."""
        while model not in self._known:
            found = written_price(self._rules, model)
            try:
                if found is None and not model.startswith("scripted:"):
                    found = await self._ask(model)
                self._known[model] = found
            except (OwlClawError, TimeoutError) as error:
                logger.warning("runs under a budget of money wait for the price of %s: %s", model, error)
                await self._clock.sleep(_PAUSE)
        return self._known[model]
