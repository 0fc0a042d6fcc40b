"""The part of the store's contract that is about busy policies, priorities, deadlines and the length of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentState
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AgentBusy,
    Appended,
    AppendJournal,
    CancelRun,
    ClaimRun,
    IdempotencyConflict,
    QueueFull,
    ReleaseAgent,
    Released,
    RunAccepted,
    RunClaimed,
    RunFinished,
    SubmitRun,
)
from owlclaw_ray.store.queries import JournalOfRun, LedgerBreaks, LedgerFilter, RunById, RunFilter
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, entries, one, submission

REJECT, COALESCE, INTERRUPT = BusyPolicy.REJECT, BusyPolicy.COALESCE, BusyPolicy.INTERRUPT


def with_policy(busy: BusyPolicy, run_id: str, payload: JsonValue = None, key: str = "", body: str = "b") -> SubmitRun:
    """Return a submission with that policy."""
    return replace(submission(run_id, payload=payload, key=key, body=body), busy=busy)


def with_priority(priority: int, run_id: str) -> SubmitRun:
    """Return a submission with that priority."""
    return replace(submission(run_id), priority=priority)


async def ids_in_order(store: Store) -> Sequence[str]:
    """Execute all runs that AGENT has, and return their ids in the order of their turns."""
    following: RunClaimed | None = await claimed(store)
    found = []
    while following is not None:
        run_id = following.run.run_id
        found.append(run_id)
        finished = await one(store, ending(run_id, following.journal[-1].seq + 1))
        assert isinstance(finished, RunFinished)
        following = finished.next
    return found


class OrderContract:
    """The order of the queue, and its length."""

    async def test_a_higher_priority_goes_first_and_equal_ones_keep_their_order(self, store: Store) -> None:
        await store.apply([activation("act_1"), with_priority(-10, "run_1"), submission("run_2")])
        await store.apply([with_priority(10, "run_3"), submission("run_4"), with_priority(10, "run_5")])

        assert await ids_in_order(store) == ["run_3", "run_5", "run_2", "run_4", "run_1"]

    async def test_a_batch_orders_what_it_queues_and_claims(self, store: Store) -> None:
        await store.apply([activation("act_1"), *(submission(f"run_{at}") for at in range(3))])

        outcomes = await store.apply(
            [
                with_priority(1, "run_3"),
                ClaimRun(AGENT, 1, NOW),
                with_priority(2, "run_4"),
                ending("run_3"),
                CancelRun(AGENT.tenant, RunId("run_0"), NOW),
                ending("run_4"),
            ]
        )

        assert isinstance(outcomes[1], RunClaimed)
        assert isinstance(outcomes[3], RunFinished)
        assert isinstance(outcomes[5], RunFinished)
        assert outcomes[1].run.run_id == "run_3"
        assert outcomes[3].next is not None
        assert outcomes[3].next.run.run_id == "run_4"
        assert outcomes[5].next is not None
        assert outcomes[5].next.run.run_id == "run_1"

    async def test_a_run_that_was_begun_goes_on_before_a_higher_priority(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW), activation("act_2")])
        await one(store, with_priority(10, "run_2"))

        assert (await claimed(store, epoch=2)).run.run_id == "run_1"

    async def test_priority_and_deadline_stay_with_the_run(self, store: Store) -> None:
        deadline = NOW + timedelta(seconds=90)
        await store.apply([replace(with_priority(7, "run_1"), deadline=deadline), activation("act_1")])
        await one(store, replace(with_policy(INTERRUPT, "run_2"), priority=-7))

        stored = [await store.read(RunById(AGENT.tenant, RunId(run_id))) for run_id in ("run_1", "run_2")]
        taken = await claimed(store)

        assert stored[0] is not None
        assert stored[1] is not None
        assert [(run.priority, run.deadline) for run in stored if run] == [(7, deadline), (-7, None)]
        assert (taken.run.run_id, taken.run.priority) == ("run_2", -7)

    async def test_a_full_queue_takes_no_more(self, store: Store) -> None:
        def limited(run_id: str) -> SubmitRun:
            return replace(submission(run_id), queue_limit=2)

        outcomes = await store.apply([limited(f"run_{at}") for at in range(4)])
        stranger = await one(store, replace(submission("run_x", OTHER), queue_limit=2))
        fired = await one(store, submission("run_unlimited"))

        assert [type(outcome) for outcome in outcomes] == [RunAccepted] * 2 + [QueueFull] * 2
        assert outcomes[2] == await one(store, limited("run_4")) == QueueFull(2)
        assert isinstance(stranger, RunAccepted)
        assert isinstance(fired, RunAccepted)
        assert [run.run_id for run in await store.read(RunFilter(AGENT.tenant, agent=AGENT))] == [
            "run_unlimited",
            "run_1",
            "run_0",
        ]

    async def test_a_run_behind_a_queued_one_needs_no_wake_of_its_own_but_an_interrupt_does(self, store: Store) -> None:
        async def follows(command: SubmitRun) -> bool:
            accepted = await one(store, replace(command, queue_limit=9))
            assert isinstance(accepted, RunAccepted)
            return accepted.follows

        assert not await follows(submission("run_1"))
        await store.apply([activation("act_1"), ClaimRun(AGENT, 1, NOW)])
        assert not await follows(submission("run_2")), "run_1 may end before run_2 is committed"
        assert await follows(submission("run_3"))
        assert not await follows(with_policy(INTERRUPT, "run_4"))
        assert not await follows(submission("run_5", OTHER))
        batch = [replace(submission(f"run_{at}", OTHER), queue_limit=9) for at in (6, 7)]
        assert [outcome.follows for outcome in await store.apply(batch) if isinstance(outcome, RunAccepted)] == [
            True
        ] * 2

    async def test_room_in_a_full_queue_is_seen_in_the_same_batch(self, store: Store) -> None:
        await store.apply([activation("act_1"), *(submission(f"run_{at}") for at in range(3))])
        more = [replace(submission(f"run_{at}"), queue_limit=2) for at in (7, 8, 9)]

        outcomes = await store.apply(
            [ClaimRun(AGENT, 1, NOW), more[0], CancelRun(AGENT.tenant, RunId("run_1"), NOW), more[1], more[2]]
        )

        assert [type(outcomes[at]) for at in (1, 3, 4)] == [QueueFull, RunAccepted, QueueFull]

    async def test_a_run_that_is_known_is_accepted_again_into_a_full_queue(self, store: Store) -> None:
        command = replace(submission("run_1", key="k"), queue_limit=1)
        first = await one(store, command)
        assert isinstance(first, RunAccepted)

        assert await one(store, command) == first
        assert await one(store, replace(command, run_id=RunId("run_2"))) == replace(first, duplicate=True)


class RejectionContract:
    """BusyPolicy.REJECT."""

    async def test_an_agent_without_runs_accepts_one(self, store: Store) -> None:
        outcomes = await store.apply([with_policy(REJECT, "run_1"), with_policy(REJECT, "run_2")])

        assert outcomes == [RunAccepted(RunId("run_1"), 1, AGENT), AgentBusy(RunId("run_1"))]
        assert await store.read(RunById(AGENT.tenant, RunId("run_2"))) is None

    async def test_a_running_run_makes_the_agent_busy_until_it_ends(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        refused = await one(store, with_policy(REJECT, "run_2"))
        outcomes = await store.apply([ending("run_1"), with_policy(REJECT, "run_3")])

        assert refused == AgentBusy(RunId("run_1"))
        assert isinstance(outcomes[1], RunAccepted)

    async def test_a_queued_run_behind_one_that_ends_makes_the_agent_busy(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2"), activation("act_1")])

        outcomes = await store.apply(
            [
                ClaimRun(AGENT, 1, NOW),
                ending("run_1", claim_next=False),
                with_policy(REJECT, "run_3"),
                ReleaseAgent(AGENT, 1, AgentState(), NOW),
            ]
        )

        assert outcomes[2:] == [AgentBusy(RunId("run_2")), Released(pending=True)]

    async def test_what_an_idempotency_key_stands_for_goes_before_the_refusal(self, store: Store) -> None:
        first = await one(store, with_policy(REJECT, "run_1", key="k"))
        assert isinstance(first, RunAccepted)

        outcomes = await store.apply(
            [
                with_policy(REJECT, "run_2", key="k"),
                with_policy(REJECT, "run_1", key="k"),
                with_policy(REJECT, "run_3", key="k", body="other"),
                with_policy(REJECT, "run_4", key="free"),
            ]
        )
        await store.apply([activation("act_1"), ClaimRun(AGENT, 1, NOW), ending("run_1")])
        again = await one(store, with_policy(REJECT, "run_4", key="free"))

        assert outcomes == [
            replace(first, duplicate=True),
            first,
            IdempotencyConflict("k"),
            AgentBusy(RunId("run_1")),
        ]
        assert isinstance(again, RunAccepted)
        assert not again.duplicate


class MergingContract:
    """BusyPolicy.COALESCE."""

    async def test_triggers_of_one_batch_merge_into_the_first(self, store: Store) -> None:
        outcomes = await store.apply([with_policy(COALESCE, f"run_{at}", at) for at in (1, 2, 3)])

        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        journal = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))
        first = RunAccepted(RunId("run_1"), 1, AGENT)
        assert outcomes == [first, replace(first, merged=True), replace(first, merged=True)]
        assert run is not None
        assert (run.trigger.payload, run.trigger.merged, run.trigger.focus) == (3, 3, "看看行情")
        assert [(each.kind, each.data) for each in journal[1:]] == [
            (EntryKind.TRIGGER_MERGED, {"trigger_id": "run_2", "merged": 2, "superseded": 1}),
            (EntryKind.TRIGGER_MERGED, {"trigger_id": "run_3", "merged": 3, "superseded": 2}),
        ]
        assert len(await store.read(RunFilter(AGENT.tenant))) == 1

    async def test_a_later_trigger_merges_and_is_executed_in_the_place_of_all(self, store: Store) -> None:
        await store.apply([activation("act_1"), with_policy(COALESCE, "run_1", "old"), submission("run_2")])
        merged = await one(store, with_policy(COALESCE, "run_3", "new"))

        run = await claimed(store)
        assert isinstance(merged, RunAccepted)
        assert (merged.run_id, merged.merged) == ("run_1", True)
        assert (run.run.run_id, run.run.trigger.payload, run.run.trigger.merged) == ("run_1", "new", 2)
        assert [(each.seq, each.kind) for each in run.journal] == [
            (1, EntryKind.RUN_QUEUED),
            (3, EntryKind.RUN_STARTED),
        ]
        assert run == await claimed(store)
        stored = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))
        assert [each.kind for each in stored] == [
            EntryKind.RUN_QUEUED,
            EntryKind.TRIGGER_MERGED,
            EntryKind.RUN_STARTED,
        ]
        resumed = (await store.apply([activation("act_2"), ClaimRun(AGENT, 2, NOW)]))[1]
        assert isinstance(resumed, RunClaimed)
        assert [each.seq for each in resumed.journal] == [1, 3, 4]

    async def test_only_triggers_of_the_same_kind_and_focus_with_the_policy_merge(self, store: Store) -> None:
        others = [
            submission("run_1"),
            replace(with_policy(COALESCE, "run_2"), trigger=replace(submission("").trigger, focus="other")),
            replace(with_policy(COALESCE, "run_3"), agent=OTHER),
        ]
        await store.apply(others)

        outcome = await one(store, with_policy(COALESCE, "run_4"))

        assert isinstance(outcome, RunAccepted)
        assert (outcome.run_id, outcome.merged) == ("run_4", False)
        assert len(await store.read(RunFilter(AGENT.tenant))) == 4

    async def test_a_run_that_began_or_was_cancelled_takes_no_more_triggers(self, store: Store) -> None:
        await store.apply([activation("act_1"), with_policy(COALESCE, "run_1"), ClaimRun(AGENT, 1, NOW)])

        second = await one(store, with_policy(COALESCE, "run_2"))
        outcomes = await store.apply(
            [CancelRun(AGENT.tenant, RunId("run_2"), NOW), with_policy(COALESCE, "run_3"), with_policy(COALESCE, "r_4")]
        )

        assert isinstance(second, RunAccepted)
        assert (second.run_id, second.merged) == ("run_2", False)
        assert outcomes[1:] == [
            RunAccepted(RunId("run_3"), 3, AGENT),
            RunAccepted(RunId("run_3"), 3, AGENT, merged=True),
        ]

    async def test_the_higher_priority_and_the_later_deadline_hold(self, store: Store) -> None:
        soon, late = NOW + timedelta(seconds=1), NOW + timedelta(seconds=2)

        def merging(run_id: str, priority: int, **more: object) -> SubmitRun:
            return replace(with_policy(COALESCE, run_id), priority=priority, **more)

        await store.apply([activation("act_1"), with_priority(4, "run_0"), merging("run_1", 3, deadline=late)])
        await one(store, merging("run_2", 5, deadline=soon))
        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        assert run is not None
        assert (run.priority, run.deadline) == (5, late)

        claim = (await store.apply([merging("run_3", 1), ClaimRun(AGENT, 1, NOW)]))[1]
        assert isinstance(claim, RunClaimed)
        assert (claim.run.run_id, claim.run.priority, claim.run.deadline) == ("run_1", 5, None)

    async def test_a_merged_trigger_that_is_submitted_again_changes_nothing(self, store: Store) -> None:
        command = with_policy(COALESCE, "run_2", "new")
        outcomes = await store.apply([with_policy(COALESCE, "run_1", "old"), command, command])
        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        await store.apply([activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        assert await one(store, command) == outcomes[1] == outcomes[2]
        assert run is not None
        assert run.trigger.merged == 2
        assert len(await store.read(RunFilter(AGENT.tenant))) == 1

    async def test_the_idempotency_key_of_a_merged_trigger_stands_for_the_run_it_joined(self, store: Store) -> None:
        await store.apply([with_policy(COALESCE, "run_1", "old"), with_policy(COALESCE, "run_2", "new", key="k")])

        again = await one(store, with_policy(COALESCE, "run_3", "new", key="k"))

        assert again == RunAccepted(RunId("run_1"), 1, AGENT, duplicate=True)

    async def test_merging_needs_no_room_in_the_queue(self, store: Store) -> None:
        first, second = (replace(with_policy(COALESCE, f"run_{at}"), queue_limit=1) for at in (1, 2))

        outcomes = await store.apply([first, second, replace(submission("run_3"), queue_limit=1)])

        assert [type(outcome) for outcome in outcomes] == [RunAccepted, RunAccepted, QueueFull]

    async def test_merges_are_in_the_ledger(self, store: Store) -> None:
        await store.apply([with_policy(COALESCE, f"run_{at}", at) for at in (1, 2)])

        (found,) = await store.read(LedgerFilter(AGENT.tenant, run_id=RunId("run_1")))

        assert found.record.kind is LedgerKind.TRIGGER
        assert found.record.data == {"what": "merged", "trigger_id": "run_2", "merged": 2}
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []


class InterruptionContract:
    """BusyPolicy.INTERRUPT."""

    async def test_the_running_run_is_to_end_and_the_new_one_is_next(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1"), with_priority(10, "run_2")])
        await store.apply([ClaimRun(AGENT, 1, NOW), submission("run_3")])

        outcome = await one(store, with_policy(INTERRUPT, "run_4"))
        told = await one(store, AppendJournal(RunId("run_2"), AGENT, 1, entries(3, EntryKind.MODEL_REPLIED)))
        run = await store.read(RunById(AGENT.tenant, RunId("run_2")))

        assert outcome == RunAccepted(RunId("run_4"), 4, AGENT, interrupted=RunId("run_2"))
        assert told == Appended(cancel_requested=True, interrupted_by=RunId("run_4"))
        assert run is not None
        assert (run.status, run.cancel_requested, run.interrupted_by) == (RunStatus.RUNNING, True, "run_4")
        assert await ids_in_order(store) == ["run_2", "run_4", "run_1", "run_3"]

    async def test_interrupts_are_ordered_by_priority_and_then_by_acceptance(self, store: Store) -> None:
        await store.apply(
            [activation("act_1"), submission("run_0"), ClaimRun(AGENT, 1, NOW), with_priority(9, "run_9")]
        )
        urgent = [replace(with_policy(INTERRUPT, f"run_{at}"), priority=at // 3) for at in (1, 2, 3)]

        outcomes = await store.apply(urgent)

        assert [each.interrupted for each in outcomes if isinstance(each, RunAccepted)] == ["run_0", None, None]
        assert await ids_in_order(store) == ["run_0", "run_3", "run_1", "run_2", "run_9"]

    async def test_an_idle_agent_is_not_interrupted(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1")])

        outcomes = await store.apply([with_policy(INTERRUPT, "run_2"), ClaimRun(AGENT, 1, NOW)])

        assert outcomes[0] == RunAccepted(RunId("run_2"), 2, AGENT)
        assert isinstance(outcomes[1], RunClaimed)
        assert outcomes[1].run.run_id == "run_2"

    async def test_a_run_that_is_claimed_in_the_same_batch_is_interrupted(self, store: Store) -> None:
        outcomes = await store.apply(
            [activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW), with_policy(INTERRUPT, "run_2")]
        )

        assert outcomes[3] == RunAccepted(RunId("run_2"), 2, AGENT, interrupted=RunId("run_1"))
        assert (await claimed(store)).run.interrupted_by == "run_2"

    async def test_an_interrupt_that_is_submitted_again_changes_nothing(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW)])
        command = with_policy(INTERRUPT, "run_2")

        first, again = await store.apply([command, command])
        assert await one(store, command) == first == again
        assert isinstance(first, RunAccepted)

        following = (await store.apply([ending("run_1"), command]))[1]
        assert following == replace(first, interrupted=None)
        assert await one(store, command) == following
        run = await store.read(RunById(AGENT.tenant, RunId("run_2")))
        assert run is not None
        assert not run.cancel_requested

    async def test_an_interrupt_that_is_repeated_under_its_key_names_the_run_until_that_has_ended(
        self, store: Store
    ) -> None:
        await store.apply([activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW)])
        first = await one(store, with_policy(INTERRUPT, "run_2", key="k"))
        assert isinstance(first, RunAccepted)

        again = await one(store, with_policy(INTERRUPT, "run_3", key="k"))
        await one(store, ending("run_1"))
        later = await one(store, with_policy(INTERRUPT, "run_4", key="k"))

        assert first.interrupted == "run_1"
        assert again == replace(first, duplicate=True)
        assert later == replace(first, duplicate=True, interrupted=None)

    async def test_a_run_that_is_being_cancelled_is_nobodys_interruption(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW)])
        await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))

        outcome = await one(store, with_policy(INTERRUPT, "run_2"))

        assert outcome == RunAccepted(RunId("run_2"), 2, AGENT)
        assert (await claimed(store)).run.interrupted_by is None

    async def test_a_full_queue_interrupts_nothing(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW), submission("run_2")])

        outcome = await one(store, replace(with_policy(INTERRUPT, "run_3"), queue_limit=1))

        assert outcome == QueueFull(1)
        assert not (await claimed(store)).run.cancel_requested

    async def test_interruptions_are_in_the_ledger(self, store: Store) -> None:
        await store.apply([activation("act_1"), submission("run_1"), ClaimRun(AGENT, 1, NOW)])
        await store.apply([with_policy(INTERRUPT, "run_2")] * 2)

        (found,) = await store.read(LedgerFilter(AGENT.tenant, kind=LedgerKind.TRIGGER))

        assert (found.record.run_id, found.record.data) == ("run_2", {"what": "interrupted", "run_id": "run_1"})
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []


class WritingContract:
    """Whether the store can be written."""

    async def test_a_store_that_takes_commits_is_writable(self, store: Store) -> None:
        await store.check_writable()
        await one(store, submission("run_1"))
        await store.check_writable()

        assert len(await store.read(RunFilter(AGENT.tenant))) == 1


class AdmissionContract(OrderContract, RejectionContract, MergingContract, InterruptionContract, WritingContract):
    """How triggers come to their agents."""
