import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ConfigurationError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import RequestId
from owlclaw_ray.models.scripted import ScriptedClient, packaged_scripts
from owlclaw_ray.testing.clock import ManualClock

DOCUMENT = Path(__file__).parents[2] / "docs" / "scripted-model.md"


class Run:
    """Asks a scripted model turn by turn, as the run loop does, answering its tool calls from `results`."""

    def __init__(self, model, base_dir="", *, kind=TriggerKind.API, payload=None, focus="", clock=None) -> None:
        self.clock = clock or ManualClock()
        self.client = ScriptedClient(self.clock)
        self.model, self.base_dir = model, str(base_dir)
        self.trigger = Trigger(kind, payload, focus)
        self.messages = [Message(MessageRole.USER, "the first message")]

    async def ask(self, run_id="run_1"):
        request = ModelRequest(
            request_id=RequestId("req_1"),
            model=ModelChoice((self.model,)),
            system="the system prompt",
            messages=tuple(self.messages),
            tools=b'[{"type": "function", "function": {"name": "recall"}}]',
            timeout=60,
            agent_id="trader:AAPL",
            run_id=run_id,
            trigger=self.trigger,
            base_dir=self.base_dir,
        )
        return await self.client.complete(request, self.model)

    async def turn(self, *results):
        reply = await self.ask()
        self.messages.append(Message(MessageRole.ASSISTANT, reply.text, reply.tool_calls))
        for call, result in zip(reply.tool_calls, results, strict=False):
            content = result if isinstance(result, str) else json.dumps(result)
            self.messages.append(Message(MessageRole.TOOL, content, call_id=call.call_id))
        return reply


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return f"scripted:{name}", tmp_path

    return write


async def test_turns_follow_one_another_and_then_comes_an_empty_text(script):
    run = Run(*script("rules: [{turns: [{text: one}, {text: 二}]}]"))

    assert [(await run.turn()).text for _ in range(4)] == ["one", "二", "", ""]


async def test_then_answers_every_further_call(script):
    run = Run(*script("rules: [{turns: [{text: one}], then: {text: more}}]"))

    assert [(await run.turn()).text for _ in range(3)] == ["one", "more", "more"]


async def test_a_reply_says_that_it_is_scripted_and_by_which_script(script):
    model, folder = script("rules: [{turns: [{text: one, usage: {prompt_tokens: 3, cost: 0.5}}]}]")

    reply = await Run(model, folder).turn()

    assert (reply.scripted, reply.model, reply.usage) == (True, model, Usage(prompt_tokens=3, cost=0.5))


@pytest.mark.parametrize(
    ("kind", "focus", "payload", "expected"),
    [
        (TriggerKind.SCHEDULE_ONCE, "", None, "kind"),
        (TriggerKind.WEBHOOK, "", None, "kind"),
        (TriggerKind.API, "检查负载", None, "focus"),
        (TriggerKind.API, "", {"order": {"total": 12}}, "payload"),
        (TriggerKind.API, "", {"order": {"total": 2}}, "agent"),
        (TriggerKind.API, "", None, "agent"),
    ],
)
async def test_the_first_rule_that_matches_wins(script, kind, focus, payload, expected):
    model, folder = script("""
rules:
  - {when: {trigger: [schedule_once, webhook]}, turns: [{text: kind}]}
  - {when: {focus: 负载}, turns: [{text: focus}]}
  - {when: {payload: "payload.order.total > 10"}, turns: [{text: payload}]}
  - {when: {trigger: api, agent: "^trader:"}, turns: [{text: agent}]}
""")

    reply = await Run(model, folder, kind=kind, focus=focus, payload=payload).turn()

    assert reply.text == expected


async def test_a_run_that_no_rule_is_for_is_refused_with_the_reason(script):
    model, folder = script("rules: [{when: {trigger: webhook}, turns: [{text: one}]}]")

    with pytest.raises(ModelRefusedError, match=r"script\.yaml: no rule is for a run of trader:AAPL with trigger api"):
        await Run(model, folder).turn()


