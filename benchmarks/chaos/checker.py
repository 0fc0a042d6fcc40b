"""Proves the promises of the runtime on the evidence of a session, or names every place where one was broken.

Each rule is a function from evidence to violations. What a rule compares comes from different places: a store that contradicts
itself is found as well as one that is consistent but wrong about the world.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from itertools import pairwise

import orjson

from benchmarks.chaos.evidence import Evidence, Execution
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus, TickOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId
from owlclaw_ray.ledger.redaction import Redactor

_ONCE = frozenset({"chaos.pay"})
_LOGGED = "chaos."
"""How the names of tools begin that write to the handlers' log."""
_REDACTOR = Redactor()
_LONGEST_CLAIM = timedelta(seconds=5)
"""How long a claim of a run waits to be committed."""
_CLAIMS = frozenset({EntryKind.RUN_STARTED, EntryKind.RUN_RESUMED, EntryKind.RUN_CONTINUED})


class Promise(Enum):
    """What was broken."""

    ACCEPTED_RUN_LOST = "accepted_run_lost"
    """A run that was acknowledged with 202 is not in the store."""
    TRIGGER_REFUSED = "trigger_refused"
    """A trigger that is right was refused for good."""
    KEY_NAMES_ONE_RUN = "key_names_one_run"
    """A key was answered with two runs, or with a run of another trigger, or a trigger made two runs."""
    RUN_ENDS = "run_ends"
    """A run has no final state."""
    ENDS_AS_IT_SHOULD = "ends_as_it_should"
    """A run ended otherwise than completed, though nobody cancelled it and nothing was wrong with it."""
    JOURNAL_WHOLE = "journal_whole"
    """A journal has gaps, a wrong beginning, a wrong end, something after its end, or contradicts the run's state."""
    ONE_AT_A_TIME = "one_at_a_time"
    """Two runs of one agent overlap."""
    IN_ORDER = "in_order"
    """A run began before one of the same agent that was accepted earlier."""
    ONE_WRITER = "one_writer"
    """Epochs or times of an agent's journals go back: two activations wrote."""
    RECORDED_CALL_REPEATED = "recorded_call_repeated"
    """A tool call was executed after its result was recorded."""
    ONCE_REPEATED = "once_repeated"
    """A call with the effect `once` was executed twice."""
    ONCE_ANNOUNCED = "once_announced"
    """A call with the effect `once` was executed before the journal said that it was begun."""
    EXECUTED_AS_ASKED = "executed_as_asked"
    """Something was executed that no recorded model reply asked for, or outside of its run."""
    RESULT_IS_TRUE = "result_is_true"
    """The journal has a result of an execution that never came to its end."""
    CALL_ANSWERED_ONCE = "call_answered_once"
    """A call of a completed run has no result, or a call has two."""
    LEDGER_COMPLETE = "ledger_complete"
    """A fact of a journal has no ledger record, or more than one, or another one."""
    LEDGER_UNBROKEN = "ledger_unbroken"
    """The ledger's hash chain does not hold."""
    SCHEDULE_FIRES_ONCE = "schedule_fires_once"
    """A schedule was lost, or did not make exactly one run."""
    REMEMBERED_ONCE = "remembered_once"
    """A memory that was confirmed is missing, or is there twice."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a promise does not hold."""

    promise: Promise
    what: str
    run_ids: tuple[str, ...] = ()


