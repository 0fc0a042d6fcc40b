"""One agent's life inside one host: its serial run loop under one epoch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.definitions.api import Definitions
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import Run, RunError, RunResult, RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import OwlClawError, StaleEpochError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.log_context import about
from owlclaw_ray.policy.permission import SessionGrants
from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.heartbeat import (
    HeartbeatDue,
    HeartbeatSkipped,
    after_heartbeat,
    deliveries_of,
    is_idle_beat,
    look,
    reactivate_heartbeats,
    resumed_heartbeat,
)
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.run_loop import RunLoop, RunServices, being_cancelled, deadline_passed, end_without_loop
from owlclaw_ray.store.commands import ClaimRun, ReleaseAgent, Released, RunClaimed, StaleEpoch
from owlclaw_ray.store.durable_store import CommandRefusedError, DurableStore
from owlclaw_ray.store.large_payloads import LargePayloads

MAX_RESUMES = 20
"""How often a run is resumed before it counts as the cause of its hosts' crashes."""

FINAL_FLUSH_SECONDS = 2.0
"""Seconds that a run which is left to the next activation has for committing its journal."""

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Activation:
    """Executes the agent's runs one after another, in the store's order. It has a task only while there is work.

    `lost` turns true when another activation owns the agent: this one has stopped itself and writes nothing more.
    """

    def __init__(
        self,
        agent: AgentRef,
        epoch: int,
        state: AgentState,
        *,
        store: DurableStore,
        definitions: Definitions,
        services: RunServices,
        payloads: LargePayloads,
        claimed: RunClaimed | None = None,
    ) -> None:
        self.agent, self.epoch, self.state = agent, epoch, state
        self._claimed = claimed
        self.lost = False
        self.idle_since = services.clock.monotonic()
        self._store, self._definitions, self._services = store, definitions, services
        self._payloads = payloads
        self._task: asyncio.Task[None] | None = None
        self._woken = False
        self._draining = self._stepping_down = False
        self._current: RunId | None = None
        self._stop: Callable[[], object] = _nothing
        self._leave: Callable[[], object] = _nothing
        self._cancelled: set[RunId] = set()
        self._grants = SessionGrants()

    @property
    def busy(self) -> bool:
        """Whether it executes, or is about to look for, a run."""
        return self._task is not None

    @property
    def _leaving(self) -> bool:
        return self._draining or self._stepping_down

    def begin(self) -> None:
        """Execute the run that the activation came with, and what follows it."""
        if self._claimed is not None:
            self._start()

    def wake(self) -> None:
        """Look for queued runs, now or after the present one."""
        self._woken = True
        self._start()

    def _start(self) -> None:
        if self._task is None and not self.lost and not self._leaving:
            self._task = asyncio.create_task(self._work())

    def cancel(self, run_id: RunId) -> bool:
        """End that run if it is the present one, or becomes it next; return whether it is or may be."""
        if self._task is None:
            return False
        self._cancelled.add(run_id)
        if self._current == run_id:
            self._stop()
        return self._current in {None, run_id}

    async def drain(self, grace: float) -> bool:
        """Take no more runs, and leave the present one to the next activation at its next step: the model call or the tool calls
        that are under way have `grace` seconds to end, then they are cut off.

        The journal of a run that is left is durable then, the store permitting. Return whether the run stopped by itself; after
        False the activation must not be used again.
        """
        self._draining = True
        self._leave()
        task = self._task
        if task is None:
            return True
        if grace > 0:
            alarm = asyncio.ensure_future(self._services.clock.sleep(grace))
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            alarm.cancel()
        finished = task.done()
        if not finished:
            task.cancel()
            await asyncio.wait({task})
        return finished

    async def step_down(self) -> None:
        """Let the present run end, however long it takes, take no other, and give the agent up.

        A run that is claimed already counts as the present one: it would have no owner while the agent waits for another host.
        """
        self._stepping_down = True
        if self._task is not None:
            await asyncio.wait({self._task})
        await self.release()

    def abandon(self) -> None:
        """Stop at once and write nothing more; the next activation finds what is committed."""
        self.lost = True
        if self._task is not None:
            self._task.cancel()

    async def release(self) -> bool:
        """Give the agent up, its state saved. Return whether it has runs waiting, so that it should be activated again.

        It is given up too if the store refuses its state: then the state after its last run holds.
        """
        if self.lost:
            return False
        now = self._services.clock.now()
        try:
            outcome = await self._store.apply(ReleaseAgent(self.agent, self.epoch, self.state, now))
        except CommandRefusedError as error:
            logger.error("agent %s is released, its state not saved: %s", self.agent, error)  # noqa: TRY400
            outcome = None
        self.lost = True
        return isinstance(outcome, Released) and outcome.pending

    async def _work(self) -> None:
        try:
            claimed, self._claimed = self._claimed, None
            while not (self.lost or self._draining):
                if claimed is not None:
                    claimed = await self._execute(claimed)
                elif self._woken and not self._stepping_down:
                    self._woken = False
                    claimed = await self._claim()
                else:
                    break
        except StaleEpochError:
            logger.warning("agent %s is owned by another activation; epoch %d stops", self.agent, self.epoch)
            self.lost = True
        except Exception:
            logger.exception(
                "the activation of agent %s stops after an error; the agent will be activated again", self.agent
            )
            self.lost = True
        finally:
            self._task = None
            self._cancelled.clear()
            self.idle_since = self._services.clock.monotonic()

    async def _claim(self) -> RunClaimed | None:
        outcome = await self._store.apply(ClaimRun(self.agent, self.epoch, self._services.clock.now()))
        match outcome:
            case RunClaimed():
                return outcome
            case StaleEpoch():
                raise StaleEpochError(f"{self.agent}: {outcome}")
            case _:
                return None

    async def _execute(self, claimed: RunClaimed) -> RunClaimed | None:
        self._current, self._stop, self._leave = claimed.run.run_id, _nothing, _nothing
        self._cancelled &= {claimed.run.run_id}
        with about(claimed.run.run_id, self.agent.agent_id):
            try:
                return await self._run_to_its_end(claimed)
            except StaleEpochError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must end, not be resumed for ever
                return await self._give_up(claimed, error)
            finally:
                self._current, self._stop, self._leave = None, _nothing, _nothing

    async def _run_to_its_end(self, claimed: RunClaimed) -> RunClaimed | None:
        conversation = Conversation()
        conversation.restore(claimed.journal, claimed.blobs)
        journal = self._journal(claimed, conversation)
        try:
            ended = await self._result_of(claimed, journal)
            return None if ended is None else await self._finish(claimed, journal, *ended)
        except asyncio.CancelledError:
            if not self.lost:  # it is left to the next activation, which should not repeat what is known here
                with suppress(TimeoutError, OwlClawError):
                    async with deadline(self._services.clock, FINAL_FLUSH_SECONDS):
                        await journal.commit()
            raise
        finally:
            journal.abandon()

    def _admit(self, journal: RunJournal) -> None:
        """Tell those whose turn it is that this run has left its place."""
        self._woken |= self.agent in journal.admitted
        others = [agent for agent in journal.admitted if agent != self.agent]
        if others and self._services.family is not None:
            self._services.family.admit(others)

    def _journal(self, claimed: RunClaimed, conversation: Conversation) -> RunJournal:
        clock = self._services.clock
        return RunJournal(claimed.run, self.epoch, conversation=conversation, store=self._store, clock=clock)

    async def _finish(
        self, claimed: RunClaimed, journal: RunJournal, result: RunResult, state: AgentState
    ) -> RunClaimed | None:
        run = claimed.run
        if not is_idle_beat(run, result):
            state = state.after_run(outcome_line(result, run.trigger.kind.value))
        state, resume = reactivate_heartbeats(run, state, self._services.clock.now())
        if resume is not None:
            await self._store.apply(resume)
        self._woken = False  # the end of the run looks for the next one, in the same transaction
        journal.deliveries = deliveries_of(journal.conversation.woken, result)
        following = await journal.finish(result, state, claim_next=not self._leaving)
        self._admit(journal)
        if self._services.family is not None:
            self._services.family.ended(run)
        self.state = state
        return following

    async def _give_up(self, claimed: RunClaimed, error: Exception) -> RunClaimed | None:
        """Fail a run that can neither go on nor commit its end; what is committed of it stays."""
        logger.error(
            "run %s of %s failed: neither it nor its end can be executed",
            claimed.run.run_id,
            self.agent,
            exc_info=error,
        )
        again = await self._claim()
        if again is None or again.run.run_id != claimed.run.run_id:
            return again
        message = f"internal error: {type(error).__name__}: {error}"
        result = RunResult(RunStatus.FAILED, error=RunError("internal_error", message))
        woken = (entry.data for entry in again.journal if entry.kind is EntryKind.HEARTBEAT_WOKEN)
        conversation = Conversation(last_seq=again.journal[-1].seq, woken=next(woken, None))
        return await self._finish(again, self._journal(again, conversation), result, self.state)

    async def _result_of(self, claimed: RunClaimed, journal: RunJournal) -> tuple[RunResult, AgentState] | None:
        """Return how the run ended, and the agent's state with what it taught.

        None: it waits or is left, and is no longer this activation's.
        """
        run, family = claimed.run, self._services.family
        if not journal.conversation.prompt_built:
            too_late = deadline_passed(run, self._services.clock.now())
            if too_late is not None:
                return too_late, self.state
            if family is not None and await family.orphaned(run):
                error = RunError("orphaned", "the run that started it is over")
                return await self._end(run, journal, RunStatus.CANCELLED, error)
        resumed = sum(entry.kind is EntryKind.RUN_RESUMED for entry in claimed.journal)
        if resumed > MAX_RESUMES:
            message = f"the run was abandoned after {counted(resumed, 'resume')}; it probably crashes its host process"
            return await self._end(run, journal, RunStatus.FAILED, RunError("interrupted_too_often", message))
        if run.cancel_requested or run.run_id in self._cancelled:
            return await self._end(run, journal, RunStatus.CANCELLED)
        try:
            definition = await self._unless_cancelled(run, self._present_definition())
        except OwlClawError as problem:
            error = RunError(type(problem).__name__, str(problem))
            return await self._end(run, journal, RunStatus.FAILED, error)
        if definition is None:
            return await self._end(run, journal, RunStatus.CANCELLED)
        journal.callback_url = definition.callback_url
        execute = self._beat if run.trigger.kind is TriggerKind.HEARTBEAT else self._loop
        async with self._payloads.whole(claimed) as whole:
            return await execute(whole, definition, journal)

    async def _end(
        self, run: Run, journal: RunJournal, status: RunStatus, error: RunError | None = None
    ) -> tuple[RunResult, AgentState]:
        return await end_without_loop(run, journal, self._services, status, error), self.state

    async def _unless_cancelled(self, run: Run, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of work that comes before the loop; None if the run is cancelled meanwhile."""
        task = asyncio.create_task(work)
        self._stop = task.cancel
        try:
            return await task
        except asyncio.CancelledError:
            if run.run_id in self._cancelled and not being_cancelled():
                return None
            raise

    async def _loop(
        self, run: Run, definition: AgentDefinition, journal: RunJournal
    ) -> tuple[RunResult, AgentState] | None:
        if run.run_id in self._cancelled:  # by a signal that came when the work before the loop had just ended
            return await self._end(run, journal, RunStatus.CANCELLED)
        present, grants = self._present_definition, self._grants
        loop = RunLoop(run, definition, self.state, journal, self._services, grants=grants, present=present)
        self._stop, self._leave = loop.cancel, loop.leave
        if self._draining:
            loop.leave()
        result = await loop.execute()
        return None if result is None else (result, loop.rules.kept(self.state))

    async def _beat(
        self, run: Run, definition: AgentDefinition, journal: RunJournal
    ) -> tuple[RunResult, AgentState] | None:
        """Run the loop only if something new is pending. A heartbeat that woke its agent goes on with the events that it saw then."""
        beat: HeartbeatDue | HeartbeatSkipped | None = resumed_heartbeat(run, journal.conversation.woken)
        if beat is None:
            beat = await self._unless_cancelled(run, look(run, definition, self.state, journal, self._services))
        match beat:
            case HeartbeatDue():
                ended = await self._loop(beat.run, definition, journal)
                if ended is None:
                    return None
                return ended[0], after_heartbeat(beat, *ended, self.state)
            case HeartbeatSkipped() as skipped:
                if skipped.command is not None:
                    await self._store.apply(skipped.command)
                journal.callback_url, journal.idle = "", skipped.idle
                return skipped.result, replace(self.state, pulse=skipped.pulse)
            case None:
                return await self._end(run, journal, RunStatus.CANCELLED)

    async def _present_definition(self) -> AgentDefinition:
        return await contained(self._definitions.get(self.agent.qualified_definition))


def _nothing() -> None:
    """Stops what has not begun."""


def outcome_line(result: RunResult, trigger: str) -> str:
    """Return one line that tells the agent later how a run ended."""
    text = " ".join((result.final_text or (result.error.message if result.error else "")).split())
    return f"{trigger}: {result.status.value}, {counted(result.tool_calls, 'tool call')}. {text[:200]}".strip()
