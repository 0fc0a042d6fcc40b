"""One LanceDB table: its columns, and the few operations that the index is made of."""

from __future__ import annotations

import re
import shutil
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
from msgspec import Struct

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.embedding import Embedder
from owlclaw_ray.memory.fusion import SearchHits
from owlclaw_ray.memory.lexical import STOP_WORDS, asked_for, searchable

Vector = Sequence[float]
Version = tuple[int, ...]

WORD_HITS = 300
"""How many memories a search by words gives; fusion needs more than the few that are returned."""
MEANING_HITS = 1_000
"""Searching all vectors costs the same for one hit as for a thousand."""
MAX_FRAGMENTS, IDLE_FRAGMENTS = 64, 8
MAX_UNINDEXED, IDLE_UNINDEXED = 512, 64
"""Memories that the search by words has to read one by one."""
OLD_VERSIONS = timedelta(seconds=1)
"""A process that still reads an older one opens the index again."""
_AT_ONCE = timedelta(milliseconds=1)
_MAX_ROUNDS = 4
"""What has just been indexed is merged with the rest in the next round."""
_CREATION_FILE = "birth"
"""A file in the table's folder that is made with it: tells a table from another one that takes its place."""
_SUFFIX = ".lance"
_CACHE_BYTES = 32 * 1024 * 1024
_CHUNK = 1024 * 1024
WORDS = "memories-words"
"""The table without vectors."""
_PLAIN = re.compile(r"[a-z0-9.-]")
_NAME = re.compile(r"memories-(.+)-([1-9][0-9]*)")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")


class ChangedFileError(Exception):
    """A file of the index is not what was written."""


