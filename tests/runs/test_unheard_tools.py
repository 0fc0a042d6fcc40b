"""A run says that its model was not shown the tools, where the provider's own count of tokens tells."""

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.store.queries import JournalOfRun
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.testing.openai_server import CannedReply, FunctionCall, OpenAIServer
from tests.definitions.writing import write_definition


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as server:
        yield server


async def said(server, folder, *answers):
    """Return the notes of a run that gets these answers."""
    server.enqueue(*answers)
    write_definition(folder / "agents" / "watch", agent="model: openai/qwen\n")
    defaults, client = Defaults(endpoints=(Endpoint("openai", server.base_url),)), LiteLLMClient()
    async with in_process_runtime(
        agents_dir=folder / "agents", data_dir=folder / "data", defaults=defaults, models=[client], app=OwlClaw("app")
    ) as runtime:
        run = await runtime.trigger("watch", focus="look")
        entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
    await client.close()
    replies = [each.data for each in entries if each.kind is EntryKind.MODEL_REPLIED]
    return [each.get("note", "") for each in replies]


async def test_a_prompt_that_is_too_short_for_the_tools_is_told_in_the_run(server, tmp_path):
    [note] = await said(server, tmp_path, CannedReply("I cannot.", prompt_tokens=378))

    assert "tools offered: 10, understood: 0: a prompt of 378 tokens cannot hold them" in note


@pytest.mark.parametrize("counted", [0, 1_100])
async def test_nothing_is_said_where_they_may_have_been_in_it_or_nobody_counts(server, tmp_path, counted):
    assert await said(server, tmp_path, CannedReply("All is well.", prompt_tokens=counted)) == [""]


async def test_nothing_is_said_of_a_model_that_calls_one(server, tmp_path):
    call = FunctionCall("recall", '{"query": "load"}')

    assert await said(server, tmp_path, CannedReply(tool_calls=[call]), CannedReply("Well.")) == ["", ""]
