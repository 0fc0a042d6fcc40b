import zlib
from datetime import UTC, datetime

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import EmbeddingWait
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.testing.clock import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRADER = AgentRef.parse("trader")


class LetterEmbedder:
    """Embeds a text as the counts of its characters: quick, and alike texts come out alike."""

    def __init__(self, id_="letters", dimension=32):
        self.id = id_
        self.dimension = dimension
        self.batch_size = 8
        self.documents = []
        self.broken = False

    def embed_queries(self, texts):
        return [self._embed(text) for text in texts]

    def embed_documents(self, texts, patience=EmbeddingWait.LONG):
        vectors = [self._embed(text) for text in texts]
        self.documents += texts
        return vectors

    def _embed(self, text):
        if self.broken:
            raise ModelUnavailableError("the provider does not answer")
        vector = [0.01] * self.dimension
        for character in text:
            vector[zlib.crc32(character.encode()) % self.dimension] += 1.0
        return vector


def memory(name, content, tags=(), created_at=NOW, run_id=""):
    return Memory(MemoryId(f"mem_{name}"), content, tuple(tags), created_at, run_id)


def recalled(store, query, limit=5, tags=(), agent=TRADER):
    found = store.recall(agent, query, limit, tags)
    assert not found.degraded, found.reason
    return [one.memory.content for one in found.memories]


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def embedder():
    return LetterEmbedder()


@pytest.fixture(params=["words", "vectors"])
def store(request, tmp_path, clock, embedder):
    return LanceMemory(tmp_path, FixedEmbedder(embedder if request.param == "vectors" else None), clock)
