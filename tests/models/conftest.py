import pytest
import pytest_asyncio

from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.testing.openai_server import OpenAIServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client():
    client = LiteLLMClient()
    await client.load()
    yield client
    await client.close()


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield server
