import asyncio
import json
import logging
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from owlclaw_ray import AgentRef, OwlClaw, ToolContext, ToolError, ToolResult
from owlclaw_ray.domain.tool import Effect, ToolClass
from owlclaw_ray.domain.tool_call import Stage, ToolInvocation, ToolOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import ModelUnavailableError, ToolArgumentsError
from owlclaw_ray.ids import RunId, ToolCallId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.arguments import decode_arguments
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.failure import RESERVED, ToolFailureError
from owlclaw_ray.tools.sources import ToolSources
from tests.properties import examples

SOON = 0.05


class OneBuiltIn:
    """The shape of the built-in tools, with one of them."""

    def __init__(self, answer):
        self.answer = answer

    def definitions(self):
        app = OwlClaw("x")
        app.tool("x.y")(lambda: None)
        definition = app.registry.definitions()[0]
        return (type(definition)("query_state", "", {"type": "object"}, definition.permission, definition.effect),)

    source = "the built-in tools"

    def run(self, invocation):
        return self.answer(invocation.tool, decode_arguments(invocation.tool, invocation.arguments), invocation)


class Executor:
    """An executor of the tools that are registered by the time of a call."""

    def __init__(self, app, answer, clock):
        self.app, self.built_in, self.clock = app, OneBuiltIn(answer), clock

    def run_all(self, invocations):
        return LocalExecutor(ToolSources((self.built_in, *self.app.sources())), self.clock).run_all(invocations)

    def run_one(self, invocation):
        return self.run_all([invocation])[0]


@pytest.fixture
def app():
    return OwlClaw("demo")


@pytest.fixture
def executor(app):
    def answer(tool, arguments, invocation):
        if "state_name" not in arguments:
            raise ToolArgumentsError(tool, ["state_name: given nothing; allowed: string (required)"])
        return ToolOutcome(ToolResult(invocation.call_id, {"state": arguments["state_name"]}), 0)

    return Executor(app, answer, ManualClock())


def call(tool, arguments=None, *, timeout=5.0, call_id="call_1"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolInvocation(
        call_id=ToolCallId(call_id),
        tool=tool,
        arguments=text,
        agent=AgentRef.parse("trader:A"),
        run_id=RunId("run_1"),
        trigger=TriggerKind.API,
        effect=Effect.PURE,
        tool_class=ToolClass.ALONE,
        timeout=timeout,
        idempotency_key="key_1",
    )


def error_of(executor, *args, **options):
    result = executor.run_one(call(*args, **options)).result
    assert result.is_error
    assert result.content is None
    return result.error


def test_calls_run_in_order_and_each_result_carries_its_call_id(app, executor):
    """tool-registry: every tool result has its tool_call_id."""
    app.tool("add")(add)
    outcomes = executor.run_all([call("demo.add", {"a": n, "b": 1}, call_id=f"call_{n}") for n in range(3)])
    assert [(each.result.call_id, each.result.content) for each in outcomes] == [
        ("call_0", 1),
        ("call_1", 2),
        ("call_2", 3),
    ]


def add(a: int, b: int):
    return a + b


def test_wrong_arguments_come_back_with_a_line_a_problem_and_the_handler_is_not_called(app, executor):
    """tool-registry: arguments are checked by the core before a handler runs."""
    called = []

    @app.handler("pay")
    def pay(amount: int, to: str):
        called.append(amount)

    error = error_of(executor, "demo.pay", {"amount": "5"})
    assert error.type == "invalid_arguments"
    assert error.details == ['amount: given "5"; allowed: integer', "to: given nothing; allowed: string (required)"]
    assert error_of(executor, "demo.pay", '{"amount": 5').type == "invalid_arguments"
    assert called == []


def test_a_built_in_tool_gets_its_arguments_decoded(executor):
    assert executor.run_one(call("query_state", {"state_name": "负载"})).result.content == {"state": "负载"}
    assert error_of(executor, "query_state").details == ["state_name: given nothing; allowed: string (required)"]
    assert error_of(executor, "query_state", "[]").type == "invalid_arguments"


def test_the_context_says_whose_call_it_is(app, executor):
    @app.tool("who")
    def who(context: ToolContext):
        return context

    assert executor.run_one(call("demo.who")).result.content == {
        "agent_id": "trader:A",
        "tenant": "default",
        "run_id": "run_1",
        "call_id": "call_1",
        "idempotency_key": "key_1",
        "trigger": "api",
        "approved": False,
        "traceparent": "",
        "environment": {},
    }


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_sync_and_async_handlers_that_hang_time_out(app, executor, in_main_thread):
    @app.tool("sync")
    def sync_hang():
        threading.Event().wait(20)

    @app.tool("async")
    async def async_hang():
        await asyncio.Event().wait()

    @app.tool("ok")
    async def fine():
        return "fine"

    def run():
        return executor.run_all([call("demo.sync", timeout=SOON), call("demo.async", timeout=SOON), call("demo.ok")])

    first, second, third = run() if in_main_thread else in_thread(run)
    assert first.result.error == ToolError(
        "timeout",
        "demo.sync did not finish within 0.05 s and was stopped; it may have done a part of its work. "
        "Ask for less, check what it did, or go on without it.",
        retryable=True,
    )
    assert second.result.error.type == "timeout"
    assert third.result.content == "fine"


def in_thread(function):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(function()))
    thread.start()
    thread.join()
    return outcome[0]


