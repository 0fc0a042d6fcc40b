"""Who sees every transaction and every tool call of a simulated world, and says which promise they break.

It knows nothing of how the store works inside: only what its outcomes claim, in the order of the commits, and at the end
what the tables hold.
"""

from __future__ import annotations

from collections import defaultdict

import orjson

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import Effect
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AgentActivated,
    AgentBusy,
    Appended,
    AppendJournal,
    ApprovalClosed,
    ApprovalSettled,
    AwaitApprovals,
    CancelOutcome,
    ClaimRun,
    CommandFailed,
    FinishRun,
    FireSchedule,
    NothingQueued,
    QueueFull,
    ReleaseAgent,
    Released,
    RunAccepted,
    RunClaimed,
    RunFinished,
    RunWaiting,
    ScheduleFired,
    StaleEpoch,
    SubmitRun,
)


class Witness:
    """Collects violations: raised where they happen, the product would catch them."""

    def __init__(self, writes):
        self.violations = []
        self.writes = writes
        self.epochs = {}
        self.owned = set()
        self.queues = defaultdict(dict)
        self.triggers = set()
        self.merges = defaultdict(set)
        self.running = {}
        self.final = {}
        self.last_entry = {}
        self.agents = {}
        self.keys = {}
        self.started = set()
        self.recorded = {}
        self.before_it = {}
        self.cancelled = set()
        self.forbidden = set()
        self.executions = defaultdict(int)
        self.transactions = 0
        self.asked, self.waiting, self.pending = set(), set(), defaultdict(set)

    def blame(self, message):
        self.violations.append(message)

    def saw(self, commands, outcomes):
        """Note one committed transaction."""
        self.transactions += 1
        for command, outcome in zip(commands, outcomes, strict=True):
            match command:
                case ClaimRun() | AppendJournal() | FinishRun() | AwaitApprovals() | ReleaseAgent():
                    self._fenced(command, outcome)
                case _:
                    self._unfenced(command, outcome)

    def _unfenced(self, command, outcome):
        match command, outcome:
            case SubmitRun(), _:
                self._submitted(command, outcome)
            case FireSchedule(run=run), ScheduleFired(run=accepted) if run is not None and accepted is not None:
                self._submitted(run, accepted)
            case ActivateAgent(), AgentActivated():
                self._activated(command.agent, outcome.epoch)
                if outcome.claimed is not None:
                    self._claimed(command.agent, outcome.claimed)
                elif command.claim:
                    self._nothing_left(command.agent)
            case _, ApprovalSettled(approval) | ApprovalClosed(approval):
                self._settled(approval)
            case _, CancelOutcome(run=run) if run is not None:
                self.waiting.discard(run.run_id)
                self.cancelled.add(run.run_id)
                if run.status is RunStatus.CANCELLED:
                    self._ended(run.agent, run.run_id, run.status)
            case _, CommandFailed(message):
                self.blame(f"the store refused: {message}")

    def _fenced(self, command, outcome):
        owns = self.owns(command.agent, command.epoch)
        match outcome:
            case StaleEpoch():
                if owns:
                    self.blame(f"{command.agent}: epoch {command.epoch} was refused though it owns the agent")
            case CommandFailed(message):
                self.blame(f"the store refused: {message}")
            case Released():
                self.owned.discard(command.agent)
            case _:
                if not owns:
                    self.blame(f"{command.agent}: epoch {command.epoch} wrote, but {self.epochs} own: {command}")
                self._worked(command, outcome)

    def owns(self, agent, epoch):
        return agent in self.owned and self.epochs[agent] == epoch

    def calls(self, epoch, invocation):
        """Note that a tool is executed for an activation."""
        key = (invocation.run_id, invocation.call_id)
        self.executions[key] += 1
        if key in self.forbidden:
            self.blame(
                f"{invocation.tool} of {key} is executed though the commit before it said that the run is cancelled"
            )
        if self.owns(invocation.agent, epoch):
            self._check_turn(invocation.tool, key)
        if invocation.effect is Effect.ONCE:
            if self.executions[key] > 1:
                self.blame(f"the once call {key} of {invocation.tool} is executed again")
            if key not in self.started:
                self.blame(f"the once call {key} of {invocation.tool} begins before that is durable")

    def _check_turn(self, tool, key):
        if key in self.recorded:
            self.blame(f"{tool} of {key} is executed again though its result is recorded")
        for earlier in self.before_it[key]:
            result = self.recorded.get(earlier)
            if result is not None and result["tool"] in self.writes and "error" in result:
                self.blame(f"{tool} of {key} is executed though the write {earlier} before it failed")

    def _submitted(self, command, outcome):
        queue, running = self.queues[command.agent], self.running.get(command.agent)
        match outcome:
            case RunAccepted():
                self._accepted(command, outcome)
            case AgentBusy(run_id):
                if run_id != (running or self._next(command.agent)):
                    self.blame(
                        f"{command.agent} is said to be busy with {run_id}, but it is with {running} and {queue}"
                    )
            case QueueFull(limit):
                if len(queue) < limit:
                    self.blame(f"the queue of {command.agent} is said to be full: {queue}")

    def _accepted(self, command, outcome):
        if command.idempotency is not None:
            first = self.keys.setdefault((command.agent, command.idempotency.key), outcome.run_id)
            if first != outcome.run_id:
                self.blame(f"key {command.idempotency.key} of {command.agent} stands for {first} and {outcome.run_id}")
        if outcome.duplicate or command.run_id in self.triggers:
            return
        self.triggers.add(command.run_id)
        self.agents[outcome.run_id] = command.agent
        queue, rank = self.queues[command.agent], (command.busy is not BusyPolicy.INTERRUPT, -command.priority)
        if outcome.merged:
            if outcome.run_id not in queue:
                self.blame(f"{outcome.run_id} took a trigger though it was not queued")
            else:
                queue[outcome.run_id] = min(queue[outcome.run_id], (*rank, outcome.seq))
            self.last_entry[outcome.run_id] += 1
            self.merges[outcome.run_id].add(self.last_entry[outcome.run_id])
            return
        queue[outcome.run_id] = (*rank, outcome.seq)
        self.last_entry[outcome.run_id] = 1
        if command.busy is BusyPolicy.INTERRUPT and command.agent in self.running:
            self.cancelled.add(self.running[command.agent])
            self.waiting.discard(self.running[command.agent])

    def _next(self, agent):
        queue = self.queues[agent]
        return min(queue, key=queue.__getitem__, default=None)

    def _activated(self, agent, epoch):
        if epoch < self.epochs.get(agent, 0):
            self.blame(f"{agent}: epoch {epoch} is given after {self.epochs[agent]}")
        self.epochs[agent] = epoch
        self.owned.add(agent)

    def _worked(self, command, outcome):
        match outcome:
            case RunClaimed():
                self._claimed(command.agent, outcome)
            case NothingQueued():
                self._nothing_left(command.agent)
            case Appended():
                self._wrote(command)
            case RunWaiting() if command.run_id in self.last_entry:
                if not self.asked.issuperset(each.approval_id for each in command.requests):
                    self._wrote(command)
                    self.asked.update(each.approval_id for each in command.requests)
                    self.pending[command.run_id] = {each.approval_id for each in command.requests}
                    self.waiting.add(command.run_id)
            case RunFinished(next=following):
                if command.run_id not in self.final:
                    self._wrote(command)
                    self._ended(command.agent, command.run_id, command.result.status)
                if following is not None:
                    self._claimed(command.agent, following)
                elif command.claim_next:
                    self._nothing_left(command.agent)

    def _settled(self, approval):
        """An approval that is decided has one more entry in its run's journal; what is withdrawn has none."""
        request = approval.request
        pending = self.pending[request.run_id]
        if request.approval_id in pending:
            pending.remove(request.approval_id)
            self.last_entry[request.run_id] += approval.decision is not None
            if not pending:
                self.waiting.discard(request.run_id)

    def _claimed(self, agent, claimed):
        run_id, journal = claimed.run.run_id, claimed.journal
        if run_id in self.waiting:
            self.blame(f"{run_id} is given to {agent} though it waits for an approval")
        due = self.running.get(agent) or self._next(agent)
        if run_id != due:
            self.blame(f"{agent} is given {run_id} though {due} is its next run")
        self.queues[agent].pop(run_id, None)
        self.running[agent] = run_id
        last = journal[-1].seq
        if not set(range(1, last + 1)).difference(entry.seq for entry in journal) <= self.merges[run_id]:
            self.blame(f"{run_id} resumes from a journal with gaps")
        if last - self.last_entry[run_id] not in {0, 1}:
            self.blame(f"{run_id} resumes from entry {last}, {self.last_entry[run_id]} were committed")
        self.last_entry[run_id] = last

    def _nothing_left(self, agent):
        if self.running.get(agent) in self.waiting:
            return
        left = [*self.queues[agent], *([self.running[agent]] if agent in self.running else [])]
        if left:
            self.blame(f"{agent} is told that nothing is queued, but {left} are")

    def _wrote(self, command):
        if self.running.get(command.agent) != command.run_id and command.entries:
            self.blame(f"{command.agent} writes to {command.run_id}, which is not its running run")
        for entry in command.entries:
            if entry.seq <= self.last_entry[command.run_id]:
                continue
            if entry.seq != self.last_entry[command.run_id] + 1:
                self.blame(f"{command.run_id}: entry {entry.seq} follows {self.last_entry[command.run_id]}")
            self.last_entry[command.run_id] = entry.seq
            self._learned(command.run_id, entry)

    def _learned(self, run_id, entry):
        key = (run_id, entry.data.get("call_id"))
        match entry.kind:
            case EntryKind.MODEL_REPLIED:
                calls = [(run_id, call["id"]) for call in entry.data["tool_calls"]]
                self.before_it.update((key, calls[:at]) for at, key in enumerate(calls))
                if run_id in self.cancelled:
                    self.forbidden.update(calls)
            case EntryKind.TOOL_STARTED:
                self.started.add(key)
                if run_id in self.cancelled:
                    self.forbidden.add(key)
            case EntryKind.TOOL_FINISHED:
                if key in self.recorded:
                    self.blame(f"{key} has two results")
                self.recorded[key] = entry.data

    def _ended(self, agent, run_id, status):
        if self.final.setdefault(run_id, status) is not status:
            self.blame(f"{run_id} ended as {self.final[run_id]} and as {status}")
        if self.running.get(agent) == run_id:
            del self.running[agent]
        self.queues[agent].pop(run_id, None)

    def audit(self, tables):
        """Compare what the tables hold at the end with what was seen."""
        runs = tables("SELECT agent, run_id, started_at, finished_at, status FROM runs")
        journals, ledgers = defaultdict(list), defaultdict(list)
        for run_id, seq, kind, data in tables("SELECT run_id, seq, kind, data FROM journal ORDER BY run_id, seq"):
            journals[run_id].append((seq, EntryKind(kind), orjson.loads(data)))
        for run_id, kind, data in tables("SELECT run_id, kind, data FROM ledger"):
            ledgers[run_id].append((LedgerKind(kind), orjson.loads(data)))
        for _, run_id, _, _, status in runs:
            self._audit_run(run_id, RunStatus(status), journals[run_id], ledgers[run_id])
        if {run_id for _, run_id, *_ in runs} != self.last_entry.keys():
            self.blame("the table of runs does not hold exactly the accepted runs")
        for _, run_id, started, ended, _ in runs:
            if started is not None and not (ended is not None and started <= ended):
                self.blame(f"{run_id} began at {started} and ended at {ended}")
        self._audit_budgets(runs, journals, tables)

    def _audit_budgets(self, runs, journals, tables):
        """The crew's model calls are charged once each, calls of `put` within their limit, and nothing is reserved any more."""
        replies = sum(
            kind is EntryKind.MODEL_REPLIED
            for agent, run_id, *_ in runs
            if agent.startswith("default/crew")
            for _, kind, _ in journals[run_id]
        )
        charged = 0
        for account, used, reserved in tables("SELECT account, used, reserved FROM budgets"):
            if account.startswith("crew."):
                charged += used
            elif used > 4:
                self.blame(f"{used} calls of put are charged to {account}")
            if reserved:
                self.blame(f"{reserved} is reserved of {account} in the end")
        if charged != replies:
            self.blame(f"{charged} model calls of the crew are charged, and {replies} came to an end")
        if tables("SELECT 1 FROM budget_reservations LIMIT 1"):
            self.blame("some reservation stands in the end")

    def _audit_run(self, run_id, status, journal, ledger):
        kinds = [kind for _, kind, _ in journal]
        if not status.final or self.final.get(run_id) is not status:
            self.blame(f"{run_id} is {status} in the end")
            return
        if [seq for seq, _, _ in journal] != list(range(1, len(journal) + 1)):
            self.blame(f"the journal of {run_id} has gaps")
        if kinds.count(EntryKind.RUN_FINISHED) != 1 or kinds[-1] is not EntryKind.RUN_FINISHED:
            self.blame(f"the journal of {run_id} does not end once: {kinds}")
        asked = [
            call["id"] for _, kind, data in journal if kind is EntryKind.MODEL_REPLIED for call in data["tool_calls"]
        ]
        results = {data["call_id"]: data for _, kind, data in journal if kind is EntryKind.TOOL_FINISHED}
        if status is RunStatus.COMPLETED and asked and set(asked) != set(results):
            self.blame(f"{run_id} completed, its calls {asked} have the results {set(results)}")
        self._audit_calls(run_id, journal, results)
        self._audit_ledger(run_id, kinds, results, ledger)

    def _audit_calls(self, run_id, journal, results):
        begun = [data["call_id"] for _, kind, data in journal if kind is EntryKind.TOOL_STARTED]
        if len(begun) != len(set(begun)):
            self.blame(f"{run_id} began a once call twice: {begun}")
        for call_id in begun:
            if call_id not in results:
                self.blame(f"nobody is told what became of the once call {call_id} of {run_id}")
            elif "error" not in results[call_id] and self.executions[run_id, call_id] != 1:
                self.blame(
                    f"{call_id} of {run_id} has a result but was executed {self.executions[run_id, call_id]} times"
                )

    def _audit_ledger(self, run_id, kinds, results, ledger):
        told = [data["call_id"] for kind, data in ledger if kind is LedgerKind.TOOL_CALL]
        if sorted(told) != sorted(results):
            self.blame(f"{run_id}: the ledger has the calls {told}, the journal {list(results)}")
        models = sum(kind is LedgerKind.MODEL_CALL and "error" not in data for kind, data in ledger)
        if models != kinds.count(EntryKind.MODEL_REPLIED):
            self.blame(
                f"{run_id}: the ledger has {models} model calls, the journal {kinds.count(EntryKind.MODEL_REPLIED)}"
            )
        if sum(kind is LedgerKind.RUN for kind, _ in ledger) != 1:
            self.blame(f"{run_id}: its end is not in the ledger once")
