import pytest

from owlclaw_ray.domain.embedding import EmbeddingRequest
from owlclaw_ray.errors import ModelRefusedError, ModelUnavailableError
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.testing.openai_server import CannedFailure, Drop, Raw, Vectors

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "openai/text-embedding-3-small"


def request(*texts, model=MODEL):
    return EmbeddingRequest(model, texts, timeout=20.0, patience=20.0)


async def test_every_text_gets_its_own_vector_and_the_price_list_says_what_they_cost(client, server):
    server.enqueue(Vectors(tokens_each=500_000))

    reply = await client.embed(request("茶", "green tea"))

    assert [list(vector) for vector in reply.vectors] == [[1.0, 1.0], [9.0, 1.0]]
    assert reply.usage.prompt_tokens == 1_000_000
    assert reply.usage.cost == pytest.approx(0.02)
    asked = server.requests[0]
    assert asked.path == "/v1/embeddings"
    assert asked.body["input"] == ["茶", "green tea"]
    assert asked.body["model"] == "text-embedding-3-small"


async def test_a_model_without_a_price_costs_nothing(client, server):
    server.enqueue(Vectors())

    reply = await client.embed(request("tea", model="openai/own-embeddings"))

    assert (reply.usage.prompt_tokens, reply.usage.cost) == (4, 0.0)


@pytest.mark.parametrize(
    "behaviour", [CannedFailure(429, "slow down"), CannedFailure(503), Drop()], ids=["429", "503", "dropped"]
)
async def test_what_a_retry_may_mend_is_unavailable(client, server, behaviour):
    server.enqueue(behaviour)

    with pytest.raises(ModelUnavailableError):
        await client.embed(request("tea"))

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "behaviour", [CannedFailure(401), CannedFailure(404), CannedFailure(400)], ids=["401", "404", "400"]
)
async def test_what_it_does_not_mend_is_refused(client, server, behaviour):
    server.enqueue(behaviour)

    with pytest.raises(ModelRefusedError):
        await client.embed(request("tea"))


@pytest.mark.parametrize(
    "behaviour",
    [Vectors([[1.0, 2.0]]), Vectors([[1.0], [1.0, 2.0]]), Vectors([[], []]), Raw(b'{"data": [{"x": 1}]}')],
    ids=["too few", "of two lengths", "empty", "no embeddings"],
)
async def test_an_answer_that_is_not_one_vector_a_text_is_none(client, server, behaviour):
    server.enqueue(behaviour)

    with pytest.raises(ModelUnavailableError):
        await client.embed(request("tea", "coffee"))


async def test_a_missing_key_is_named(client, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ModelRefusedError, match="OPENAI_API_KEY"):
        await client.embed(request("tea"))


async def test_tokens_are_counted_by_the_tokenizer_without_a_network(client, server):
    chinese = "市场波动较大观察入场机会。" * 7_200

    words, many = await client.count_tokens("openai/gpt-4o", ["the quick brown fox", chinese])

    assert words == 4
    assert len(chinese) / 2 < many < 3 * len(chinese)
    assert (await client.count_tokens("anthropic/claude-3-5-sonnet", ["hello world"]))[0] in {2, 3}
    assert (await client.count_tokens("ollama/llama-3.1", ["hello world"]))[0] in {2, 3}
    assert not server.requests


async def test_a_tokenizer_that_fails_is_replaced_by_the_estimate(client, monkeypatch):
    def broken(**_):
        raise RuntimeError("no such tokenizer")

    monkeypatch.setattr(client._litellm, "token_counter", broken)

    assert await client.count_tokens("openai/gpt-4o", ["word", "观察"]) == [1, 3]


@pytest.mark.parametrize(
    "text",
    [
        "The harbour master closes pier 3 until October; ships go to pier 5. ",
        '{"row": 7, "values": [10.5, null], "note": "checked by B. Weber"}, ',
        "用户很喜欢绘画和品茶, 你觉得有什么好的书可以推荐吗?",
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        "나는 고양이로소이다. 이름은 아직 없다. 어디서 났는지 도무지 알 수 없다.",
        "Я кот. Имени у меня пока нет. Где родился, не имею ни малейшего понятия.",  # noqa: RUF001
        "मैं एक बिल्ली हूँ मेरा अभी तक कोई नाम नहीं है",
    ],
    ids=["English", "JSON", "Chinese", "Japanese", "Korean", "Russian", "Hindi"],
)
async def test_the_estimate_errs_upwards_and_by_no_more_than_half(client, text):
    (tokens,) = await client.count_tokens("openai/gpt-4o", [text * 40])

    assert tokens <= estimate_tokens(text * 40) <= 1.5 * tokens
