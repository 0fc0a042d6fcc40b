"""Embeddings of a provider's model, which the ModelGateway asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.endpoint import endpoint_of
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.memory.embedding import Embedded, EmbeddingWait

PREFIX = "litellm:"
MAX_TEXT_CHARACTERS = 8_000
"""Characters, of a text that a person wrote; what `remember` takes is shorter."""
_PROBE = "dimension"


class GatewayEmbedder:
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
            return len(self.embed_queries([_PROBE]).vectors[0])
        return self._dimension

    @property
    def batch_size(self) -> int:
        """The most texts that go out in one call."""
        return self._calls.batch

    def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """See Embedder; a query is short, and somebody waits for it."""
        return self._embed(texts, self._calls.timeout)

    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Embedded:
        """See Embedder; in as many calls as the batch size makes necessary, each as patient as a question's if it is short."""
        return self._embed(texts, self._calls.timeout if patience is EmbeddingWait.SHORT else self._calls.patience)

    def _embed(self, texts: Sequence[str], patience: float) -> Embedded:
        vectors: list[Sequence[float]] = []
        seconds, endpoint = self._calls.timeout, endpoint_of(self._model, self._calls.endpoints)
        for start in range(0, len(texts), self._calls.batch):
            batch = tuple(_acceptable(text) for text in texts[start : start + self._calls.batch])
            vectors += self._ask(EmbeddingRequest(self._model, batch, seconds, patience, endpoint)).vectors
        for vector in vectors:
            self._check(len(vector))
        return Embedded(vectors)

    def _check(self, length: int) -> None:
        if self._dimension is None:
            self._dimension = length
        if length != self._dimension:
            message = f"{self._model} gave a vector of {length} numbers, where it had {self._dimension} before"
            raise ModelUnavailableError(f"{message}: it is another model now; rebuild the index")


def _acceptable(text: str) -> str:
    """Return a text that no provider refuses: not empty, not endless."""
    return text[:MAX_TEXT_CHARACTERS].strip() or "-"
