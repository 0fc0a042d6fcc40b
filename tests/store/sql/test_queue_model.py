"""The queue of an agent, against one so simple that it can be seen to be right."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.store.commands import (
    AgentBusy,
    CancelOutcome,
    CancelRun,
    ClaimRun,
    NothingQueued,
    QueueFull,
    RunAccepted,
    RunClaimed,
    RunFinished,
    SubmitRun,
)
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import AGENT, NOW, activation, ending, submission
from tests.store.sql.emptying import emptied

LIMIT = 4


@dataclass
class Waiting:
    """A run in the model's queue."""

    run_id: str
    urgent: bool
    priority: int
    deadline: float | None
    payload: int
    focus: str | None
    """What a trigger must have to join; None where none may."""
    merged: int = 1


@dataclass
class Queue:
    """What the port says, in the fewest words."""

    waiting: list[Waiting] = field(default_factory=list)
    running: Waiting | None = None
    interrupted_by: str | None = None
    cancelled: bool = False

    def submit(self, number, busy, priority, deadline, focus):
        coalesces = busy is BusyPolicy.COALESCE
        for run in self.waiting:
            if coalesces and run.focus == focus:
                run.payload, run.merged = number, run.merged + 1
                run.priority = max(run.priority, priority)
                run.deadline = None if None in (run.deadline, deadline) else max(run.deadline, deadline)
                return ("merged", run.run_id)
        if busy is BusyPolicy.REJECT and (self.running or self.waiting):
            return ("busy", (self.running or self.in_order()[0]).run_id)
        if len(self.waiting) >= LIMIT:
            return ("full", LIMIT)
        urgent = busy is BusyPolicy.INTERRUPT
        new = Waiting(f"run_{number}", urgent, priority, deadline, number, focus if coalesces else None)
        self.waiting.append(new)
        if urgent and self.running and not self.cancelled:
            self.cancelled, self.interrupted_by = True, new.run_id
            return ("interrupted", self.running.run_id)
        return ("accepted", new.run_id)

    def claim(self):
        if self.running is None and self.waiting:
            self.running, self.cancelled, self.interrupted_by = self.in_order()[0], False, None
            self.waiting.remove(self.running)
        run = self.running
        if run is None:
            return None
        return (run.run_id, run.priority, run.deadline, run.payload, run.merged, self.cancelled, self.interrupted_by)

    def finish(self):
        self.running = None
        return self.claim()

    def cancel(self, run_id):
        self.waiting = [run for run in self.waiting if run.run_id != run_id]
        if self.running and self.running.run_id == run_id:
            self.cancelled = True

    def in_order(self):
        return sorted(self.waiting, key=lambda run: (not run.urgent, -run.priority))


def told(outcome):
    """An outcome of the store in the model's words."""
    match outcome:
        case RunAccepted(run_id, merged=merged, interrupted=interrupted):
            return ("interrupted", interrupted) if interrupted else ("merged" if merged else "accepted", run_id)
        case AgentBusy(which) | QueueFull(which):
            return ("busy" if isinstance(outcome, AgentBusy) else "full", which)
        case RunFinished(next=following):
            return told(following)
        case RunClaimed(run):
            deadline = None if run.deadline is None else (run.deadline - NOW).total_seconds()
            payload, merged = run.trigger.payload, run.trigger.merged
            done = (run.cancel_requested, run.interrupted_by)
            return (run.run_id, run.priority, deadline, payload, merged, *done)
        case NothingQueued() | None | CancelOutcome():
            return None
    raise AssertionError(outcome)


submits = st.tuples(
    st.sampled_from([BusyPolicy.ENQUEUE, *BusyPolicy]),
    st.sampled_from([0, 0, 0, 5, -5]),
    st.sampled_from([None, 1.0, 2.0]),
    st.sampled_from(["a", "b"]),
)
steps = st.lists(
    st.one_of(submits, submits, submits, st.just("claim"), st.just("finish"), st.integers(0, 12)), max_size=40
)


def script(model, steps):
    """Return the commands of the steps and what the model says of each: the model knows what can be finished and cancelled."""
    commands, expected, entries = [], [], {}
    for number, step in enumerate(steps):
        match step:
            case (busy, priority, deadline, focus):
                commands.append(command_of(number, busy, priority, deadline, focus))
                expected.append(model.submit(number, busy, priority, deadline, focus))
                said, run_id = expected[-1]
                if said == "merged":
                    entries[run_id] = entries.get(run_id, 0) + 1
            case "claim":
                commands.append(ClaimRun(AGENT, 1, NOW))
                expected.append(model.claim())
            case "finish" if model.running is not None:
                run_id = model.running.run_id
                commands.append(ending(run_id, 3 + entries.get(run_id, 0)))
                expected.append(model.finish())
            case int(which) if any(
                known.run_id == f"run_{which}" for known in (*model.waiting, model.running) if known
            ):
                commands.append(CancelRun(AGENT.tenant, f"run_{which}", NOW))
                expected.append(model.cancel(f"run_{which}"))
    return commands, expected


def command_of(number, busy, priority, deadline, focus) -> SubmitRun:
    plain = submission(f"run_{number}", payload=number)
    trigger = replace(plain.trigger, focus=focus)
    until = None if deadline is None else NOW + timedelta(seconds=deadline)
    return replace(plain, trigger=trigger, busy=busy, priority=priority, deadline=until, queue_limit=LIMIT)


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def model_store(request, runner, tmp_path_factory):
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('model')}/owlclaw.db"
    else:
        url = request.getfixturevalue("postgres_server").url("owlclaw")
    store = runner.run(open_store(url, writer="keeper"))
    yield store
    runner.run(store.close())


async def outcomes_of(store, groups):
    await store._database.write(emptied)
    store._applier._loader._known_agents.clear()
    await store.apply([activation("act_1")])
    return [told(outcome) for group in groups for outcome in await store.apply(group)]


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, size=st.integers(1, 12))
def test_every_turn_goes_to_whom_the_model_gives_it(runner, model_store, steps, size):
    model = Queue()
    drained = ["claim", *["finish"] * len(steps)]
    commands, expected = script(model, [*steps, *drained])
    groups = [commands[at : at + size] for at in range(0, len(commands), size)]

    assert runner.run(outcomes_of(model_store, groups)) == expected
    assert not model.waiting
