"""Agents that start other agents: one call is one run, which is waited for in the store."""

import asyncio
import itertools
import json
import threading
from dataclasses import dataclass, field

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray import Change, Deny, OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.agent_tools import AGENT_TOOLS, ORCHESTRATING, OUTLASTING
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.lineage import ChildRole, Lineage, child_agent
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import NotFoundError, StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.queries import ApprovalFilter, JournalOfRun, LedgerFilter, RunFilter, TaskById
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.agents.runtime_agents import RuntimeAgents
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.host import HostTools

DONE = {"text": "done"}


def calls(*named):
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def sub(definition, assignment, **more):
    return "agent.create_sub_agent", {"agent_definition_id": definition, "assignment": assignment, **more}


def worker(definition, name, assignment, **more):
    arguments = {"agent_definition_id": definition, "worker": name, "assignment": assignment, **more}
    return "agent.dispatch_worker", arguments


@dataclass
class World:
    """Folders, and what handlers did."""

    folder: object
    app: OwlClaw
    effects: list = field(default_factory=list)

    def define(self, name, *turns, **options):
        folder = self.folder / "agents" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SOUL.md").write_text("You are calm.")
        (folder / "IDENTITY.md").write_text(f"## My Capabilities\n- {name}s things\n")
        (folder / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": list(turns)}]}))
        (folder / "agent.yaml").write_text(yaml.safe_dump({"model": "scripted:script.yaml", **options}))

    def runtime(self, options=None, **more):
        tools = HostTools(agents=options or AgentOptions())
        folders = {"agents_dir": self.folder / "agents", "data_dir": self.folder / "data"}
        return in_process_runtime(**folders, app=self.app, host_tools=tools, **more)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, OwlClaw("shop"))

    @world.app.handler("act")
    def act(what: str) -> str:
        world.effects.append(what)
        return f"did {what}"

    @world.app.tool("look")
    def look() -> str:
        world.effects.append("look")
        return "seen"

    return world


async def results(runtime, run):
    """The results of a run's tool calls, by tool, in the order of their ends."""
    journal = await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))
    return [entry.data for entry in journal if entry.kind is EntryKind.TOOL_FINISHED]


async def kinds(runtime, run):
    return [entry.kind.value for entry in await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))]


async def all_runs(runtime):
    return await runtime.store.read(RunFilter(DEFAULT_TENANT, limit=10_000))


async def test_a_sub_agent_is_an_agent_with_a_run_of_its_own_and_its_answer_is_the_result(world):
    """tool-registry: to their caller agent tools are ordinary calls with a ToolResult, though they start runs of other agents."""
    world.define("lead", calls(sub("clerk", "count the chairs")), DONE)
    world.define("clerk", calls(("shop.look", {})), {"text": "there are four"})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)
        child = await runtime.run(DEFAULT_TENANT, result["content"]["run_id"])
        journal = await kinds(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert result["content"]["answer"] == "there are four"
    assert result["content"]["tools_called"] == ["shop.look"]
    assert child.agent.definition == "clerk"
    assert child.trigger.kind is TriggerKind.AGENT
    assert child.trigger.payload == {"assignment": "count the chairs", "from": "lead"}
    lineage = child.trigger.lineage
    assert (lineage.root_run, lineage.parent_run, lineage.parent) == (run.run_id, run.run_id, "lead")
    assert (lineage.depth, lineage.role.value) == (1, "sub_agent")
    assert "run_waiting" in journal
    assert "run_continued" in journal


async def test_the_ledger_says_of_a_started_run_who_asked_for_the_one_above_it(world):
    world.define("lead", calls(sub("clerk", "count the chairs")), DONE)
    world.define("clerk", DONE)
    trigger = Trigger(TriggerKind.API, submitters=("key:ada",))
    async with world.runtime() as runtime:
        await runtime.outcome(await runtime.submit(AgentRef.parse("lead"), trigger))
        told = await runtime.store.read(LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.RUN))

    assert [each.record.data["by"] for each in told] == [["key:ada"], ["key:ada"]]


