"""Whether what was remembered is found again: labelled questions, in Chinese and in English, facts that conflict and facts that
only look alike.

Every conversation is remembered entry by entry, as an agent would, each day a session. Then its questions are asked at its own
end of time, of three stores: by words and meaning with the local embedder, by words, and by words without any index (as when it is
lost). What the parts of the score are worth is told by the same recall ordered without one of them: without the day rule, without
the neighbours in the session; by nothing but the words, which is what any search engine does; and by reciprocal rank fusion of the
same two searches, which LanceDB merges them by. What the sets owe to the dates in their questions is told by asking without these.
*Recall@5* is the share of a question's labelled memories that are among the first five, averaged over questions; recall@1 that of
the first.

The Chinese set is from MemoryBank (see benchmarks/data/README.md); the English one and the facts were written for this. Whoever has
another set in the same form may name it: `python -m benchmarks.retrieval <file> ...`; for public sets that do not come with this
see `benchmarks/public_sets.py`.
"""

from __future__ import annotations

import gzip
import re
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
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.memory import Memory, ScoredMemory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.embedders import FixedEmbedder, LocalEmbedder
from owlclaw_ray.memory.embedding import Embedder
from owlclaw_ray.memory.fusion import rank_by_words
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.testing.clock import ManualClock

TITLE = "Whether what was remembered is found again: recall@5 and @1, and which of two facts is first."

DATA = Path(__file__).with_name("data")
CHINESE, ENGLISH = "memorybank_zh_retrieval.json.gz", "field_notes_en_retrieval.json"
CONFLICTS, LOOKALIKES = "conflicting_facts.json", "lookalike_facts.json"
GOALS = {(CHINESE, "meaning"): 0.88, (CHINESE, "words"): 0.80}
GOAL_RIGHT = 0.95
_FIRST = (5, 1)
_ASKED = 20
_RRF = 60
_AGENT = AgentRef.parse("benchmark")
_MOST_CONVERSATIONS = {Size.SMOKE: 2, Size.FULL: 1_000}
_PAIRS_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_PAIRS = {
    CONFLICTS: "the newer of two conflicting facts first",
    LOOKALIKES: "the older of two facts that do not conflict first",
}
_HOW = {
    "meaning": "words and meaning, local embedder",
    "no day": "the same without the day rule",
    "no neighbours": "the same without the neighbours",
    "undated": "words and meaning, asked without dates",
    "words": "words, days and neighbours",
    "words alone": "words alone",
    "no index": "words, days and neighbours, without the index",
    "rrf": "reciprocal rank fusion of the same searches",
}
_BASELINES = ("words alone", "rrf")
_DATES = re.compile(
    r"(?:(?:on|since|from) )?(?:the )?(?:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{1,2}(?:st|nd|rd|th)?"
    r"|\d{1,2}(?:st|nd|rd|th)? (?:of )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)(?:,? \d{4})?,?"
    r"|[在]?(?:\d{4}年)?[\d一二三四五六七八九十]+月[\d一二三四五六七八九十]+[日号](?:这天|那天)?[\uff0c的]?",
    re.IGNORECASE,
)


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
class Pair:
    """Two facts, and a question that one of them answers: of conflicting ones the newer, of others the older."""

    question: str
    older: Memory
    newer: Memory


Ask = Callable[[str], dict[str, list[MemoryId]]]
"""Returns what a question finds, best first, for each way to ask."""
Recalls = dict[tuple[str, str], tuple[float, float]]
"""Recall@5 and recall@1 of a set, for a way to ask."""