async def test_a_condition_that_cannot_be_computed_is_a_refusal_that_says_where(script):
    model, folder = script("rules: [{when: {payload: payload > 10}, turns: [{text: one}]}]")

    with pytest.raises(ModelRefusedError, match=r"rules\.0\.when\.payload: 'payload > 10' cannot be computed"):
        await Run(model, folder, payload={"total": 12}).turn()


async def test_tool_calls_have_wire_names_json_arguments_and_derived_ids(script):
    model, folder = script("""
rules:
  - turns:
      - tool_calls:
          - {name: code.read_file, arguments: {path: 说明.md, lines: [1, 2]}}
          - {name: recall, arguments: '{"query": broken'}
          - {name: list_dir}
""")

    first, again = await Run(model, folder).ask(), await Run(model, folder).ask()
    other = await Run(model, folder).ask(run_id="run_2")

    assert [call.name for call in first.tool_calls] == ["code__read_file", "recall", "list_dir"]
    assert json.loads(first.tool_calls[0].arguments) == {"path": "说明.md", "lines": [1, 2]}
    assert [call.arguments for call in first.tool_calls[1:]] == ['{"query": broken', "{}"]
    assert first == again
    ids = {call.call_id for call in (*first.tool_calls, *other.tool_calls)}
    assert len(ids) == 6


async def test_templates_see_the_results_and_keep_native_values(script):
    model, folder = script("""
rules:
  - turns:
      - tool_calls: [{name: query_state, arguments: {state_name: load}}, {name: app.risk}, {name: recall}]
      - text: "{{ payload.items | length }} items, {{ result.query_state.state }}, {{ result.app__risk }}, {{ last.is_error }}"
        tool_calls:
          - name: remember
            arguments:
              content: "{{ result['app.risk'] }}"
              number: "{{ result.query_state.state.load + 1 }}"
              tags: ["{{ trigger.kind }}", "{{ payload.items }}"]
              text: "{{ payload.zip }}"
              why: "{{ results[2].content.message }}"
              missing: "{{ payload.nothing | default(none) }}"
""")
    run = Run(model, folder, payload={"items": ["甲", 2], "zip": "007"})
    await run.turn({"state": {"load": 1.5}}, "high", {"error": {"type": "timeout", "message": "too slow"}})

    reply = await run.turn()

    assert reply.text == '2 items, {"load":1.5}, high, true'
    assert json.loads(reply.tool_calls[0].arguments) == {
        "content": "high",
        "number": 2.5,
        "tags": ["api", ["甲", 2]],
        "text": "007",
        "why": "too slow",
        "missing": None,
    }


async def test_arguments_may_be_computed_as_a_whole(script):
    model, folder = script(
        'rules: [{turns: [{tool_calls: [{name: "{{ payload.tool }}", arguments: "{{ payload.with }}"}]}]}]'
    )

    reply = await Run(model, folder, payload={"tool": "code.search", "with": {"query": "鸮"}}).turn()

    assert (reply.tool_calls[0].name, reply.tool_calls[0].arguments) == ("code__search", '{"query":"鸮"}')


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ payload.missing }}", "has no attribute 'missing'"),
        ("about {{ nothing }}", "'nothing' is undefined"),
        ("{{ payload.number + 'x' }}", "unsupported operand"),
        ("{{ payload.__class__.__mro__ }}", "unsafe"),
    ],
)
async def test_a_template_that_cannot_be_computed_is_a_refusal_that_says_where(script, template, problem):
    model, folder = script(f'rules: [{{turns: [{{text: "{template}"}}]}}]')

    with pytest.raises(ModelRefusedError) as caught:
        await Run(model, folder, payload={"number": 1}).turn()

    assert "rules.0.turns.0: " in str(caught.value)
    assert template in str(caught.value)
    assert problem in str(caught.value)


