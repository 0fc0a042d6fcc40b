"""State providers of an application, with a cache in each process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import ConfigurationError, NotFoundError, Problem
from owlclaw_ray.tools.json_result import to_json
from owlclaw_ray.tools.names import state_name_problems

_CACHE_SIZE = 1_024


class States(Protocol):
    """The application's state providers by name. Synchronous: it is called from inside a tool worker."""

    def query(self, name: str, agent: AgentRef) -> JsonValue:
        """Return the present state of that name for the agent, as JSON.

        Raises NotFoundError, its message naming the states that exist, and whatever the provider raises.
        """
        ...


class UnknownStateError(NotFoundError):
    """The application has no state of that name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.known = known
        super().__init__("state", name)

    def __str__(self) -> str:
        return f"{super().__str__()}; there are: {', '.join(self.known) or 'none'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.id, self.known))


class StateProvider(Struct, frozen=True):
    """A function that says what is."""

    name: str
    function: Callable[..., Any]
    ttl: float | None
    """Seconds for which an answer is kept; None asks every time."""
    wants_agent: bool


class StateProviders:
    """All states of an application, or what else it is asked for by name: `kind`. Failed queries are not cached."""

    def __init__(self, monotonic: Callable[[], float], kind: str = "state") -> None:
        self._monotonic, self._kind = monotonic, kind
        self._providers: dict[str, StateProvider] = {}
        self._cache: dict[tuple[str, AgentRef | None], tuple[float, JsonValue]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All state names, sorted."""
        return tuple(sorted(self._providers))

    def add(self, name: str, function: Callable[..., Any], ttl: float | None) -> None:
        """Register a provider: sync or async, without parameters or with one that gets the asking agent's AgentRef."""
        variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        parameters = [
            parameter
            for parameter, each in inspect.signature(function).parameters.items()
            if each.default is inspect.Parameter.empty and each.kind not in variadic
        ]
        problems = state_name_problems(name, self._kind)
        where = f"{self._kind} {name!r}"
        if name in self._providers:
            problems.append(Problem(where, "is registered twice", "give one of them another name"))
        if ttl is not None and not ttl > 0:
            problems.append(Problem(f"{where}: ttl", f"is {ttl}", "it must be more than 0 seconds, or None"))
        if len(parameters) > 1:
            fix = "a provider takes nothing, or the asking agent's AgentRef"
            problems.append(Problem(where, f"has parameters {', '.join(parameters)}", fix))
        if problems:
            raise ConfigurationError(problems)
        self._providers[name] = StateProvider(name, function, ttl, wants_agent=bool(parameters))

    def query(self, name: str, agent: AgentRef) -> JsonValue:
        """Return the state as JSON. Raises UnknownStateError, NotJsonError, and whatever the provider raises."""
        provider = self._providers.get(name)
        if provider is None:
            raise UnknownStateError(name, self.names)
        key = (name, agent if provider.wants_agent else None)
        cached = self._cache.get(key)
        if cached is not None and self._monotonic() < cached[0]:
            return cached[1]
        arguments = (agent,) if provider.wants_agent else ()
        if inspect.iscoroutinefunction(provider.function):
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                answer = runner.run(provider.function(*arguments))
        else:
            answer = provider.function(*arguments)
        state = to_json(answer)
        if provider.ttl is not None:
            now = self._monotonic()
            if len(self._cache) >= _CACHE_SIZE:
                self._cache = {each: kept for each, kept in self._cache.items() if now < kept[0]}
            if len(self._cache) < _CACHE_SIZE:
                self._cache[key] = (now + provider.ttl, state)
        return state
