"""The decision loop of one run (R5): ask the model, execute what it asks for, until it stops or a limit does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial

import orjson
from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.definitions.skills.text import read_skill
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, ModelChoice
from owlclaw_ray.domain.approval import ApprovalRequest
from owlclaw_ray.domain.embedding import EmbeddedCall
from owlclaw_ray.domain.entries import (
    embeddings_data,
    model_attempt_failed,
    model_call_record,
    model_replied,
    prompt_skills,
    slot_wait,
    unanswered_record,
    visibility_record,
)
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import ModelReply, ModelRequest, ModelRoute, NextAttempt
from owlclaw_ray.domain.run import Run, RunError, RunResult, RunStatus
from owlclaw_ray.domain.skill import LOAD_SKILL, Skill
from owlclaw_ray.domain.tool import RECALL, Effect, ToolCall, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolRunner
from owlclaw_ray.errors import (
    BudgetExhaustedError,
    ContextWindowExceededError,
    ModelRefusedError,
    ModelUnavailableError,
    OwlClawError,
    StaleEpochError,
    ToolsUnsupportedError,
)
from owlclaw_ray.ids import RequestId, RunId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.kernel.deadline import ActiveTime, deadline
from owlclaw_ray.kernel.file_threads import in_file_thread
from owlclaw_ray.models.api import Models, News, TokenCounter
from owlclaw_ray.models.tokens import BoundedTokens, EstimatedTokens, fewest_tokens
from owlclaw_ray.policy.governor import DefinitionGovernor, GovernedRun
from owlclaw_ray.policy.permission import Approve, CallAllowed, PermissionGate, SessionGrants
from owlclaw_ray.runs.catalog import ToolCatalog, VisibleTools
from owlclaw_ray.runs.compaction import Compaction, ContextWindows, PromptBudget
from owlclaw_ray.runs.conversation import ChildRunStarted
from owlclaw_ray.runs.family import Family
from owlclaw_ray.runs.memory_preload import memory_query, shown_memories
from owlclaw_ray.runs.prompt import first_message, system_prompt, trigger_text
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.running_calls import ProgressOf, RunningCalls, unknown
from owlclaw_ray.runs.skill_selection import model_route, select_skills, withheld_skills
from owlclaw_ray.runs.token_limits import fit
from owlclaw_ray.runs.tool_dispatch import ToolDispatch

logger = logging.getLogger(__name__)

_COUNTING_SECONDS = 20.0
"""What counting tokens may add to a run, all in all."""
_MIN_SILENT, _SILENT_SHARE, _MAX_SILENT = 0.25, 0.1, 30.0
"""How long a run is active without writing so: a tenth of its limit, within these seconds. A take-over costs it that at most."""
_SHORTENINGS = 3
"""How often a prompt that its provider finds too long is made shorter, in one turn."""
_SHOWN_OF_MEMORY = ("content", "created_at", "tags")


async def at_once(wanted: Collection[str]) -> None:
    """Wait for nothing."""
    del wanted


class RunServices(Struct, frozen=True):
    """What every run of a host uses."""

    models: Models
    tools: ToolRunner
    catalog: ToolCatalog
    governor: DefinitionGovernor
    clock: Clock
    has_memories: Callable[[AgentRef], Awaitable[bool]]
    """Whether an agent has a MEMORY.md, so that an agent without one pays nothing for looking."""
    approve: Approve | None = None
    """Decides, in this process, about calls that need an approval; without it their runs wait for people."""
    settled: Callable[[Collection[str]], Awaitable[None]] = at_once
    """Returns when the tools are known that come and go, above all those that a run was begun with; or after a moment."""
    progress_of: ProgressOf = unknown
    """Knows how far calls are that have not ended."""
    tokens: TokenCounter = field(default_factory=EstimatedTokens)
    """Counts what goes into prompts, where it matters."""
    windows: ContextWindows = field(default_factory=lambda: ContextWindows(EstimatedTokens()))
    """What models take."""
    family: Family | None = None
    """Without it, what runs that started others learn of these comes from elsewhere."""


class RunNeeds(Struct, frozen=True):
    """What a run needs before it can go on: decisions, if there are any to be made, else the ends of runs that its calls started."""

    approvals: tuple[ApprovalRequest, ...]
    runs: tuple[ChildRunStarted, ...]
    """Runs that it started in the same group of calls, and that are not over."""


class RunLeft(Struct, frozen=True):
    """The run goes on in the next activation, from where its journal ends."""


class RunLoop:
    """One run, fresh or resumed, from its prompt to its result.

    Every way of ending is a RunResult, whatever models and tools raise; then every model call and tool call that was begun is
    accounted for. Exceptions are what keeps the run from ending here: the journal's failure (StaleEpochError: another
    activation has the run) and the cancellation of the caller. The caller may call `cancel` at any time.
    """

    def __init__(
        self,
        run: Run,
        definition: AgentDefinition,
        state: AgentState,
        journal: RunJournal,
        services: RunServices,
        *,
        grants: SessionGrants,
        present: Callable[[], Awaitable[AgentDefinition]] | None = None,
    ) -> None:
        """`present` returns the definition as it is by now."""
        self._present = present
        self._run, self._definition, self._state = run, definition, state
        self._journal, self._services, self._grants = journal, services, grants
        self._conversation = journal.conversation
        self._limits = definition.limits
        self._model = self._routed(self._conversation.route)
        tokens = BoundedTokens(services.tokens, services.clock, _COUNTING_SECONDS)
        self._count_tokens = partial(tokens.count_tokens, self._model.chain[0])
        self.rules = services.governor.rules(run, definition, state, self._conversation.outcomes, journal)
        self._cancelled = False
        self._leaving = asyncio.Event()
        self._past_deadline = False
        # What earlier activations did after their last entry is unknown, but no more than lies between two beats.
        every = min(_MAX_SILENT, max(_MIN_SILENT, self._limits.run_timeout * _SILENT_SHARE))
        used = self._conversation.active + sum(min(silence, every) for silence in self._conversation.silences)
        self._time = ActiveTime(services.clock, self._limits.run_timeout, used=used, every=every)
        self._waited = 0.0
        self._task: asyncio.Task[RunResult | RunNeeds | RunLeft] | None = None
        self._dispatch: ToolDispatch | None = None
        self._asking: str | None = None
        """The model that is being asked."""
        self._compaction = Compaction(self._count_tokens, self._limits.short_term_tokens)

    def _routed(self, route: ModelRoute | None) -> ModelChoice:
        own = self._definition.model
        return own if route is None else replace(own, chain=route.models)

    def cancel(self) -> None:
        """End the run as `cancelled`: the model call stops, tools are killed."""
        self._cancelled = True
        self._stop()

    def leave(self) -> None:
        """Begin no model call and no tool call any more: those under way end, and the run is left to the next activation.

        A run that needs no further call ends here.
        """
        self._leaving.set()

    async def execute(self) -> RunResult | None:
        """Return how the run ended; nothing of the end is durable yet. None: it waits, or was left, which is durable."""
        run, journal, family = self._run, self._journal, self._services.family
        result = await self._execute()
        if isinstance(result, RunLeft):
            await journal.commit()
            return None
        if isinstance(result, RunNeeds):
            if await journal.wait_for(result.approvals, result.runs):
                if family is not None:
                    family.admit(journal.admitted)
                    if not result.approvals:
                        family.waits(run, tuple(each.run_id for each in result.runs))
                return None
            result = RunResult(RunStatus.CANCELLED)
        if self._asking is not None:
            record = unanswered_record(self._asking, _reason(result))
            journal.audit(LedgerKind.MODEL_CALL, f"failed-{self._conversation.turns}", record)
        started = (self._dispatch or self._new_dispatch()).close(_reason(result))
        await _end_started(run, journal, self._services, started)
        return await _ended(run, journal, self._services.clock, result)

    async def _execute(self) -> RunResult | RunNeeds | RunLeft:
        self._journal.interrupt = self._stop
        self._task = asyncio.create_task(self._decide_in_time())
        try:
            return await self._task
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            if self._journal.failure is not None:
                raise self._journal.failure from None
            if self._cancelled or self._journal.cancel_requested:
                return RunResult(RunStatus.CANCELLED)
            return _failed("internal_error", "internal error: a model or a tool ended its own call as cancelled")
        except TimeoutError:
            return RunResult(RunStatus.TIMEOUT, error=self._timeout())
        except StaleEpochError:
            raise
        except BudgetExhaustedError as error:
            return self._terminated(str(error), "budget_exhausted")
        except ToolsUnsupportedError as error:
            return _failed("tools_unsupported", str(error))
        except ContextWindowExceededError as error:
            return _failed("context_window_exceeded", str(error))
        except (ModelUnavailableError, ModelRefusedError) as error:
            return _failed("model_failed", str(error), retryable=isinstance(error, ModelUnavailableError))
        except OwlClawError as error:
            return _failed(type(error).__name__, str(error))
        except Exception as error:
            logger.exception("run %s failed inside the runtime", self._run.run_id)
            return _failed("internal_error", f"internal error: {type(error).__name__}: {error}")

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _new_dispatch(self) -> ToolDispatch:
        run, journal, services, definition = self._run, self._journal, self._services, self._definition
        return _dispatch(
            run,
            journal,
            services,
            definition,
            rules=self.rules,
            grants=self._grants,
            present=self._present,
            leaving=self._leaving.is_set,
        )

    async def _decide_in_time(self) -> RunResult | RunNeeds | RunLeft:
        until, clock = self._run.deadline, self._services.clock
        left = None if until is None else (until - clock.now()).total_seconds()
        self._past_deadline = left is not None
        if left is not None and left <= 0:
            raise TimeoutError
        async with nullcontext() if left is None else deadline(clock, left):
            try:
                async with self._time.limited(self._record_activity):
                    return await self._decide()
            except TimeoutError:
                self._past_deadline = False
                raise

    def _record_activity(self) -> None:
        asking = {} if self._asking is None else {"asking": self._asking}
        calls = [] if self._dispatch is None else self._dispatch.running.told()
        running = {"running": calls} if calls else {}
        data = {"seconds": round(self._time.used, 3), **asking, **running, **slot_wait(self._drain_wait_seconds())}
        self._journal.record(EntryKind.RUN_ACTIVE, data)

    def _drain_wait_seconds(self) -> float:
        """Return the seconds of waiting for slots that no entry has yet."""
        waited, self._waited = self._time.paused - self._waited, self._time.paused
        return waited

    def _timeout(self) -> RunError:
        until = self._run.deadline
        if until is not None and self._past_deadline:
            return RunError("deadline_passed", f"the run did not end before its deadline, {_moment(until)}")
        message = f"the run took longer than its limit of {self._limits.run_timeout:g} s"
        return RunError("run_timeout", message, retryable=True)

    async def _decide(self) -> RunResult | RunNeeds | RunLeft:
        await self._services.settled(self._conversation.visible)
        if self._leaving.is_set():
            return RunLeft()
        if not self._conversation.prompt_built:
            await self._build_prompt()
        self._dispatch = self._new_dispatch()
        while True:
            ended = await self._answer_calls(self._dispatch)
            if ended is not None:
                return ended
            last = self._conversation.messages[-1]
            if self._conversation.turns > 0 and last.call_id is None and not last.tool_calls:
                return RunResult(RunStatus.COMPLETED)
            if self._conversation.turns >= self._limits.turns:
                return self._terminated(f"the run reached its limit of {counted(self._limits.turns, 'turn')}")
            if self._leaving.is_set():
                return RunLeft()
            if not await self._ask(self._dispatch.visible):
                return RunLeft()

    async def _answer_calls(self, dispatch: ToolDispatch) -> RunResult | RunNeeds | RunLeft | None:
        """Execute what the last reply asked for and is not done yet; return why the run cannot go on, if it cannot."""
        conversation = self._conversation
        calls = tuple(conversation.calls.values())
        allowed = max(0, self._limits.tool_calls - conversation.calls_before)
        if conversation.unanswered():
            with dispatch.running.watched(self._record_activity):
                needed = await dispatch.execute(calls[:allowed])
            await _end_started(self._run, self._journal, self._services, dispatch.drain_abandoned())
            asked = tuple(each for each in needed if isinstance(each, ApprovalRequest))
            runs = tuple(each for each in needed if isinstance(each, ChildRunStarted))
            if needed:
                return RunNeeds(asked, runs)
            if any(call.call_id not in conversation.results for call in calls[:allowed]):
                return RunLeft()
        if len(calls) <= allowed:
            return None
        message = f"the run reached its limit of {counted(self._limits.tool_calls, 'tool call')}"
        dispatch.refuse_all(calls[allowed:], message)
        return self._terminated(message)

    async def _ask(self, visible: VisibleTools) -> bool:
        """Have the model's next reply in the journal; False: it was not asked, because the run leaves while it waited for tokens."""
        conversation = self._conversation
        for too_long in range(_SHORTENINGS + 1):
            await self._compact()
            request = ModelRequest(
                request_id=RequestId(derived_id("req", self._run.run_id, str(conversation.turns))),
                model=self._model,
                system=conversation.system,
                messages=tuple(conversation.messages),
                tools=visible.encoded,
                timeout=self._limits.model_timeout,
                agent_id=self._run.agent.agent_id,
                run_id=self._run.run_id,
                trigger=self._run.trigger,
                base_dir=self._definition.folder,
                tenant=self._run.agent.tenant,
            )
            allowed = await self.rules.budgets.before_model(
                request, conversation.usage, conversation.model_calls, self._time.pause, self._leaving
            )
            if allowed is None:
                return False
            request = self._with_able_models(allowed, visible)
            self._asking, before = next(iter(request.model.chain), ""), self._time.paused
            try:
                answer = self._services.models.complete(request, self._heard)
                reply = self._with_new_call_ids(await contained(answer))
            except ContextWindowExceededError as error:
                if too_long == _SHORTENINGS:
                    raise
                await self._shrink_context_window(error)
            else:
                break
        self._asking = None
        record = model_call_record(reply, self._time.paused - before, conversation.route)
        self._journal.audit(LedgerKind.MODEL_CALL, str(conversation.turns), record)
        note = _dropped_tools_warning(request, reply, len(visible.names)) if not conversation.turns else ""
        self._journal.record(EntryKind.MODEL_REPLIED, model_replied(reply, self._drain_wait_seconds(), note))
        self.rules.budgets.after_model(reply.usage, conversation.usage, conversation.model_calls)
        if reply.tool_calls:
            await self._journal.commit()
        return True

    def _heard(self, news: News) -> None:
        if isinstance(news, NextAttempt):
            self._asking = news.model
            self._journal.record(EntryKind.MODEL_ATTEMPT_FAILED, model_attempt_failed(news, self._drain_wait_seconds()))
        else:
            self._time.pause(news)

    async def _compact(self) -> None:
        """Have the next prompt fit into the model's context window."""
        found = self._conversation.window
        room = await self._services.windows.room(self._model) if found is None else PromptBudget(found)
        changes = None if room is None else await self._compaction.step(self._conversation, room)
        if changes is not None:
            self._journal.record(EntryKind.CONTEXT_COMPACTED, changes)

    async def _shrink_context_window(self, error: ContextWindowExceededError) -> None:
        """Assume a smaller context window of the model from now on: its provider refused the prompt for its length."""
        window = await self._compaction.fewer(self._conversation)
        self._warn(f"window-{window}", "prompt longer than the model takes", str(error), window=window)
        self._journal.record(EntryKind.CONTEXT_COMPACTED, {"window": window})

    def _with_able_models(self, request: ModelRequest, visible: VisibleTools) -> ModelRequest:
        """Return the request for those models of its chain that take the tools; raises ToolsUnsupportedError if the first does not.

        The cheaper model that a budget puts in its place is skipped if it does not take them.
        """
        chain, own, problem = request.model.chain, self._model.chain, self._services.catalog.problem
        if chain and chain != own and (why := problem(chain[0], visible)):
            self._warn(f"cheaper-{chain[0]}", "cheaper model left out", why)
            chain = own
        if chain and (why := problem(chain[0], visible)):
            raise ToolsUnsupportedError(why)
        able = tuple(model for model in chain if not problem(model, visible))
        return request if able == request.model.chain else replace(request, model=replace(request.model, chain=able))

    def _with_new_call_ids(self, reply: ModelReply) -> ModelReply:
        """Give an id to calls without one, and another to those whose id was used in this run, or cannot be stored as it is: pairing
        and idempotency hang on it.
        """
        known, seen = self._conversation.known_calls, set()
        calls = []
        for index, call in enumerate(reply.tool_calls):
            call_id = call.call_id
            usable = bool(call_id) and call_id.isascii() and call_id.isprintable()
            if not usable or call_id in known or call_id in seen:
                call_id = ToolCallId(derived_id("call", self._run.run_id, str(self._conversation.turns), str(index)))
            seen.add(call_id)
            calls.append(replace(call, call_id=call_id))
        return replace(reply, tool_calls=tuple(calls))

    async def _build_prompt(self) -> None:
        definition, run = self._definition, self._run
        decided = await self.rules.decide(self._services.catalog.names(run.agent.tenant))
        withheld = withheld_skills(definition, decided.visible, self._services.clock.now())
        selected = select_skills(definition.skills, run.trigger, self._limits.skill_tokens, withheld)
        chosen = model_route(definition, run.trigger, selected)
        self._model = self._routed(chosen)
        chain = self._model.chain
        skills = await self._read(selected)
        others = [each for each in definition.skills if each.name not in skills and each.name not in withheld]
        system = system_prompt(definition, tuple(skills.items()), others if LOAD_SKILL in decided.visible else ())
        shown = await fit(
            lambda tokens: trigger_text(run.trigger, tokens), self._limits.short_term_tokens, self._count_tokens
        )
        visible = self._services.catalog.select(decided.visible, run.agent.tenant)
        memories, embedded = await self._preload(visible.by_wire_name.get(RECALL))
        user = first_message(
            run.agent,
            shown,
            now=self._services.clock.now(),
            outcomes=self._state.recent_outcomes,
            memories=memories,
        )
        schemas = self._journal.blob(visible.encoded.decode(), visible.digest)
        self._journal.audit(
            LedgerKind.VISIBILITY, "start", visibility_record(len(visible.names), schemas, decided.hidden, withheld)
        )
        self._journal.record(
            EntryKind.PROMPT_BUILT,
            {
                "system": self._journal.blob(system),
                "tools": schemas,
                "user": user,
                "definition": definition.version,
                "model": chain[0],
                "scripted": chain[0].startswith("scripted:"),
                **({} if chosen is None else {"route": to_builtins(chosen)}),
                "visible": list(visible.names),
                "skills": list(skills),
                "memories": len(memories),
                **prompt_skills(definition.skills, withheld),
                **embeddings_data(embedded),
            },
        )
        for model in chain[1:]:
            if why := self._services.catalog.problem(model, visible):
                self._warn(f"fallback-{model}", "fallback left out", why)

    async def _read(self, selected: Sequence[Skill]) -> dict[str, str]:
        """Return the texts of these skills by name; one that cannot be read any more is a warning, not a failed run."""
        texts = {}
        for skill in selected:
            try:
                texts[skill.name] = await in_file_thread(read_skill, skill)
            except (OSError, UnicodeDecodeError) as error:
                why = f"it cannot be read any more: {error}"
                self._warn(f"skill-{skill.name}", f"skill {skill.name} left out", why)
        return texts

    async def _preload(self, tool: ToolDefinition | None) -> tuple[list[str], Sequence[EmbeddedCall]]:
        """Look up what the agent remembers about this trigger (M8), and say which calls for vectors that took.

        `tool` is that by which the agent may look it up itself: without it, or if its calls are denied or ask, nothing is shown. A
        failing look-up is a warning, not a failed run.
        """
        run, limit, tokens = self._run, self._definition.preload_memories, self._limits.memory_tokens
        query = memory_query(run.trigger)
        call_id, conversation = ToolCallId(derived_id("call", run.run_id, "preload")), self._conversation
        if tool is None or not limit or not tokens or not query or not await self._services.has_memories(run.agent):
            return [], ()
        if not isinstance(self._new_dispatch().gate.clear(ToolCall(call_id, tool.wire_name, "{}"), tool), CallAllowed):
            return [], ()
        invocation = ToolInvocation(
            call_id=call_id,
            tool=RECALL,
            arguments=orjson.dumps({"query": query, "limit": limit}).decode(),
            agent=run.agent,
            run_id=run.run_id,
            trigger=run.trigger.kind,
            effect=Effect.PURE,
            tool_class=self._services.catalog.class_of(RECALL),
            timeout=self._limits.tool_timeout,
            idempotency_key=call_id,
            timezone=self._definition.timezone,
            key_quotas=run.key_quotas,
        )
        outcome = await contained(self._services.tools.run(invocation))
        used, calls = conversation.usage + outcome.usage, conversation.model_calls + len(outcome.embeddings)
        self.rules.budgets.after_embedding(call_id, outcome.usage, len(outcome.embeddings), used, calls)
        self._journal.audit_all(outcome.records)
        error, content = outcome.result.error, outcome.result.content
        if error is not None or "memories" not in content:
            why = "what was found is too long" if error is None else error.message
            self._warn("preload", "preloading memories", why)
            return [], outcome.embeddings
        found = [{key: each[key] for key in _SHOWN_OF_MEMORY} for each in content["memories"]]
        return await shown_memories(found, tokens, self._count_tokens), outcome.embeddings

    def _terminated(self, why: str, type_: str = "limit_reached") -> RunResult:
        self._warn("limit", "run terminated", why)
        return RunResult(RunStatus.TERMINATED, error=RunError(type_, why))

    def _warn(self, key: str, what: str, why: str, **details: JsonValue) -> None:
        logger.warning("run %s of %s: %s: %s", self._run.run_id, self._run.agent, what, why)
        self._journal.audit(LedgerKind.WARNING, key, {"what": what, "why": why, **details})


