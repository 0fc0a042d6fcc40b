"""Whether what was remembered is found again: labelled questions, in Chinese and in English, and pairs of conflicting facts.

Every conversation is remembered entry by entry, as an agent would, each day a session. Then its questions are asked at its own
end of time, of four stores: by words and meaning with the local embedder, by words, by words without any index (as when it is
lost), and as a baseline by reciprocal rank fusion of the same two searches, which LanceDB merges them by. *Recall@5* is
the share of a question's labelled memories that are among the first five, averaged over questions.

The Chinese set is from MemoryBank (see benchmarks/data/README.md); the English one and the conflicting facts were written for
this. Whoever has another set in the same form may name it: `python -m benchmarks.retrieval <file> ...`.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean

import orjson

from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from owlclaw_ray.adapters.embedders import LocalEmbedder, OneEmbedder
from owlclaw_ray.adapters.lance_memory import LanceMemory
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.fusion import rank_by_words
from owlclaw_ray.ports.embedding import Embedder
from owlclaw_ray.testing.clock import ManualClock

TITLE = "Whether what was remembered is found again: recall@5, and the newer of two conflicting facts first."

DATA = Path(__file__).with_name("data")
CHINESE, ENGLISH = "memorybank_zh_retrieval.json.gz", "field_notes_en_retrieval.json"
CONFLICTS = "conflicting_facts.json"
GOALS = {(CHINESE, "meaning"): 0.88, (CHINESE, "words"): 0.80}
GOAL_NEWER = 0.95
_FIRST = 5
_ASKED = 20
_RRF = 60
_AGENT = AgentRef.parse("benchmark")
_MOST_CONVERSATIONS = {Size.SMOKE: 2, Size.FULL: 1_000}
_CONFLICTS_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_HOW = {
    "meaning": "words and meaning, local embedder",
    "words": "words only",
    "no index": "words, without the index",
    "rrf": "reciprocal rank fusion of the same searches",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the memories that answer it."""

    text: str
    answers: frozenset[MemoryId]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one agent was told, oldest first, and what it is asked at the end."""

    now: datetime
    memories: tuple[Memory, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts of which the newer one holds."""

    question: str
    older: Memory
    newer: Memory


Ask = Callable[[str], Sequence[MemoryId]]
"""Returns what a question finds, best first."""


def answer(size: Size, say: Say) -> Answer:
    """Ask everything of every store."""
    embedder = LocalEmbedder()
    recalls: dict[tuple[str, str], float] = {}
    for name in (CHINESE, ENGLISH):
        conversations = read(DATA / name)[: _MOST_CONVERSATIONS[size]]
        for how, value in measured(conversations, embedder).items():
            recalls[name, how] = value
            say(f"{name}: recall@{_FIRST} {value:.3f}, {_HOW[how]}")
    newer = newer_first(read_conflicts(DATA / CONFLICTS), embedder)
    for how, value in newer.items():
        say(f"newer of two conflicting facts first: {value:.3f}, {_HOW[how]}")
    return Answer("retrieval", (*_recall_figures(recalls), *_newer_figures(newer)), (_plot(recalls),))


def measured(conversations: Sequence[Conversation], embedder: Embedder) -> dict[str, float]:
    """Return recall@5 of each way to ask."""
    shares: dict[str, list[float]] = {how: [] for how in _HOW}
    for conversation in conversations:
        with _asked(conversation.memories, conversation.now, embedder) as ways:
            for question in conversation.questions:
                for how, ask in ways.items():
                    found = set(ask(question.text)[:_FIRST])
                    shares[how].append(len(found & question.answers) / len(question.answers))
    return {how: fmean(values) for how, values in shares.items()}


def newer_first(conflicts: Mapping[str, Sequence[Conflict]], embedder: Embedder) -> dict[str, float]:
    """Return the share of questions that find the newer fact, before the older one, for each way to ask.

    All facts of one language are remembered by one agent.
    """
    right: dict[str, list[bool]] = {how: [] for how in _HOW}
    for pairs in conflicts.values():
        memories = sorted((each for pair in pairs for each in (pair.older, pair.newer)), key=_time)
        with _asked(memories, _CONFLICTS_AT, embedder) as ways:
            for pair in pairs:
                for how, ask in ways.items():
                    found = ask(pair.question)
                    both = [each for each in found if each in {pair.older.memory_id, pair.newer.memory_id}]
                    right[how].append(both[:1] == [pair.newer.memory_id])
    return {how: fmean(values) for how, values in right.items()}


@contextmanager
def _asked(memories: Iterable[Memory], now: datetime, embedder: Embedder) -> Iterator[dict[str, Ask]]:
    """Have stores remember these, and give the ways to ask them."""
    kept = tuple(memories)
    with tempfile.TemporaryDirectory(prefix="owl-bench-") as folder:
        by_meaning = _filled(Path(folder, "meaning"), embedder, kept, now)
        by_words = _filled(Path(folder, "words"), None, kept, now)
        yield {
            "meaning": lambda query: _ids(by_meaning.recall(_AGENT, query, _ASKED)),
            "words": lambda query: _ids(by_words.recall(_AGENT, query, _ASKED)),
            "no index": lambda query: [each.memory.memory_id for each in rank_by_words(query, kept, now, _ASKED)],
            "rrf": lambda query: fused_by_rank(by_meaning.recall(_AGENT, query, len(kept))),
        }