async def test_latency_passes_on_the_injected_clock(script):
    run = Run(*script("rules: [{turns: [{text: one, latency: 2.5}]}]"))
    task = asyncio.create_task(run.turn())

    await run.clock.advance(2.4)
    assert not task.done()
    await run.clock.advance(0.1)
    assert (await task).text == "one"


async def test_an_outage_lasts_as_many_times_as_the_script_says(script):
    model, folder = script("""
rules:
  - turns:
      - {text: back, error: {type: unavailable, message: busy, retry_after: 7, times: 2}}
""")
    run = Run(model, folder)

    for _ in range(2):
        with pytest.raises(ModelUnavailableError, match="busy") as caught:
            await run.ask()
        assert caught.value.retry_after == 7

    assert (await run.ask()).text == "back"


async def test_an_error_without_times_stays(script):
    run = Run(*script("rules: [{turns: [{error: {type: refused, message: no such key}}]}]"))

    for _ in range(3):
        with pytest.raises(ModelRefusedError, match="no such key"):
            await run.ask()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules: []", "rules: List should have at least 1 item"),
        ("rules: [{}]", "rules.0: a rule needs turns, or then"),
        ("rule: []", "unknown key rule; the keys here are description, rules"),
        ("rules: [{turns: [{txt: x}]}]", "rules.0.turns.0: unknown key txt; the keys here are text, tool_calls"),
        ("rules: [{when: {trigger: cron}, turns: [{}]}]", "rules.0.when.trigger"),
        ("rules: [{when: {focus: '('}, turns: [{}]}]", "rules.0.when.focus: '(' is no regular expression"),
        ("rules: [{when: {payload: 'a ='}, turns: [{}]}]", "rules.0.when.payload: 'a =' is no expression"),
        ("rules: [{turns: [{text: '{{ a '}]}]", "rules.0.turns.0.text: '{{ a ' is no template"),
        ("rules: [{turns: [{latency: -1}]}]", "rules.0.turns.0.latency: Input should be greater than or equal to 0"),
        ("rules: [{turns: [{text: {{ a }}}]}]", "line 1, column 26: is no YAML"),
        ("just text", "valid dictionary"),
    ],
)
def test_a_malformed_script_is_refused_with_file_path_and_what_is_right(script, text, complaint):
    model, folder = script(text)

    with pytest.raises(ConfigurationError) as caught:
        ScriptedClient(ManualClock()).check(model, str(folder))

    assert f"{folder / 'script.yaml'}: " in str(caught.value)
    assert complaint in str(caught.value)


def test_every_problem_of_a_script_is_said_at_once(script):
    model, folder = script("rules: [{turns: [{latency: -1}, {text: [1]}]}]")

    with pytest.raises(ConfigurationError) as caught:
        ScriptedClient(ManualClock()).check(model, str(folder))

    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ("scripted:missing.yaml", r"there is no file .*missing\.yaml"),
        ("scripted:nonsense", "there is no packaged script 'nonsense' .*echo, tool_once"),
        ("scripted:folder.yaml", "cannot be read"),
        ("scripted:latin.yaml", "cannot be read"),
    ],
)
async def test_a_script_that_is_not_there_is_a_refusal(tmp_path, model, complaint):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"rules: [{turns: [{text: \xe9}]}]")

    with pytest.raises(ModelRefusedError, match=complaint):
        await Run(model, tmp_path).turn()


async def test_a_changed_file_is_read_again(script, tmp_path):
    run = Run(*script("rules: [{turns: [{text: old}]}]"))
    assert (await run.ask()).text == "old"

    script("rules: [{turns: [{text: new}]}]")
    os.utime(tmp_path / "script.yaml", ns=(1, 1))

    assert (await run.ask()).text == "new"


@pytest.mark.parametrize(
    ("payload", "focus", "text"), [({"问": 1}, "", '{"问":1}'), ("hi", "", "hi"), (None, "负载", "负载")]
)
async def test_echo_replies_with_the_payload_or_the_focus(payload, focus, text):
    assert (await Run("scripted:echo", payload=payload, focus=focus).turn()).text == text