class _Case:
    """The evidence, arranged for the rules."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @cached_property
    def by_agent(self) -> Mapping[AgentRef, Sequence[Run]]:
        """The runs of each agent, in the order of their acceptance."""
        grouped: dict[AgentRef, list[Run]] = defaultdict(list)
        for run in sorted(self.evidence.runs.values(), key=lambda each: each.seq):
            grouped[run.agent].append(run)
        return grouped

    @cached_property
    def executions(self) -> Mapping[tuple[str, str], Sequence[Execution]]:
        """The executions of each call, by run and call id."""
        grouped: dict[tuple[str, str], list[Execution]] = defaultdict(list)
        for each in self.evidence.executions:
            grouped[each.run_id, each.call_id].append(each)
        return grouped

    @cached_property
    def finished(self) -> Mapping[tuple[str, str], JournalEntry]:
        """The first recorded result of each call, by run and call id."""
        found: dict[tuple[str, str], JournalEntry] = {}
        for run_id, entry in self.entries(EntryKind.TOOL_FINISHED):
            found.setdefault((run_id, entry.data["call_id"]), entry)
        return found

    @cached_property
    def cancelling(self) -> frozenset[str]:
        """Runs that somebody asked to cancel."""
        return frozenset(each.run_id for each in self.evidence.answers if each.what == "cancelling")

    def entries(self, *kinds: EntryKind) -> Iterator[tuple[RunId, JournalEntry]]:
        """Yield the entries of these kinds of all journals."""
        for run_id, journal in self.evidence.journals.items():
            for entry in journal:
                if entry.kind in kinds:
                    yield run_id, entry

    def first(self, run_id: str, kind: EntryKind) -> JournalEntry | None:
        """Return the first entry of the kind in a run's journal."""
        journal = self.evidence.journals.get(RunId(run_id), ())
        return next((entry for entry in journal if entry.kind is kind), None)


def check(evidence: Evidence) -> list[Violation]:
    """Return every violation; none if all promises were kept."""
    case = _Case(evidence)
    return [violation for rule in _RULES for violation in rule(case)]


def _accepted_runs_exist(case: _Case) -> Iterator[Violation]:
    for answer in case.evidence.answers:
        if answer.what == "accepted" and answer.run_id not in case.evidence.runs:
            what = f"trigger {answer.number} was accepted as {answer.run_id}, which the store does not have"
            yield Violation(Promise.ACCEPTED_RUN_LOST, what, (answer.run_id,))
        elif answer.what == "refused":
            yield Violation(Promise.TRIGGER_REFUSED, f"trigger {answer.number}: {dict(answer.told)}")


def _keys_name_one_run(case: _Case) -> Iterator[Violation]:
    made: dict[int, list[str]] = defaultdict(list)
    for run_id, made_run in case.evidence.runs.items():
        if made_run.trigger.kind is TriggerKind.API:
            made[made_run.trigger.payload["number"]].append(run_id)
    told: dict[int, set[str]] = defaultdict(set)
    for answer in case.evidence.answers:
        if answer.what == "accepted":
            told[answer.number].add(answer.run_id)
            run = case.evidence.runs.get(RunId(answer.run_id))
            if run is not None and run.agent.agent_id != answer.told["agent"]:
                what = f"trigger {answer.number} is for {answer.told['agent']}, its run for {run.agent}"
                yield Violation(Promise.KEY_NAMES_ONE_RUN, what, (answer.run_id,))
            elif run is not None and answer.run_id not in made[answer.number]:
                what = f"trigger {answer.number} was answered with {answer.run_id}, which another trigger made"
                yield Violation(Promise.KEY_NAMES_ONE_RUN, what, (answer.run_id,))
    for number in sorted(made.keys() | told.keys()):
        runs = {*made[number], *told[number]}
        if len(runs) > 1:
            what = f"trigger {number} made {made[number]} and was answered with {sorted(told[number])}"
            yield Violation(Promise.KEY_NAMES_ONE_RUN, what, tuple(sorted(runs)))


def _runs_end(case: _Case) -> Iterator[Violation]:
    for run_id, run in case.evidence.runs.items():
        if not run.status.final:
            yield Violation(Promise.RUN_ENDS, f"{run_id} of {run.agent} is {run.status.value}", (run_id,))
        elif run.status is RunStatus.CANCELLED and run_id in case.cancelling:
            continue
        elif run.status is not RunStatus.COMPLETED:
            error = run.result.error if run.result else None
            what = f"{run_id} of {run.agent} ended as {run.status.value}: {error.message if error else 'no error'}"
            yield Violation(Promise.ENDS_AS_IT_SHOULD, what, (run_id,))


def _journals_are_whole(case: _Case) -> Iterator[Violation]:
    for run_id, run in case.evidence.runs.items():
        for problem in _journal_problems(run, case.evidence.journals.get(run_id, ())):
            yield Violation(Promise.JOURNAL_WHOLE, f"{run_id}: {problem}", (run_id,))


