"""What the runtime itself takes for a tool call, without Ray, without a store, and with a tool that does next to nothing.

A call goes the whole way: it is looked up, admitted by the rules of a definition that has some of every kind, its arguments
are decoded and checked, its result is made JSON and fitted, journal entry and ledger record are made, searched for secrets and
chained. A turn goes the way of a run that is asked one thing and answers: request, pickled as for the ModelGateway and read
there, and reply. All of it with few tools and with many, which take turns, so that both see the same machine.

`python -m benchmarks.tool_path` prints the figures.
"""

from __future__ import annotations

import asyncio
import pickle
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from pydantic import validate_call

from benchmarks.question import Figure, Size
from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, Limits, ModelChoice
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.entries import model_replied
from owlclaw_ray.domain.governance import Governance, Risk, ToolLimit
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.tool_call import Confirm, ToolInvocation, ToolOutcome, nothing_to_confirm
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, ToolCallId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.chain import ChainHead, canonical_data, next_hash
from owlclaw_ray.ledger.redaction import Redactor
from owlclaw_ray.models.api import Waiting, ignore_news
from owlclaw_ray.models.openai_form import decode_tools
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.policy.permission import PermissionGate, SessionGrants
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.run_loop import RunLoop, RunServices
from owlclaw_ray.runs.running_calls import RunningCalls
from owlclaw_ray.runs.tool_dispatch import ToolDispatch
from owlclaw_ray.store.commands import Appended, AppendJournal, Command, FinishRun, Outcome, RunFinished
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.sources import ToolSources

FEW, MANY = 7, 500
"""Tools that are registered."""
GOAL_MS = 0.3
GOAL_GROWTH = 1.25
"""How much more a call or a turn may take with many tools."""
ROUNDS = {Size.SMOKE: 6, Size.FULL: 40}
CALLS = 48
TURNS = 20
_STRIDE = 11
"""From a call's tool to the next one's; no divisor of the numbers of tools, so that every tool has its turn."""
_AGENT = AgentRef.parse("bench:path")
_ARGUMENTS = '{"customer": "Anna Berger", "amount": 12, "note": "by invoice"}'


class Records:
    """Implements CommandStore without keeping anything: ledger records are searched and chained as the Keeper does it."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._head = ChainHead(DEFAULT_TENANT, "bench")

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Answer that everything is durable."""
        return [self._one(command) for command in commands]

    def _one(self, command: Command) -> Outcome:
        assert isinstance(command, AppendJournal | FinishRun)
        for entry in command.entries:
            orjson.dumps(entry.data)
        for record in command.ledger:
            data = canonical_data(record.data)
            if self._redactor.suspects(data):
                data = canonical_data(self._redactor.redact(record.data))
            self._head = ChainHead(
                DEFAULT_TENANT, "bench", self._head.position + 1, next_hash(self._head, record, data)
            )
        return RunFinished() if isinstance(command, FinishRun) else Appended()


class InlineTools:
    """Implements ToolRunner at once, in this thread."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor

    async def run(self, invocation: ToolInvocation, _confirm: Confirm = nothing_to_confirm, /) -> ToolOutcome:
        """Execute the call, at once."""
        return self._executor.run_one(invocation)


class PromptModel:
    """Implements Models: asks for one tool in each turn but the last, and answers at once."""

    def __init__(self, wire_name: str) -> None:
        self._wire_name = wire_name
        self.turns = 1

    async def complete(self, request: ModelRequest, waiting: Waiting = ignore_news) -> ModelReply:
        """Read the request as a gateway in another process does, and reply; no call waits."""
        del waiting
        read: ModelRequest = pickle.loads(pickle.dumps(request))  # noqa: S301 - it was written a moment ago
        assert decode_tools(read.tools)
        turn = sum(bool(message.tool_calls) for message in read.messages) + 1
        calls = (ToolCall(ToolCallId(f"call_{turn}"), self._wire_name, _ARGUMENTS),) if turn < self.turns else ()
        return ModelReply("" if calls else "done", calls, "bench")


def application(tools: int) -> OwlClaw:
    """Return an application with so many tools, each with a schema and an expression of its own."""
    app = OwlClaw("shop")
    for number in range(tools):
        schema = {
            "type": "object",
            "properties": {
                "customer": {"type": "string", "minLength": 1, "pattern": f"^[A-Z].{{0,{number + 20}}}$"},
                "amount": {"type": "integer", "minimum": 1, "maximum": 1_000},
                "note": {"type": "string", "description": f"What the invoice says in the words of number {number}."},
                "lines": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
            },
            "required": ["customer", "amount"],
            "additionalProperties": False,
        }
        app.tool(name_of(number), description=f"Sell article {number}.", input_schema=schema)(
            lambda given: {"sold": given}
        )
    return app


def name_of(number: int) -> str:
    """Return the canonical name of an application's tool."""
    return f"shop.sell_{number}"


