"""Named actors that a test steers, in place of those of a Ray cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from owlclaw_ray.errors import RuntimeUnavailableError


class SteeredActors:
    """The parts of a runtime, by name and node ("" for those of which a cluster has one).

    Those in `dead` cannot be reached, those in `stuck` never answer; the others give the answers of `answer`, which a test defines.
    """

    def __init__(self) -> None:
        self.dead: set[tuple[str, str]] = set()
        self.stuck: set[tuple[str, str]] = set()
        self.asked: list[tuple[Any, ...]] = []
        """The methods that were asked for, each with its arguments."""

    def answer(self, part: str, method: str, *arguments: Any) -> Any:
        """Return what the method of a part returns."""
        raise AssertionError(f"nobody said what {part}.{method}{arguments} returns")

    def named_actor(self, part: str, _namespace: str, node_id: str = "") -> SteeredActor:
        """Return what stands for `NamedActor(part, namespace, node_id)`."""
        return SteeredActor(partial(self._ask, part, node_id))

    async def _ask(self, part: str, node_id: str, method: str, *arguments: Any) -> Any:
        self.asked.append((method, *arguments))
        if (part, node_id) in self.stuck:
            await asyncio.Event().wait()
        if (part, node_id) in self.dead:
            raise RuntimeUnavailableError(f"the {part} is not there yet")
        return self.answer(part, method, *arguments)


class SteeredActor:
    """Has each method of a part as `call.method(…)`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    @property
    def call(self) -> SteeredActor:
        return self

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._ask, method)
