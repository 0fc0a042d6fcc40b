"""The catalog of tools in an actor host: which there are, and their schemas encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256

import orjson
from msgspec import Struct

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.tool import ToolClass, ToolDefinition
from owlclaw_ray.ids import TenantId
from owlclaw_ray.models.provider_limits import KNOWN_LIMITS, problem_with

_KEPT = 64
"""Selections. Their encoded schemas may be large, and agents may see ever different tools."""
_FEW, _SHOWN = 20, 80
"""Tools that a model is told all of; characters of a name that there is not."""
_JUDGED = 1_024
"""Pairs of a model and a selection."""


class VisibleTools(Struct, frozen=True):
    """The tools that one run may call: a hard boundary (R6)."""

    names: tuple[str, ...]
    """Canonical, sorted."""
    by_wire_name: dict[str, ToolDefinition]
    encoded: bytes
    """Their schemas in OpenAI form, a JSON array in the order of `names`."""
    digest: str
    """The SHA-256 of `encoded`."""
    others: Mapping[str, ToolDefinition]
    """Those that there are for its tenant and the run may not call, by wire name: refusing a write is a failed write all the same."""

    def unknown(self, name: str) -> str:
        """Return what to tell a model that calls a tool of a name that is none of these: all of them, if they are few, else the closest."""
        said = f"there is no tool {shortened(name)!r} in this run"
        if len(self.names) <= _FEW:
            return f"{said}; there are: {', '.join(sorted(self.by_wire_name)) or 'none'}"
        close = get_close_matches(name[:_SHOWN], self.by_wire_name, n=5, cutoff=0.5)
        return f"{said}; of its {counted(len(self.names), 'tool')} the closest are: {', '.join(close) or 'none'}"


def shortened(name: str) -> str:
    """Return a name that a model made up, of a length that can be kept."""
    return f"{name[:_SHOWN]}…" if len(name) > _SHOWN else name


class ToolCatalog:
    """All tools of the application and the built-in ones, and those that come and go beside them. `limits` go before KNOWN_LIMITS."""

    def __init__(self, definitions: Iterable[ToolDefinition], limits: Sequence[ProviderLimits] = ()) -> None:
        self._fixed, self._limits = tuple(definitions), (*limits, *KNOWN_LIMITS)
        self._problems: dict[tuple[str, str], str] = {}
        self._know(self._fixed)

    def offer(self, live: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
        """Have these beside the fixed tools from now on, in the place of what was offered before; return all that there are.

        One that cannot be told from a fixed tool is left out. What was selected before stays what it is.
        """
        taken = {each.wire_name for each in self._fixed}
        definitions = (*self._fixed, *(each for each in live if each.wire_name not in taken))
        self._know(definitions)
        return definitions

    def _know(self, definitions: Sequence[ToolDefinition]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}
        self._encoded = {name: orjson.dumps(each.openai_form()) for name, each in self._definitions.items()}
        self._selections: dict[tuple[tuple[str, ...], frozenset[str]], VisibleTools] = {}
        self._names = tuple(sorted(self._definitions))
        self._restricted = tuple(each for each in definitions if each.tenants)

    def names(self, tenant: TenantId) -> tuple[str, ...]:
        """Return the canonical names of all tools that there are for a tenant, sorted."""
        foreign = self._foreign(tenant)
        return tuple(name for name in self._names if name not in foreign) if foreign else self._names

    def _foreign(self, tenant: TenantId) -> frozenset[str]:
        return frozenset(each.name for each in self._restricted if not each.is_for(tenant))

    def class_of(self, name: str) -> ToolClass:
        """Return which calls share a task with those of a tool; one that there is not is called alone."""
        definition = self._definitions.get(name)
        return ToolClass.ALONE if definition is None else definition.tool_class

    def select(self, names: Sequence[str], tenant: TenantId) -> VisibleTools:
        """Return those of these tools that there are for the tenant: a run that is resumed may name some that it has no more.

        The same names give the same bytes, so that provider caches hold.
        """
        foreign = self._foreign(tenant)
        found = self._selections.get((tuple(names), foreign))
        if found is None:
            there = self._definitions.keys() - foreign
            key = tuple(sorted(there.intersection(names))), foreign
            found = self._selections.get(key) or self._made(*key)
        return found

    def problem(self, model: str, visible: VisibleTools) -> str:
        """Return why the model cannot be given these tools, or the empty text. Found out once."""
        key = model, visible.digest
        if key not in self._problems:
            if len(self._problems) >= _JUDGED:
                self._problems.clear()
            self._problems[key] = problem_with(model, tuple(visible.by_wire_name.values()), self._limits)
        return self._problems[key]

    def _made(self, names: tuple[str, ...], foreign: frozenset[str]) -> VisibleTools:
        definitions = [self._definitions[name] for name in names]
        encoded = b"[" + b",".join(self._encoded[name] for name in names) + b"]"
        visible = {each.wire_name: each for each in definitions}
        others = {
            each.wire_name: each
            for each in self._definitions.values()
            if each.wire_name not in visible and each.name not in foreign
        }
        made = VisibleTools(names, visible, encoded, sha256(encoded).hexdigest(), others)
        if len(self._selections) >= _KEPT:
            del self._selections[next(iter(self._selections))]
        self._selections[names, foreign] = made
        return made
