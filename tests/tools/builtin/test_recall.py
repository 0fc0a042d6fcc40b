import pytest

from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.tools.builtin import BuiltInTools
from tests.paid_embeddings import Provider
from tests.tools.builtin.conftest import TRADER, invocation


def recall(tools, number=9, **arguments):
    return tools.call("recall", arguments, invocation("recall", number))


def test_explained_memories_say_what_their_scores_are_made_of(call):
    call("remember", content="客户张伟喜欢绿茶")

    (plain,) = call("recall", query="绿茶")["memories"]
    (explained,) = call("recall", query="绿茶", explain=True)["memories"]

    parts = explained.pop("explanation")
    assert explained == plain
    assert parts["bm25"] > 0
    assert parts["cosine"] is None
    relevance = parts["word_share"] * parts["words"] + (1 - parts["word_share"]) * parts["meaning"]
    whole = relevance + parts["neighbours"] + parts["day"] + parts["newer"]
    assert whole == pytest.approx(plain["score"], abs=1e-3)


def test_a_recall_without_its_index_is_an_answer_and_a_record(call, tools, memory):
    call("remember", content="the harbour closes at six")
    memory.settle()
    folder = memory.files.folder(TRADER)
    (folder / "index").rename(folder / "gone")
    (folder / "index").write_text("a file where the folder should be")

    outcome = recall(tools, query="harbour")

    assert outcome.result.content["degraded"] is True
    assert outcome.result.content["count"] == 1
    (record,) = outcome.records
    assert (record.kind, record.agent_id, record.run_id) == (LedgerKind.WARNING, "trader", "run_1")
    assert record.data["what"] == "recall without its index"
    assert "the memory index is unusable" in record.data["why"]
    assert recall(tools, query="harbour").records[0].record_id == record.record_id
    assert recall(tools, number=10, query="harbour").records[0].record_id != record.record_id


def test_what_one_run_remembered_is_pulled_up_by_what_stands_beside_it(call, tools):
    call("remember", content="the harbour closes at six", number=1)
    call("remember", content="ask Maria for the key", number=2)
    arguments = {"content": "ask Joseph for the map"}
    tools.call("remember", arguments, invocation("remember", 3, run_id="run_2", idempotency_key="other"))

    found = call("recall", query="when does the harbour close", explain=True)["memories"]

    assert [each["content"] for each in found] == ["the harbour closes at six", "ask Maria for the key"]
    assert found[1]["explanation"]["neighbours"] > found[1]["explanation"]["words"] == 0


def test_the_archive_is_searched_when_it_is_asked_for(call, memory):
    archived = call("remember", content="the harbour closes at six", tags=["harbour"])["memory_id"]
    call("remember", content="the harbour opens at nine", number=2)
    memory.files.archive(TRADER, [archived])

    found = call("recall", query="when does the harbour close", archived=True, tags=["harbour"], explain=True)
    assert [each["memory_id"] for each in found["memories"]] == [archived]
    assert (found["count"], found["degraded"]) == (1, False)
    assert found["memories"][0]["explanation"]["bm25"] > 0
    active = call("recall", query="when does the harbour close")
    assert [each["content"] for each in active["memories"]] == ["the harbour opens at nine"]


def test_what_the_vector_of_a_question_costs_is_used_and_recorded(tmp_path, schedules, states, clock):
    memory = LanceMemory(tmp_path, Provider().embedders(clock), clock)
    tools = BuiltInTools(schedules=schedules, memory=memory, states=states, clock=clock)
    tools.call("remember", {"content": "tea is sold out"}, invocation("remember"))
    memory.settle()

    first, again = recall(tools, query="tea"), recall(tools, query="tea")

    assert first.usage == Usage(1, cost=0.25)
    (record,) = first.records
    assert record.kind is LedgerKind.MODEL_CALL
    assert record.data == {
        "model": "openai/x",
        "purpose": "recall",
        "usage": {"prompt_tokens": 1, "completion_tokens": 0, "cached_tokens": 0, "cost": 0.25},
        "duration_ms": 0,
    }
    assert (again.usage, again.records) == (Usage(), ())
    assert again.result.content == first.result.content
