"""What a Keeper counts: everything that happens to runs passes it as a commit, so it needs no other source.

Labels are names of which an installation has a few (a status, a tool, a model), never agents, runs or tenants. Names that models
make up are not among them, and of any label there are LABELS values at most: what comes later is `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import TickOutcome
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AgentActivated,
    Appended,
    AppendJournal,
    AppendLedger,
    AwaitApprovals,
    AwaitRuns,
    BackfillTick,
    CancelOutcome,
    CancelRun,
    CancelSchedule,
    ClaimRun,
    Command,
    DeliveryStored,
    FinishRun,
    FireSchedule,
    LedgerAppended,
    Outcome,
    QuotaReached,
    ReceiveDelivery,
    RunAccepted,
    RunClaimed,
    RunFinished,
    RunWaiting,
    ScheduleCancelled,
    ScheduleFired,
    StaleEpoch,
    SubmitRun,
)
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.telemetry.metrics.exposition import family_of

LABELS = 200
OTHER, UNKNOWN, OK = "other", "unknown", "ok"
_MADE_UP = "tool_not_available"
_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
_LATENESS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3600, 86400)


class CommitMetrics:
    """Implements CommitObserver. The counts begin with the process; Prometheus knows how to go on from there.

    A command that is sent again because its answer was lost counts again.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._seen: dict[str, set[str]] = {"model": set(), "tool": set(), "error": set()}
        self._triggers = self._counters("owlclaw_triggers", "Triggers that were accepted", "kind")
        self._refusals = self._counters("owlclaw_quota_refusals", "What was refused for a quota", "quota", "of")
        self._ended = self._counters("owlclaw_runs_ended", "Runs that ended", "status")
        self._duration = self._histograms("owlclaw_run_seconds", "From a run's start to its end", _LONG, "status")
        self._queue = self._histogram("owlclaw_queue_seconds", "From a trigger to the start of its run", _LONG)
        self._activations = self._counter("owlclaw_activations", "Activations of agents")
        self._activation = self._histogram(
            "owlclaw_activation_seconds",
            "From a trigger to the start of its run, where the agent was not in memory",
            _SHORT,
        )
        self._model_calls = self._counters("owlclaw_model_calls", "Model calls that ended", "model", "error")
        self._model_seconds = self._histograms(
            "owlclaw_model_call_seconds", "Model calls that were answered", _LONG, "model"
        )
        self._model_failures = self._counters(
            "owlclaw_model_attempts_failed", "Attempts at model calls that failed", "model"
        )
        self._tokens = self._counters(
            "owlclaw_tokens", "Tokens of model calls; cached ones are among the prompts'", "model", "kind"
        )
        self._cost = self._counters("owlclaw_cost_dollars", "What model calls cost", "model")
        self._tool_calls = self._counters("owlclaw_tool_calls", "Tool calls that ended", "tool", "error")
        self._tool_seconds = self._histograms("owlclaw_tool_call_seconds", "Tool calls", _SHORT, "tool")
        self._fenced = self._counter("owlclaw_fencing_rejections", "Writes of activations that had lost their agent")
        self._ticks = self._counters("owlclaw_schedule_ticks", "Ticks of schedules that were accounted for", "outcome")
        self._lateness = self._histogram(
            "owlclaw_schedule_lateness_seconds", "From a tick's time to its firing", _LATENESS
        )
        self._commit_seconds = self._histogram("owlclaw_commit_seconds", "Transactions of the store", _SHORT)
        self._commands = self._counter("owlclaw_commands", "Commands that were committed")

    def families(self) -> tuple[MetricFamily, ...]:
        """Return the present counts."""
        return tuple(map(family_of, self._registry.collect()))

    def committed(self, commands: Sequence[Command], outcomes: Sequence[Outcome], seconds: float) -> None:
        """See CommitObserver.committed."""
        self._commit_seconds.observe(seconds)
        self._commands.inc(len(commands))
        for command, outcome in zip(commands, outcomes, strict=True):
            self._count_refusal(outcome)
            match command, outcome:
                case _, StaleEpoch():
                    self._fenced.inc()
                case SubmitRun(), RunAccepted(duplicate=False):
                    self._triggers(command.trigger.kind.value).inc()
                case ReceiveDelivery(run=SubmitRun() as run), DeliveryStored(submitted=RunAccepted(duplicate=False)):
                    self._triggers(run.trigger.kind.value).inc()
                case FireSchedule(), ScheduleFired():
                    self._count_firing(command, outcome)
                case CancelSchedule(), ScheduleCancelled(ended=ended):
                    self._count_cancelled(ended)
                case BackfillTick(), ScheduleFired(run=RunAccepted(duplicate=False)):
                    self._triggers(command.run.trigger.kind.value).inc()
                    self._ticks(command.tick.outcome.value).inc()
                case ActivateAgent(), AgentActivated():
                    self._activations.inc()
                    self._count_start(outcome.claimed, command.at, self._activation)
                case ClaimRun(), RunClaimed():
                    self._count_start(outcome, command.at)
                case FinishRun(), RunFinished():
                    self._count_end(command.result.status, command.result.duration_ms / 1_000)
                    self._count_records(command.ledger)
                    self._count_start(outcome.next, command.at)
                case ((AppendJournal() | AwaitApprovals() | AwaitRuns()), (Appended() | RunWaiting())):
                    self._count_records(command.ledger)
                case AppendLedger(), LedgerAppended():
                    self._count_records(command.records)
                case CancelRun(), CancelOutcome(run=Run(status=RunStatus.CANCELLED, started_at=None) as cancelled):
                    if cancelled.finished_at == command.at:
                        self._count_cancelled([cancelled.run_id])

    def _count_start(self, claimed: RunClaimed | None, at: datetime, *also: Histogram) -> None:
        """Count the wait of a run that has just begun; one that is taken up again waited before."""
        if claimed is None or claimed.run.started_at != at:
            return
        waited = max(0.0, (at - claimed.run.created_at).total_seconds())
        for histogram in (self._queue, *also):
            histogram.observe(waited)

    def _count_end(self, status: RunStatus, seconds: float) -> None:
        self._ended(status.value).inc()
        self._duration(status.value).observe(seconds)

    def _count_cancelled(self, queued: Sequence[RunId]) -> None:
        """Count runs that were cancelled before they began."""
        for _ in queued:
            self._count_end(RunStatus.CANCELLED, 0.0)

    def _count_refusal(self, outcome: Outcome) -> None:
        refused = outcome.submitted if isinstance(outcome, DeliveryStored) else outcome
        if isinstance(refused, QuotaReached):
            self._refusals(refused.quota, "key" if refused.of_key else "tenant").inc()

    def _count_firing(self, command: FireSchedule, fired: ScheduleFired) -> None:
        """Count the ticks as they were stored: the one whose run was refused is skipped."""
        self._count_cancelled(fired.ended)
        if command.run is not None and fired.run is not None:
            self._triggers(command.run.trigger.kind.value).inc()
        for tick in command.ticks:
            refused = tick.run_id is not None and fired.run is None
            self._ticks((TickOutcome.SKIPPED if refused else tick.outcome).value).inc(tick.count)
            if tick.run_id is not None and not refused:
                jitter = command.expected_due - command.ticks[0].due_at
                self._lateness.observe(max(0.0, (tick.at - tick.due_at - jitter).total_seconds()))

    def _count_records(self, records: Sequence[LedgerRecord]) -> None:
        for record in records:
            if record.kind is LedgerKind.MODEL_CALL:
                self._count_model_call(record.data)
            elif record.kind is LedgerKind.TOOL_CALL:
                data = record.data
                error = (data.get("error") or {}).get("type", OK)
                tool = UNKNOWN if error == _MADE_UP else self._bounded("tool", data["tool"])
                self._tool_calls(tool, self._bounded("error", error)).inc()
                self._tool_seconds(tool).observe(data["duration_ms"] / 1_000)

    def _count_model_call(self, data: JsonObject) -> None:
        for attempt in data.get("failed_attempts", ()):
            self._model_failures(self._bounded("model", attempt["model"])).inc()
        if "error" in data:
            model = self._bounded("model", data["model"]) if "model" in data else UNKNOWN
            self._model_calls(model, "failed").inc()
            return
        model, usage = self._bounded("model", data["model"]), data["usage"]
        self._model_calls(model, OK).inc()
        if "duration_ms" in data:
            self._model_seconds(model).observe(data["duration_ms"] / 1_000)
        self._cost(model).inc(max(0.0, usage["cost"]))
        for kind in ("prompt", "completion", "cached"):
            self._tokens(model, kind).inc(max(0, usage[f"{kind}_tokens"]))

    def _bounded(self, label: str, value: str) -> str:
        seen = self._seen[label]
        if value not in seen:
            if len(seen) >= LABELS:
                return OTHER
            seen.add(value)
        return value

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(name, what, registry=self._registry)

    def _counters(self, name: str, what: str, *labels: str) -> Callable[..., Counter]:
        """Return what gives the counter of these values of its labels. It is remembered: prometheus_client takes longer to find it than to
        count.
        """
        return cache(Counter(name, what, labels, registry=self._registry).labels)

    def _histogram(self, name: str, what: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, what, buckets=buckets, registry=self._registry)

    def _histograms(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Callable[..., Histogram]:
        """See `_counters`."""
        return cache(Histogram(name, what, labels, buckets=buckets, registry=self._registry).labels)
