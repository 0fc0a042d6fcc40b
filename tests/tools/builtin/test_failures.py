import threading

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import StateChoice
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.errors import RuntimeUnavailableError, ToolArgumentsError, ToolExecutionError, ToolTimeoutError
from owlclaw_ray.ids import AgentId, RunId
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.tools.builtin import BuiltInTools, CallContext
from tests.tools.builtin.conftest import TRADER

CONTEXT = CallContext(TRADER, RunId("run_1"), "key_1")


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("schedule_once", {"delay_seconds": 0, "focus": "x"}, ["delay_seconds", "0", "at least 1", "2592000"]),
        ("schedule_once", {"delay_seconds": "300", "focus": "x"}, ["delay_seconds", '"300"', "integer"]),
        ("schedule_once", {"delay_seconds": True, "focus": "x"}, ["delay_seconds", "integer"]),
        ("schedule_once", {"delay_seconds": 5, "focus": "  "}, ["focus", '"  "']),
        ("schedule_once", {"delay_seconds": 5, "focus": "x" * 501}, ["focus", "500"]),
        (
            "schedule_cron",
            {"cron_expression": "61 * * * *", "focus": "x"},
            ["cron_expression", "no minute", "0 9 * * MON-FRI"],
        ),
        ("schedule_cron", {"cron_expression": "0 9 * * *", "focus": "x", "timezone": "Mars/X"}, ["timezone", "IANA"]),
        ("cancel_schedule", {}, ["schedule_id", "required"]),
        ("remember", {"content": "x" * 2_001}, ["content", "2000"]),
        ("remember", {"content": "x", "tags": ["t"] * 11}, ["tags", "10"]),
        ("remember", {"content": "x", "tags": "tea"}, ["tags", '"tea"', "array"]),
        ("recall", {"query": "x", "limit": 21}, ["limit", "21", "at most 20"]),
        ("recall", {"query": "x", "limt": 3}, ["limt", "query, limit, tags"]),
        ("query_state", {"state_name": "a b"}, ["state_name", "A-Za-z0-9_.:-"]),
        ("query_state", {"state_name": "nope"}, ["state_name", "nope", "market.open"]),
        ("log_decision", {"reasoning": "x", "decision_type": "maybe"}, ["decision_type", "no_action"]),
    ],
)
def test_wrong_arguments_are_explained(fail, tool, arguments, words):
    error = fail(tool, **arguments)
    assert error.type == "invalid_arguments"
    assert not error.retryable
    (line,) = error.details
    assert all(word in line for word in words), line


def test_wrong_arguments_change_nothing(fail, schedules, memory):
    fail("schedule_cron", cron_expression="0 9 * * *", focus="x", timezone="Mars/X")
    fail("remember", content="tea", tags=[""])
    assert schedules.stored == {}
    assert memory.files.memories(TRADER) == ()


def test_every_wrong_argument_has_its_own_line(fail):
    assert len(fail("schedule_once", delay_seconds=-1, extra=1).details) == 3


def test_whole_numbers_may_be_written_with_a_point(call):
    assert call("recall", query="x", limit=3.0)["count"] == 0


def test_a_failing_provider_is_told_to_the_model(fail, states):
    def broken(agent):
        raise KeyError("账户")

    states.providers["broken"] = broken
    error = fail("query_state", state_name="broken")
    assert (error.type, error.retryable) == ("execution_failed", False)
    assert "KeyError" in error.message
    assert "账户" in error.message


def test_a_disk_that_is_full_is_told_as_something_that_may_pass(fail, memory, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_files, "create", full)
    error = fail("remember", content="likes tea")
    assert (error.type, error.retryable) == ("execution_failed", True)
    assert "MEMORY.md cannot be written: No space left on device" in error.message


@pytest.mark.parametrize(
    ("raised", "type_", "retryable"),
    [
        (RuntimeUnavailableError("the keeper restarts"), "execution_failed", True),
        (ToolTimeoutError("state took 30 s"), "timeout", True),
        (TimeoutError(), "timeout", True),
        (ToolExecutionError("no"), "execution_failed", False),
    ],
)
def test_what_a_provider_raises_keeps_its_kind(fail, states, raised, type_, retryable):
    def broken(agent):
        raise raised

    states.providers["broken"] = broken
    error = fail("query_state", state_name="broken")
    assert (error.type, error.retryable) == (type_, retryable)


def test_an_unknown_tool_is_not_available(fail):
    error = fail("shedule_once")
    assert error.type == "tool_not_available"
    assert "schedule_once" in error.message


def test_execute_returns_the_content_or_the_structured_error(tools):
    assert tools.execute("query_state", {"state_name": "market.open"}, CONTEXT) == {"state": True}
    failed = tools.execute("recall", {"query": ""}, CONTEXT)
    assert failed["error"]["type"] == "invalid_arguments"
    assert failed["error"]["retryable"] is False
    assert failed["error"]["details"]