def answer(size: Size, say: Say) -> Answer:
    """Ask everything of every store."""
    embedder = LocalEmbedder()
    recalls: Recalls = {}
    for name in (CHINESE, ENGLISH):
        conversations = read(DATA / name)[: _MOST_CONVERSATIONS[size]]
        for how, value in measured(conversations, embedder).items():
            recalls[name, how] = value
            say(f"{name}: {shown(how, value)}")
    right: dict[tuple[str, str], float] = {}
    for name, older_holds in ((CONFLICTS, False), (LOOKALIKES, True)):
        for how, share in right_first(read_pairs(DATA / name), embedder, older_holds=older_holds).items():
            right[name, how] = share
            say(f"{_PAIRS[name]}: {share:.3f}, {_HOW[how]}")
    return Answer("retrieval", (*_recall_figures(recalls), *_pair_figures(right)), (_plot(recalls),))


def shown(how: str, value: tuple[float, float]) -> str:
    """Return a line about one way to ask."""
    return f"recall@5 {value[0]:.3f}, recall@1 {value[1]:.3f}, {_HOW[how]}"


def measured(conversations: Iterable[Conversation], embedder: Embedder) -> dict[str, tuple[float, float]]:
    """Return recall@5 and recall@1 of each way to ask."""
    shares: dict[str, list[list[float]]] = {}
    for conversation in conversations:
        with _asked(conversation.memories, conversation.now, embedder) as ask:
            for question in conversation.questions:
                for how, found in ask(question.text).items():
                    recalls = [len(set(found[:first]) & question.answers) / len(question.answers) for first in _FIRST]
                    shares.setdefault(how, []).append(recalls)
    return {how: (fmean(at_5 for at_5, _ in each), fmean(at_1 for _, at_1 in each)) for how, each in shares.items()}


def right_first(
    pairs: Mapping[str, Sequence[Pair]], embedder: Embedder | None, *, older_holds: bool
) -> dict[str, float]:
    """Return the share of questions that find the fact that holds before everything else, for each way to ask.

    All facts of one language are remembered by one agent.
    """
    right: dict[str, list[bool]] = {}
    for of_language in pairs.values():
        memories = sorted((each for pair in of_language for each in (pair.older, pair.newer)), key=_time)
        with _asked(memories, _PAIRS_AT, embedder) as ask:
            for pair in of_language:
                holds = pair.older if older_holds else pair.newer
                for how, found in ask(pair.question).items():
                    right.setdefault(how, []).append(found[:1] == [holds.memory_id])
    return {how: fmean(values) for how, values in right.items()}


@contextmanager
def _asked(memories: Iterable[Memory], now: datetime, embedder: Embedder | None) -> Iterator[Ask]:
    """Have stores remember these, and give the way to ask them; without an embedder, by words only."""
    kept = tuple(memories)
    with tempfile.TemporaryDirectory(prefix="owl-bench-") as folder:
        by_words = _filled(Path(folder, "words"), None, kept, now)
        by_meaning = None if embedder is None else _filled(Path(folder, "meaning"), embedder, kept, now)

        def ask(query: str) -> dict[str, list[MemoryId]]:
            words = _found(by_words, query, len(kept))
            ways = {
                "words": _ids(words),
                "words alone": _ids(
                    sorted((one for one in words if one.parts.bm25), key=lambda one: -(one.parts.bm25 or 0.0))
                ),
                "no index": _ids(rank_by_words(query, kept, now, _ASKED)),
            }
            if by_meaning is None:
                return ways
            both = _found(by_meaning, query, len(kept))
            return ways | {
                "meaning": _ids(both),
                "no day": _ids(sorted(both, key=lambda one: one.parts.day - one.score)),
                "no neighbours": _ids(sorted(both, key=lambda one: one.parts.neighbours - one.score)),
                "undated": _ids(_found(by_meaning, _DATES.sub(" ", query), _ASKED)),
                "rrf": fused_by_rank(both),
            }

        yield ask


def _filled(folder: Path, embedder: Embedder | None, memories: Iterable[Memory], now: datetime) -> LanceMemory:
    store = LanceMemory(folder, FixedEmbedder(embedder), ManualClock(now))
    for memory in memories:
        store.remember(_AGENT, memory)
    store.settle()
    return store


