import gzip
import json
from datetime import UTC, datetime

import pytest

from benchmarks import retrieval
from owlclaw_ray.domain.memory import Memory, Recall, ScoredMemory, ScoreParts
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.ports.embedding import Embedded, Patience

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Letters:
    """Embeds a text as the counts of its letters."""

    id, dimension, batch_size = "letters", 26, 8

    def embed_queries(self, texts):
        return Embedded([[0.1 + text.lower().count(chr(97 + at)) for at in range(26)] for text in texts])

    def embed_documents(self, texts, patience=Patience.LONG):
        return self.embed_queries(texts)


def found(name, bm25, cosine):
    memory = Memory(MemoryId(name), name, (), NOW)
    return ScoredMemory(memory, ScoreParts(0.0, 0.0, 0.5, 0.0, 1.0, bm25, cosine))


def test_ranks_are_fused_whatever_the_scores_are():
    recall = Recall((found("a", 9.0, 0.80), found("b", 1.0, 0.85), found("c", None, 0.84), found("d", None, None)))

    assert retrieval.fused_by_rank(recall) == ["b", "a", "c", "d"]


@pytest.mark.parametrize("name", [retrieval.CHINESE, retrieval.ENGLISH])
def test_every_answer_of_a_set_is_one_of_its_memories(name):
    for conversation in retrieval.read(retrieval.DATA / name):
        ids = {memory.memory_id for memory in conversation.memories}
        assert conversation.questions
        assert all(question.answers and question.answers <= ids for question in conversation.questions)
        assert all(memory.created_at <= conversation.now for memory in conversation.memories)


def test_the_newer_fact_is_the_newer_one():
    conflicts = retrieval.read_conflicts(retrieval.DATA / retrieval.CONFLICTS)

    assert {language: len(pairs) for language, pairs in conflicts.items()} == {"en": 52, "zh": 52}
    assert all(pair.newer.created_at > pair.older.created_at for pairs in conflicts.values() for pair in pairs)


def test_what_is_found_among_the_first_five_is_counted(tmp_path):
    memories = [[str(at), f"2026-01-01T12:{at:02}:00", f"note {at} about {word}"] for at, word in enumerate("abcdefg")]
    memories[3][2] = "the harbour closes at six"
    data = {
        "conversations": [
            {
                "now": "2026-01-02T00:00:00",
                "memories": memories,
                "questions": [["when does the harbour close", 0, ["3"]], ["about the zoo", 0, ["absent", "gone"]]],
            }
        ]
    }
    path = tmp_path / "set.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))

    shares = retrieval.measured(retrieval.read(path), Letters())

    assert set(shares.values()) == {0.5}


def test_the_figures_of_the_goals_say_whether_these_are_met():
    recalls = {(name, how): 0.85 for name in (retrieval.CHINESE, retrieval.ENGLISH) for how in retrieval._HOW}

    figures = list(retrieval._recall_figures(recalls))
    newer = list(retrieval._newer_figures(dict.fromkeys(retrieval._HOW, 0.96)))

    assert [figure.met for figure in figures] == [False, True, None, None, None, None]
    assert [figure.met for figure in newer] == [True, True, None]
