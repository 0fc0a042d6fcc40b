import orjson
import pytest

from benchmarks import tool_calls
from benchmarks.tool_calls import APPLICATION, EMPTY, TOOLS, WORK, Calls, FailedCallError, arguments_of
from benchmarks.tools import latency_figures, latency_of, many_figures, many_of, plot_of
from owlclaw_ray.app_loader import load_app
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome, nothing_to_confirm
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.builtin import arguments as models

EMPTY_MS = {"p50": 2.0, "p95": 4.0, "p99": 5.0}
MODELS = {
    "log_decision": models.LogDecisionArguments,
    "query_state": models.QueryStateArguments,
    "remember": models.RememberArguments,
    "recall": models.RecallArguments,
    "schedule_once": models.ScheduleOnceArguments,
    "schedule_cron": models.ScheduleCronArguments,
}


class Runner:
    """Answers each call with the error that it is given, or none."""

    def __init__(self, error=None):
        self.error, self.seen = error, []

    async def run(self, invocation, confirm=nothing_to_confirm):
        self.seen.append(invocation)
        return ToolOutcome(ToolResult(ToolCallId(invocation.call_id), content="ok", error=self.error), 1)


def calls(runner):
    return Calls(runner, {each.name: each for each in BuiltInTools.definitions()})


def test_all_seven_built_in_tools_are_measured():
    assert set(TOOLS) == {each.name for each in BuiltInTools.definitions()}


@pytest.mark.parametrize("tool", MODELS)
def test_the_arguments_are_ones_that_the_tool_takes(tool):
    assert [models.parse(tool, MODELS[tool], arguments_of(tool, number)) for number in (0, 399)]


def test_memories_differ_from_each_other():
    contents = {arguments_of("remember", number)["content"] for number in range(400)}

    assert len(contents) == 400


async def test_each_call_is_one_of_its_own_as_the_tool_is_defined():
    runner = Runner()
    made = calls(runner)

    await made.call("log_decision", arguments_of("log_decision", 0))
    await made.call("remember", arguments_of("remember", 1), "bench:other")

    first, second = runner.seen
    assert (first.call_id, first.idempotency_key) != (second.call_id, second.idempotency_key)
    assert (first.tool_class.value, second.tool_class.value) == ("quick", "memory")
    assert orjson.loads(second.arguments) == arguments_of("remember", 1)
    assert second.agent.agent_id == "bench:other"


async def test_a_call_that_fails_ends_the_measurement():
    with pytest.raises(FailedCallError, match="on fire"):
        await calls(Runner(ToolError("execution_failed", "on fire"))).call("log_decision", {})


@pytest.mark.usefixtures("_forgetting_modules")
def test_the_application_has_what_the_calls_need(tmp_path):
    (tmp_path / "bench_tools_app.py").write_text(APPLICATION)

    registry = load_app("bench_tools_app:app", tmp_path).registry

    assert WORK in {each.name for each in registry.definitions()}
    assert arguments_of("query_state", 0)["state_name"] in registry.states()


@pytest.fixture
def _forgetting_modules(monkeypatch):
    monkeypatch.setattr(tool_calls.sys, "path", list(tool_calls.sys.path))


def test_latencies_are_milliseconds_at_three_percentiles():
    assert latency_of([0.001 * number for number in range(1, 101)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}


def test_halves_are_one_measurement():
    halves = [{"per_second": 100.0, "seconds": [0.1]}, {"per_second": 200.0, "seconds": [0.3]}]

    assert many_of(halves) == {"per_second": 150.0, "p50": 100.0, "p95": 300.0, "p99": 300.0}


def test_only_log_decision_is_judged_and_by_its_p95():
    slow = {"p50": 2.0, "p95": 12.1, "p99": 13.0}
    figures = latency_figures({EMPTY: EMPTY_MS, **dict.fromkeys(TOOLS, slow)})

    assert len(figures) == 3 * len(TOOLS)
    assert [(each.name, each.met) for each in figures if each.goal] == [("p95_ms, log_decision", False)]
    fast = {**slow, "p95": 12.0}
    within = latency_figures({EMPTY: EMPTY_MS, **dict.fromkeys(TOOLS, fast)})
    assert [each.met for each in within if each.goal] == [True]


def test_calls_with_time_outs_are_compared_with_tasks_that_are_as_late():
    many = {
        EMPTY: {"per_second": 800.0, "p95": 60.0},
        "log_decision": {"per_second": 1_600.0, "p95": 30.0},
        f"{EMPTY}, 2 % time-outs": {"per_second": 300.0, "p95": 500.0},
        "work, 2 % time-outs": {"per_second": 150.0, "p95": 510.0},
    }

    ratios = {each.name: each.ratio for each in many_figures(many)}

    assert ratios == {
        "calls_per_second, 50 callers, log_decision": 2.0,
        "p95_ms, 50 callers, log_decision": 0.5,
        "calls_per_second, 50 callers, work, 2 % time-outs": 0.5,
        "p95_ms, 50 callers, work, 2 % time-outs": 1.02,
    }


def test_the_plot_begins_with_the_empty_task():
    plot = plot_of({EMPTY: EMPTY_MS, **dict.fromkeys(TOOLS, EMPTY_MS)})

    assert plot.series[0].x == (EMPTY, *TOOLS)
    assert [each.y[0] for each in plot.series] == [2.0, 4.0, 5.0]
