"""The process that `benchmarks/memory.py` measures: `python -m benchmarks.memory_worker <folder> words|vectors <memories> <questions>`."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId, derived_id
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.memory.embedders import FixedEmbedder, LocalEmbedder, installed
from owlclaw_ray.memory.embedding import Embedder, EmbeddingWait, Vectors
from owlclaw_ray.memory.lance import LanceMemory, table

_AGENT = AgentRef.parse("bench")
_DIMENSION = 384
_BETWEEN = 10
"""Memories from one append of the baseline to the next."""
_WARMING = 20
"""Questions before the memory of the process is read, so that everything that answers them is loaded."""
_WORDS = (
    *("customer", "order", "invoice", "delivery", "harbour", "warehouse", "price", "limit", "euros", "machine", "disk"),
    *("memory", "load", "busiest", "quiet", "morning", "evening", "Friday", "Monday", "report", "delayed", "paid"),
    *("shipped", "refused", "opened", "closed", "green", "blue", "tea", "coffee", "paper", "steel", "north", "south"),
    *("客户", "订单", "发票", "港口", "仓库", "价格", "周五", "喜欢", "绿茶", "延误"),
)


class MadeUpVectors:
    """Embedder of random directions for documents; questions go to the local embedder, if there is one."""

    id = "made-up"
    dimension = _DIMENSION
    batch_size = 64

    def __init__(self) -> None:
        self._asks: Embedder | None = LocalEmbedder() if installed() else None
        self._random = np.random.default_rng(7)

    @property
    def asked(self) -> str:
        """What embeds questions."""
        return self._asks.id if self._asks else "made-up vectors"

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """See Embedder."""
        return self._asks.embed_queries(texts) if self._asks else self.embed_documents(texts)

    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Vectors:
        """See Embedder."""
        del patience
        vectors: Vectors = self._random.standard_normal((len(texts), _DIMENSION)).tolist()
        return vectors


def memories(count: int) -> Iterator[Memory]:
    """Return so many memories of about a hundred characters, five a run."""
    chance = random.Random(11)  # noqa: S311 - data of a benchmark
    clock = SystemClock()
    for number in range(count):
        content = f"{' '.join(chance.choices(_WORDS, k=12))}, number {number}"
        tags = tuple(chance.sample(("order", "customer", "machine", "客户"), 2))
        yield Memory(
            MemoryId(derived_id("mem", str(number))), content, tags, clock.now(), derived_id("run", str(number // 5))
        )


def main(arguments: list[str]) -> None:
    """Measure, and leave the figures in found.json."""
    folder, kind, count, questions = Path(arguments[0]), arguments[1], int(arguments[2]), int(arguments[3])
    embedder = MadeUpVectors() if kind == "vectors" else None
    store = LanceMemory(folder, FixedEmbedder(embedder), SystemClock())
    import lancedb  # noqa: F401 - a tool worker is warm

    remembered, appended = remembering(store, folder, memories(count))
    started = time.perf_counter()
    store.settle()
    settled = time.perf_counter() - started
    files = [path for path in store.files.folder(_AGENT).rglob("*") if path.is_file()]
    found: dict[str, Any] = {
        "memories": count,
        "remember_seconds": remembered,
        "append_seconds": appended,
        "settle_seconds": settled,
        "files": len(files),
        "all_bytes": sum(path.stat().st_size for path in files),
        "index_bytes": sum(path.stat().st_size for path in files if "index" in path.parts),
        "embedder": embedder.asked if embedder else "",
    }
    for number in range(_WARMING):
        store.recall(_AGENT, f"customer number {number}", 5)
    found["resident_bytes"] = psutil.Process().memory_info().rss
    found["recall_seconds"], found["raw_seconds"] = recalling(store, folder / "raw", embedder, count, questions)
    (folder / "found.json").write_bytes(orjson.dumps(found))


def remembering(store: LanceMemory, folder: Path, given: Iterator[Memory]) -> tuple[list[float], list[float]]:
    """Remember one by one; return the seconds of each call, and those of appends in between."""
    plain = folder / "plain"
    plain.write_bytes(b"-")
    remembered, appended = [], []
    for number, memory in enumerate(given):
        remembered.append(_seconds(partial(store.remember, _AGENT, memory)))
        if number % _BETWEEN == 0:
            appended.append(_seconds(partial(durable_files.append, plain, b"x" * 250)))
    return remembered, appended


def recalling(
    store: LanceMemory, folder: Path, embedder: MadeUpVectors | None, count: int, questions: int
) -> tuple[list[float], list[float]]:
    """Ask one question after another, each once here and once of a table that was written at once."""
    raw = _raw_table(store, folder, embedder)
    chance = random.Random(13)  # noqa: S311 - data of a benchmark
    recalled: list[float] = []
    searched: list[float] = []
    for number in itertools.count(-5):
        if number == questions:
            return recalled, searched
        question = f"{' '.join(chance.choices(_WORDS, k=5))} number {chance.randrange(count)}"

        def ask(question: str = question) -> None:
            if store.recall(_AGENT, question, 5).degraded:
                raise RuntimeError("the recall was degraded")

        def search(question: str = question) -> None:
            raw.search(question, embedder.embed_queries([question])[0] if embedder else None, ())

        ours, theirs = _seconds(ask), _seconds(search)
        if number >= 0:
            recalled.append(ours)
            searched.append(theirs)
    raise AssertionError


def _raw_table(store: LanceMemory, folder: Path, embedder: MadeUpVectors | None) -> table.MemoryTable:
    made = table.MemoryTable.made(folder, embedder, table.Session().current())
    active = store.files.memories(_AGENT)
    vectors = embedder.embed_documents([memory.content for memory in active]) if embedder else []
    by_id = dict(zip([memory.memory_id for memory in active], vectors, strict=False))
    made.add([(memory, table.fingerprint(memory)) for memory in active], by_id)
    made.remove_old_versions()
    return made


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1:])