async def test_a_long_assignment_is_before_the_eyes_of_the_started_agent_whole(world):
    assignment = " ".join(f"word{number}" for number in range(2_000))
    world.define("lead", calls(sub("clerk", assignment)), DONE)
    world.define("clerk", DONE)
    async with world.runtime() as runtime:
        [result] = await results(runtime, await runtime.trigger("lead"))
        journal = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, result["content"]["run_id"]))

    [prompt] = [entry.data["user"] for entry in journal if entry.kind is EntryKind.PROMPT_BUILT]
    assert assignment in prompt


async def test_agent_tools_of_one_turn_run_beside_each_other_and_all_are_waited_for(world):
    """tool-registry: agent tools run in parallel with wait-all; the failure of one cancels none, and the model sees both."""
    met = threading.Barrier(3)

    @world.app.tool("meet")
    def meet() -> int:
        return met.wait(60)

    world.define(
        "lead",
        calls(
            worker("clerk", "a", "one"), worker("clerk", "b", "two"), sub("breaker", "three"), worker("clerk", "c", "4")
        ),
        DONE,
    )
    world.define("clerk", calls(("shop.meet", {})), {"text": "met"})
    world.define("breaker", {"error": {"message": "the provider is on fire", "type": "refused"}})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        ended = await results(runtime, run)
        journal = await kinds(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert run.result.turns == 2
    assert sorted(each["content"]["answer"] for each in ended if "content" in each) == ["met"] * 3
    [error] = [each["error"] for each in ended if "error" in each]
    assert (error["type"], error["retryable"]) == ("child_failed", False)
    assert "the provider is on fire" in error["message"]
    assert error["details"]["status"] == "failed"
    assert journal.count("run_waiting") == 1
    assert "run_resumed" not in journal


async def test_a_worker_is_one_agent_that_keeps_its_name_and_its_outcomes(world):
    world.define(
        "lead",
        calls(worker("clerk", "anna", "first")),
        calls(worker("clerk", "anna", "second"), sub("clerk", "third")),
        calls(("agent.list_workers", {}), ("agent.inspect_agent", {"agent_id": "clerk:lead.anna"})),
        DONE,
    )
    world.define("clerk", {"text": "did {{ payload.assignment }}"})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        told = {each["tool"]: each["content"] for each in (await results(runtime, run))[-2:]}

    workers, anna = told["agent.list_workers"], told["agent.inspect_agent"]
    by_name = {each["worker"]: each for each in workers["workers"]}
    assert by_name["anna"] == {key: anna[key] for key in by_name["anna"]}
    assert by_name["anna"]["agent_id"] == "clerk:lead.anna"
    assert (by_name["anna"]["state"], by_name["anna"]["runs"]) == ("idle", 2)
    assert by_name["anna"]["last_outcome"] == "agent: completed, 0 tool calls. did second"
    assert (anna["last_run"]["status"], anna["last_run"]["answer"]) == ("completed", "did second")
    assert len(by_name) == 2
    assert {each["runs"] for name, each in by_name.items() if name != "anna"} == {1}


async def test_workers_with_long_names_of_an_agent_with_a_long_key_are_listed_too(world):
    world.define(
        "lead",
        calls(worker("clerk", "a" * 32, "first"), worker("clerk", "b", "second")),
        calls(("agent.list_workers", {})),
        DONE,
    )
    world.define("clerk", DONE)
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead:" + "k" * 95)
        listed = (await results(runtime, run))[-1]["content"]["workers"]

    assert {each["worker"] for each in listed} == {"a" * 32, "b"}


async def test_a_fork_is_told_what_its_parents_run_was(world):
    world.define(
        "lead",
        calls(("shop.look", {})) | {"text": "I look first"},
        calls(("agent.fork_agent", {"assignment": "check the chairs"})),
        DONE,
    )
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead", {"room": 7})
        forks = [each for each in await all_runs(runtime) if each.run_id != run.run_id]

    [fork] = forks
    told = fork.trigger.payload["conversation"]
    assert fork.agent.definition == "lead"
    assert fork.trigger.lineage.role.value == "fork"
    assert [each["role"] for each in told] == ["user", "assistant", "tool", "assistant"]
    assert '"room":7' in told[0]["text"]
    assert told[1]["text"] == "I look first"
    assert told[2] == {"role": "tool", "tool": "shop.look", "content": "seen"}


async def test_nothing_runs_twice_wherever_hosts_crash(world):
    """A crash after every step of a family: each call stays one run, and the parent ends with all results."""
    world.define("lead", calls(worker("clerk", "a", "one"), sub("clerk", "two"), worker("clerk", "c", "three")), DONE)
    world.define("clerk", calls(("shop.look", {})), {"text": "did {{ payload.assignment }}"})
    async with world.runtime() as runtime:
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        seen = crashes = 0
        while not (run := await runtime.run(DEFAULT_TENANT, accepted.run_id)).status.final:
            steps = sum(
                [
                    len(await runtime.store.read(JournalOfRun(DEFAULT_TENANT, each.run_id)))
                    for each in await all_runs(runtime)
                ]
            )
            if steps > seen and crashes < 15:
                seen, crashes = steps, crashes + 1
                await runtime.crash_hosts()
            await asyncio.sleep(0)
            await runtime.family.sweep()
        ended = await results(runtime, run)
        family = await all_runs(runtime)

    assert crashes >= 3
    assert run.status is RunStatus.COMPLETED
    assert sorted(each["content"]["answer"] for each in ended) == ["did one", "did three", "did two"]
    assert len(family) == 4
    assert {each.status for each in family} == {RunStatus.COMPLETED}


@pytest.mark.parametrize("committed", [False, True])
async def test_a_store_that_fails_every_second_time_starts_nothing_twice(world, committed, monkeypatch):
    """Half of all transactions are refused, or committed with their answer lost: calls are made again, under the same keys."""
    number = itertools.count()

    async def failing(self, commands, *, apply=SqlStore.apply):
        if next(number) % 2 == 0:
            return await apply(self, commands)
        if committed:
            await apply(self, commands)
        raise StoreUnavailableError("out of paper")

    world.define("lead", calls(worker("clerk", "a", "one", allowed_tools=["*"]), sub("clerk", "two")), DONE)
    world.define("clerk", calls(("shop.act", {"what": "{{ payload.assignment }}"})), {"text": "{{ last.content }}"})
    async with world.runtime() as runtime:
        monkeypatch.setattr(SqlStore, "apply", failing)
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        run = await runtime.outcome(accepted)
        monkeypatch.undo()
        ended = await results(runtime, run)
        family = await all_runs(runtime)

    assert sorted(each["content"]["answer"] for each in ended) == ["did one", "did two"]
    assert sorted(world.effects) == ["one", "two"]
    assert len(family) == 3


async def test_an_agent_whose_start_nobody_confirms_is_ended(world, monkeypatch):
    """The store takes the run, but its answers never come back: the call fails, and what it started is not left to itself."""
    submit = RuntimeAgents.submit

    def lost(self, command):
        submit(self, command)
        raise TimeoutError("no answer")

    world.define("lead", calls(sub("clerk", "one")), DONE, tools={"limits": {"agent.*": {"attempts": 1}}})
    world.define("clerk", {"text": "never", "latency": 60})
    async with world.runtime() as runtime:
        monkeypatch.setattr(RuntimeAgents, "submit", lost)
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)
        [child] = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        while not (child := await runtime.run(DEFAULT_TENANT, child.run_id)).status.final:
            await asyncio.sleep(0)

    assert result["error"]["type"] == "execution_failed"
    assert child.status is RunStatus.CANCELLED