class Checksums:
    """The lengths and checksums of a table's files, which are written once and never changed, in a file beside the table.

    A file that is not listed, because a process died after writing it, is not judged until it is.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._path = table.with_suffix(".sums")

    def verify(self) -> None:
        """Raise ChangedFileError for a file that is there and not what it was."""
        known = self._known()
        for name, path in self._files().items():
            if name in known and known[name] != _checksum(path):
                raise ChangedFileError(f"{name} of the index is not what was written")

    def update(self) -> None:
        """List the files that are new, for this user only, and drop those that are gone. For one writer at a time."""
        known, files = self._known(), self._files()
        if known.keys() == files.keys():
            return
        # LanceDB makes its files with the rights that the umask leaves. Those without a checksum are few.
        new = [path for name, path in files.items() if name not in known]
        for path in (*new, *self._table.rglob("*.json"), *(self._table / "_transactions").glob("*")):
            with suppress(FileNotFoundError):
                path.chmod(0o600)
                for folder in path.relative_to(self._table).parents:
                    (self._table / folder).chmod(0o700)
        listed = {name: known.get(name) or _checksum(path) for name, path in files.items()}
        draft = self._path.with_suffix(".sums.new")
        draft.touch(0o600)
        draft.write_bytes(orjson.dumps(listed))
        draft.replace(self._path)

    def remove(self) -> None:
        """Forget everything."""
        self._path.unlink(missing_ok=True)

    def _files(self) -> dict[str, Path]:
        return {
            str(path.relative_to(self._table)): path
            for folder in ("data", "_indices", "_deletions", "_versions")
            for path in (self._table / folder).rglob("*")
            if path.is_file() and path.suffix != ".json"
        }

    def _known(self) -> dict[str, list[int]]:
        with suppress(FileNotFoundError, orjson.JSONDecodeError):
            known = orjson.loads(self._path.read_bytes())
            return known if isinstance(known, dict) else {}
        return {}


def _checksum(path: Path) -> list[int]:
    checksum = length = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum, length = zlib.crc32(chunk, checksum), length + len(chunk)
    return [length, checksum]


def fingerprint(memory: Memory) -> int:
    """Return what changes when the searchable text or the tags of a memory change."""
    text = "\0".join((searchable(memory), *map(_tag_key, memory.tags)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


class MemoryTable:
    """A table of memories for one agent and one embedder. Any method may raise anything when its files are damaged."""

    def __init__(self, table: Any, path: Path, dimension: int, checksums: Checksums) -> None:
        self._table = table
        self._creation_id = path / _CREATION_FILE
        self._dimension = dimension
        self._checksums = checksums

    @classmethod
    def existing(cls, folder: Path, embedder: Embedder | None, session: Any) -> MemoryTable | None:
        """Open the table if there is one, and try whether its files are as they were written and can be searched."""
        name = table_name(embedder)
        if not _path(folder, embedder).exists():
            return None
        checksums = Checksums(_path(folder, embedder))
        checksums.verify()
        opened = _connected(folder, session).open_table(name)
        table = cls(opened, _path(folder, embedder), embedder.dimension if embedder else 0, checksums)
        # damage shows when a table is searched, not when it is opened: search once each way
        table.search("probe", [1.0] * table._dimension if table._dimension else None, ())
        return table

    @classmethod
    def made(cls, folder: Path, embedder: Embedder | None, session: Any) -> MemoryTable:
        """Create the table, unless another process did so meanwhile."""
        from lancedb.index import FTS

        if (table := cls.existing(folder, embedder, session)) is not None:
            return table
        dimension = embedder.dimension if embedder else 0
        created = _connected(folder, session).create_table(table_name(embedder), schema=_schema(dimension))
        created.create_index("text", config=FTS(base_tokenizer="icu", stem=True, custom_stop_words=list(STOP_WORDS)))
        path = _path(folder, embedder)
        (path / _CREATION_FILE).touch(0o600)
        table = cls(created, path, dimension, Checksums(path))
        table._checksums.update()
        return table

    @staticmethod
    def remove(folder: Path, embedder: Embedder | None) -> None:
        """Remove the table's files, whatever state they are in."""
        with suppress(FileNotFoundError, NotADirectoryError):
            Checksums(_path(folder, embedder)).remove()
            shutil.rmtree(_path(folder, embedder))

    @property
    def version(self) -> Version:
        """Another one after every change by any process: its number, and which table it is, as a rebuilt one counts from the start."""
        return (*_creation_id(self._creation_id), int(self._table.version))

    def rows(self) -> tuple[dict[MemoryId, int], set[MemoryId]]:
        """Return the fingerprint of every memory in the table, and which of them lack a vector that they should have."""
        found = self._table.search().select(["memory_id", "fingerprint"]).limit(None).to_arrow()
        rows = dict(zip(found["memory_id"].to_pylist(), found["fingerprint"].to_pylist(), strict=True))
        if len(rows) != found.num_rows:
            raise ValueError("a memory is in the table twice")
        if not self._dimension:
            return rows, set()
        bare = self._table.search().where("vector IS NULL").select(["memory_id"]).limit(None).to_arrow()
        return rows, set(bare["memory_id"].to_pylist())

    def delete(self, ids: Sequence[MemoryId]) -> None:
        """Remove the memories."""
        for start in range(0, len(ids), 500):
            quoted = ("'" + memory_id.replace("'", "''") + "'" for memory_id in ids[start : start + 500])
            self._table.delete(f"memory_id IN ({', '.join(quoted)})")
        self._checksums.update()

    def add(self, memories: Sequence[tuple[Memory, int]], vectors: Mapping[MemoryId, Vector]) -> None:
        """Add memories that are not in the table, each with its fingerprint, and the vectors that there are."""
        self._table.add(self._arrow(memories, vectors))
        self._checksums.update()

    def set_vectors(self, memories: Sequence[tuple[Memory, int]], vectors: Mapping[MemoryId, Vector]) -> None:
        """Give memories of the table their vectors."""
        self._table.merge_insert("memory_id").when_matched_update_all().execute(self._arrow(memories, vectors))
        self._checksums.update()

    def search(self, query: str, vector: Vector | None, tags: Sequence[str]) -> SearchHits:
        """Return what the query finds among memories with all of the tags."""
        import numpy as np
        from lancedb.query import MatchQuery

        tagged = " AND ".join(f"array_contains(tags, '{_tag_key(tag)}')" for tag in tags)
        match: Any = MatchQuery
        by_words = self._table.search(match(asked_for(query.replace("\0", " ")), "text"), query_type="fts")
        bm25 = _scores(by_words, tagged, "_score", WORD_HITS)
        if vector is None or not self._dimension:
            return SearchHits(bm25, {})
        by_meaning = self._table.search(
            np.asarray(vector, np.float32), query_type="vector", vector_column_name="vector"
        ).distance_type("cosine")
        distances = _scores(by_meaning, tagged, "_distance", MEANING_HITS)
        return SearchHits(bm25, {memory_id: 1.0 - distance for memory_id, distance in distances.items()})

    def needs_compaction(self, *, is_idle: bool) -> bool:
        """Return whether single additions left so much behind that `optimize` is due, sooner when there is time for it."""
        fragments, unindexed = (IDLE_FRAGMENTS, IDLE_UNINDEXED) if is_idle else (MAX_FRAGMENTS, MAX_UNINDEXED)
        if self._table.stats()["fragment_stats"]["num_fragments"] >= fragments:
            return True
        statistics = self._table.index_stats("text_idx")
        return statistics is not None and bool(statistics.num_unindexed_rows >= unindexed)

    def optimize(self) -> None:
        """Merge small files, index the words of new memories, and remove the files of old versions."""
        self._table.optimize(cleanup_older_than=OLD_VERSIONS)
        self._checksums.update()

    def remove_old_versions(self) -> None:
        """Merge what can be merged, and leave the files of the newest version only. Readers of others open the table again."""
        for _ in range(_MAX_ROUNDS):
            before = self.version
            self._table.optimize(cleanup_older_than=_AT_ONCE)
            if self.version == before:
                break
        self._checksums.update()

    def _arrow(self, memories: Sequence[tuple[Memory, int]], vectors: Mapping[MemoryId, Vector]) -> Any:
        import numpy as np
        import pyarrow as pa

        schema = _schema(self._dimension)
        columns = [
            pa.array([memory.memory_id for memory, _ in memories], pa.string()),
            pa.array([value for _, value in memories], pa.int64()),
            pa.array([searchable(memory) for memory, _ in memories], pa.string()),
            pa.array([[_tag_key(tag) for tag in memory.tags] for memory, _ in memories], pa.list_(pa.string())),
        ]
        if self._dimension:
            found = [vectors.get(memory.memory_id) for memory, _ in memories]
            values = [None if vector is None else np.asarray(vector, np.float16) for vector in found]
            columns.append(pa.array(values, schema.field("vector").type))
        return pa.table(columns, schema=schema)


