"""Memories over HTTP, Ray and tool workers: those of agents that people put right while these run."""

import pytest

from owlclaw_ray.errors import NotFoundError
from tests.actors.conftest import Trial, calls

pytestmark = pytest.mark.ray


def test_what_people_store_and_change_is_what_the_agent_recalls(trial: Trial):
    recalled = {"text": "{{ result.recall.memories | map(attribute='content') | join('; ') }}"}
    agent = trial.define("rememberer", calls(("recall", {"query": "when does the pump fail"})), recalled)

    stored = trial.client.remember(agent, "The pump fails at nine.", ["pump"], idempotency_key="k")
    again = trial.client.remember(agent, "The pump fails at nine.", ["pump"], idempotency_key="k")
    first = trial.client.submit(agent, wait=60)["result"]["final_text"]
    trial.client.edit_memory(agent, stored["memory_id"], "The pump fails at ten.")
    second = trial.client.submit(agent, wait=60)["result"]["final_text"]
    found = trial.client.search_memories(agent, "pump", tags=["pump"])

    assert again == stored
    assert (first, second) == ("The pump fails at nine.", "The pump fails at ten.")
    assert [each["content"] for each in found["memories"]] == ["The pump fails at ten."]
    assert not found["degraded"]


def test_archived_and_removed_memories_are_not_recalled_and_the_index_can_be_made_anew(trial: Trial):
    agent = trial.define("forgetter", {"text": "done"})
    kept, archived, removed = (
        trial.client.remember(agent, f"Number {word} is a lucky one.")["memory_id"] for word in ("one", "two", "three")
    )

    trial.client.archive_memories(agent, [archived])
    trial.client.delete_memory(agent, removed)
    found = trial.client.search_memories(agent, "lucky number", limit=20)
    in_archive = trial.client.search_memories(agent, "lucky number", archived=True)
    indexed = trial.client.reindex_memories(agent)
    stats = trial.client.memory_stats(agent)

    assert [each["memory_id"] for each in found["memories"]] == [kept]
    assert [each["memory_id"] for each in in_archive["memories"]] == [archived]
    assert (indexed, stats["active"], stats["archived"]) == (1, 1, 1)
    with pytest.raises(NotFoundError):
        trial.client.memory(agent, removed)