async def test_an_end_that_nobody_told_is_found_by_the_sweep(world):
    world.define("lead", calls(sub("clerk", "count")), DONE)
    world.define("clerk", {"text": "four"})
    async with world.runtime() as runtime:
        runtime.family.ended = lambda run: None
        runtime.family.waits = lambda run, awaited: None
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        while await runtime.family.sweep() == 0:
            await asyncio.sleep(0)
        run = await runtime.outcome(accepted)

    assert run.status is RunStatus.COMPLETED


async def test_the_end_of_a_run_is_the_end_of_those_that_it_waits_for(world):
    """Cancelling a parent cancels what it started; nothing of the family goes on."""
    begun, gate = threading.Semaphore(0), threading.Event()

    @world.app.tool("wait")
    def wait() -> bool:
        begun.release()
        return gate.wait(60)

    world.define("lead", calls(worker("clerk", "a", "one"), worker("clerk", "a", "queued"), sub("clerk", "two")), DONE)
    world.define("clerk", calls(("shop.wait", {})), {"text": "never"})
    async with world.runtime() as runtime:
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        for _ in range(2):
            await asyncio.to_thread(begun.acquire)
        while not (await runtime.run(DEFAULT_TENANT, accepted.run_id)).awaits:
            await asyncio.sleep(0)
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        run = await runtime.outcome(accepted)
        children = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        while not all(each.status.final for each in children):
            await asyncio.sleep(0)
            children = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        gate.set()
        errors = {each["error"]["type"] for each in await results(runtime, run)}

    assert run.status is RunStatus.CANCELLED
    assert len(children) == 3
    assert {each.status for each in children} == {RunStatus.CANCELLED}
    assert errors == {"cancelled"}