def _journal_problems(run: Run, journal: Sequence[JournalEntry]) -> Iterator[str]:
    seqs = [entry.seq for entry in journal]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"its entries are numbered {seqs}"
    kinds = [entry.kind for entry in journal]
    if kinds[:1] != [EntryKind.RUN_QUEUED] or kinds.count(EntryKind.RUN_QUEUED) != 1:
        yield "it does not begin with its one run_queued"
    ends = kinds.count(EntryKind.RUN_FINISHED)
    if ends != int(run.status.final):
        yield f"it is {run.status.value} and has {ends} run_finished"
    elif ends and kinds[-1] is not EntryKind.RUN_FINISHED:
        yield f"{kinds[-1].value} follows its end"
    elif ends and journal[-1].data["status"] != run.status.value:
        yield f"it is {run.status.value} and its journal says {journal[-1].data['status']}"
    started = kinds.count(EntryKind.RUN_STARTED)
    if started != (run.started_at is not None) or (started and kinds[1:2] != [EntryKind.RUN_STARTED]):
        yield f"it has {started} run_started, and started_at is {run.started_at}"


def _runs_of_an_agent_are_serial(case: _Case) -> Iterator[Violation]:
    for agent, runs in case.by_agent.items():
        executed = [run for run in runs if run.started_at is not None]
        for earlier, later in pairwise(executed):
            assert earlier.started_at is not None
            assert later.started_at is not None
            pair = (earlier.run_id, later.run_id)
            if later.started_at < earlier.started_at:
                what = f"{agent}: {later.run_id} (seq {later.seq}) began before {earlier.run_id} (seq {earlier.seq})"
                yield Violation(Promise.IN_ORDER, what, pair)
            elif earlier.finished_at is None or later.started_at < earlier.finished_at:
                what = f"{agent}: {later.run_id} began at {later.started_at}, {earlier.run_id} ended at {earlier.finished_at}"
                yield Violation(Promise.ONE_AT_A_TIME, what, pair)


def _one_activation_writes(case: _Case) -> Iterator[Violation]:
    present = {record.agent: record.epoch for record in case.evidence.agents}
    for agent, runs in case.by_agent.items():
        epoch = 0
        for run in runs:
            for entry in case.evidence.journals.get(run.run_id, ()):
                if entry.kind not in _CLAIMS:
                    continue
                lowest = epoch + 1 if entry.kind is EntryKind.RUN_RESUMED else epoch
                epoch = entry.data["epoch"]
                if not lowest <= epoch <= present.get(agent, 0):
                    what = (
                        f"{run.run_id}: {entry.kind.value} (seq {entry.seq}) under epoch {epoch}, where at least {lowest} "
                        f"was due and {present.get(agent, 0)} is the agent's"
                    )
                    yield Violation(Promise.ONE_WRITER, what, (run.run_id,))


def _times_do_not_go_back(case: _Case) -> Iterator[Violation]:
    """Entries of one run, from its start on, are written by one activation after another. The first of an activation says when it asked for
    the run: what the one before it committed meanwhile may be younger.
    """
    for run_id, journal in case.evidence.journals.items():
        for earlier, later in pairwise(entry for entry in journal if entry.kind is not EntryKind.RUN_QUEUED):
            waited = _LONGEST_CLAIM if later.kind is EntryKind.RUN_RESUMED else timedelta()
            if later.at + waited < earlier.at:
                what = f"{run_id}: {later.kind.value} (seq {later.seq}) is older than the entry before it"
                yield Violation(Promise.ONE_WRITER, what, (run_id,))


def _recorded_calls_are_not_repeated(case: _Case) -> Iterator[Violation]:
    for (run_id, call_id), executions in case.executions.items():
        recorded = case.finished.get((run_id, call_id))
        late = [each for each in executions if recorded is not None and each.started > recorded.at]
        uncertain = recorded is not None and _error_type(recorded.data) == "uncertain"
        if recorded is None or not late or uncertain:
            continue
        what = f"{late[0].tool} ({call_id}) ran at {late[0].started}, its result was recorded at {recorded.at}"
        yield Violation(Promise.RECORDED_CALL_REPEATED, what, (run_id,))