def _found(store: LanceMemory, query: str, limit: int) -> Sequence[ScoredMemory]:
    recall = store.recall(_AGENT, query, limit)
    if recall.degraded:
        raise RuntimeError(f"the index was not usable: {recall.reason}")
    return recall.memories


def _ids(found: Iterable[ScoredMemory]) -> list[MemoryId]:
    return [each.memory.memory_id for each in found]


def fused_by_rank(found: Sequence[ScoredMemory]) -> list[MemoryId]:
    """Return the order of reciprocal rank fusion, K=60, of the searches by words and by meaning behind a recall."""
    by_words = {each.memory.memory_id: each.parts.bm25 for each in found}
    by_meaning = {each.memory.memory_id: each.parts.cosine for each in found}
    scores: dict[MemoryId, float] = dict.fromkeys(by_words, 0.0)
    for search in (by_words, by_meaning):
        ranked = sorted((-score, memory_id) for memory_id, score in search.items() if score is not None)
        for place, (_, memory_id) in enumerate(ranked, start=1):
            scores[memory_id] += 1 / (_RRF + place)
    return sorted(scores, key=lambda memory_id: -scores[memory_id])


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a set: `conversations`, each `now`, `memories` [id, time, text] and `questions` [text, kind, ids]."""
    return [_conversation(each) for each in _json(path)["conversations"]]


def read_pairs(path: Path) -> dict[str, list[Pair]]:
    """Return the pairs by language: for each a question, and the age in days and the text of the older and the newer fact."""
    languages = {name: rows for name, rows in _json(path).items() if name != "meta"}
    return {name: [_pair(at, row) for at, row in enumerate(rows)] for name, rows in languages.items()}


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


def _pair(at: int, row: JsonValue) -> Pair:
    question, older, newer = row
    return Pair(question, _fact(f"old{at}", *older), _fact(f"new{at}", *newer))


def _fact(name: str, age: float, text: str) -> Memory:
    return Memory(_id(name), text, (), _PAIRS_AT - timedelta(days=age), run_id=name)


def _id(name: str) -> MemoryId:
    return MemoryId(f"mem_{name}")


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _time(memory: Memory) -> datetime:
    return memory.created_at


def _recall_figures(recalls: Recalls) -> Iterator[Figure]:
    for (name, how), value in recalls.items():
        if how in _BASELINES:
            continue
        goal = GOALS.get((name, how))
        for at, first in enumerate(_FIRST):
            baseline = "rrf" if how == "meaning" and first == max(_FIRST) else "words alone"
            has_goal = goal is not None and first == max(_FIRST)
            yield Figure(
                f"recall@{first}, {name}, {_HOW[how]}",
                value[at],
                "",
                recalls[name, baseline][at],
                _HOW[baseline],
                f"at least {goal}" if has_goal else "",
                value[at] >= goal if goal is not None and has_goal else None,
            )


def _pair_figures(right: Mapping[tuple[str, str], float]) -> Iterator[Figure]:
    for (name, how), value in right.items():
        if how in {"meaning", "words"}:
            yield Figure(
                f"{_PAIRS[name]}, {_HOW[how]}",
                value,
                "",
                right[name, "words alone"],
                _HOW["words alone"],
                f"at least {GOAL_RIGHT}",
                value >= GOAL_RIGHT,
            )


def _plot(recalls: Recalls) -> Plot:
    names = tuple(dict.fromkeys(name for name, _ in recalls))
    labels = tuple(name.partition(".")[0] for name in names)
    lines = tuple(Series(_HOW[how], labels, tuple(recalls[name, how][0] for name in names)) for how in _HOW)
    return Plot("Found among the first five", "data set", "recall@5", lines)


def main(paths: Sequence[str]) -> None:
    """Print what is found of other sets."""
    for path in paths:
        for how, value in measured(read(Path(path)), LocalEmbedder()).items():
            print(f"{path}: {shown(how, value)}")


if __name__ == "__main__":
    main(sys.argv[1:])