async def end_without_loop(
    run: Run, journal: RunJournal, services: RunServices, status: RunStatus, error: RunError | None = None
) -> RunResult:
    """Return the end of a run that cannot be executed; what earlier activations began of it is accounted for."""
    result = RunResult(status, error=error)
    # Its definition may be unknown. An empty one will do: no call is made by it.
    definition = AgentDefinition(run.agent.definition, "", "", "", "", "", ModelChoice(()))
    rules = services.governor.rules(run, definition, AgentState(), journal.conversation.outcomes, journal)
    dispatch = _dispatch(run, journal, services, definition, rules=rules, grants=SessionGrants())
    await _end_started(run, journal, services, dispatch.close(_reason(result)))
    return await _ended(run, journal, services.clock, result)


async def _end_started(run: Run, journal: RunJournal, services: RunServices, started: Sequence[RunId]) -> None:
    """End the runs that a run started and that go on when it ends, unless another activation has it by now."""
    if services.family is not None and started:
        await journal.require_ownership()
        await services.family.end(run.agent.tenant, started)


def being_cancelled() -> bool:
    """Return whether the present task itself was cancelled, not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _dispatch(
    run: Run,
    journal: RunJournal,
    services: RunServices,
    definition: AgentDefinition,
    *,
    rules: GovernedRun,
    grants: SessionGrants,
    present: Callable[[], Awaitable[AgentDefinition]] | None = None,
    leaving: Callable[[], bool] = bool,
) -> ToolDispatch:
    async def renew() -> None:
        if present is not None:
            rules.renew(await present())

    clock, governance = services.clock, definition.governance
    return ToolDispatch(
        run=run,
        visible=services.catalog.select(journal.conversation.visible, run.agent.tenant),
        limits=definition.limits,
        tools=services.tools,
        journal=journal,
        rules=rules,
        clock=clock,
        gate=PermissionGate(run, journal, definition.permissions, grants, clock, services.approve, governance),
        running=RunningCalls(clock, services.progress_of),
        timezone=definition.timezone,
        states=definition.states,
        renew=renew,
        leaving=leaving,
    )


def _failed(type_: str, message: str, *, retryable: bool = False) -> RunResult:
    return RunResult(RunStatus.FAILED, error=RunError(type_, message, retryable=retryable))


def _reason(result: RunResult) -> str:
    return result.error.message if result.error else f"the run was {result.status.value}"


async def _ended(run: Run, journal: RunJournal, clock: Clock, result: RunResult) -> RunResult:
    """Return the result with everything that the journal says of its run."""
    if result.status is RunStatus.CANCELLED:
        by = await journal.interrupted_by()
        journal.record(EntryKind.CANCEL_REQUESTED, {} if by is None else {"by": by})
        if by is not None:
            result = replace(result, error=RunError("interrupted", f"the trigger of run {by} interrupted it"))
    done, now = journal.conversation, clock.now()
    return replace(
        result,
        turns=done.turns,
        tool_calls=done.tool_calls,
        final_text=done.final_text if result.status is RunStatus.COMPLETED else "",
        tools_called=tuple(done.tools_called),
        duration_ms=round((now - (run.started_at or now)).total_seconds() * 1_000),
        usage=done.usage,
        model=done.model,
        scripted=done.scripted,
    )


def deadline_passed(run: Run, now: datetime) -> RunResult | None:
    """Return the end of a run that has not begun, if it must not begin any more."""
    if run.deadline is None or now < run.deadline:
        return None
    message = f"its deadline, {_moment(run.deadline)}, passed before it began"
    return RunResult(RunStatus.SKIPPED, error=RunError("deadline_passed", message))


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _dropped_tools_warning(request: ModelRequest, reply: ModelReply, offered: int) -> str:
    """Return a warning if the prompt was too short to have had the tools in it, as far as its provider counts right."""
    text, tokens = request.system + "".join(each.content for each in request.messages), reply.usage.prompt_tokens
    if reply.scripted or reply.tool_calls or not offered or not tokens or tokens >= fewest_tokens(text, request.tools):
        return ""
    return (
        f"tools offered: {offered}, understood: 0: a prompt of {counted(tokens, 'token')} cannot hold them, "
        f"the template of {reply.model} seems to drop tools (owlclaw doctor --probe asks it for a call)"
    )
