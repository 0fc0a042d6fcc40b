from __future__ import annotations

import pytest
from rich.console import Console

from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.node import NodeLoad, Slots
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError
from owlclaw_ray.ids import RecordId, RunId
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.store.commands import AppendLedger, LedgerAppended, RunFinished
from owlclaw_ray.telemetry.metrics import gauges
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.telemetry.metrics.exposition import labelled, text_of
from owlclaw_ray.telemetry.trace_export import ExportCounts
from owlclaw_ray.webhooks.outbox import CallbackCounts
from serve.cli.top import looks, render_dashboard
from serve.numbers import MetricsDelta, Numbers
from tests.contracts.store_commands import AGENT, NOW, ending

USAGE = {"prompt_tokens": 900, "completion_tokens": 100, "cached_tokens": 500, "cost": 0.5}


@pytest.fixture
def counted():
    return CommitMetrics()


def shown(change):
    return rendered(render_dashboard(change))


def rendered(shown):
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def ends(metrics, runs):
    calls = [
        LedgerRecord(RecordId(f"r{at}"), AGENT.tenant, AGENT.agent_id, RunId("run_1"), kind, NOW, data)
        for at, (kind, data) in enumerate(
            [
                (LedgerKind.MODEL_CALL, {"model": "gpt\x1b[2J", "usage": USAGE, "duration_ms": 1_500}),
                (LedgerKind.TOOL_CALL, {"tool": "remember", "duration_ms": 20, "content": ""}),
                (LedgerKind.TOOL_CALL, {"tool": "remember", "duration_ms": 40, "error": {"type": "timeout"}}),
            ]
        )
    ]
    finished = [(ending(f"run_{at}"), RunFinished()) for at in range(runs)]
    commands = [AppendLedger(tuple(calls)), *(command for command, _ in finished)]
    metrics.committed(commands, [LedgerAppended(), *(outcome for _, outcome in finished)], 0.002)


def numbers(metrics):
    parts = {"keeper@a": True, "directory": False}
    active = {RunStatus.QUEUED: 3, RunStatus.RUNNING: 2, RunStatus.WAITING: 0}
    return Numbers(
        (
            *metrics.families(),
            gauges.up(parts),
            gauges.active_runs(active),
            *gauges.pool({"host_1": 0, "host_2": 7}),
            gauges.callbacks_pending(5),
            gauges.callback_attempts(CallbackCounts(delivered=3, failed=2, dead=1)),
            *gauges.hatchet(AlarmCounts(standing=7, rings=6)),
            *gauges.traces(ExportCounts(exported=4, dropped=1, waiting=2)),
        )
    )


def test_the_first_look_shows_what_there_is_and_was(counted):
    ends(counted, 2)

    text = shown(MetricsDelta(numbers(counted)))

    assert "3 queued, 2 running, 0 waiting" in text
    assert "ended   2 completed" in text
    assert "1 occupied, 1 warm, 7 agents in memory" in text
    assert "2.0 ms a commit" in text
    assert "4 exported, 2 waiting, 1 given up" in text
    assert "told    5 callbacks pending, 3 delivered, 2 failed, 1 dead" in text
    assert "hatchet away, 7 alarms, 6 rings" in text
    assert "down    directory" in text
    [model] = [line.split() for line in text.splitlines() if line.startswith("gpt")]
    assert model[-6:] == ["1", "0", "1.5", "s", "1,000", "$0.5000"]
    [tool] = [line.split() for line in text.splitlines() if line.startswith("remember")]
    assert tool == ["remember", "2", "1", "30.0", "ms"]


def test_a_later_look_shows_what_a_second_brings(counted):
    ends(counted, 3)
    before = numbers(counted)
    ends(counted, 10)

    text = shown(MetricsDelta(numbers(counted), before, 4.0))

    assert "ended   2.5/s completed" in text
    [tool] = [line.split() for line in text.splitlines() if line.startswith("remember")]
    assert tool == ["remember", "0.5/s", "0.2/s", "30.0", "ms"]


def test_what_nothing_happened_to_has_no_table(counted):
    before = numbers(counted)

    text = shown(MetricsDelta(numbers(counted), before, 4.0))

    assert "ended   none" in text
    assert "MODEL" not in text
    assert "TOOL" not in text


def test_a_count_that_began_anew_is_no_step_back(counted):
    ends(counted, 9)
    before = numbers(counted)
    restarted = CommitMetrics()
    ends(restarted, 2)

    assert MetricsDelta(numbers(restarted), before, 1.0).total("owlclaw_runs_ended_total") == 2