def definition(tools: int) -> AgentDefinition:
    """Return a definition with rules of every kind, none of which forbids anything, and one limit for each tool."""
    limits = tuple(ToolLimit(name_of(number), calls=1_000_000, attempts=2) for number in range(tools))
    rules = Governance(
        roles=frozenset({"seller"}),
        confirmed=("shop.*",),
        risks={"bank.*": Risk.CRITICAL, "shop.*": Risk.HIGH},
        hours=(Hours(("bank.*",), 0, 1_440),),
        tool_limits=limits,
        budgets=(Budget("sales", BudgetScope.RUN, BudgetUnit.CALLS, 10**6, tools=("shop.*",)),),
    )
    most = Limits(tool_calls=10**6, turns=10**6)
    return AgentDefinition(
        "bench", str(tools), "", "Sell.", "- sell", "", ModelChoice(("bench",)), most, governance=rules
    )


class Path:
    """A runtime with so many tools, as far as a tool call needs one."""

    def __init__(self, tools: int) -> None:
        sources = ToolSources(application(tools).sources())
        definitions = sources.definitions()
        self.tools, self._definition, self._runs = tools, definition(tools), 0
        self._clock = SystemClock()
        self._store = DurableStore(Records(), self._clock)
        self._model = PromptModel(definitions[0].wire_name)
        self._services = RunServices(
            models=self._model,
            tools=InlineTools(LocalExecutor(sources, self._clock)),
            catalog=ToolCatalog(definitions),
            governor=DefinitionGovernor(definitions, self._clock),
            clock=self._clock,
            has_memories=has_no_memories,
        )

    async def warm_up(self) -> None:
        """Call every tool: what is kept from then on is made now."""
        for _ in range(self.tools // CALLS + 2):
            await self.call_ms()
        await self.turn_ms()

    async def call_ms(self) -> float:
        """Return the CPU of a call: that of a run's calls, in turns of eight."""
        run, journal = self._new_run()
        rules = self._services.governor.rules(
            run, self._definition, AgentState(), journal.conversation.outcomes, journal
        )
        catalog, tenant = self._services.catalog, run.agent.tenant
        visible = catalog.select(catalog.names(tenant), tenant)
        gate = PermissionGate(
            run,
            journal,
            self._definition.permissions,
            SessionGrants(),
            self._clock,
            governance=self._definition.governance,
        )
        running = RunningCalls(self._clock, self._services.progress_of)
        dispatch = ToolDispatch(
            run, visible, self._definition.limits, self._services.tools, journal, rules, self._clock, gate, running
        )
        spent = 0.0
        for turn in range(0, CALLS, 8):
            calls = tuple(self._call(turn + each) for each in range(8))
            journal.record(EntryKind.MODEL_REPLIED, model_replied(ModelReply("", calls, "bench")))
            began = time.process_time()
            await dispatch.execute(calls)
            await journal.commit()
            spent += time.process_time() - began
        failed = [each for each in journal.conversation.outcomes if each.error]
        assert not failed, failed
        return 1_000 * spent / CALLS

    async def turn_ms(self) -> Turn:
        """Return the CPU of a run that is answered at once, and of each further turn with one call."""
        once = await self._run_ms(1)
        return Turn(once, (await self._run_ms(TURNS) - once) / (TURNS - 1))

    async def _run_ms(self, turns: int) -> float:
        self._model.turns = turns
        run, journal = self._new_run()
        began = time.process_time()
        loop = RunLoop(run, self._definition, AgentState(), journal, self._services, grants=SessionGrants())
        result = await loop.execute()
        spent = time.process_time() - began
        journal.abandon()
        assert result is not None
        assert (result.status, result.turns) == (RunStatus.COMPLETED, turns), result
        return 1_000 * spent

    def _new_run(self) -> tuple[Run, RunJournal]:
        self._runs += 1
        now = self._clock.now()
        run = Run(
            RunId(f"run_path_{self._runs}"),
            self._runs,
            _AGENT,
            Trigger(TriggerKind.API),
            RunStatus.RUNNING,
            now,
            started_at=now,
        )
        return run, RunJournal(run, 1, conversation=Conversation(), store=self._store, clock=self._clock)

    def _call(self, number: int) -> ToolCall:
        name = name_of((self._runs * CALLS + number) * _STRIDE % self.tools).replace(".", "__")
        return ToolCall(ToolCallId(f"call_{number}"), name, _ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Turn:
    """CPU-milliseconds of a run with one model call, and of one model call more with one tool call."""

    run: float
    further: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """Medians of CPU-milliseconds with one number of tools."""

    call: float
    run: float
    turn: float


async def has_no_memories(_: AgentRef) -> bool:
    """Return that the agent has none."""
    return False


def bare_ms() -> float:
    """Return the CPU of what any runtime does: pydantic checks the decoded arguments of the function, the result becomes JSON."""

    @validate_call
    def sell(customer: str, amount: int, note: str = "") -> dict[str, object]:
        return {"sold": {"customer": customer, "amount": amount, "note": note}}

    began = time.process_time()
    for _ in range(CALLS):
        orjson.dumps(sell(**orjson.loads(_ARGUMENTS)))
    return 1_000 * (time.process_time() - began) / CALLS


def measure(size: Size) -> tuple[dict[int, Overhead], float]:
    """Return the overhead by the number of tools, and that of a bare call."""
    return asyncio.run(_measure(ROUNDS[size]))


async def _measure(rounds: int) -> tuple[dict[int, Overhead], float]:
    paths = [Path(FEW), Path(MANY)]
    calls: dict[int, list[float]] = {FEW: [], MANY: []}
    turns: dict[int, list[Turn]] = {FEW: [], MANY: []}
    bare = []
    for path in paths:
        await path.warm_up()
    for _ in range(rounds):
        for path in paths:
            calls[path.tools].append(await path.call_ms())
            turns[path.tools].append(await path.turn_ms())
        bare.append(bare_ms())
    overheads = {
        tools: Overhead(
            statistics.median(calls[tools]),
            statistics.median(turn.run for turn in turns[tools]),
            statistics.median(turn.further for turn in turns[tools]),
        )
        for tools in (FEW, MANY)
    }
    return overheads, statistics.median(bare)


def figures(found: dict[int, Overhead], bare: float) -> tuple[Figure, ...]:
    """Return the overheads, those with few tools beside a bare call, those with many beside those with few."""
    few, many = found[FEW], found[MANY]
    fewer = f"the same with {FEW} tools"
    grows = f"at most {GOAL_GROWTH:g} times the baseline"
    return (
        Figure(
            f"cpu_ms_per_call, {FEW} tools",
            round(few.call, 4),
            "ms",
            baseline=round(bare, 4),
            baseline_is="a function that pydantic checks the arguments of, and nothing else",
            goal=f"at most {GOAL_MS:g} ms",
            met=few.call <= GOAL_MS,
        ),
        Figure(
            f"cpu_ms_per_call, {MANY} tools",
            round(many.call, 4),
            "ms",
            baseline=round(few.call, 4),
            baseline_is=fewer,
            goal=f"at most {GOAL_MS:g} ms, and {grows}",
            met=many.call <= min(GOAL_MS, GOAL_GROWTH * few.call),
        ),
        Figure(
            f"cpu_ms_per_turn, {MANY} tools",
            round(many.turn, 4),
            "ms",
            baseline=round(few.turn, 4),
            baseline_is=fewer,
            note="a model call and a tool call; models are sent all schemas each time",
        ),
        Figure(
            f"cpu_ms_per_run, {MANY} tools",
            round(many.run, 4),
            "ms",
            baseline=round(few.run, 4),
            baseline_is=fewer,
            note="of one turn: which tools are visible is decided anew in each run",
        ),
    )


if __name__ == "__main__":
    for each in figures(*measure(Size(sys.argv[1]) if len(sys.argv) > 1 else Size.FULL)):
        print(f"{each.name:32} {each.value:8.4f} {each.unit} ({each.baseline:.4f}: {each.baseline_is})")