def test_an_exception_goes_to_the_model_as_type_and_message_and_its_trace_to_the_log(app, executor, caplog):
    @app.handler("fail")
    def fail():
        raise ValueError("没有数据")

    with caplog.at_level(logging.ERROR):
        error = error_of(executor, "demo.fail")
    assert (error.type, error.message, error.retryable) == ("execution_failed", "ValueError: 没有数据", False)
    assert "demo.fail failed (run run_1, call call_1)" in caplog.text
    assert "Traceback" in caplog.text


def test_network_and_retryable_errors_are_retryable(app, executor):
    @app.handler("net")
    def net():
        raise ConnectionResetError("peer")

    @app.handler("busy")
    async def busy():
        raise ModelUnavailableError("later")

    assert error_of(executor, "demo.net").retryable
    assert error_of(executor, "demo.busy").retryable


KINDS = (ValueError, KeyError, OSError, RuntimeError, ZeroDivisionError, LookupError, NotImplementedError)


@pytest.mark.property
@examples
@given(kind=st.sampled_from(KINDS), said=st.text(max_size=60), asynchronous=st.booleans())
def test_property_21_whatever_a_tool_raises_becomes_an_error_with_its_type_and_message(kind, said, asynchronous):
    app = OwlClaw("demo")

    @app.handler("sync")
    def fail():
        raise kind(said)

    @app.handler("async")
    async def async_fail():
        raise kind(said)

    executor = LocalExecutor(ToolSources((OneBuiltIn(lambda *_: None), *app.sources())), ManualClock())
    error = error_of(executor, "demo.async" if asynchronous else "demo.sync")

    assert error.type == "execution_failed"
    assert error.message.startswith(kind.__name__)
    assert "Traceback" not in error.message
    assert json.loads(json.dumps(to_builtins(error)))["message"] == error.message


class UntellableError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(3), "SystemExit: the tool tried to end the process with code 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (UntellableError(), "UntellableError"),
        (ValueError("\ud800"), "ValueError: ?"),
    ],
    ids=["exit", "cancelled", "generator exit", "no text", "half a character"],
)
def test_whatever_a_handler_raises_is_contained(app, executor, error, message):
    @app.handler("sync")
    def fail():
        raise error

    @app.handler("async")
    async def async_fail():
        raise error

    assert error_of(executor, "demo.sync").message == message
    assert error_of(executor, "demo.async").message == message
    assert message in in_thread(lambda: error_of(executor, "demo.sync")).message


def test_sys_exit_in_a_handler_does_not_end_the_worker(app, executor):
    app.handler("quit")(lambda: sys.exit("bye"))
    assert "with code 'bye'" in error_of(executor, "demo.quit").message


def test_an_interrupt_from_outside_passes(app, executor):
    @app.handler("stop")
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run_one(call("demo.stop"))


def test_a_result_that_is_not_json_is_an_error_that_names_the_type(app, executor):
    app.tool("odd")(lambda: {"x": object()})
    error = error_of(executor, "demo.odd")
    assert error.type == "execution_failed"
    assert "demo.odd ran, but its result cannot be passed on" in error.message
    assert "object" in error.message


