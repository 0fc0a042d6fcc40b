"""Tasks against a small model of them, and each refusal by its name."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.task import Claim, Step, StepStatus, Task, TaskRefusedError, TaskStatus, checked_steps

OWNER = AgentRef.parse("lead")
RUNS = ("run_1", "run_2")


def task(*steps, **more):
    return Task("task_1", OWNER, "title", "goal", checked_steps(steps), **more)


def claim(run="run_1", key="key"):
    return Claim("clerk:lead.a", run, key)


def refusal(change):
    with pytest.raises(TaskRefusedError) as caught:
        change()
    return caught.value.type


A, B = Step("a", "A"), Step("b", "B", depends_on=("a",))


@pytest.mark.parametrize(
    ("steps", "type_"),
    [
        ((), "wrong_steps"),
        (tuple(Step(f"s{number}", "s") for number in range(101)), "wrong_steps"),
        ((A, Step("a", "again")), "duplicate_step"),
        ((Step("a", "A", depends_on=("c",)),), "unknown_dependency"),
        ((Step("a", "A", depends_on=("a",)),), "cycle"),
        ((Step("a", "A", depends_on=("b",)), B), "cycle"),
    ],
)
def test_steps_that_cannot_be_done_are_refused_and_named(steps, type_):
    assert refusal(lambda: checked_steps(steps)) == type_


def test_a_cycle_is_told_as_the_steps_that_wait_for_each_other():
    ring = [Step("a", "a", depends_on=("c",)), Step("b", "b", depends_on=("a",)), Step("c", "c", depends_on=("b",))]

    with pytest.raises(TaskRefusedError, match=r"(a → c → b → a|c → b → a → c|b → a → c → b)$"):
        checked_steps([Step("free", "x"), *ring, Step("behind", "y", depends_on=("a",))])


def test_a_step_is_claimed_by_one_run_and_only_when_what_it_depends_on_is_completed():
    open_ = task(A, B)

    assert refusal(lambda: open_.claimed("b", claim())) == "step_not_ready"
    taken, step = open_.claimed(None, claim())
    assert step.step_id == "a"
    assert refusal(lambda: taken.claimed("a", claim("run_2", "other"))) == "step_not_ready"
    assert refusal(lambda: taken.claimed(None, claim("run_2", "other"))) == "no_ready_step"
    assert taken.claimed("a", claim()) == (taken, step)
    done = taken.moved("a", StepStatus.COMPLETED, "it is so", "run_1")
    assert [each.step_id for each in done.ready()] == ["b"]


def test_a_step_is_moved_by_the_run_that_claimed_it_or_by_the_owner():
    taken, _ = task(A, B).claimed("a", claim())

    assert refusal(lambda: taken.moved("a", StepStatus.COMPLETED, "", "run_2")) == "not_your_step"
    assert refusal(lambda: taken.moved("b", StepStatus.COMPLETED, "", "run_1")) == "not_your_step"
    assert refusal(lambda: taken.moved("c", StepStatus.COMPLETED, "", "run_1")) == "unknown_step"
    assert refusal(lambda: taken.moved("b", StepStatus.COMPLETED, "", None)) == "wrong_transition"
    failed = taken.moved("a", StepStatus.FAILED, "no paper", "run_1")
    assert refusal(lambda: failed.moved("a", StepStatus.PENDING, "", "run_1")) == "wrong_transition"
    again = failed.moved("a", StepStatus.PENDING, "", None)
    assert (again.step("a").claim, again.is_ready(again.step("a"))) == (None, True)
    assert taken.moved("a", StepStatus.PENDING, "", "run_1").step("a").claim is None


def test_a_task_completes_with_all_its_steps_and_otherwise_cancels_those_that_are_open():
    taken, _ = task(A, B).claimed("a", claim())

    assert refusal(lambda: taken.ended(TaskStatus.COMPLETED, "")) == "steps_left"
    cancelled = taken.ended(TaskStatus.CANCELLED, "not wanted")
    assert {step.status for step in cancelled.steps} == {StepStatus.CANCELLED}
    assert cancelled.ended(TaskStatus.CANCELLED, "not wanted") == cancelled
    assert refusal(lambda: cancelled.ended(TaskStatus.FAILED, "")) == "task_over"
    assert refusal(lambda: cancelled.claimed(None, claim("run_2", "k"))) == "task_over"
    assert refusal(lambda: cancelled.moved("a", StepStatus.COMPLETED, "", "run_1")) == "task_over"
    assert refusal(lambda: cancelled.revised("t", None, (), ())) == "task_over"


def test_only_pending_steps_are_replaced_or_removed_and_the_rest_still_has_to_fit():
    taken, _ = task(A, B).claimed("a", claim())

    assert refusal(lambda: taken.revised(None, None, (replace(A, title="x"),), ())) == "step_not_pending"
    assert refusal(lambda: taken.revised(None, None, (), ("a",))) == "step_not_pending"
    assert refusal(lambda: taken.revised(None, None, (), ("z",))) == "unknown_step"
    assert refusal(lambda: task(A, B).revised(None, None, (), ("a",))) == "unknown_dependency"
    other = taken.revised("new", None, (Step("c", "C"), replace(B, title="B2")), ())
    assert [(step.step_id, step.title) for step in other.steps] == [("a", "A"), ("b", "B2"), ("c", "C")]
    assert (other.title, other.goal, other.version) == ("new", "goal", taken.version + 1)


def test_a_call_that_changed_a_task_is_known_by_its_key_for_a_while():
    changed = task(A)
    for number in range(150):
        changed = changed.noting(f"key{number}")

    assert changed.applied == tuple(f"key{number}" for number in range(50, 150))


@dataclass
class Model:
    """What a task should be, as sets."""

    needs: dict
    pending: set
    claimed: dict = field(default_factory=dict)
    completed: set = field(default_factory=set)
    failed: set = field(default_factory=set)
    over: bool = False

    def ready(self):
        return set() if self.over else {each for each in self.pending if self.needs[each] <= self.completed}

    def claim(self, step, run):
        if step not in self.ready():
            return False
        self.pending.discard(step)
        self.claimed[step] = run
        return True

    def move(self, step, status, run):
        mine = run is None or self.claimed.get(step) == run
        if self.over or not mine:
            return False
        if step in self.claimed:
            del self.claimed[step]
        elif not (step in self.failed and status is StepStatus.PENDING and run is None):
            return False
        for into in (self.pending, self.completed, self.failed):
            into.discard(step)
        where = {StepStatus.PENDING: self.pending, StepStatus.COMPLETED: self.completed, StepStatus.FAILED: self.failed}
        where[status].add(step)
        return True

    def end(self, status):
        if self.over or (status is TaskStatus.COMPLETED and self.completed != set(self.needs)):
            return False
        self.over = True
        return True


SIZE = 5
edges = st.sets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).filter(lambda edge: edge[0] > edge[1]))
names = st.integers(0, SIZE - 1).map(lambda number: f"s{number}")
moves = st.one_of(
    st.tuples(st.just("claim"), names, st.sampled_from(RUNS)),
    st.tuples(st.just("claim"), names, st.sampled_from(RUNS)),
    st.tuples(
        st.sampled_from([StepStatus.COMPLETED, StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.PENDING]),
        names,
        st.sampled_from([*RUNS, None]),
    ),
    st.tuples(st.sampled_from([TaskStatus.COMPLETED, TaskStatus.COMPLETED, TaskStatus.CANCELLED]), names, st.none()),
)


@pytest.mark.property
@given(edges=edges, history=st.lists(moves, max_size=40))
def test_whatever_is_tried_a_task_stands_as_its_model_says(edges, history):
    needs = {f"s{at}": {f"s{low}" for high, low in edges if high == at} for at in range(SIZE)}
    present = task(*(Step(name, name, depends_on=tuple(sorted(needs[name]))) for name in needs))
    model = Model(needs, set(needs))

    for number, (what, step, run) in enumerate(history):
        before = present
        match what:
            case "claim":
                allowed = model.claim(step, run)
                change = lambda: present.claimed(step, claim(run, f"key{number}"))[0]  # noqa: B023, E731
            case StepStatus():
                known = present.step(step)
                if known.status is what and (run is None or (known.claim and known.claim.run_id == run)):
                    continue
                allowed = model.move(step, what, run)
                change = lambda: present.moved(step, what, "", run)  # noqa: B023, E731
            case TaskStatus():
                if present.status is what:
                    continue
                allowed = model.end(what)
                change = lambda: present.ended(what, "")  # noqa: B023, E731
        if allowed:
            present = change()
            assert present.version == before.version + 1
        else:
            with pytest.raises(TaskRefusedError):
                change()
        assert {each.step_id for each in present.ready()} == model.ready()
        assert {each.step_id for each in present.steps if each.status is StepStatus.COMPLETED} == model.completed
        claimed = {each.step_id: each.claim.run_id for each in present.steps if each.status is StepStatus.CLAIMED}
        assert claimed == ({} if model.over else model.claimed)
        assert (present.status is not TaskStatus.OPEN) == model.over


@pytest.mark.property
@given(graph=st.dictionaries(names, st.lists(names, max_size=3), min_size=1))
def test_steps_are_accepted_exactly_if_they_can_be_done_one_after_another(graph):
    def can_be_done():
        done = set()
        while ready := {name for name, needs in graph.items() if name not in done and set(needs) <= done}:
            done |= ready
        return done == set(graph)

    steps = [Step(name, name, depends_on=tuple(needs)) for name, needs in graph.items()]

    if can_be_done():
        assert checked_steps(steps) == tuple(steps)
    else:
        assert refusal(lambda: checked_steps(steps)) in {"cycle", "unknown_dependency"}