def table_name(embedder: Embedder | None) -> str:
    """Return what the table with vectors of this embedder is called."""
    return encode(embedder.id, embedder.dimension) if embedder else WORDS


def encode(embedder_id: str, dimension: int) -> str:
    """Return the name of the table with vectors of this embedder: what LanceDB takes, and another one where case does not count."""
    return f"memories-{plain(embedder_id)}-{dimension}"


def plain(embedder_id: str) -> str:
    """Return the id in small letters, digits and `_.-`, another one for every id."""
    return "".join(
        each if _PLAIN.fullmatch(each) else "".join(f"_{byte:02x}" for byte in each.encode()) for each in embedder_id
    )


def decode(name: str) -> tuple[str, int] | None:
    """Return the embedder's id and the dimension; None for the table without vectors, and for what is no table of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        raw = _ESCAPE.sub(lambda found: f"%{found[1]}", match[1].replace("%", "%25"))
        embedder_id = unquote(raw, errors="strict")
    except ValueError:
        return None
    return (embedder_id, int(match[2])) if encode(embedder_id, int(match[2])) == name else None


class TableWithVectors(Struct, frozen=True):
    """Where it is, whose vectors it has, and how long they are."""

    path: Path
    embedder_id: str
    dimension: int


def tables_with_vectors(folder: Path) -> Sequence[TableWithVectors]:
    """Return those that the folder holds, the newest first."""
    decoded = ((path, decode(path.name.removesuffix(_SUFFIX))) for path in folder.glob(f"memories-*{_SUFFIX}"))
    found = [TableWithVectors(path, *known) for path, known in decoded if known is not None]
    return sorted(found, key=lambda table: _creation_id(table.path)[1:], reverse=True)


def remove_tables(tables: Iterable[TableWithVectors]) -> None:
    """Remove their files, whatever state they are in."""
    for table in tables:
        shutil.rmtree(table.path, ignore_errors=True)
        Checksums(table.path).remove()


def _creation_id(path: Path) -> Version:
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return (status.st_ino, status.st_mtime_ns)


def _path(folder: Path, embedder: Embedder | None) -> Path:
    return folder / f"{table_name(embedder)}{_SUFFIX}"


def _connected(folder: Path, session: Any) -> Any:
    import lancedb

    return lancedb.connect(str(folder), read_consistency_interval=timedelta(0), session=session)


def _schema(dimension: int) -> Any:
    import pyarrow as pa

    columns = [
        pa.field("memory_id", pa.string()),
        pa.field("fingerprint", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
    if dimension:
        columns.append(pa.field("vector", pa.list_(pa.float16(), dimension)))
    return pa.schema(columns)


class Session:
    """What LanceDB caches for all tables that are opened with it, within bounds.

    LanceDB keeps some memory for each write until its session is closed; so every `WRITES` writes there is another one, and
    tables that were opened with the one before are to be opened again.
    """

    WRITES = 500

    def __init__(self) -> None:
        self._writes = 0
        self._current: Any = None
        self._turn = threading.Lock()

    def current(self) -> Any:
        """Return the session to open tables with."""
        import lancedb

        with self._turn:
            if self._current is None or self._writes >= self.WRITES:
                self._writes = 0
                self._current = lancedb.Session(
                    index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES
                )
            return self._current

    def wrote(self) -> None:
        """Count a write."""
        with self._turn:
            self._writes += 1


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
