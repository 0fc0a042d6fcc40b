"""An embedder whose costs somebody is told: of documents, which are embedded when no tool call waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from owlclaw_ray.ports.embedding import Embedded, Embedder, Patience


class AccountedEmbedder:
    """Implements `Embedder` with another one; `spent` hears of every batch of documents that a provider's model was asked for."""

    def __init__(self, embedder: Embedder, spent: Callable[[Embedded], None]) -> None:
        self._embedder, self._spent = embedder, spent

    @property
    def id(self) -> str:
        """See Embedder.id."""
        return self._embedder.id

    @property
    def dimension(self) -> int:
        """See Embedder.dimension."""
        return self._embedder.dimension

    @property
    def batch_size(self) -> int:
        """See Embedder.batch_size."""
        return self._embedder.batch_size

    def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """See Embedder.embed_queries; whoever asks accounts for it."""
        return self._embedder.embed_queries(texts)

    def embed_documents(self, texts: Sequence[str], patience: Patience = Patience.LONG) -> Embedded:
        """See Embedder.embed_documents."""
        embedded = self._embedder.embed_documents(texts, patience)
        if embedded.model:
            self._spent(embedded)
        return embedded