def test_a_handler_may_return_a_result_of_its_own(app, executor):
    """tool-registry: complex tools return a ToolResult of their own."""

    @app.tool("mine")
    def mine(context: ToolContext):
        return ToolResult(ToolCallId("other"), {"a": (1, 2)}, metadata={"source": "cache"})

    @app.tool("denied")
    def denied():
        return ToolResult(ToolCallId(""), error=ToolError("denied", "not on Sundays"))

    result = executor.run_one(call("demo.mine")).result
    assert (result.call_id, result.content, result.metadata) == ("call_1", {"a": [1, 2]}, {"source": "cache"})
    assert error_of(executor, "demo.denied").message == "not on Sundays"


def test_a_long_result_is_cut_and_the_metadata_says_so(app, executor):
    app.tool("long")(lambda: "文" * 50_000)
    result = executor.run_one(call("demo.long")).result
    assert result.metadata == {"truncated": True, "total_bytes": 150_000, "shown_bytes": 65_535}
    assert result.content.endswith("…[cut: the first 65535 of 150000 bytes]")


def test_a_long_error_message_is_cut(app, executor):
    @app.tool("fail")
    def fail():
        raise ValueError("x" * 100_000)

    assert len(error_of(executor, "demo.fail").message) == 2_001


def test_a_tool_that_this_worker_does_not_know_is_not_available(executor):
    assert error_of(executor, "demo.none").type == "tool_not_available"


def test_the_duration_is_measured(app):
    clock = iter([10.0, 11.5])

    class Clock(ManualClock):
        def monotonic(self):
            return next(clock)

    app.tool("add")(add)
    executor = Executor(app, None, Clock())
    assert executor.run_one(call("demo.add", {"a": 1, "b": 1})).duration_ms == 1_500


def failed_with(error):
    return lambda: ToolResult(ToolCallId(""), error=error)


@pytest.mark.parametrize(
    "answer",
    [
        failed_with(ToolError("oops", "m" * 3_000_000)),
        lambda: ToolResult(ToolCallId(""), "x", metadata={"a": "z" * 3_000_000}),
        lambda: ToolResult(ToolCallId(""), "x", metadata={"z" * 3_000_000: 1}),
    ],
)
def test_no_part_of_a_result_is_without_a_limit(app, executor, answer):
    app.tool("wordy")(answer)

    outcome = executor.run_one(call("demo.wordy"))

    assert len(json.dumps(to_builtins(outcome.result))) < 17_000


@pytest.mark.parametrize(
    "answer",
    [
        failed_with(ToolError("oops", "m", details={"x": object()})),
        failed_with(ToolError("oops", "\ud800")),
        failed_with(ToolError(object(), object())),
        failed_with("oops"),
    ],
)
def test_an_error_that_is_none_is_an_error_nevertheless(app, executor, answer):
    app.tool("odd")(answer)
    app.tool("fine")(lambda: "fine")

    odd, fine = executor.run_all([call("demo.odd"), call("demo.fine")])

    assert odd.result.error.type in {"execution_failed", "oops"}
    json.dumps(to_builtins(odd.result), ensure_ascii=False).encode()
    assert fine.result.content == "fine"


def test_the_details_of_a_failure_are_json_or_it_says_so(app, executor):
    @app.tool("odd")
    def odd():
        raise ToolFailureError("oops", "no", details={"x": object()})

    error = error_of(executor, "demo.odd")

    assert (error.type, error.details) == ("execution_failed", None)


@pytest.mark.parametrize("type_", sorted(RESERVED))
@pytest.mark.parametrize("way", ["returned", "raised", "asked about"])
def test_no_tool_can_say_of_itself_what_only_the_runtime_knows(app, executor, type_, way):
    def answer():
        if way == "returned":
            return ToolResult(ToolCallId(""), error=ToolError(type_, "said the tool"))
        raise ToolFailureError(type_, "said the tool")

    app.tool("sly", target=(lambda arguments: answer()) if way == "asked about" else None)(answer)
    stage = Stage.CHECK if way == "asked about" else Stage.RUN

    error = executor.run_one(replace(call("demo.sly"), stage=stage)).result.error

    assert (error.type, error.message) == ("execution_failed", "said the tool")
