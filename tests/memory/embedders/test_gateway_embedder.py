import pytest

from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.memory.embedders import GatewayEmbedder


class Gateway:
    """Gives each text its length as a vector."""

    def __init__(self):
        self.requests = []
        self.dimension = 2

    def embed(self, request):
        self.requests.append(request)
        vectors = tuple([float(len(text))] * self.dimension for text in request.texts)
        return EmbeddingReply(vectors, Usage(len(request.texts), cost=0.5))


@pytest.fixture
def gateway():
    return Gateway()


def embedder(gateway, dimension=None, **calls):
    return GatewayEmbedder("openai/x", gateway.embed, EmbeddingCalls(**calls), dimension)


def test_documents_go_out_in_batches(gateway):
    found = embedder(gateway, batch=2).embed_documents(["a", "bb", "ccc"])

    assert found == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert [request.texts for request in gateway.requests] == [("a", "bb"), ("ccc",)]


def test_a_question_is_waited_for_less_than_documents(gateway):
    one = embedder(gateway, timeout=3.0, patience=60.0)
    one.embed_queries(["a"])
    one.embed_documents(["a"])

    assert [(each.timeout, each.patience) for each in gateway.requests] == [(3.0, 3.0), (3.0, 60.0)]


def test_the_endpoint_of_the_model_s_provider_goes_with_each_call(gateway):
    endpoints = (Endpoint("azure", "https://x.example.com"), Endpoint("openai", "http://office:8000/v1"))
    embedder(gateway, endpoints=endpoints).embed_queries(["a"])

    assert [each.endpoint for each in gateway.requests] == [endpoints[1]]


def test_the_first_vector_tells_the_dimension_and_another_length_is_another_model(gateway):
    one = embedder(gateway)
    assert (one.id, one.dimension) == ("litellm:openai/x", 2)
    gateway.dimension = 3

    with pytest.raises(ModelUnavailableError, match="3 numbers, where it had 2 before"):
        one.embed_queries(["tea"])


def test_a_known_dimension_is_not_asked_for(gateway):
    assert embedder(gateway, dimension=7).dimension == 7
    assert gateway.requests == []


def test_no_text_goes_out_that_a_provider_refuses(gateway):
    embedder(gateway).embed_documents(["", "  \n", "x" * 100_000])

    assert [len(text) for text in gateway.requests[0].texts] == [1, 1, 8_000]


def test_nothing_is_asked_for_nothing(gateway):
    assert embedder(gateway).embed_documents([]) == []
    assert gateway.requests == []
