"""What README.md and docs/models.md write of own endpoints asks a server that listens there."""

import re

import pytest

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.settings import load_runtime_settings
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.testing.openai_server import CannedReply, OpenAIServer, Raw
from tests.definitions.writing import write_definition
from tests.docs.snippets import snippets

KEYS = {"VLLM_KEY": "sk-vllm", "AZURE_API_KEY": "azure-key", "PROXY_KEY": "sk-proxy", "OPENAI_API_KEY": "sk-of-openai"}
OLLAMA = b'{"model": "qwen3", "message": {"role": "assistant", "content": "ok"}, "done": true, "done_reason": "stop"}'
ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?")


@pytest.fixture
def listening(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    answer = lambda request: Raw(OLLAMA) if request.path == "/api/chat" else CannedReply("ok")  # noqa: E731 (one use)
    with OpenAIServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/official")
        yield server


def documented(document, file, holds=""):
    (found,) = [
        each.text
        for each in snippets("yaml")
        if each.document.name == document and each.file == file and holds in each.text
    ]
    return found


async def asked(server, folder, shared, *agents):
    """Return what the server is sent when agents of these files run, in turn, below that owlclaw.yaml."""
    here = server.base_url.removesuffix("/v1")
    (folder / "owlclaw.yaml").write_text(ADDRESS.sub(here, shared), encoding="utf-8")
    for number, agent in enumerate(agents):
        write_definition(folder / "agents" / f"agent-{number}", agent=ADDRESS.sub(here, agent))
    defaults, client = load_runtime_settings(folder, KEYS).defaults, LiteLLMClient()
    async with in_process_runtime(
        agents_dir=folder / "agents", data_dir=folder / "data", defaults=defaults, models=[client]
    ) as runtime:
        runs = [await runtime.trigger(f"agent-{number}") for number in range(len(agents))]
    await client.close()
    assert [(run.status, run.result and run.result.error) for run in runs] == [(RunStatus.COMPLETED, None)] * len(
        agents
    )
    return server.requests


@pytest.mark.parametrize(
    ("model", "path", "headers"),
    [
        ("ollama_chat/qwen3", "/api/chat", {}),
        ("hosted_vllm/qwen3", "/v1/chat/completions", {"authorization": "Bearer sk-vllm"}),
        ("azure/d", "/openai/deployments/d/chat/completions?api-version=2024-10-21", {"api-key": "azure-key"}),
        ("litellm_proxy/qwen3", "/chat/completions", {"authorization": "Bearer sk-proxy", "x-team": "desk"}),
        ("openai/gpt-4o", None, {}),
    ],
)
async def test_the_providers_of_the_readme_are_asked_where_it_says(listening, tmp_path, model, path, headers):
    shared = documented("README.md", "owlclaw.yaml", "providers:")

    (request,) = await asked(listening, tmp_path, shared, f"model: {model}\n")

    assert request.path == (path or "/v1/official/chat/completions")
    assert headers.items() <= request.headers.items()
    assert request.body["tools"]


async def test_the_agent_of_the_readme_is_asked_at_its_own_address_without_a_key_of_another(listening, tmp_path):
    (request,) = await asked(
        listening, tmp_path, "", documented("README.md", "agents/assistant/agent.yaml", "api_base")
    )

    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", "Bearer none")


async def test_two_agents_ask_two_endpoints_side_by_side(listening, tmp_path):
    agents = [documented("models.md", f"agents/{name}/agent.yaml") for name in ("one", "two")]

    one, two = await asked(listening, tmp_path, "", *agents)

    assert [each.body["model"] for each in (one, two)] == ["qwen3", "llama-3.3-70b"]
    assert [each.headers["authorization"] for each in (one, two)] == ["Bearer none", "Bearer sk-vllm"]
    assert ("x-team" in one.headers, two.headers["x-team"]) == (False, "desk")