def test_what_terminals_obey_is_not_shown(counted):
    ends(counted, 1)

    assert "\x1b[2J" not in shown(MetricsDelta(numbers(counted)))


def test_top_asks_the_server(owlclaw):
    done = owlclaw("top", "--times", "2", "--interval", "0.1")

    assert done.exit_code == 0
    assert done.output.count("runs    3 queued, 0 running, 0 waiting") == 2


def test_a_server_that_goes_away_for_a_while_is_asked_again_and_the_last_numbers_stay(counted):
    ends(counted, 2)
    text = text_of(numbers(counted).families).decode()
    answers = iter([text, None, text])

    def metrics():
        answer = next(answers)
        if answer is None:
            raise RuntimeUnavailableError("it restarts")
        return answer

    first, second, third = (rendered(each) for each in looks(metrics, 0.0, 3))

    assert "ended   2 completed" in first
    assert second == first + "no answer, these are the numbers of before: it restarts\n"
    assert "ended   none" in third


def test_a_server_that_is_not_there_at_all_is_an_error():
    def metrics():
        raise RuntimeUnavailableError("nobody")

    with pytest.raises(RuntimeUnavailableError):
        next(looks(metrics, 0.0, None))


def by_node(*, held=None):
    """The numbers of three nodes, of which the last does not answer."""
    families = [] if held is None else [gauges.lease_held(held)]
    for at, node in enumerate(("alpha", "beta", "gamma")):
        answers = node != "gamma"
        told = [gauges.node_up(answers), gauges.tool_slots([Slots("tool_slots", 8.0, 8.0 - at)])]
        if answers:
            told += [
                *gauges.node_load(NodeLoad(2, 40 + at, 7, 0.25, 0.0015, "", {"tool_slots": 1_000, "quick_slots": 200})),
                *gauges.slots([SlotCounts("x", 9, 3, 1)]),
            ]
        families += labelled(told, "node", node)
    return families


def narrow(families, width):
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(render_dashboard(MetricsDelta(Numbers(families))))
    return [line.split() for line in captured.get().splitlines() if line.startswith(("NODE", "alpha", "beta", "gamma"))]


def test_each_node_has_a_line_with_what_it_does():
    head, alpha, beta, gamma = narrow(by_node(), 120)

    assert head == ["NODE", "STATE", "RUNNING", "AGENTS", "TOOLS", "WAITING", "MEMORY", "STORE", "MODELS", "ACTORS"]
    assert alpha == ["alpha", "up", "7", "40", "0/8", "1,200", "25%", "1.5", "ms", "3", "2"]
    assert beta == ["beta", "up", "7", "41", "1/8", "1,200", "25%", "1.5", "ms", "3", "2"]
    assert gamma == ["gamma", "silent", "-", "-", "2/8", "-", "-", "-", "0", "-"]


def test_on_a_narrow_terminal_columns_are_left_out_and_none_is_cut():
    head, alpha, *_ = narrow(by_node(), 40)

    assert head == ["NODE", "STATE", "RUNNING", "AGENTS", "TOOLS"]
    assert alpha == ["alpha", "up", "7", "40", "0/8"]


def test_one_node_alone_has_no_table():
    alone = labelled([gauges.node_up(up=True)], "node", "alpha")

    assert narrow(alone, 80) == []


def test_the_lease_is_shown_where_there_is_one():
    assert "lease   held" in shown(MetricsDelta(Numbers(by_node(held=True))))
    assert "lease   not held: this cluster stands by" in shown(MetricsDelta(Numbers(by_node(held=False))))
    assert "lease" not in shown(MetricsDelta(Numbers(by_node())))


def test_of_one_node_only_its_own_counts_are_shown(counted):
    ends(counted, 3)
    texts = text_of(family for node in ("alpha", "beta") for family in labelled(counted.families(), "node", node))
    texts += text_of(by_node())

    [all_nodes] = [rendered(each) for each in looks(texts.decode, 0.1, 1)]
    [one] = [rendered(each) for each in looks(texts.decode, 0.1, 1, "beta")]

    assert "6 completed" in all_nodes
    assert "3 completed" in one
    assert "alpha" not in one
    with pytest.raises(NotFoundError, match="delta"):
        next(looks(texts.decode, 0.1, 1, "delta"))
