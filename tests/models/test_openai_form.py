"""The past of a conversation goes out in a form that providers take back, whatever a model wrote in it."""

import json
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import RequestId, ToolCallId
from owlclaw_ray.models.litellm_client import load_litellm
from owlclaw_ray.models.openai_form import messages

WRONG = [
    ("shop__pay", '{"amount": '),
    ("shop__pay", "[1]"),
    ("shop__pay", '"five"'),
    ("shop__pay", ""),
    ("shop__pay", " "),
    ("shop__pay", '{"a": NaN}'),
    ("shop__pay", "\ud800"),
    ("", "{}"),
    ("multi_tool_use.parallel", "{}"),
    ("7up", "{}"),
    ("x" * 200, "{}"),
    ("支付", "{}"),
]


def history(*calls):
    """Return the messages of a conversation in which these calls were made and answered."""
    made = tuple(ToolCall(ToolCallId(f"call_{at}"), *call) for at, call in enumerate(calls))
    answers = tuple(Message(MessageRole.TOOL, "no", call_id=call.call_id) for call in made)
    asked = (Message(MessageRole.USER, "hi"), Message(MessageRole.ASSISTANT, "", made), *answers)
    request = ModelRequest(
        RequestId("r"), ModelChoice(("m",)), "", asked, b"[]", 9.0, "a", "run", Trigger(TriggerKind.API)
    )
    return messages(request)


def functions(sent):
    return [call["function"] for call in sent[1]["tool_calls"]]


def test_what_was_right_goes_out_as_it_was():
    text = '{"amount": 5, "to": "Anna"}'

    assert functions(history(("shop__pay", text))) == [{"name": "shop__pay", "arguments": text}]


@pytest.mark.parametrize(
    ("name", "sent"), [("", "_"), ("7up", "_7up"), ("a.b c", "_a_b_c"), ("x" * 65, "_" + "x" * 63)]
)
def test_a_name_that_providers_refuse_is_changed(name, sent):
    assert functions(history((name, "{}"))) == [{"name": sent, "arguments": "{}"}]


def test_arguments_that_are_no_object_are_kept_in_one():
    assert functions(history(("a", '{"amount": ')))[0]["arguments"] == '{"malformed_arguments": "{\\"amount\\": "}'
    assert functions(history(("a", "")))[0]["arguments"] == "{}"


@given(st.text(max_size=80), st.text())
def test_whatever_a_model_calls_its_past_is_a_name_and_an_object(name, arguments):
    [function] = functions(history((name, arguments)))

    assert 1 <= len(function["name"]) <= 64
    assert function["name"].replace("_", "a").replace("-", "a").isalnum()
    assert function["name"].isascii()
    assert isinstance(json.loads(function["arguments"]), dict)


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "bedrock"])
@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_litellm_can_send_a_wrong_call_back_to_every_provider(provider, name, arguments):
    load_litellm()
    factory = import_module("litellm.litellm_core_utils.prompt_templates.factory")
    gemini = import_module("litellm.llms.vertex_ai.gemini.transformation")
    converted = {
        "anthropic": lambda sent: factory.anthropic_messages_pt(sent, "claude-sonnet-4-5", "anthropic"),
        "gemini": lambda sent: gemini._gemini_convert_messages_with_history(sent, model="gemini-2.5-pro"),
        "bedrock": lambda sent: factory._bedrock_converse_messages_pt(sent, "anthropic.claude-3-5-sonnet", "bedrock"),
    }[provider](history((name, arguments)))

    called = json.dumps(converted[1])
    assert ("malformed_arguments" in called) is (name == "shop__pay" and bool(arguments.strip()))
