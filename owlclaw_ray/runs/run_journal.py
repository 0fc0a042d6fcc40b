"""A running run's way to its journal: facts are applied at once, buffered, and committed in order."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import ApprovalRequest
from owlclaw_ray.domain.entries import request_data, requested_record, run_finished, run_record
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import Run, RunResult
from owlclaw_ray.domain.tool_call import CONFIRM_SECONDS, Ownership
from owlclaw_ray.errors import StaleEpochError
from owlclaw_ray.ids import DeliveryId, RecordId, ReservationId, RunId, derived_id
from owlclaw_ray.kernel.clock import Clock, Timer
from owlclaw_ray.kernel.machine import boot_id
from owlclaw_ray.runs.conversation import ChildRunStarted, Conversation, started_data
from owlclaw_ray.runs.storable_json import storable
from owlclaw_ray.store.commands import (
    Appended,
    AppendJournal,
    AwaitApprovals,
    AwaitRuns,
    BudgetCharge,
    BudgetClaim,
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    FinishRun,
    IdleHeartbeat,
    Outcome,
    ReserveBudget,
    RunClaimed,
    RunFinished,
    RunWaiting,
    SettleBudget,
)
from owlclaw_ray.store.durable_store import DurableStore

logger = logging.getLogger(__name__)

FLUSH_AFTER = 0.05
"""Seconds after which buffered facts are sent even if nothing waits for them, so that watchers see them soon."""


def _ignore() -> None:
    """The interrupt of a journal that no run listens to."""


class RunJournal:
    """Facts of one run under one epoch. After `failure`, be it StaleEpochError or another, nothing more can be written.

    The loop that executes the run sets `interrupt`: it is called as soon as a write, waited for or not, finds that the run was asked
    to end (`cancel_requested`) or cannot go on here (`failure`). So are `callback_url`, the definition's callback for the end,
    `deliveries`, those that the run saw and that its end is about, and `idle`, if the run was a heartbeat without anything to do.
    """

    def __init__(self, run: Run, epoch: int, *, conversation: Conversation, store: DurableStore, clock: Clock) -> None:
        self.conversation = conversation
        self.cancel_requested = run.cancel_requested
        self._interrupted_by = run.interrupted_by
        self.failure: Exception | None = None
        self.interrupt: Callable[[], None] = _ignore
        self.callback_url = ""
        self.deliveries: tuple[DeliveryId, ...] = ()
        self.idle: IdleHeartbeat | None = None
        self.admitted: tuple[AgentRef, ...] = ()
        """See RunFinished: known when the run has ended, or waits."""
        self._run, self._epoch, self._store, self._clock = run, epoch, store, clock
        self._entries: list[JournalEntry] = []
        self._ledger: list[LedgerRecord] = []
        self._blobs: dict[str, str] = {}
        self._settlements: list[SettleBudget] = []
        self._flusher: Timer | None = None
        self._flush: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._owned_at = clock.monotonic()
        """When the store was last asked for something that it does for the run's owner alone, and did it."""

    def blob(self, text: str, digest: str = "") -> str:
        """Return the hash of a text that an entry names; it is stored with that entry unless the store has it.

        `digest` is that hash, where it is known already.
        """
        digest = digest or hashlib.sha256(text.encode()).hexdigest()
        self._blobs[digest] = text
        return digest

    def record(self, kind: EntryKind, data: JsonObject) -> None:
        """Add a fact. It is durable after the next commit, or FLUSH_AFTER seconds later at the latest, store permitting."""
        entry = JournalEntry(self.conversation.last_seq + 1, kind, self._clock.now(), storable(data))
        self.conversation.apply(entry, self._blobs)
        self._entries.append(entry)
        if self._flusher is None:
            self._flusher = self._clock.call_later(FLUSH_AFTER, self._begin_flush)

    def audit(self, kind: LedgerKind, key: str, data: JsonObject) -> None:
        """Add a ledger record; `key` tells it from others of its kind in this run."""
        record_id = RecordId(derived_id("rec", self._run.run_id, kind.value, key))
        agent = self._run.agent
        self._ledger.append(
            LedgerRecord(
                record_id, agent.tenant, agent.agent_id, self._run.run_id, kind, self._clock.now(), storable(data)
            )
        )

    def audit_all(self, records: Sequence[LedgerRecord]) -> None:
        """Add records that a tool made."""
        self._ledger += records

    async def reserve(
        self, reservation_id: ReservationId, claims: tuple[BudgetClaim, ...]
    ) -> BudgetReserved | BudgetSpent:
        """Reserve of budgets for a call of this run; raises StaleEpochError."""
        self._raise_failure()
        run = self._run
        now = self._clock.now()
        outcome = await self._store.apply(
            ReserveBudget(reservation_id, run.run_id, run.agent, self._epoch, claims, now)
        )
        if not isinstance(outcome, BudgetReserved | BudgetSpent):
            raise StaleEpochError(f"run {run.run_id}: {outcome}")
        return outcome

    def settle(self, reservation_id: ReservationId, charges: tuple[BudgetCharge, ...]) -> None:
        """Settle a reservation in the transaction of the facts that are recorded by now."""
        run = self._run
        self._settlements.append(SettleBudget(reservation_id, run.run_id, run.agent, self._epoch, charges))

    async def commit(self) -> None:
        """Return when every fact so far is durable; raises StaleEpochError.

        A cancelled wait does not undo the write: it goes on, and the next write comes after it.
        """
        self._stop_flusher()
        await asyncio.shield(asyncio.ensure_future(self._append()))

    async def wait_for(self, requests: Sequence[ApprovalRequest], runs: Sequence[ChildRunStarted]) -> bool:
        """Commit everything, and give the run up until these approvals are decided, or, if there are none, until these runs are over.

        `runs` were started by calls of the same group as the requests: they go on meanwhile, and the run waits for them when it goes
        on itself. Raises StaleEpochError. A cancelled call does not undo the write.

        Return False if the run was asked to end: then it does not wait and is still to be finished here.
        """
        for request in requests:
            self.record(EntryKind.APPROVAL_REQUESTED, request_data(request))
            self.audit(LedgerKind.APPROVAL, f"{request.approval_id} requested", requested_record(request))
        waiting = {"approvals": [request.approval_id for request in requests], **started_data(runs)}
        self.record(EntryKind.RUN_WAITING, waiting)
        self._stop_flusher()
        ids = tuple(each.run_id for each in runs)
        return await asyncio.shield(asyncio.ensure_future(self._hand_over(tuple(requests), ids)))

    async def interrupted_by(self) -> RunId | None:
        """Commit, and return the run whose trigger interrupted this one, if that is why it ends; raises StaleEpochError."""
        if self._interrupted_by is None:
            self._stop_flusher()
            await asyncio.shield(asyncio.ensure_future(self._append(asking=True)))
        return self._interrupted_by

    async def require_ownership(self) -> None:
        """Return if this activation has the run; raises StaleEpochError. For what no epoch guards; no facts are sent."""
        async with self._writing:
            self._raise_failure()
            run = self._run
            self._heed(await self._write(AppendJournal(run.run_id, run.agent, self._epoch, (), (), {}), ()))

    async def confirm_ownership(self) -> Ownership:
        """Return when this activation was last known to have the run, CONFIRM_SECONDS ago at most; raises StaleEpochError.

        For calls, which no epoch guards: a cluster takes over within seconds what a lost machine had, and one that is cut off goes on.
        """
        if self._clock.monotonic() - self._owned_at >= CONFIRM_SECONDS:
            await self.require_ownership()
            await asyncio.sleep(0)  # a run that was asked to end is interrupted here
        return Ownership(self._epoch, self._owned_at, boot_id())

    async def finish(self, result: RunResult, state: AgentState, *, claim_next: bool) -> RunClaimed | None:
        """Record the end, commit everything, and return the agent's next run if one was claimed; raises StaleEpochError."""
        data = run_finished(result)
        async with self._writing:
            self._raise_failure()
            if self.idle is None:
                self.record(EntryKind.RUN_FINISHED, data)
                self.audit(LedgerKind.RUN, "end", run_record(data, self._run.trigger))
            self._stop_flusher()
            settlements, entries, ledger, blobs = self._take()
            run = self._run
            end = FinishRun(
                run.run_id,
                run.agent,
                self._epoch,
                entries,
                result,
                state,
                self._clock.now(),
                ledger,
                blobs,
                claim_next=claim_next,
                callback_url=self.callback_url,
                deliveries=self.deliveries,
                idle=self.idle,
            )
            *settled, outcome = await self._store.apply_all([*settlements, end])
        self._log_alerts(settled)
        if not isinstance(outcome, RunFinished):
            raise StaleEpochError(f"run {run.run_id}: {outcome}")
        self.admitted = outcome.admitted
        return outcome.next

    def abandon(self) -> None:
        """Stop sending and interrupting; facts that are buffered and not yet under way are dropped."""
        self._stop_flusher()
        self.interrupt = _ignore

    def _take(
        self,
    ) -> tuple[list[SettleBudget], tuple[JournalEntry, ...], tuple[LedgerRecord, ...], dict[str, str]]:
        """Return what is buffered, and buffer it no more."""
        blobs = self._store.unstored_blobs(self._run.agent.tenant, self._blobs)
        taken = self._settlements, tuple(self._entries), tuple(self._ledger), blobs
        self._settlements, self._entries, self._ledger, self._blobs = [], [], [], {}
        return taken

    def _log_alerts(self, settled: Sequence[Outcome]) -> None:
        """Log the budget alerts that the store wrote into the ledger."""
        for outcome in settled:
            for record in outcome.alerts if isinstance(outcome, BudgetSettled) else ():
                logger.warning("%s: %s", self._run.agent, record.data["why"])

    async def _append(self, *, asking: bool = False) -> None:
        async with self._writing:
            self._raise_failure()
            if not self._entries and not self._ledger and not asking:
                return
            settlements, entries, ledger, blobs = self._take()
            run = self._run
            try:
                command = AppendJournal(run.run_id, run.agent, self._epoch, entries, ledger, blobs)
                appended = await self._write(command, settlements)
            except Exception as error:
                self.failure = error
                self.interrupt()
                raise
            self._store.note_stored_blobs(run.agent.tenant, blobs)
            self._heed(appended)

    def _heed(self, appended: Appended) -> None:
        self._interrupted_by = appended.interrupted_by
        if appended.cancel_requested and not self.cancel_requested:
            self.cancel_requested = True
            self.interrupt()

    async def _hand_over(self, requests: tuple[ApprovalRequest, ...], runs: tuple[RunId, ...]) -> bool:
        async with self._writing:
            self._raise_failure()
            settlements, entries, ledger, blobs = self._take()
            of = self._run.run_id, self._run.agent, self._epoch, entries
            command = AwaitApprovals(*of, requests, ledger, blobs) if requests else AwaitRuns(*of, runs, ledger, blobs)
            *settled, outcome = await self._store.apply_all([*settlements, command])
        self._log_alerts(settled)
        match outcome:
            case RunWaiting(admitted):
                self.admitted = admitted
                return True
            case Appended():
                self.cancel_requested, self._interrupted_by = True, outcome.interrupted_by
                return False
            case _:
                raise StaleEpochError(f"run {self._run.run_id}: {outcome}")

    async def _write(self, command: AppendJournal, settlements: Sequence[SettleBudget]) -> Appended:
        asked = self._clock.monotonic()
        outcome, *settled = await self._store.apply_all([command, *settlements])
        self._log_alerts(settled)
        if not isinstance(outcome, Appended):
            raise StaleEpochError(f"run {command.run_id}: {outcome}")
        self._owned_at = asked
        return outcome

    def _begin_flush(self) -> None:
        self._flusher = None
        self._flush = asyncio.create_task(self._flush_now())

    async def _flush_now(self) -> None:
        with suppress(Exception):  # it is kept in `failure`, and the run was interrupted
            await self._append()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _stop_flusher(self) -> None:
        flusher, self._flusher = self._flusher, None
        if flusher is not None:
            flusher.cancel()