async def pending(runtime):
    while not (asked := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
        await asyncio.sleep(0)
    return asked[0].request.approval_id


async def children_of(runtime, run):
    """The runs that another one started, when all of them are over."""
    while True:
        children = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        if all(each.status.final for each in children):
            return children
        await asyncio.sleep(0)


def sleeping(world):
    """Define a clerk whose run does not end by itself, and a lead that starts it beside a call that asks."""
    asking = calls(sub("clerk", "one"), worker("clerk", "a", "two"))
    world.define("lead", asking, DONE, permissions={"ask": ["agent.dispatch_worker"]})
    world.define("clerk", {"text": "never", "latency": 600})


async def test_a_run_that_waits_for_a_person_ends_what_it_started_when_it_ends(world):
    sleeping(world)
    async with world.runtime() as runtime:
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        await pending(runtime)
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        run = await runtime.outcome(accepted)
        [child] = await children_of(runtime, run)

    assert run.status is RunStatus.CANCELLED
    assert child.status is RunStatus.CANCELLED


async def test_an_agent_whose_start_fails_when_it_is_made_again_is_ended(world, monkeypatch):
    """After an approval the call that started a run is made again, and gets an error: nobody will hear of the run any more."""
    sleeping(world)

    def broken(self, tenant, run_id):
        raise ToolFailureError("broken_definition", "it is broken")

    async with world.runtime() as runtime:
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        approval = await pending(runtime)
        monkeypatch.setattr(RuntimeAgents, "run", broken)
        await runtime.decide(DEFAULT_TENANT, approval, ApprovalDecision(Decision.DENY))
        run = await runtime.outcome(accepted)
        [child] = await children_of(runtime, run)
        errors = {each["error"]["type"] for each in await results(runtime, run)}

    assert errors == {"broken_definition", "denied"}
    assert run.status is RunStatus.COMPLETED
    assert child.status is RunStatus.CANCELLED


async def test_the_answer_of_a_started_run_is_fetched_past_the_hooks_that_saw_its_call(world):
    """The call is made again when the run is over, in this process or another: no hook can deny what it let pass."""
    seen = []

    @world.app.before_tool("agent.create_sub_agent")
    def once(use):
        seen.append(use.arguments["assignment"])
        if len(seen) > 1:
            return Deny("only once")
        return Change(arguments={**use.arguments, "assignment": "count the tables"})

    world.define("lead", calls(sub("clerk", "count the chairs")), DONE)
    world.define("clerk", {"text": "did {{ payload.assignment }}"})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)

    assert seen == ["count the chairs"]
    assert result["content"]["answer"] == "did count the tables"
    assert [each["verdict"] for each in result["hooks"]] == ["changed"]
    assert json.loads(result["executed"])["assignment"] == "count the tables"