def _filled(folder: Path, embedder: Embedder | None, memories: Iterable[Memory], now: datetime) -> LanceMemory:
    store = LanceMemory(folder, OneEmbedder(embedder), ManualClock(now))
    for memory in memories:
        store.remember(_AGENT, memory)
    store.settle()
    return store


def _ids(recall: Recall) -> list[MemoryId]:
    if recall.degraded:
        raise RuntimeError(f"the index was not usable: {recall.reason}")
    return [each.memory.memory_id for each in recall.memories]


def fused_by_rank(recall: Recall) -> list[MemoryId]:
    """Return the order of reciprocal rank fusion, K=60, of the searches by words and by meaning behind a recall."""
    by_words = {each.memory.memory_id: each.parts.bm25 for each in recall.memories}
    by_meaning = {each.memory.memory_id: each.parts.cosine for each in recall.memories}
    scores: dict[MemoryId, float] = dict.fromkeys(by_words, 0.0)
    for found in (by_words, by_meaning):
        ranked = sorted((-score, memory_id) for memory_id, score in found.items() if score is not None)
        for place, (_, memory_id) in enumerate(ranked, start=1):
            scores[memory_id] += 1 / (_RRF + place)
    return sorted(scores, key=lambda memory_id: -scores[memory_id])


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a set: `conversations`, each `now`, `memories` [id, time, text] and `questions` [text, kind, ids]."""
    return [_conversation(each) for each in _json(path)["conversations"]]


def read_conflicts(path: Path) -> dict[str, list[Conflict]]:
    """Return the pairs by language: for each a question, and the age in days and the text of the older and the newer fact."""
    languages = {name: rows for name, rows in _json(path).items() if name != "meta"}
    return {name: [_conflict(at, row) for at, row in enumerate(rows)] for name, rows in languages.items()}


def _json(path: Path) -> JsonObject:
    data = path.read_bytes()
    found: JsonObject = orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def _conversation(data: JsonObject) -> Conversation:
    memories = tuple(
        Memory(_id(each[0]), each[2], (), _utc(each[1]), session=_utc(each[1]).date().isoformat())
        for each in data["memories"]
    )
    questions = tuple(Question(each[0], frozenset(map(_id, each[2]))) for each in data["questions"])
    return Conversation(_utc(data["now"]), memories, questions)


def _conflict(at: int, row: JsonValue) -> Conflict:
    question, older, newer = row
    return Conflict(question, _fact(f"old{at}", *older), _fact(f"new{at}", *newer))


def _fact(name: str, age: float, text: str) -> Memory:
    return Memory(_id(name), text, (), _CONFLICTS_AT - timedelta(days=age), run_id=name)


def _id(name: str) -> MemoryId:
    return MemoryId(f"mem_{name}")


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _time(memory: Memory) -> datetime:
    return memory.created_at


def _recall_figures(recalls: Mapping[tuple[str, str], float]) -> Iterator[Figure]:
    for (name, how), value in recalls.items():
        if how == "rrf":
            continue
        goal = GOALS.get((name, how))
        yield Figure(
            f"recall@{_FIRST}, {name}, {_HOW[how]}",
            value,
            "",
            recalls[name, "rrf"] if how == "meaning" else None,
            _HOW["rrf"] if how == "meaning" else "",
            f"at least {goal}" if goal else "",
            None if goal is None else value >= goal,
        )


def _newer_figures(newer: Mapping[str, float]) -> Iterator[Figure]:
    for how, value in newer.items():
        if how == "rrf":
            continue
        has_goal = how != "no index"
        yield Figure(
            f"newer of two conflicting facts first, {_HOW[how]}",
            value,
            "",
            newer["rrf"] if how == "meaning" else None,
            _HOW["rrf"] if how == "meaning" else "",
            f"at least {GOAL_NEWER}" if has_goal else "",
            value >= GOAL_NEWER if has_goal else None,
        )


def _plot(recalls: Mapping[tuple[str, str], float]) -> Plot:
    names = tuple(dict.fromkeys(name for name, _ in recalls))
    labels = tuple(name.partition(".")[0] for name in names)
    lines = tuple(Series(_HOW[how], labels, tuple(recalls[name, how] for name in names)) for how in _HOW)
    return Plot("Found among the first five", "data set", "recall@5", lines)


def main(paths: Sequence[str]) -> None:
    """Print what is found of other sets."""
    for path in paths:
        for how, value in measured(read(Path(path)), LocalEmbedder()).items():
            print(f"{path}: recall@{_FIRST} {value:.3f}, {_HOW[how]}")


if __name__ == "__main__":
    main(sys.argv[1:])