def _once_calls_run_once(case: _Case) -> Iterator[Violation]:
    announced: dict[tuple[str, str], datetime] = {
        (run_id, entry.data["call_id"]): entry.at for run_id, entry in case.entries(EntryKind.TOOL_STARTED)
    }
    for (run_id, call_id), executions in case.executions.items():
        if executions[0].tool not in _ONCE:
            continue
        if len(executions) > 1:
            what = f"{executions[0].tool} ({call_id}) ran at {', '.join(str(each.started) for each in executions)}"
            yield Violation(Promise.ONCE_REPEATED, what, (run_id,))
        at = announced.get((run_id, call_id))
        if at is None or at > executions[0].started:
            what = (
                f"{executions[0].tool} ({call_id}) ran at {executions[0].started}, its beginning was recorded at {at}"
            )
            yield Violation(Promise.ONCE_ANNOUNCED, what, (run_id,))


def _what_ran_was_asked_for(case: _Case) -> Iterator[Violation]:
    asked: dict[tuple[str, str], datetime] = {
        (run_id, call["id"]): entry.at
        for run_id, entry in case.entries(EntryKind.MODEL_REPLIED)
        for call in entry.data["tool_calls"]
    }
    for (run_id, call_id), executions in case.executions.items():
        at = asked.get((run_id, call_id))
        end = case.first(run_id, EntryKind.RUN_FINISHED)
        for each in executions:
            if at is None or each.started < at:
                what = f"{each.tool} ({call_id}) ran at {each.started}, a model's wish for it was recorded at {at}"
                yield Violation(Promise.EXECUTED_AS_ASKED, what, (run_id,))
            elif end is not None and each.started > end.at:
                what = f"{each.tool} ({call_id}) ran at {each.started}, its run ended at {end.at}"
                yield Violation(Promise.EXECUTED_AS_ASKED, what, (run_id,))


def _results_are_true(case: _Case) -> Iterator[Violation]:
    for (run_id, call_id), entry in case.finished.items():
        if not entry.data["tool"].startswith(_LOGGED) or "error" in entry.data:
            continue
        ends = [each.ended for each in case.executions.get((run_id, call_id), ()) if each.ended is not None]
        if not ends or min(ends) > entry.at:
            what = f"{entry.data['tool']} ({call_id}) has a result of {entry.at}, and ended at {ends}"
            yield Violation(Promise.RESULT_IS_TRUE, what, (run_id,))


def _calls_are_answered_once(case: _Case) -> Iterator[Violation]:
    answers = Counter((run_id, entry.data["call_id"]) for run_id, entry in case.entries(EntryKind.TOOL_FINISHED))
    for (run_id, call_id), count in answers.items():
        if count > 1:
            yield Violation(Promise.CALL_ANSWERED_ONCE, f"{call_id} has {count} results", (run_id,))
    for run_id, entry in case.entries(EntryKind.MODEL_REPLIED):
        if case.evidence.runs[run_id].status is RunStatus.COMPLETED:
            for call in entry.data["tool_calls"]:
                if not answers[run_id, call["id"]]:
                    yield Violation(
                        Promise.CALL_ANSWERED_ONCE, f"{call['name']} ({call['id']}) has no result", (run_id,)
                    )


def _the_ledger_is_complete(case: _Case) -> Iterator[Violation]:
    recorded: dict[tuple[str, LedgerKind], list[JsonObject]] = defaultdict(list)
    for each in case.evidence.ledger:
        recorded[each.record.run_id, each.record.kind].append(each.record.data)
    for run_id in {*(run_id for run_id, _ in recorded), *case.evidence.journals}:
        journal = case.evidence.journals.get(RunId(run_id), ())
        for kind, due in _records_due(journal).items():
            there = [_essence(kind, data) for data in recorded[run_id, kind] if not _unanswered(kind, data)]
            missing, surplus = Counter(due) - Counter(there), Counter(there) - Counter(due)
            if missing or surplus:
                what = f"{run_id}: {kind.value} records missing: {list(missing)}, without an entry: {list(surplus)}"
                yield Violation(Promise.LEDGER_COMPLETE, what, (run_id,))


