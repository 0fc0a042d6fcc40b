"""A batch of commands inside a transaction: load, apply one after another in memory, write, complete the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from sqlalchemy import Connection, select
from sqlalchemy.engine.interfaces import Dialect as EngineDialect

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.ids import RunId, ScheduleId, TenantId
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.store.commands import (
    AwaitApprovals,
    AwaitRuns,
    Command,
    CommandBlocked,
    CommandFailed,
    FinishRun,
    Outcome,
    RunFinished,
    RunWaiting,
)
from owlclaw_ray.store.sql import (
    access,
    approvals,
    artifacts,
    attempts,
    budgets,
    cancellation,
    cluster_lease,
    cluster_nodes,
    concurrency_limits,
    leftovers,
    memories,
    old_runs,
    queue_lengths,
    run_lifecycle,
    schedules,
    secrets,
    submission,
    tenants,
    trace_export,
    waits,
    webhooks,
)
from owlclaw_ray.store.sql.answers import (
    ActivateAnswer,
    Answer,
    BatchTexts,
    CancelAnswer,
    ClaimAnswer,
    FinishAnswer,
    LateAnswer,
    named_blobs,
)
from owlclaw_ray.store.sql.codec import blob_keys, digest_of, load, load_trigger
from owlclaw_ray.store.sql.command_registry import apply, needs_of
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.failures import FailureAction, explain, failure_of
from owlclaw_ray.store.sql.loader import Loader
from owlclaw_ray.store.sql.quotas import admitted, count_anew
from owlclaw_ray.store.sql.row_codecs import ENTRY_COLUMNS, entry_of
from owlclaw_ray.store.sql.schema import blobs, journal, payload_left, runs, small_payload
from owlclaw_ray.store.sql.tenant_fence import TenantFence
from owlclaw_ray.store.sql.working_set import RowChange
from owlclaw_ray.store.sql.writer import Writer

_SUBJECTS = (
    access,
    approvals,
    artifacts,
    attempts,
    budgets,
    cancellation,
    cluster_lease,
    cluster_nodes,
    concurrency_limits,
    leftovers,
    memories,
    old_runs,
    queue_lengths,
    run_lifecycle,
    schedules,
    secrets,
    submission,
    tenants,
    trace_export,
    waits,
    webhooks,
)
"""The modules that register their commands, see command_registry."""
_BRIEF_WAIT, _BRIEFEST_WAIT = 20, 1
"""For how many milliseconds a command waits for rows when its batch has waited before, or one before it: first, and after some that
waited in vain."""
_BRIEF_WAITS = 5
"""Commands of a batch that may wait so, in vain."""
_LATE = (CancelAnswer, ClaimAnswer, FinishAnswer, ActivateAnswer)


class Applier:
    """Applies commands to the database of one dialect, writing ledger chains under one writer's name."""

    def __init__(
        self, dialect: Dialect, engine_dialect: EngineDialect, writer: str, redactors: TenantRedactors, cluster: str
    ) -> None:
        self._dialect, self._ids = dialect, dialect.ids
        self._loader, self._fence = Loader(dialect, cluster), TenantFence(dialect)
        self._registered: set[str] = set()
        self._grown: set[str] = set()
        self._changed_schedules: set[str] = set()
        self._writer = Writer(dialect, engine_dialect, writer, redactors)
        among = dialect.among(runs.c.run_id, "ids")
        self._triggers = select(runs.c.run_id, runs.c.trigger, runs.c.payload).where(among)
        self._brief_triggers = select(runs.c.run_id, runs.c.trigger, small_payload, payload_left).where(among)
        self._journals = (
            select(journal.c.run_id, *ENTRY_COLUMNS)
            .where(dialect.among(journal.c.run_id, "ids"), journal.c.kind != EntryKind.TRIGGER_MERGED.value)
            .order_by(journal.c.run_id, journal.c.seq)
        )
        self._blobs = select(blobs.c.hash, blobs.c.content).where(dialect.among(blobs.c.hash, "ids"))

    def together(self, connection: Connection, commands: Sequence[Command]) -> list[Outcome]:
        """Apply all in a new transaction; one that cannot be applied fails them all."""
        self._begin()
        return self._apply(connection, commands)

    def together_waiting_briefly(self, connection: Connection, commands: Sequence[Command]) -> list[Outcome]:
        """Apply all in a new transaction, as `together`, which fails instead of waiting long for locks of others."""
        self._dialect.limit_lock_waits(connection, _BRIEF_WAIT)
        return self.together(connection, commands)

    def _begin(self) -> None:
        self._registered, self._grown, self._changed_schedules = set(), set(), set()

    def _apply(self, connection: Connection, commands: Sequence[Command]) -> list[Outcome]:
        refusals, locked = self._fence.close_off(connection, commands)
        refused: dict[int, Answer] = {**refusals}
        taken = [command for place, command in enumerate(commands) if place not in refused] if refused else commands
        needs = needs_of(taken)
        needs.locked = locked
        store = self._loader.load(connection, needs)
        applied = iter([apply(store, command) for command in taken])
        answers = [refused[place] if place in refused else next(applied) for place in range(len(commands))]
        store.remove(RowChange.REMOVED_AGENT, store.new_agents)
        self._writer.write(connection, store)
        for tenant in store.changes[RowChange.TENANT].values():
            count_anew(connection, self._dialect, tenant)
        self._registered |= needs.registered.keys() - store.new_agents
        self._grown.update(run_id for run_id, _ in store.changes[RowChange.ENTRY])
        self._grown |= store.changes[RowChange.REMOVED_JOURNAL].keys()
        self._changed_schedules |= (
            store.changes[RowChange.NEW_SCHEDULE].keys() | store.changes[RowChange.SCHEDULE].keys()
        )
        late = [answer for answer in answers if isinstance(answer, _LATE)]
        texts = self._read_texts(connection, late) if late else BatchTexts()
        outcomes = [answer.complete(texts) if isinstance(answer, _LATE) else answer for answer in answers]
        if store.freed or store.freed_keys:
            _tell_admitted(outcomes, commands, admitted(connection, store))
        return outcomes

    def one_by_one(self, connection: Connection, commands: Sequence[Command]) -> list[Outcome]:
        """Apply each on its own in a new transaction; one that cannot be applied is undone: CommandFailed, or CommandBlocked.

        The batch may have waited for locks before, so none is waited for long now: for each in vain only a moment, and for
        many in vain less.
        """
        self._begin()
        self._dialect.limit_lock_waits(connection, _BRIEF_WAIT)
        outcomes: list[Outcome] = []
        blocked = 0
        for command in commands:
            outcomes.append(self._alone(connection, command))
            if isinstance(outcomes[-1], CommandBlocked):
                blocked += 1
                if blocked == _BRIEF_WAITS:
                    self._dialect.limit_lock_waits(connection, _BRIEFEST_WAIT)
        return outcomes

    def serve_node(self, node_id: str, generation: int) -> None:
        """Claim agents only while the node holds its row as this generation."""
        self._loader.serve_node(node_id, generation)

    def probe(self, connection: Connection) -> None:
        """Write something that matters to nobody."""
        self._writer.probe(connection)

    def committed(self) -> tuple[Iterable[RunId], Iterable[ScheduleId]]:
        """Note that the transaction of the last call was committed, so that the next batch loads less.

        Returns the runs whose journals grew by it, or were given up with the run's end, and the schedules that it made or changed.
        """
        self._loader.learn(self._registered)
        return map(RunId, self._grown), map(ScheduleId, self._changed_schedules)

    def _alone(self, connection: Connection, command: Command) -> Outcome:
        savepoint = connection.begin_nested()
        try:
            outcome = self._apply(connection, [command])[0]
        except Exception as error:
            failure = failure_of(error)
            if failure not in (FailureAction.COMMAND, FailureAction.LOCKED):
                raise
            savepoint.rollback()
            message = f"{type(command).__name__}: {explain(error)}"
            return CommandBlocked(message) if failure is FailureAction.LOCKED else CommandFailed(message)
        savepoint.commit()
        return outcome

    def _read_texts(self, connection: Connection, late: Sequence[LateAnswer]) -> BatchTexts:
        claimed = {answer.run.run_id for answer in late if not isinstance(answer, CancelAnswer)}
        cancelled = {answer.run.run_id for answer in late if isinstance(answer, CancelAnswer)}
        triggers, left = {}, {}
        if claimed:
            for run_id, trigger, payload, size in connection.execute(self._brief_triggers, {"ids": self._ids(claimed)}):
                triggers[run_id], left[run_id] = load_trigger(trigger, payload), size
        if cancelled:
            for run_id, trigger, payload in connection.execute(self._triggers, {"ids": self._ids(cancelled)}):
                triggers[run_id] = load_trigger(trigger, payload)
        journals: dict[str, list[JournalEntry]] = {run_id: [] for run_id in claimed}
        if claimed:
            for row in connection.execute(self._journals, {"ids": self._ids(claimed)}):
                journals[row.run_id].append(entry_of(row))
        owners = {answer.run.run_id: answer.run.agent.tenant for answer in late}
        keys = {
            key
            for run_id, entries in journals.items()
            for digest in named_blobs(entries)
            for key in blob_keys(owners[RunId(run_id)], digest)
        }
        texts: dict[str, str] = {}
        if keys:
            found = connection.execute(self._blobs, {"ids": self._ids(keys)})
            texts = {digest_of(row[0]): load(row[1]) for row in found}
        return BatchTexts(triggers, left, journals, texts)


def _tell_admitted(
    outcomes: list[Outcome], commands: Sequence[Command], agents: dict[TenantId, tuple[AgentRef, ...]]
) -> None:
    """Have one of those who made place in each tenant know whose turn it is."""
    for at, (command, outcome) in enumerate(zip(commands, outcomes, strict=True)):
        if isinstance(command, FinishRun | AwaitRuns | AwaitApprovals) and isinstance(
            outcome, RunFinished | RunWaiting
        ):
            outcomes[at] = replace(outcome, admitted=agents.pop(command.agent.tenant, ()))
