"""Correctness properties of runs, whatever models and tools do. Their numbers are those of the requirements."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.agent import ToolChoice
from owlclaw_ray.domain.governance import Governance, ToolLimit
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import MessageRole, ModelReply, ModelRequest
from owlclaw_ray.domain.run import Run, RunStatus, Usage
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.models.sanitise import data_in
from owlclaw_ray.store.queries import LedgerFilter, RunFilter
from owlclaw_ray.store.run_ends import FactsOfRuns, RunFacts
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.otlp import OtlpReceiver, OtlpSpans
from owlclaw_ray.testing.otlp_receiver import OtlpServer
from tests.properties import examples
from tests.world import AGENTS, TOOLS, Definitions, World

SOLO = AGENTS[0]
AVAILABLE = sorted(tool.name for tool in TOOLS)
RUNAWAY = 100


@dataclass(frozen=True)
class Call:
    """What the model asks for, and what comes of it: an error's message, or a result."""

    name: str = "look"
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One reply of the model, after so many seconds."""

    calls: tuple[Call, ...] = ()
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Played:
    """What became of a run."""

    run: Run
    records: list
    requests: list[ModelRequest]
    executed: list[str]
    facts: RunFacts
    """As the export of traces reads them."""

    def of(self, kind):
        return [each.data for each in self.records if each.kind is kind]


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def play(runner, stores):
    """Plays a run of an agent with these limits and rules whose model replies so, and in the end with a text."""

    def played(said, rules=None, **limits):
        return runner.run(_played(stores, said, rules or {}, limits))

    return played


async def _played(stores, turns, rules, limits):
    definitions = Definitions()
    solo = definitions.load("solo")
    definitions._all["solo"] = replace(solo, limits=replace(solo.limits, **limits), **rules)
    world = World(*stores, definitions=definitions)
    await world.nodes[0].start()
    world.nodes[0].submit(SOLO, "x")
    await world.clock.settle()
    rest, plan, requests, executed = list(turns), {}, [], []
    for _ in range(RUNAWAY):
        if world.models.pending:
            (call,) = world.models.pending
            turn = rest.pop(0) if rest else Turn()
            await world.clock.advance(turn.seconds)
            if not call.answer.done():
                requests.append(call.request)
                asked = {f"c{len(requests)}-{at}": each for at, each in enumerate(turn.calls)}
                plan |= asked
                lasted = round(turn.seconds * 1_000)
                calls = tuple(ToolCall(call_id, each.name, "{}") for call_id, each in asked.items())
                call.answer.set_result(ModelReply("" if calls else "done", calls, "test", turn.usage, lasted))
        elif world.tools:
            tool = world.tools[0]
            call_id = tool.invocation.call_id
            await world.clock.advance(plan[call_id].seconds)
            if not tool.answer.done():
                executed.append(call_id)
                world.end_tool(tool, plan[call_id].error)
        else:
            break
        await world.clock.settle()
    (run,) = await world.nodes[0].gate.read(RunFilter(DEFAULT_TENANT))
    records = [each.record for each in await world.nodes[0].gate.read(LedgerFilter(DEFAULT_TENANT))]
    [facts] = await world.nodes[0].gate.read(FactsOfRuns([run.run_id]))
    await world.end()
    return Played(run, records, requests, executed, facts)


counts = st.integers(0, 10_000)
usages = st.builds(Usage, counts, counts, counts, st.floats(0, 10))
names = st.sampled_from(["look", "probe", "put", "act"])
readings = st.builds(Call, st.just("look"))
many_turns = st.lists(st.builds(Turn, st.lists(readings, max_size=4).map(tuple)), max_size=8)


@pytest.mark.property
@examples
@given(turns=many_turns, tool_calls=st.integers(1, 8), limit=st.integers(1, 6))
def test_property_11_no_run_makes_more_calls_than_its_limit_and_one_that_wants_to_is_terminated_with_a_warning(
    play, turns, tool_calls, limit
):
    made, over = 0, False
    for number, turn in enumerate([*turns, Turn()], 1):
        if not turn.calls:
            break
        made += len(turn.calls)
        over = made > tool_calls or number >= limit
        if over:
            break

    played = play(turns, tool_calls=tool_calls, turns=limit)

    assert len(played.executed) == min(made, tool_calls)
    assert played.run.result.tool_calls == len(played.executed)
    assert len(played.requests) <= limit
    assert played.run.status is (RunStatus.TERMINATED if over else RunStatus.COMPLETED)
    assert [each["what"] for each in played.of(LedgerKind.WARNING)] == ["run terminated"] * over


RETRIED_AFTER = 0.25
"""Seconds from an attempt that failed to the next one."""


@pytest.mark.property
@examples
@given(quick=st.lists(st.booleans(), max_size=6), limit=st.integers(1, 5))
def test_property_12_a_model_call_over_its_limit_is_stopped_and_told_and_one_that_is_never_answered_ends_the_run(
    play, quick, limit
):
    slow = Turn(seconds=limit + RETRIED_AFTER)
    attempts = [Turn((Call(),), seconds=limit - 0.5) if each else slow for each in quick]
    in_a_row, seen = 0, []
    for each in [*quick, True]:
        in_a_row = 0 if each else in_a_row + 1
        seen.append(each)
        if in_a_row == 2:
            break

    played = play(attempts, model_timeout=float(limit), run_timeout=1_000.0, tool_calls=50, turns=50)

    late, answered = f"did not answer within {limit} s", sum(seen)
    told = [each["error"] for record in played.of(LedgerKind.MODEL_CALL) for each in record.get("failed_attempts", [])]
    assert len(played.requests) == answered
    if in_a_row == 2:
        assert (played.run.status, played.run.result.error.type) == (RunStatus.FAILED, "model_failed")
        assert late in played.run.result.error.message
        assert late in played.of(LedgerKind.MODEL_CALL)[-1]["error"]
        assert told == [late] * (len(seen) - answered - 2)
    else:
        assert played.run.status is RunStatus.COMPLETED
        assert told == [late] * (len(seen) - answered)


NEVER = Hours(("*",), 720, 721)
"""The clock of the world does not show this minute of the day."""
chosen_tools = st.sets(st.sampled_from(AVAILABLE))


@pytest.mark.property
@examples
@given(
    turns=st.lists(st.builds(Turn, st.tuples(st.builds(Call, names | st.text(max_size=9)))), max_size=4),
    denied=chosen_tools,
    off=chosen_tools,
    closed=chosen_tools,
)
def test_property_13_the_ledger_says_which_tools_a_run_may_use_and_why_not_the_others_and_they_are_all_it_can_use(
    play, turns, denied, off, closed
):
    rules = Governance(
        tool_limits=tuple(ToolLimit(each, enabled=False) for each in sorted(off)),
        hours=(replace(NEVER, tools=tuple(sorted(closed))),) if closed else (),
    )
    reasons = (
        dict.fromkeys(closed, ("hours", "outside 12:00-12:01 UTC"))
        | dict.fromkeys(denied, ("choice", "the definition denies"))
        | dict.fromkeys(off, ("choice", "it is turned off in agent.yaml"))
    )
    visible = [each for each in AVAILABLE if each not in reasons]
    version = f"{sorted(denied)} {sorted(off)} {sorted(closed)}"

    played = play(
        turns,
        {"governance": rules, "tools": ToolChoice(deny=tuple(denied)), "version": version},
        tool_calls=50,
    )

    (decided,) = played.of(LedgerKind.VISIBILITY)
    told = {tool: (each["by"], each["reason"]) for each in decided["hidden"] for tool in each["tools"]}
    assert decided["visible"] == len(visible)
    assert told.keys() == reasons.keys()
    for tool, (by, reason) in told.items():
        assert by == reasons[tool][0]
        assert reasons[tool][1] in reason
    for request in played.requests:
        offered = [each["function"]["name"] for each in orjson.loads(request.tools)]
        assert offered == visible
    for call in played.of(LedgerKind.TOOL_CALL):
        outside = call["tool"] not in visible
        assert (call.get("error", {}).get("type") == "tool_not_available") is outside
        assert (call["call_id"] in played.executed) is not outside


whole_seconds = st.integers(0, 4).map(float)


@pytest.mark.property
@examples
@given(
    turns=st.lists(
        st.builds(
            Turn, st.lists(st.builds(Call, st.just("put"), seconds=whole_seconds), max_size=2).map(tuple), whole_seconds
        ),
        max_size=4,
    ),
    limit=st.integers(1, 12),
)
def test_property_16_a_run_that_takes_longer_than_its_limit_ends_as_timeout_at_that_moment(play, turns, limit):
    needed = 0.0
    for turn in turns:
        needed += turn.seconds + sum(call.seconds for call in turn.calls)
        if not turn.calls:
            break
    assume(needed != limit)

    played = play(turns, run_timeout=float(limit), model_timeout=100.0, tool_calls=50, turns=50)

    lasted = (played.run.finished_at - played.run.started_at).total_seconds()
    assert played.run.status is (RunStatus.TIMEOUT if needed > limit else RunStatus.COMPLETED)
    assert lasted == pytest.approx(min(needed, limit), abs=0.001)
    (told,) = played.of(LedgerKind.RUN)
    assert (told["error"] or {}).get("type") == ("run_timeout" if needed > limit else None)


@pytest.mark.property
@examples
@given(turns=st.lists(st.builds(Turn, st.just((Call(),)), usage=usages), max_size=4))
def test_property_18_the_tokens_of_every_model_call_are_in_the_ledger_and_add_up_to_those_of_the_run(play, turns):
    played = play(turns, tool_calls=50, turns=50)

    told = [each["usage"] for each in played.of(LedgerKind.MODEL_CALL)]
    given_ = [turn.usage for turn in (*turns, Turn())]
    assert [Usage(**each) for each in told] == given_
    total = played.run.result.usage
    assert total.prompt_tokens == sum(each.prompt_tokens for each in given_)
    assert total.completion_tokens == sum(each.completion_tokens for each in given_)
    assert total.cost == pytest.approx(sum(each.cost for each in given_))


@pytest.fixture(scope="module")
def exported(runner):
    """Exports a run to a receiver of OTLP, and returns the spans that arrive there."""
    with OtlpServer() as server:
        content = ContentAttributes(TenantRedactors(Redactor))
        receiver = OtlpReceiver(f"{server.url}/v1/traces", {}, OtlpSpans(content), timeout=10.0)

        def exported(played):
            server.batches.clear()
            runner.run(receiver.send([played.facts]))
            return server.spans

        yield exported
        runner.run(receiver.close())


def doing(spans, operation):
    return [each for each in spans if each.attributes.get("gen_ai.operation.name") == operation]


@pytest.mark.property
@examples
@given(
    turns=st.lists(
        st.builds(
            Turn,
            st.lists(st.builds(Call, names, st.none() | st.text(max_size=9), whole_seconds), max_size=3).map(tuple),
            whole_seconds,
            usages,
        ),
        max_size=4,
    ),
    limit=st.integers(1, 4),
)
def test_property_19_every_run_is_a_trace_with_its_agent_its_trigger_and_every_model_call(play, exported, turns, limit):
    played = play(turns, turns=limit, run_timeout=1_000.0, model_timeout=100.0)

    spans = exported(played)

    run = played.run
    [root] = doing(spans, "invoke_agent")
    asked, executed = doing(spans, "chat"), doing(spans, "execute_tool")
    said = [*turns, Turn()][: len(played.requests)]
    assert (root.attributes["gen_ai.agent.id"], root.attributes["user.id"]) == (run.agent.agent_id, run.agent.tenant)
    assert root.attributes["owlclaw.trigger.kind"] == run.trigger.kind.value
    assert root.attributes["owlclaw.run.status"] == run.status.value
    assert [each.attributes["gen_ai.usage.input_tokens"] for each in asked] == [
        each.usage.prompt_tokens for each in said
    ]
    assert [(each.end - each.start) / 10**9 for each in asked] == [each.seconds for each in said]
    assert {each.attributes["gen_ai.tool.call.id"] for each in executed} >= set(played.executed)
    assert len({each.span_id for each in spans}) == len(spans)
    assert {each.trace_id for each in spans} == {root.trace_id}
    assert [each.parent_id for each in spans] == ["", *[root.span_id] * (len(spans) - 1)]
    assert all(root.start <= each.start <= each.end <= root.end for each in spans)


@pytest.mark.property
@examples
@given(
    calls=st.lists(
        st.builds(Call, st.just("look"), st.none() | st.text(min_size=1, max_size=40)), min_size=1, max_size=5
    )
)
def test_property_21_the_failure_of_a_tool_is_told_to_the_model_which_goes_on(play, calls):
    played = play([Turn(tuple(calls))])

    told = {
        message.call_id: message.content for message in played.requests[1].messages if message.role is MessageRole.TOOL
    }
    assert played.run.status is RunStatus.COMPLETED
    assert played.requests[-1] is played.requests[1]
    assert len(told) == len(calls)
    for at, call in enumerate(calls):
        content = told[f"c1-{at}"]
        if call.error is None:
            assert content == "done"
        else:
            error = orjson.loads(data_in(content))["error"]
            assert (error["type"], error["message"]) == ("execution_failed", call.error)