async def test_a_run_whose_parent_is_over_before_it_begins_does_nothing(world):
    """A call may reach the store after the end of its run: what it starts then ends at once."""
    world.define("lead", DONE)
    world.define("clerk", calls(("shop.act", {"what": "it"})), DONE)
    async with world.runtime() as runtime:
        parent = await runtime.trigger("lead")
        lineage = Lineage(parent.run_id, parent.run_id, parent.agent.agent_id, 1, ChildRole.SUB_AGENT)
        late = Trigger(TriggerKind.AGENT, source=parent.run_id, lineage=lineage)
        run = await runtime.outcome(await runtime.submit(AgentRef.parse("clerk:lead.a"), late))

    assert (run.status, run.result.error.type) == (RunStatus.CANCELLED, "orphaned")
    assert run.result.turns == 0
    assert world.effects == []


async def test_a_started_agent_has_none_of_the_tools_of_those_who_start(world):
    """tool-registry: the blacklist of sub, fork and worker agents is part of the effective set: calls of it are not available."""
    forbidden = sorted(ORCHESTRATING | OUTLASTING)
    world.define("lead", calls(sub("clerk", "try")), DONE)
    world.define("clerk", calls(*((name, {}) for name in forbidden)), DONE)
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)
        child = await runtime.run(DEFAULT_TENANT, result["content"]["run_id"])
        errors = {each["tool"]: each["error"]["type"] for each in await results(runtime, child)}
        ledger = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=child.run_id))
        [visibility] = [each.record.data for each in ledger if each.record.kind is LedgerKind.VISIBILITY]
        own = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))

    assert set(errors.values()) == {"tool_not_available"}
    assert len(errors) == len(forbidden)
    hidden = {tool for each in visibility["hidden"] for tool in each["tools"] if each["by"] == "started"}
    assert hidden == set(forbidden)
    [built] = [each.data for each in own if each.kind is EntryKind.PROMPT_BUILT]
    assert set(built["visible"]) >= AGENT_TOOLS


@pytest.mark.parametrize(
    ("call", "options", "acted"),
    [
        (worker("clerk", "a", "x"), AgentOptions(), "tool_not_available"),
        (worker("clerk", "a", "x", allowed_tools=["shop.*"]), AgentOptions(), "done"),
        (worker("clerk", "a", "x", allowed_tools=["shop.look"]), AgentOptions(), "tool_not_available"),
        (worker("clerk", "a", "x", allowed_tools=["shop.*"]), AgentOptions(grant=("code.*",)), "tool_not_available"),
        (sub("clerk", "x"), AgentOptions(), "done"),
        (sub("clerk", "x", allowed_tools=[]), AgentOptions(), "tool_not_available"),
    ],
)
async def test_a_started_agent_uses_what_its_definition_has_and_all_above_it_grant(world, call, options, acted):
    """tool-registry: a sub-agent does not inherit its parent's set; workers that write have been given these tools by name."""
    world.define("lead", calls(call), DONE, tools={"deny": ["shop.*"]})
    world.define("clerk", calls(("shop.act", {"what": "it"})), DONE)
    async with world.runtime(options) as runtime:
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)
        child = await runtime.run(DEFAULT_TENANT, result["content"]["run_id"])
        [tried] = await results(runtime, child)

    assert tried.get("error", {}).get("type", "done") == acted
    assert world.effects == (["it"] if acted == "done" else [])


async def test_states_are_queried_within_rules_and_grants_and_others_are_not_named(world):
    """agent-tools, requirement 12.2: which states an agent may query is limited."""
    for name in ("stock", "salaries", "plans"):
        world.app.state(name)(lambda: 1)
    asks = [calls(("query_state", {"state_name": name})) for name in ("stock", "salaries", "nothing", "plans")]
    states = {"states": {"deny": ["salaries"]}}
    world.define(
        "lead", *asks, calls(sub("clerk", "x", allowed_tools=["shop.look", "query_state.stock"])), DONE, tools=states
    )
    world.define("clerk", *asks, DONE)
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        *own, answer = await results(runtime, run)
        child = await results(runtime, await runtime.run(DEFAULT_TENANT, answer["content"]["run_id"]))

    assert [each.get("error", {}).get("type") for each in own] == [None, "denied", "invalid_arguments", None]
    assert "tools.states denies salaries" in own[1]["error"]["message"]
    assert own[2]["error"]["details"] == ["state_name: there is no state 'nothing'; there are: plans, stock"]
    assert [each.get("error", {}).get("type") for each in child] == [None, "denied", "denied", "denied"]
    assert "lead did not grant query_state.salaries" in child[1]["error"]["message"]


