"""What owlclaw.yaml and agent.yaml say of how models are asked, and what is refused with its place."""

import pytest

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.domain.endpoint import Endpoint, RealModel
from owlclaw_ray.errors import ConfigurationError, DefinitionError
from owlclaw_ray.settings import load_runtime_settings
from serve.runtime_plan import plan_of
from tests.definitions.writing import write_definition

OFFICE = Endpoint("openai", "http://office:8000/v1", "${OFFICE_KEY}", headers=(("X-Team", "desk"),))
SHARED = Defaults(("openai/qwen",), endpoints=(OFFICE, Endpoint("azure", "https://x.openai.azure.com")))


def settings(folder, text, **environ):
    (folder / "owlclaw.yaml").write_text(f"models:\n  providers:\n{text}", encoding="utf-8")
    return load_runtime_settings(folder, environ)


def definition(tmp_path, agent, defaults=SHARED):
    return load_definition(write_definition(tmp_path / "clerk", agent=agent), defaults)


def test_providers_have_an_address_a_key_a_version_and_headers(tmp_path):
    text = (
        "    openai: {api_base: 'http://office:8000/v1', api_key_env: OFFICE_KEY, extra_headers: {X-Team: '${TEAM}'}}\n"
        "    azure: {api_base: 'https://x.openai.azure.com', api_key: '${AZURE}', api_version: '2024-10-21'}\n"
    )
    found = settings(tmp_path, text, OFFICE_KEY="k", TEAM="t", AZURE="a")

    assert found.defaults.endpoints == (
        Endpoint("openai", "http://office:8000/v1", "${OFFICE_KEY}", "", (("X-Team", "${TEAM}"),)),
        Endpoint("azure", "https://x.openai.azure.com", "${AZURE}", "2024-10-21"),
    )


def test_settings_and_plans_know_the_variables_of_keys_and_not_the_keys(tmp_path):
    found = settings(
        tmp_path, "    openai: {api_base: 'http://office', api_key_env: OFFICE_KEY}\n", OFFICE_KEY="sk-office-1"
    )

    plan = plan_of(found)

    assert plan.worker.embedding.endpoints == plan.defaults.endpoints == found.models.endpoints
    assert "sk-office-1" not in repr(found) + repr(plan)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("openai: {api_bas: 'http://x'}", "openai.api_bas: there is no such key (did you mean api_base?)"),
        (
            "openai: {api_base: 'localhost:8000'}",
            "openai.api_base: is 'localhost:8000': write it as http://host:port/v1",
        ),
        (
            "openai: {api_base: 'http://me:pw@host'}",
            "openai.api_base: has more than an address: write the key as api_key_env",
        ),
        ("openai: {api_key: sk-1234}", "openai.api_key: is not of the form ${NAME}: a key belongs in a variable"),
        ("openai: {api_key_env: sk-1234}", "openai.api_key_env: is no name of a variable"),
        (
            "openai: {api_key: '${A}', api_key_env: A}",
            "openai.api_key_env: is set together with api_key, which means the same",
        ),
        ("openai: {api_key_env: NOT_SET}", "openai.api_key_env: needs the variable NOT_SET, which is not set (set it"),
        ("openai: {extra_headers: {X: '${NOT_SET}'}}", "openai.extra_headers.X: needs the variable NOT_SET"),
        ("openai: {extra_headers: {X: '${'}}", "openai.extra_headers: has a ${ in X that names no variable"),
        ("openai: {extra_headers: {'X Y': v}}", "openai.extra_headers: has 'X Y', which is no name of a header"),
        (
            "openai/qwen: {api_base: 'http://x'}",
            "providers: has 'openai/qwen': a provider is what stands before the slash",
        ),
    ],
)
def test_what_is_wrong_is_refused_at_its_place_and_shows_no_key(tmp_path, entry, problem):
    with pytest.raises(ConfigurationError) as caught:
        settings(tmp_path, f"    {entry}\n", A="x")

    (found,) = map(str, caught.value.problems)
    assert found.startswith("owlclaw.yaml:")
    assert problem in found
    assert "1234" not in found
    assert "pw" not in found


def test_an_agent_has_what_the_settings_say_unless_it_says_it_itself(tmp_path):
    assert definition(tmp_path, "model: openai/qwen\n").model.endpoints == SHARED.endpoints

    own = definition(tmp_path, "model: openai/qwen\napi_key_env: MINE\nextra_headers: {X-Desk: '7'}\n")

    headers = (("X-Team", "desk"), ("X-Desk", "7"))
    endpoint = Endpoint("openai", OFFICE.api_base, "${MINE}", "", headers)
    assert own.model.endpoints == (endpoint, SHARED.endpoints[1])
    assert own.real_models == (RealModel("openai/qwen", endpoint),)


def test_an_address_of_an_agent_s_own_inherits_no_key_and_no_headers(tmp_path):
    found = definition(
        tmp_path, "model: openai/qwen\nfallback: [azure/gpt, openai/small]\napi_base: http://127.0.0.1:1234/v1\n"
    )

    here, azure = Endpoint("openai", "http://127.0.0.1:1234/v1"), SHARED.endpoints[1]
    assert found.real_models == (
        RealModel("openai/qwen", here),
        RealModel("azure/gpt", azure),
        RealModel("openai/small", here),
    )


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        (
            "model: qwen\napi_base: http://x\n",
            "api_base: goes with a model of a provider, and the model is qwen (write model: openai/qwen",
        ),
        (
            "model: scripted:echo\napi_key_env: A\n",
            "api_key_env: goes with a model of a provider, and the model is scripted:echo",
        ),
        ("model: openai/qwen\napi_key: sk-1234\n", "api_key: is not of the form ${NAME}"),
    ],
)
def test_an_endpoint_of_an_agent_that_cannot_be_is_refused_at_its_place(tmp_path, agent, problem):
    with pytest.raises(DefinitionError) as caught:
        definition(tmp_path, agent)

    assert f"clerk/agent.yaml:{'2: ' if 'sk-' in agent else ' '}{problem}" in str(caught.value.problems[0])
