"""Random histories of a whole runtime, with every promise of the design checked after each step.

Each example is a history of up to 120 steps in a world where nothing happens by itself (tests/world.py): triggers,
cancels, model replies, tool results, approvals and their end, store failures before and after the commit, crashes of hosts, of
Directories, of all of a node, drains, and the passing of time, in any order, on two nodes with Directories and hosts of their
own over one store. At the end everything is healed and has to come to rest.

The regular suite runs 152 histories, in four tests that may run beside one another, and makes sure that they took 10,000 steps
or so: many are shorter than they may be. To begin a world and to bring it to rest costs as much as 20 steps, so a few long
histories are cheaper than many short ones. `make test-long` runs ten times as many.
"""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, BusyPolicy
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    AwaitApprovals,
    ClaimRun,
    DecideApproval,
    ExpireApproval,
    FinishRun,
    ReleaseAgent,
    SubmitRun,
)
from owlclaw_ray.store.queries import LedgerBreaks
from tests.world import AGENTS, DISASTERS, Definitions, Fate, World, new_stores

pytestmark = [pytest.mark.property, pytest.mark.timeout(36 * settings.default.max_examples)]

DATABASE, STORES = new_stores()
HISTORIES = settings(
    max_examples=settings.default.max_examples * 3 // 2 + 1,
    stateful_step_count=120,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
nodes = st.sampled_from([0, 0, 0, 1])
admissions = st.sampled_from(
    [
        ENQUEUED,
        ENQUEUED,
        Admission(priority=5),
        Admission(deadline=2.0),
        *(Admission(busy) for busy in BusyPolicy),
        Admission(BusyPolicy.COALESCE, priority=3, deadline=9.0),
    ]
)
picks = st.integers(0, 7)
kinds = st.sampled_from(
    [
        *[AppendJournal] * 2,
        *[FinishRun] * 3,
        *[AwaitApprovals, DecideApproval, ExpireApproval],
        *[ClaimRun, ActivateAgent, ReleaseAgent, SubmitRun],
    ]
)
wanted = st.lists(
    st.sampled_from(["look", "look", "put", "act", "probe", "risk", "peek", "unheard_of"]), min_size=1, max_size=4
)


@pytest.fixture(autouse=True)
def _silence():
    """Nobody reads ten thousand steps of warnings, and formatting them costs more than the steps."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Histories(RuleBasedStateMachine):
    steps = 0

    def __init__(self):
        super().__init__()
        self.begun = False
        self.loop = asyncio.new_event_loop()
        self.do(self._begin)

    def do(self, action, *args):
        async def act():
            found = action(*args)
            if asyncio.iscoroutine(found):
                await found
            await self.world.clock.settle()

        self.loop.run_until_complete(act())

    async def _begin(self):
        self.world = World(DATABASE, STORES, Definitions(expires=10.0))
        for node in self.world.nodes:
            await node.start()

    def node(self, at):
        return self.world.nodes[at]

    @initialize(agents=st.lists(st.sampled_from(AGENTS), min_size=2, max_size=6))
    def triggers_came_before(self, agents):
        for agent in agents:
            self.do(self.node(0).submit, agent, "x")

    @rule(node=nodes, agent=st.sampled_from(AGENTS), payload=st.sampled_from([None, "x"]), admission=admissions)
    def a_trigger_comes(self, node, agent, payload, admission):
        self.do(self.node(node).submit, agent, payload, None, admission)

    @rule(
        node=nodes,
        agent=st.sampled_from(AGENTS[:2]),
        key=st.sampled_from("kl"),
        payload=st.sampled_from("xxy"),
        admission=admissions,
    )
    def a_trigger_comes_with_a_key(self, node, agent, key, payload, admission):
        self.do(self.node(node).submit, agent, payload, key, admission)

    @precondition(lambda self: self.world.models.pending)
    @rule(pick=picks, names=wanted)
    def a_model_asks_for_tools(self, pick, names):
        pending = self.world.models.pending
        self.do(self.world.answer_model, pending[pick % len(pending)], *names)

    @precondition(lambda self: self.world.models.pending)
    @rule(pick=picks, end=st.sampled_from(["done", "done", "unavailable", "refused"]))
    def a_model_is_done_or_fails(self, pick, end):
        call = self.world.models.pending[pick % len(self.world.models.pending)]
        self.do(self.world.answer_model, call) if end == "done" else self.do(self.world.fail_model, call, end)

    @precondition(lambda self: self.world.tools)
    @rule(pick=picks, error=st.sampled_from([None, None, "it broke"]))
    def a_tool_ends(self, pick, error):
        self.do(self.world.end_tool, self.world.tools[pick % len(self.world.tools)], error)

    @precondition(lambda self: self.world.models.pending or self.world.tools)
    @rule(names=st.just([]) | wanted)
    def all_models_and_tools_answer(self, names):
        self.do(self.world.answer_all, names)

    @precondition(lambda self: self.world.witness.last_entry)
    @rule(node=nodes, pick=picks)
    def a_run_is_cancelled(self, node, pick):
        known = sorted(self.world.witness.last_entry, reverse=True)
        self.do(self.node(node).cancel, known[pick % len(known)])

    @precondition(lambda self: self.world.witness.running)
    @rule(pick=picks)
    def a_run_is_cancelled_and_its_host_does_not_hear_of_it(self, pick):
        running = sorted(self.world.witness.running.values())
        self.do(self.world.cancel_in_the_store, running[pick % len(running)])

    @precondition(lambda self: self.world.witness.waiting)
    @rule(node=nodes, pick=picks, decision=st.sampled_from(Decision))
    def a_person_decides(self, node, pick, decision):
        self.do(self.node(node).decide, pick, decision)

    @precondition(lambda self: self.world.witness.waiting)
    @rule(node=nodes)
    def approvals_end_whose_time_is_over(self, node):
        self.do(self.node(node).expire)

    @rule(seconds=st.sampled_from([0.05, 0.05, 1.0, 4.0, 11.0]))
    def time_passes(self, seconds):
        self.do(self.world.clock.advance, seconds)

    @rule(node=nodes, kind=kinds, fate=st.sampled_from(DISASTERS))
    def a_transaction_is_ambushed(self, node, kind, fate):
        self.node(node).gate.ambushes.append((kind, fate))

    @precondition(lambda self: any(node.gate.open for node in self.world.nodes))
    @rule(node=nodes)
    def the_store_is_held_up(self, node):
        self.node(node).gate.open = False

    @precondition(lambda self: any(node.gate.waiting for node in self.world.nodes))
    @rule(fate=st.sampled_from([Fate.COMMIT, Fate.COMMIT, Fate.COMMIT, *DISASTERS]))
    def a_transaction_meets_its_fate(self, fate):
        node = next(node for node in self.world.nodes if node.gate.waiting)
        self.do(node.gate.decide, fate)

    @precondition(lambda self: not all(node.gate.open for node in self.world.nodes))
    @rule()
    def the_store_works_again(self):
        for node in self.world.nodes:
            node.gate.open = True
            self.do(node.gate.decide, Fate.COMMIT)

    @rule(node=nodes, pick=picks)
    def a_host_is_killed(self, node, pick):
        hosts = self.node(node).hosts
        if hosts:
            self.do(hosts[pick % len(hosts)].crash)

    @rule(
        node=nodes,
        what=st.sampled_from(["directory", "node", "drain"]),
        fate=st.sampled_from([Fate.COMMIT, Fate.REFUSE]),
        grace=st.sampled_from([0.0, 2.0]),
    )
    def a_part_is_ended_and_started_again(self, node, what, fate, grace):
        node = self.node(node)
        match what:
            case "directory":
                self.do(node.restart_directory)
            case "node":
                self.do(node.gate.decide, fate)
                self.do(node.kill)
            case "drain":
                self.do(node.stop, grace)

    @invariant()
    def no_promise_is_broken(self):
        type(self).steps += self.begun
        self.begun = True
        assert not self.world.witness.violations, self.world.witness.violations

    def teardown(self):
        try:
            if not self.world.witness.violations:
                self.loop.run_until_complete(self._end())
        finally:
            self._close()

    async def _end(self):
        world = self.world
        at_rest = await world.come_to_rest()
        world.witness.audit(world.database.tables)
        breaks = await world.nodes[0].gate.read(LedgerBreaks("default"))
        assert not world.witness.violations, world.witness.violations
        assert at_rest
        assert world.acknowledged <= world.witness.last_entry.keys()
        assert not breaks

    def _close(self):
        self.loop.run_until_complete(self.world.end())
        self.loop.close()


@pytest.mark.parametrize("quarter", range(4))
def test_no_promise_is_broken_in_any_history(quarter):
    class Quarter(Histories):
        steps = 0

    run_state_machine_as_test(Quarter, settings=HISTORIES)

    assert Quarter.steps >= 90 * settings.default.max_examples