def bound(*granted):
    return Lineage(RunId("run_0"), RunId("run_0"), AgentId("lead"), 1, ChildRole.SUB_AGENT, (("*",), granted))


@pytest.fixture
def strict(schedules, memory, states, clock):
    return BuiltInTools(schedules=schedules, memory=memory, states=states, clock=clock, raise_errors=True)


def test_execute_can_raise_instead(strict, states):
    with pytest.raises(ValueError, match="limit") as caught:
        strict.execute("recall", {"query": "x", "limit": 0}, CONTEXT)
    assert isinstance(caught.value, ToolArgumentsError)
    with pytest.raises(ValueError, match="no built-in tool"):
        strict.execute("nope", {}, CONTEXT)

    def raising(error):
        def provider(agent):
            raise error

        return provider

    for error, expected in [
        (ValueError("bad row"), ToolExecutionError),
        (TimeoutError("slow"), ToolTimeoutError),
        (ToolTimeoutError("slow"), ToolTimeoutError),
    ]:
        states.providers["broken"] = raising(error)
        with pytest.raises(expected, match=str(error)) as caught:
            strict.execute("query_state", {"state_name": "broken"}, CONTEXT)
        assert type(caught.value) is expected


def test_execute_with_a_limit_reached_raises_it(strict):
    full = CallContext(TRADER, RunId("run_1"), "key_2", active_schedules=0)
    with pytest.raises(ToolExecutionError, match="active schedules"):
        strict.execute("schedule_once", {"delay_seconds": 1, "focus": "x"}, full)


def rows(tools_options, **more):
    kept = []
    return kept, BuiltInTools(**tools_options, ledger=kept.extend, **more)


@pytest.fixture
def options(schedules, memory, states, clock):
    return {"schedules": schedules, "memory": memory, "states": states, "clock": clock}


def test_execute_tells_the_ledger_of_every_call_and_of_what_the_tool_records_itself(options):
    kept, tools = rows(options)
    tools.execute("query_state", {"state_name": "market.open"}, CONTEXT)
    tools.execute("recall", {"query": ""}, replace(CONTEXT, idempotency_key="key_2"))
    tools.execute("log_decision", {"reasoning": "calm"}, replace(CONTEXT, idempotency_key="key_3"))
    tools.execute("log_decision", {"reasoning": "calm"}, replace(CONTEXT, idempotency_key="key_3"))

    told = [(each.kind, each.data.get("tool"), each.data.get("error", {}).get("type")) for each in kept]
    assert told[:4] == [
        (LedgerKind.TOOL_CALL, "query_state", None),
        (LedgerKind.TOOL_CALL, "recall", "invalid_arguments"),
        (LedgerKind.TOOL_CALL, "log_decision", None),
        (LedgerKind.DECISION, None, None),
    ]
    assert [each.record_id for each in kept[4:]] == [each.record_id for each in kept[2:4]]
    assert {(each.agent_id, each.run_id) for each in kept} == {(TRADER.agent_id, CONTEXT.run_id)}
    assert kept[0].data["arguments"] == '{"state_name": "market.open"}'
    assert kept[0].data["content"] == {"state": True}


@pytest.mark.parametrize("raises", [False, True])
def test_execute_ends_a_call_that_takes_too_long_and_tells_the_ledger(options, states, raises):
    never = threading.Event()
    states.providers["slow"] = lambda agent: never.wait(600)
    kept, tools = rows(options, timeout_seconds=0.05, raise_errors=raises)
    if raises:
        with pytest.raises(ToolTimeoutError, match=r"query_state did not finish within 0\.05 s"):
            tools.execute("query_state", {"state_name": "slow"}, CONTEXT)
    else:
        answer = tools.execute("query_state", {"state_name": "slow"}, CONTEXT)
        assert (answer["error"]["type"], answer["error"]["retryable"]) == ("timeout", True)

    assert [each.data["error"]["type"] for each in kept] == ["timeout"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"states": StateChoice(deny=("market.*",))}, "tools.states denies market.*"),
        ({"states": StateChoice(allow=("shop.*", "stock"))}, "tools.states allows only shop.*, stock"),
        ({"lineage": bound("shop.look")}, "lead did not grant query_state.market.open"),
        ({"lineage": bound("query_state.shop.*")}, "lead did not grant query_state.market.open"),
        ({"lineage": bound()}, "lead did not grant query_state.market.open"),
        ({"states": StateChoice(allow=("market.*",))}, ""),
        ({"lineage": bound("query_state")}, ""),
        ({"lineage": bound("shop.look", "query_state.market.*")}, ""),
        ({"lineage": bound("*")}, ""),
    ],
)
def test_a_state_is_queried_only_by_agents_that_rules_and_grants_allow_it(tools, changes, why):
    answer = tools.execute("query_state", {"state_name": "market.open"}, replace(CONTEXT, **changes))

    if why:
        assert answer["error"]["type"] == "denied"
        assert answer["error"]["message"] == f"{TRADER} may not query the state 'market.open': {why}"
    else:
        assert answer == {"state": True}