async def test_a_run_starts_no_more_others_than_its_limit(world):
    """tool-registry: agent tools are subject to max_children_per_run."""
    world.define(
        "lead",
        calls(sub("clerk", "1"), sub("clerk", "2")),
        calls(sub("clerk", "3"), sub("clerk", "4"), ("shop.look", {})),
        DONE,
        limits={"children_per_run": 3},
    )
    world.define("clerk", {"text": "did {{ payload.assignment }}"})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        ended = await results(runtime, run)
        family = await all_runs(runtime)

    assert sorted(each["content"]["answer"] for each in ended[:3] if "content" in each) == ["did 1", "did 2"]
    assert [each["error"]["type"] for each in ended if "error" in each] == ["limit_reached"]
    assert len(family) == 4


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        (sub("nobody", "x"), "unknown_definition"),
        (sub("Not A Name", "x"), "unknown_definition"),
        (sub("secret", "x"), "unknown_definition"),
        (sub("broken", "x"), "broken_definition"),
        (sub("clerk", ""), "invalid_arguments"),
        (worker("clerk", "no.dots", "x"), "invalid_arguments"),
        (("agent.inspect_agent", {"agent_id": "clerk:other.a"}), "unknown_agent"),
        (("agent.inspect_agent", {"agent_id": "lead"}), "unknown_agent"),
        (("agent.inspect_agent", {"agent_id": "?"}), "unknown_agent"),
        (("agent.task_get", {"task_id": "task_0"}), "unknown_task"),
    ],
)
async def test_what_cannot_be_started_or_seen_is_said_at_the_call(world, call, type_):
    world.define("lead", calls(call), DONE)
    world.define("clerk", DONE)
    world.define("secret", DONE)
    world.define("broken", DONE)
    (world.folder / "agents/broken/SOUL.md").write_text("")
    async with world.runtime(AgentOptions(definitions=("lead", "clerk", "broken"))) as runtime:
        await runtime.trigger("clerk:other.a")
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert result["error"]["type"] == type_


async def test_only_definitions_that_may_be_started_are_listed(world):
    world.define("lead", calls(("agent.list_agent_definitions", {})), DONE)
    world.define("clerk", DONE)
    world.define("secret", DONE)
    async with world.runtime(AgentOptions(definitions=("clerk",))) as runtime:
        [result] = await results(runtime, await runtime.trigger("lead"))

    assert result["content"] == {
        "agent_definitions": [{"agent_definition_id": "clerk", "capabilities": "- clerks things"}]
    }


async def test_children_belong_to_the_tenant_of_their_parent_and_no_other_sees_them(world):
    acme = TenantId("acme")
    world.define(
        "lead",
        calls(worker("clerk", "a", "x"), ("agent.list_workers", {})),
        calls(("agent.task_create", {"title": "t", "steps": [{"step_id": "s", "title": "s"}]})),
        calls(("agent.task_list", {}), ("agent.list_workers", {})),
        DONE,
    )
    world.define("clerk", DONE)
    async with world.runtime() as runtime:
        theirs = await runtime.outcome(await runtime.submit(AgentRef.parse("lead", acme), Trigger(TriggerKind.API)))
        ours = await runtime.trigger("lead")
        their_runs = await runtime.store.read(RunFilter(acme))
        told = [await results(runtime, run) for run in (theirs, ours)]
        task_lists = [each["content"] for run in told for each in run if each["tool"] == "agent.task_list"]
        [their_task] = task_lists[0]["tasks"]
        with pytest.raises(NotFoundError):
            await runtime.run(DEFAULT_TENANT, their_runs[0].run_id)
        unknown = await runtime.store.read(TaskById(DEFAULT_TENANT, their_task["task_id"]))

    assert {each.agent.tenant for each in their_runs} == {acme}
    assert len(their_runs) == 2
    assert their_task["task_id"] not in {each["task_id"] for each in task_lists[1]["tasks"]}
    assert unknown is None


