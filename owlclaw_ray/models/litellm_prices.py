"""The table of models and their prices that comes with litellm, read without importing it."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import orjson

from owlclaw_ray.domain.endpoint import RealModel, provider_of
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import Price

_TABLE = "model_prices_and_context_window_backup.json"
_OTHER_TERMS = ("_batches", "_priority", "_flex", "_balanced", "_decisions", "_ultrafast")
"""Of calls that the runtime does not make."""
_COMPLETE = frozenset({"openai", "anthropic", "gemini", "deepseek", "mistral", "xai"})
"""Providers whose models litellm lists, and that serve no others: none that customers give their own names."""
_ANSWERING = frozenset({"chat", "responses", "completion"})
"""Modes of models that a run may ask."""
_TUNED = "ft:"
_MILLION = 1_000_000


@cache
def local_prices() -> Mapping[str, JsonObject]:
    """Return litellm's own table, by models' names; empty without litellm."""
    found = importlib.util.find_spec("litellm")
    folders = [] if found is None else found.submodule_search_locations or []
    files = [path for folder in folders if (path := Path(folder, _TABLE)).is_file()]
    table: Mapping[str, JsonObject] = orjson.loads(files[0].read_bytes()) if files else {}
    return table


def price_in(table: Mapping[str, JsonObject], model: str) -> Price | None:
    """Return the highest price that a call of the model may have, or None if the table does not say it.

    Long prompts, writing a provider's cache, and thinking cost more than the rest: what a call may cost is to cover them.
    """
    found = table.get(model) or table.get(model.partition("/")[2])
    if found is None or "input_cost_per_token" not in found:
        return None
    prompt = _highest(found, "input_cost_per_token", "cache_creation_input_token_cost")
    return Price(prompt, _highest(found, "output_cost_per_token", "output_cost_per_reasoning_token"))


def misspelling_hint(asked: RealModel) -> str:
    """Return why the name of a model is probably misspelt, with the nearest one that litellm lists; or the empty text.

    Of models that are asked at another address than their provider's nothing is known.
    """
    table, model, provider = local_prices(), asked.model, provider_of(asked.model)
    bare = provider == model
    if not table or model in table or (asked.endpoint is not None and asked.endpoint.api_base):
        return ""
    own = model.removeprefix(f"{provider}/")
    if not bare and (provider not in _COMPLETE or own.startswith(_TUNED)):
        return ""
    names = [
        name
        for name, each in table.items()
        if each.get("mode") in _ANSWERING and ("/" not in name if bare else each.get("litellm_provider") == provider)
    ]
    if own in {name.removeprefix(f"{provider}/") for name in names}:
        return ""
    near = difflib.get_close_matches(own, {name.removeprefix(f"{provider}/"): None for name in names}, n=1)
    return f"litellm knows no such model{f'; did you mean {near[0]}?' if near else ''}"


def _highest(found: JsonObject, *names: str) -> float:
    costs = (
        cost
        for name, cost in found.items()
        if name.startswith(names) and not name.endswith(_OTHER_TERMS) and isinstance(cost, int | float)
    )
    return max(costs, default=0.0) * _MILLION