async def test_tool_once_calls_one_tool_and_ends():
    run = Run("scripted:tool_once")

    first, second = await run.turn({"logged": True}), await run.turn()

    assert [call.name for call in first.tool_calls] == ["log_decision"]
    assert (second.text, second.tool_calls) == ("done", ())


@pytest.mark.parametrize("name", packaged_scripts())
def test_every_packaged_script_is_well_formed(name):
    ScriptedClient(ManualClock()).check(f"scripted:{name}", "")


async def test_a_python_script_answers_from_the_request(script):
    model, folder = script(
        """
from __future__ import annotations
from dataclasses import dataclass
from owlclaw_ray.models.scripted import ScriptedCall, ScriptedReply, ScriptedRequest

@dataclass
class Plan:
    tool: str

async def reply(request: ScriptedRequest) -> ScriptedReply:
    if request.turn == 0:
        plan = Plan(request.tools[0]["function"]["name"])
        return ScriptedReply(tool_calls=[ScriptedCall(plan.tool, {"query": request.trigger.focus})])
    facts = (request.agent_id, request.run_id, request.system, len(request.messages), request.results[0].name)
    return ScriptedReply(text=" ".join(map(str, facts)))
""",
        "script.py",
    )
    run = Run(model, folder, focus="负载")

    first, second = await run.turn({"count": 0}), await run.turn()

    assert (first.tool_calls[0].name, first.tool_calls[0].arguments) == ("recall", '{"query":"负载"}')
    assert second.text == "trader:AAPL run_1 the system prompt 3 recall"
    assert sorted(path.name for path in folder.iterdir()) == ["script.py"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def reply(request):\n    return 1 / 0\n", r"script\.py: line 2: reply\(\) raised ZeroDivisionError"),
        ("def reply(request):\n    return 'text'\n", r"reply\(\) returned str, not ScriptedReply"),
        (
            "from owlclaw_ray.models.scripted import ScriptedReply\ndef reply(request):\n    return ScriptedReply(text=None)\n",
            r"script\.py: reply\(\) returned a ScriptedReply that is none: Expected `str`, got `null` - at `\$\.text`",
        ),
        ("x = (", r"script\.py: line 1: cannot be loaded: SyntaxError"),
        ("x = 1\nimport missing_module_x\n", r"script\.py: line 2: cannot be loaded: ModuleNotFoundError"),
        ("x = 1", "has no function reply"),
    ],
)
async def test_a_broken_python_script_is_a_refusal_that_says_where(script, text, complaint):
    model, folder = script(text, "script.py")

    with pytest.raises(ModelRefusedError, match=complaint):
        await Run(model, folder).turn()


def documented(name):
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found
    return found.group(1)


async def test_the_documented_yaml_script_runs(script):
    model, folder = script(documented("watch.yaml"), "watch.yaml")
    run = Run(model, folder, payload={"host": "甲一"})

    await run.turn({"state": {"load_1m": 0.7}})
    second = await run.turn({"memory_id": "mem_1"}, {"scheduled_at": "2026-01-01T01:00:00Z"})
    last = await run.turn()

    assert [json.loads(call.arguments) for call in second.tool_calls] == [
        {"content": "load of 甲一 was 0.7", "tags": ["load", "甲一"]},
        {"delay_seconds": 3600, "focus": "load"},
    ]
    assert last.text == "Noted; next look at 2026-01-01T01:00:00Z."

    later = Run(model, folder, kind=TriggerKind.SCHEDULE_ONCE, focus="load")
    await later.turn({"count": 1, "memories": []})
    assert (await later.turn()).text == "Earlier notes: 1."
    assert (await Run(model, folder).turn()).text == "Nothing to do."


async def test_the_documented_python_script_runs(script):
    run = Run(*script(documented("watch.py"), "watch.py"))

    await run.turn({"state": 0.7})

    assert (await run.turn()).text == "The load is 0.7."
