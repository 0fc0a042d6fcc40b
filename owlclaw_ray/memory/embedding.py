"""What turns texts into vectors, and who knows which of these there are."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeAlias


class EmbeddingWait(Enum):
    """How long vectors of documents are waited for."""

    SHORT = "short"
    """Somebody waits for an answer that is good without them."""
    LONG = "long"
    """Nobody does."""


Vectors: TypeAlias = Sequence[Sequence[float]]
"""One for each text."""


class Embedder(Protocol):
    """Turns texts into vectors of a fixed dimension, near in angle where the meaning is near.

    Whatever a method or `dimension` raises says that there are no vectors now; the same may work later.
    """

    @property
    def id(self) -> str:
        """The model and its version: vectors of different ids do not compare."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        ...

    @property
    def batch_size(self) -> int:
        """How many documents are best embedded at once."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text, for texts that ask. Any text is accepted; a very long one may be cut."""
        ...

    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Vectors:
        """Return one vector a text, for texts that are searched."""
        ...


class Embedders(Protocol):
    """The embedder that is configured, and those that indexes of earlier days were made with."""

    @property
    def target(self) -> Embedder | None:
        """The configured one; None: memories are found by their words only."""
        ...

    def renewed(self) -> Embedder | None:
        """Return the target, from now on one that is asked again for its dimension, if a provider may have changed that."""
        ...

    def named(self, embedder_id: str, dimension: int) -> Embedder | None:
        """Return the embedder whose vectors have this id and dimension; None if it cannot be asked any more."""
        ...
