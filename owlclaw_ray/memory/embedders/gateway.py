"""Embeddings of a provider's model, which the ModelGateway asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.endpoint import endpoint_of
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.memory.embedding import Embedder, EmbeddingWait, Vectors

PREFIX = "litellm:"
MAX_TEXT_CHARACTERS = 8_000
"""Characters, of a text that a person wrote; what `remember` takes is shorter."""
_PROBE = "dimension"


class GatewayEmbedder(Embedder):
    """One model. `ask` reaches the gateway; what it raises means no vectors now.

    The dimension is what the model's first vector has, unless it is known: then vectors of another length are an error.
    """

    def __init__(
        self,
        model: str,
        ask: Callable[[EmbeddingRequest], EmbeddingReply],
        calls: EmbeddingCalls,
        dimension: int | None = None,
    ) -> None:
        self._model, self._ask, self._calls, self._dimension = model, ask, calls, dimension

    @property
    def id(self) -> str:
        """The setting that names it."""
        return PREFIX + self._model

    @property
    def dimension(self) -> int:
        """Asks the model if it has not answered yet."""
        if self._dimension is None:
            return len(self.embed_queries([_PROBE])[0])
        return self._dimension

    @property
    def batch_size(self) -> int:
        """The most texts that go out in one call."""
        return self._calls.batch

    @override
    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self._calls.timeout)

    @override
    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Vectors:
        return self._embed(texts, self._calls.timeout if patience is EmbeddingWait.SHORT else self._calls.patience)

    def _embed(self, texts: Sequence[str], patience: float) -> Vectors:
        vectors: list[Sequence[float]] = []
        seconds, endpoint = self._calls.timeout, endpoint_of(self._model, self._calls.endpoints)
        for start in range(0, len(texts), self._calls.batch):
            # no provider takes an empty text, or one without end
            some = texts[start : start + self._calls.batch]
            batch = tuple(text[:MAX_TEXT_CHARACTERS].strip() or "-" for text in some)
            vectors += self._ask(EmbeddingRequest(self._model, batch, seconds, patience, endpoint)).vectors
        for vector in vectors:
            if self._dimension is None:
                self._dimension = len(vector)
            if len(vector) != self._dimension:
                message = f"{self._model} gave a vector of {len(vector)} numbers, where it had {self._dimension} before"
                raise ModelUnavailableError(f"{message}: it is another model now; rebuild the index")
        return vectors