async def test_a_child_spends_its_own_budget_and_its_parent_goes_on_when_that_is_gone(world):
    budgets = [{"name": "own", "unit": "calls", "limit": 1, "scope": "agent"}]
    world.define("lead", calls(worker("clerk", "a", "x")), calls(worker("clerk", "a", "y")), {"text": "gave up"})
    world.define("clerk", {"text": "did {{ payload.assignment }}"}, governance={"budgets": budgets})
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        first, second = await results(runtime, run)

    assert first["content"]["answer"] == "did x"
    assert (second["error"]["type"], second["error"]["details"]["error"]) == ("child_failed", "budget_exhausted")
    assert run.result.final_text == "gave up"


async def test_many_parents_wait_for_many_children_on_few_places(world):
    """Who waits holds no place: twenty parents and forty children pass through two hosts of one agent each."""
    world.define("lead", calls(worker("clerk", "a", "x"), sub("clerk", "y")), DONE)
    world.define("clerk", {"text": "did it"})
    async with world.runtime(placement=Placement(warm=1, most=2, heartbeat=0.05, sweep=0.2)) as runtime:
        agents = [AgentRef.parse(f"lead:{number}") for number in range(20)]
        accepted = [await runtime.submit(agent, Trigger(TriggerKind.API)) for agent in agents]
        ended = await asyncio.gather(*map(runtime.outcome, accepted))
        family = await all_runs(runtime)

    assert {run.status for run in ended} == {RunStatus.COMPLETED}
    assert len(family) == 60


async def test_a_parent_waits_for_a_child_that_waits_for_a_person(world):
    world.define("lead", calls(sub("clerk", "x")), DONE)
    world.define("clerk", calls(("shop.act", {"what": "it"})), DONE, permissions={"ask": ["shop.act"]})
    async with world.runtime() as runtime:
        accepted = await runtime.submit(AgentRef.parse("lead"), Trigger(TriggerKind.API))
        while not (asked := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
            await asyncio.sleep(0)
        [approval] = asked
        waiting = await runtime.run(DEFAULT_TENANT, accepted.run_id)
        await runtime.decide(DEFAULT_TENANT, approval.request.approval_id, ApprovalDecision(Decision.ALLOW_ONCE))
        run = await runtime.outcome(accepted)

    assert approval.request.source == accepted.run_id
    assert waiting.status in {RunStatus.WAITING, RunStatus.RUNNING}
    assert run.status is RunStatus.COMPLETED
    assert world.effects == ["it"]


async def test_without_the_setting_there_are_no_agent_tools(world):
    world.define("lead", calls(sub("clerk", "x")), DONE)
    folders = {"agents_dir": world.folder / "agents", "data_dir": world.folder / "data"}
    async with in_process_runtime(**folders, app=world.app) as runtime:
        run = await runtime.trigger("lead")
        [result] = await results(runtime, run)

    assert result["error"]["type"] == "tool_not_available"
    assert not {tool for tool in run.result.tools_called if tool.startswith("agent.")} & AGENT_TOOLS


_ids = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,5}(:[A-Za-z0-9_.@=+-]{1,40})?", fullmatch=True)
_names = st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True)


@pytest.mark.property
@given(parents=st.lists(_ids, min_size=2, max_size=2, unique=True), names=st.lists(_names, min_size=2, max_size=2))
def test_two_agents_never_share_a_child(parents, names):
    children = {child_agent(DEFAULT_TENANT, "clerk", parent, name) for parent in parents for name in set(names)}

    assert len(children) == 2 * len(set(names))


@pytest.mark.property
@given(root=_ids, path=st.lists(st.tuples(st.sampled_from(["lead", "clerk"]), _names), min_size=1, max_size=8))
def test_no_agent_is_started_by_those_that_it_started_itself(root, path):
    """So no agents can wait for each other in a ring, however deep they start each other."""
    agents = [AgentRef.parse(root)]
    for definition, name in path:
        agents.append(child_agent(DEFAULT_TENANT, definition, agents[-1].agent_id, name))

    assert len(set(agents)) == len(agents)
