"""One LanceDB table: its columns, and the few operations that the index is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.lexical import searchable
from owlclaw_ray.ports.memory import Embedder

Vector = Sequence[float]

WORD_HITS = 300
"""How many memories a search by words gives; fusion needs more than the few that are returned."""
MEANING_HITS = 1_000
"""Searching all vectors costs the same for one hit as for a thousand."""
MOST_FRAGMENTS = 64
_OLD_VERSIONS = timedelta(minutes=10)
_CACHE_BYTES = 32 * 1024 * 1024


def fingerprint(memory: Memory) -> str:
    """Return what changes when the searchable text or the tags of a memory change."""
    text = "\0".join((searchable(memory), *map(_tag_key, memory.tags)))
    return blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found: scores by words, and cosines by meaning (none without an embedder)."""

    bm25: dict[MemoryId, float]
    cosine: dict[MemoryId, float]


class MemoryTable:
    """A table of memories for one agent and one embedder. Any method may raise anything when its files are damaged."""

    def __init__(self, folder: Path, embedder: Embedder | None, session: Any) -> None:
        import lancedb

        self._dimension = embedder.dimension if embedder else 0
        name = f"memories-{_safe(embedder.id)}-{embedder.dimension}" if embedder else "memories-words"
        database = lancedb.connect(str(folder), read_consistency_interval=timedelta(0), session=session)
        if name in database.list_tables().tables:
            self._table: Any = database.open_table(name)
        else:
            self._table = self._create(database, name)

    @property
    def version(self) -> int:
        """Grows with every change by any process."""
        return int(self._table.version)

    def rows(self) -> dict[MemoryId, str]:
        """Return the fingerprint of every memory in the table."""
        found = self._table.search().select(["memory_id", "fingerprint"]).limit(None).to_arrow()
        return dict(zip(found["memory_id"].to_pylist(), found["fingerprint"].to_pylist(), strict=True))

    def without_vector(self, limit: int) -> list[MemoryId]:
        """Return up to `limit` memories that are not embedded yet; the table must have vectors."""
        found = self._table.search().where("vector IS NULL").select(["memory_id"]).limit(limit).to_arrow()
        return [MemoryId(value) for value in found["memory_id"].to_pylist()]

    def delete(self, ids: Sequence[MemoryId]) -> None:
        """Remove the memories."""
        for start in range(0, len(ids), 500):
            listed = ", ".join(_sql(memory_id) for memory_id in ids[start : start + 500])
            self._table.delete(f"memory_id IN ({listed})")

    def add(self, memories: Sequence[Memory], vectors: Mapping[MemoryId, Vector]) -> None:
        """Add memories that are not in the table, with the vectors that there are."""
        self._table.add(self._arrow(memories, vectors))

    def set_vectors(self, memories: Sequence[Memory], vectors: Mapping[MemoryId, Vector]) -> None:
        """Give memories of the table their vectors."""
        self._table.merge_insert("memory_id").when_matched_update_all().execute(self._arrow(memories, vectors))

    def search(self, query: str, vector: Vector | None, tags: Sequence[str]) -> Hits:
        """Return what the query finds among memories with all of the tags."""
        from lancedb.query import MatchQuery

        tagged = " AND ".join(f"array_contains(tags, '{_tag_key(tag)}')" for tag in tags)
        match: Any = MatchQuery
        by_words = self._table.search(match(query.replace("\0", " "), "text"), query_type="fts")
        bm25 = _scores(by_words, tagged, "_score", WORD_HITS)
        if vector is None or not self._dimension:
            return Hits(bm25, {})
        by_meaning = self._table.search(vector, query_type="vector", vector_column_name="vector").distance_type(
            "cosine"
        )
        distances = _scores(by_meaning, tagged, "_distance", MEANING_HITS)
        return Hits(bm25, {memory_id: 1.0 - distance for memory_id, distance in distances.items()})

    def optimize_if_due(self) -> None:
        """Merge the many small files that single additions leave behind."""
        if self._table.stats()["fragment_stats"]["num_fragments"] >= MOST_FRAGMENTS:
            self._table.optimize(cleanup_older_than=_OLD_VERSIONS)

    def _create(self, database: Any, name: str) -> Any:
        from lancedb.index import FTS

        table = database.create_table(name, schema=self._schema())
        table.create_index("text", config=FTS(base_tokenizer="icu"))
        return table

    def _schema(self) -> Any:
        import pyarrow as pa

        columns = [
            pa.field("memory_id", pa.string()),
            pa.field("fingerprint", pa.string()),
            pa.field("text", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
        ]
        if self._dimension:
            columns.append(pa.field("vector", pa.list_(pa.float16(), self._dimension)))
        return pa.schema(columns)

    def _arrow(self, memories: Sequence[Memory], vectors: Mapping[MemoryId, Vector]) -> Any:
        import numpy as np
        import pyarrow as pa

        schema = self._schema()
        columns = [
            pa.array([memory.memory_id for memory in memories], pa.string()),
            pa.array([fingerprint(memory) for memory in memories], pa.string()),
            pa.array([searchable(memory) for memory in memories], pa.string()),
            pa.array([[_tag_key(tag) for tag in memory.tags] for memory in memories], pa.list_(pa.string())),
        ]
        if self._dimension:
            found = [vectors.get(memory.memory_id) for memory in memories]
            values = [None if vector is None else np.asarray(vector, np.float16) for vector in found]
            columns.append(pa.array(values, schema.field("vector").type))
        return pa.table(columns, schema=schema)


def new_session() -> Any:
    """Return bounds on what LanceDB may cache in this process, for all tables together."""
    import lancedb

    return lancedb.Session(index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES)


def _scores(query: Any, where: str, column: str, limit: int) -> dict[MemoryId, float]:
    filtered = query.where(where, prefilter=True) if where else query
    found = filtered.select(["memory_id", column]).limit(limit).to_arrow()
    scores: dict[MemoryId, float] = {}
    for memory_id, score in zip(found["memory_id"].to_pylist(), found[column].to_pylist(), strict=True):
        if score is not None:
            scores[MemoryId(memory_id)] = score
    return scores


def _tag_key(tag: str) -> str:
    """Return a tag as letters and digits only, so that no tag can be anything but a value in a filter."""
    return blake2b(tag.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)