def _records_due(journal: Sequence[JournalEntry]) -> dict[LedgerKind, list[bytes]]:
    """Return the essence of every record that the ledger must have of these facts."""
    due: dict[LedgerKind, list[bytes]] = {
        kind: []
        for kind in (
            LedgerKind.RUN,
            LedgerKind.MODEL_CALL,
            LedgerKind.TOOL_CALL,
            LedgerKind.DECISION,
            LedgerKind.VISIBILITY,
        )
    }
    for entry in journal:
        match entry.kind:
            case EntryKind.PROMPT_BUILT:
                due[LedgerKind.VISIBILITY].append(_essence(LedgerKind.VISIBILITY, entry.data))
            case EntryKind.MODEL_REPLIED:
                due[LedgerKind.MODEL_CALL].append(_essence(LedgerKind.MODEL_CALL, entry.data))
            case EntryKind.TOOL_FINISHED:
                due[LedgerKind.TOOL_CALL].append(_essence(LedgerKind.TOOL_CALL, entry.data))
                if entry.data["tool"] == "log_decision" and "error" not in entry.data:
                    due[LedgerKind.DECISION].append(_essence(LedgerKind.DECISION, entry.data["content"]))
            case EntryKind.RUN_FINISHED:
                due[LedgerKind.RUN].append(_essence(LedgerKind.RUN, entry.data))
            case _:
                continue
    return due


def _unanswered(kind: LedgerKind, data: JsonObject) -> bool:
    """Whether it records a model call without a reply, which no entry tells of."""
    return kind is LedgerKind.MODEL_CALL and "error" in data


def _essence(kind: LedgerKind, data: JsonObject) -> bytes:
    """Return, in one form, what an entry and its record must agree on."""
    match kind:
        case LedgerKind.VISIBILITY:
            agreed = data["tools"]
        case LedgerKind.MODEL_CALL:
            agreed = [data[key] for key in ("model", "scripted", "usage", "duration_ms")]
        case LedgerKind.DECISION:
            agreed = data["decision_id"]
        case _:
            agreed = _REDACTOR.redact(data)
    return orjson.dumps(agreed, option=orjson.OPT_SORT_KEYS)


def _the_ledger_is_unbroken(case: _Case) -> Iterator[Violation]:
    for each in case.evidence.chain_breaks:
        what = f"chain of {each.writer}, position {each.position}: {each.problem}"
        yield Violation(Promise.LEDGER_UNBROKEN, what)


def _schedules_fire_once(case: _Case) -> Iterator[Violation]:
    for (run_id, _), entry in case.finished.items():
        if entry.data["tool"] != "schedule_once" or "error" in entry.data:
            continue
        schedule_id = entry.data["content"]["schedule_id"]
        schedule = case.evidence.schedules.get(schedule_id)
        ticks = case.evidence.ticks.get(schedule_id, ())
        fired = [tick.run_id for tick in ticks if tick.outcome is not TickOutcome.SKIPPED]
        runs = [each.run_id for each in case.evidence.runs.values() if each.trigger.source == schedule_id]
        if schedule is None or schedule.status is not ScheduleStatus.DONE or len(fired) != 1 or fired != runs:
            what = f"{schedule_id} is {schedule and schedule.status.value}, fired {fired}, and made the runs {runs}"
            yield Violation(Promise.SCHEDULE_FIRES_ONCE, what, (run_id,))


def _memories_are_kept_once(case: _Case) -> Iterator[Violation]:
    kept = {agent: Counter(each.content for each in memories) for agent, memories in case.evidence.memories.items()}
    for (run_id, _), entry in case.finished.items():
        if entry.data["tool"] != "remember" or "error" in entry.data:
            continue
        content = orjson.loads(entry.data["arguments"])["content"]
        count = kept[case.evidence.runs[RunId(run_id)].agent][content]
        if count != 1:
            yield Violation(Promise.REMEMBERED_ONCE, f"{content!r} is in MEMORY.md {count} times", (run_id,))


def _error_type(data: JsonObject) -> str:
    error = data.get("error")
    return error["type"] if error else ""


_RULES: tuple[Callable[[_Case], Iterator[Violation]], ...] = (
    _accepted_runs_exist,
    _keys_name_one_run,
    _runs_end,
    _journals_are_whole,
    _runs_of_an_agent_are_serial,
    _one_activation_writes,
    _times_do_not_go_back,
    _recorded_calls_are_not_repeated,
    _once_calls_run_once,
    _what_ran_was_asked_for,
    _results_are_true,
    _calls_are_answered_once,
    _the_ledger_is_complete,
    _the_ledger_is_unbroken,
    _schedules_fire_once,
    _memories_are_kept_once,
)
