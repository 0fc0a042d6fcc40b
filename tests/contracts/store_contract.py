"""The contract of every Store, as tests: subclass StoreContract where a fixture `store` gives an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import LARGE, JsonText
from owlclaw_ray.domain.run import RunError, RunResult, RunStatus, Usage
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.ids import AgentId, RunId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AgentActivated,
    Appended,
    AppendJournal,
    CancelOutcome,
    CancelRun,
    ClaimRun,
    CommandFailed,
    IdempotencyConflict,
    NothingQueued,
    ReleaseAgent,
    Released,
    RunAccepted,
    RunClaimed,
    RunFinished,
    StaleEpoch,
)
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentPage,
    AgentsByIds,
    AgentsWithWork,
    JournalOfRun,
    RunById,
    RunFilter,
)
from tests.contracts.store_access_contract import AccessContract
from tests.contracts.store_admission_contract import AdmissionContract
from tests.contracts.store_approval_contract import ApprovalContract
from tests.contracts.store_attempt_contract import AttemptContract
from tests.contracts.store_budget_contract import BudgetContract
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, entries, one, submission
from tests.contracts.store_family_contract import FamilyContract, TaskContract
from tests.contracts.store_follower_contract import AgentPagesContract, FollowingContract
from tests.contracts.store_key_quota_contract import KeyQuotaContract
from tests.contracts.store_lease_contract import LeaseContract
from tests.contracts.store_ledger_contract import LedgerContract
from tests.contracts.store_limit_contract import ConcurrencyLimitsContract
from tests.contracts.store_memory_contract import MemoryContract
from tests.contracts.store_node_contract import NodeContract
from tests.contracts.store_queue_contract import QueueLengthsContract
from tests.contracts.store_quota_contract import QuotaContract
from tests.contracts.store_schedule_contract import ScheduleContract
from tests.contracts.store_usage_contract import UsageContract
from tests.contracts.store_webhook_contract import (
    CallbackContract,
    DeliveryContract,
    ForgettingContract,
    WaitingContract,
)


class SubmissionContract:
    """Accepting and cancelling runs."""

    async def test_a_submitted_run_can_be_read_with_its_journal(self, store: Store) -> None:
        payload = {"价格": [1.5, None, True], "nul": "a\x00b", "名\x00": 2**53}
        accepted = await one(store, submission("run_1", payload=payload))

        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        journal = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))

        assert isinstance(accepted, RunAccepted)
        assert run is not None
        assert (run.seq, run.agent, run.status, run.created_at) == (accepted.seq, AGENT, RunStatus.QUEUED, NOW)
        assert run.trigger == Trigger(TriggerKind.API, payload, "看看行情")
        assert [(each.seq, each.kind) for each in journal] == [(1, EntryKind.RUN_QUEUED)]
        assert journal[0].data == {"trigger": "api", "focus": "看看行情"}

    async def test_a_run_submitted_again_is_the_same_run(self, store: Store) -> None:
        first = await one(store, submission("run_1"))

        assert await store.apply([submission("run_1"), submission("run_1")]) == [first, first]

    async def test_an_idempotency_key_stands_for_its_first_run(self, store: Store) -> None:
        first = await one(store, submission("run_1", key="k"))
        assert isinstance(first, RunAccepted)

        again, resent = await store.apply([submission("run_2", key="k"), submission("run_1", key="k")])

        assert again == replace(first, duplicate=True)
        assert resent == first
        assert await store.read(RunById(AGENT.tenant, RunId("run_2"))) is None

    async def test_an_idempotency_key_is_one_of_its_agent_and_takes_none_from_others(self, store: Store) -> None:
        await store.apply([submission("run_1", OTHER, key="k", body="other")])

        first = await one(store, submission("run_2", key="k"))
        again = await store.apply([submission("run_3", key="k"), submission("run_4", OTHER, key="k", body="other")])

        assert isinstance(first, RunAccepted)
        assert (first.run_id, first.duplicate) == ("run_2", False)
        assert [(each.run_id, each.duplicate) for each in again] == [("run_2", True), ("run_1", True)]  # type: ignore[union-attr]

    async def test_an_idempotency_key_with_another_body_is_a_conflict(self, store: Store) -> None:
        outcomes = await store.apply([submission("run_1", key="k"), submission("run_2", key="k", body="other")])

        assert outcomes[1] == IdempotencyConflict("k")

    async def test_an_expired_idempotency_key_is_free(self, store: Store) -> None:
        later = replace(submission("run_2", key="k", body="other"), at=NOW + timedelta(days=1))

        outcomes = await store.apply([submission("run_1", key="k"), later])

        assert outcomes[1] == RunAccepted(RunId("run_2"), outcomes[1].seq, AGENT)  # type: ignore[union-attr]

    async def test_tenants_do_not_share_keys_and_do_not_see_runs(self, store: Store) -> None:
        stranger = AgentRef.parse("trader:AAPL", TenantId("a/b"))

        await store.apply([submission("run_1", key="k"), submission("run_2", stranger, key="k", body="other")])

        assert await store.read(RunById(stranger.tenant, RunId("run_1"))) is None
        assert await store.read(JournalOfRun(stranger.tenant, RunId("run_1"))) == []
        assert [run.run_id for run in await store.read(RunFilter(stranger.tenant))] == ["run_2"]
        assert [each.agent for each in await store.read(AgentPage(stranger.tenant))] == [stranger]
        assert await one(store, CancelRun(stranger.tenant, RunId("run_1"), NOW)) == CancelOutcome(None)

    async def test_a_command_of_which_nothing_can_be_made_fails_alone(self, store: Store) -> None:
        nobodys = replace(submission("run_2"), agent=None)

        first, failed, third = await store.apply([submission("run_1"), nobodys, submission("run_3")])

        assert isinstance(failed, CommandFailed)
        assert [isinstance(each, RunAccepted) and each.run_id for each in (first, third)] == ["run_1", "run_3"]

    async def test_a_listing_can_do_without_payloads(self, store: Store) -> None:
        payloads = [{"价格": 7}, {"nul": "a\x00b", "名": "价" * LARGE}]
        await store.apply([submission(f"run_{at}", payload=payload) for at, payload in enumerate(payloads)])

        brief = await store.read(RunFilter(AGENT.tenant, payloads=False))
        whole = await store.read(RunFilter(AGENT.tenant))

        assert [run.trigger for run in brief] == [Trigger(TriggerKind.API, None, "看看行情")] * 2
        assert [run.trigger.payload for run in whole] == payloads[::-1]
        assert [replace(run, trigger=brief[0].trigger) for run in whole] == list(brief)

    async def test_a_large_payload_is_text_and_no_claim_brings_it(self, store: Store) -> None:
        payload = {"nul": "a\x00b", "价格": [{"price": at} for at in range(LARGE // 10)]}
        command = submission("run_1", payload=payload)
        await one(store, replace(command, trigger=command.trigger.compact()))

        activated = await one(store, replace(activation("act_1"), claim=True))
        again = await claimed(store, 1)
        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))

        assert isinstance(activated, AgentActivated)
        assert activated.claimed is not None
        assert run is not None
        assert isinstance(run.trigger.content, JsonText)
        assert run.trigger.payload == payload
        for claim in (activated.claimed, again):
            assert claim.payload_left == len(run.trigger.content.text)
            assert claim.run.trigger == replace(run.trigger, content=None)

    async def test_a_small_payload_comes_with_every_claim(self, store: Store) -> None:
        await store.apply([submission("run_1", payload={"价格": 7})])

        activated = await one(store, replace(activation("act_1"), claim=True))

        assert isinstance(activated, AgentActivated)
        assert activated.claimed is not None
        for claim in (activated.claimed, await claimed(store, 1)):
            assert (claim.payload_left, claim.run.trigger.payload) == (0, {"价格": 7})

    async def test_a_large_payload_is_kept_where_triggers_merge_and_told_where_runs_are_cancelled(
        self, store: Store
    ) -> None:
        first, second = (["价" * LARGE, number] for number in (1, 2))
        merging = {"busy": BusyPolicy.COALESCE}
        await store.apply([submission("run_0"), replace(submission("run_1", payload=first), **merging)])

        _, accepted = await store.apply(
            [replace(activation("act_1"), claim=True), replace(submission("run_2", payload=second), **merging)]
        )
        cancelled = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))

        assert isinstance(accepted, RunAccepted)
        assert (accepted.merged, accepted.run_id) == (True, "run_1")
        journal = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))
        assert [entry.data["superseded"] for entry in journal if entry.kind is EntryKind.TRIGGER_MERGED] == [first]
        assert isinstance(cancelled, CancelOutcome)
        assert cancelled.run is not None
        assert cancelled.run.trigger.payload == second

    async def test_runs_are_listed_newest_first_and_filtered(self, store: Store) -> None:
        await store.apply([submission(f"run_{at}", AGENT if at % 2 else OTHER) for at in range(6)])
        await one(store, CancelRun(AGENT.tenant, RunId("run_3"), NOW))

        async def listed(where: RunFilter) -> Sequence[str]:
            return [run.run_id for run in await store.read(where)]

        tenant = AGENT.tenant
        assert await listed(RunFilter(tenant, limit=2)) == ["run_5", "run_4"]
        assert await listed(RunFilter(tenant, agent=AGENT)) == ["run_5", "run_3", "run_1"]
        assert await listed(RunFilter(tenant, status=RunStatus.CANCELLED)) == ["run_3"]
        fourth = await store.read(RunById(tenant, RunId("run_4")))
        assert fourth is not None
        assert await listed(RunFilter(tenant, before_seq=fourth.seq, limit=1)) == ["run_3"]

    async def test_a_cancelled_queued_run_is_over(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])

        outcome = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))
        again = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW + timedelta(hours=1)))

        assert isinstance(outcome, CancelOutcome)
        assert outcome.run is not None
        assert (outcome.run.status, outcome.run.finished_at) == (RunStatus.CANCELLED, NOW)
        assert outcome == again == CancelOutcome(await store.read(RunById(AGENT.tenant, RunId("run_1"))))
        kinds = [each.kind for each in await store.read(JournalOfRun(AGENT.tenant, RunId("run_1"), after=1))]
        assert kinds == [EntryKind.RUN_FINISHED]
        assert await one(store, ClaimRun(AGENT, 1, NOW)) == NothingQueued()

    async def test_a_running_run_gets_its_cancel_request_with_the_next_append(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        outcome = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))
        facts = entries(3, EntryKind.MODEL_REPLIED)

        assert isinstance(outcome, CancelOutcome)
        assert outcome.run is not None
        assert (outcome.run.status, outcome.run.cancel_requested) == (RunStatus.RUNNING, True)
        assert await one(store, AppendJournal(RunId("run_1"), AGENT, 1, facts)) == Appended(cancel_requested=True)

    async def test_a_command_that_cannot_be_applied_fails_alone(self, store: Store) -> None:
        outcomes = await store.apply(
            [submission("run_1"), submission("run_2", payload=object()), submission("run_3", payload="\ud800")]
        )

        assert isinstance(outcomes[0], RunAccepted)
        assert isinstance(outcomes[1], CommandFailed)
        assert isinstance(outcomes[2], CommandFailed)
        assert [run.run_id for run in await store.read(RunFilter(AGENT.tenant))] == ["run_1"]

    async def test_a_command_that_failed_leaves_no_trace_of_its_agent(self, store: Store) -> None:
        assert isinstance(await one(store, submission("run_1", payload=object())), CommandFailed)

        assert await store.read(AgentByRef(AGENT)) is None
        assert isinstance(await one(store, submission("run_1")), RunAccepted)


class ActivationContract:
    """Owning agents and executing their runs."""

    async def test_each_activation_raises_the_epoch_once(self, store: Store) -> None:
        outcomes = await store.apply([activation("act_1"), activation("act_1"), activation("act_2")])

        assert outcomes == [AgentActivated(epoch, AgentState()) for epoch in (1, 1, 2)]

    async def test_a_stale_activation_changes_nothing(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW), activation("act_2")])
        facts = entries(3, EntryKind.MODEL_REPLIED)

        outcomes = await store.apply(
            [
                ClaimRun(AGENT, 1, NOW),
                AppendJournal(RunId("run_1"), AGENT, 1, facts),
                ending("run_1"),
                ReleaseAgent(AGENT, 1, AgentState(("stale",), 9), NOW),
            ]
        )

        assert outcomes == [StaleEpoch(AGENT, 2)] * 4
        assert len(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))) == 2
        record = await store.read(AgentByRef(AGENT))
        assert record is not None
        assert (record.epoch, record.activation_id, record.state) == (2, "act_2", AgentState())

    async def test_an_agent_nobody_activated_is_nobodys(self, store: Store) -> None:
        await one(store, submission("run_1"))

        assert await one(store, ClaimRun(AGENT, 0, NOW)) == StaleEpoch(AGENT, 0)
        assert await one(store, ClaimRun(OTHER, 1, NOW)) == StaleEpoch(OTHER, 0)
        assert await store.read(AgentByRef(OTHER)) is None

    async def test_runs_are_claimed_in_order_one_at_a_time(self, store: Store) -> None:
        await store.apply([*(submission(f"run_{at}") for at in range(3)), activation("act_1")])

        first = await claimed(store)
        again = await claimed(store)
        finished = await one(store, ending("run_0"))

        assert first.run.run_id == "run_0"
        assert (first.run.status, first.run.started_at) == (RunStatus.RUNNING, NOW)
        assert [each.kind for each in first.journal] == [EntryKind.RUN_QUEUED, EntryKind.RUN_STARTED]
        assert again == first
        assert list(first.journal) == (await store.read(JournalOfRun(AGENT.tenant, RunId("run_0"))))[:2]
        assert isinstance(finished, RunFinished)
        assert finished.next is not None
        assert finished.next.run.run_id == "run_1"
        assert finished.next.run == await store.read(RunById(AGENT.tenant, RunId("run_1")))

    async def test_appended_facts_are_there_once(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
        command = AppendJournal(RunId("run_1"), AGENT, 1, entries(3, EntryKind.PROMPT_BUILT, EntryKind.MODEL_REPLIED))

        assert await store.apply([command, command]) == [Appended(), Appended()]
        assert await one(store, command) == Appended()

        journal = await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))
        assert [each.seq for each in journal] == [1, 2, 3, 4]
        assert tuple(journal[2:]) == command.entries
        assert await store.read(JournalOfRun(AGENT.tenant, RunId("run_1"), after=3)) == journal[3:]

    async def test_facts_that_leave_a_gap_are_refused(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        outcome = await one(store, AppendJournal(RunId("run_1"), AGENT, 1, entries(4, EntryKind.MODEL_REPLIED)))

        assert isinstance(outcome, CommandFailed)
        assert len(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))) == 2

    async def test_a_claim_that_is_older_than_what_it_is_given_begins_it_when_it_was_queued(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])

        outcome = await one(store, ClaimRun(AGENT, 1, NOW - timedelta(seconds=6)))

        assert isinstance(outcome, RunClaimed)
        assert outcome.run.started_at == NOW
        assert [entry.at for entry in outcome.journal] == [NOW, NOW]

    async def test_an_interrupted_run_is_resumed_before_queued_ones(self, store: Store) -> None:
        prompt = JournalEntry(3, EntryKind.PROMPT_BUILT, NOW, {"system": "h-1", "tools": "h-2", "user": "查"})
        facts = (prompt, *entries(4, EntryKind.TOOL_FINISHED, EntryKind.TOOL_FINISHED))
        blobs = {"h-1": "你是交易员\x00", "h-2": "[]", "h-3": "not named"}
        await store.apply([submission("run_1"), submission("run_2"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
        await store.apply([AppendJournal(RunId("run_1"), AGENT, 1, facts, blobs=blobs), activation("act_2")])

        resumed = await claimed(store, epoch=2)
        again = await claimed(store, epoch=2)

        assert resumed.run.run_id == "run_1"
        assert resumed.run.trigger.focus == "看看行情"
        assert resumed.journal[2:5] == facts
        assert resumed.journal[5] == JournalEntry(6, EntryKind.RUN_RESUMED, NOW, {"epoch": 2, "recorded_tool_calls": 2})
        assert resumed.blobs == {"h-1": "你是交易员\x00", "h-2": "[]"}
        assert again == resumed

    async def test_a_finished_run_keeps_its_result_and_its_agents_state(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
        error = RunError("model_refused", "密钥无效", retryable=False)
        result = RunResult(RunStatus.FAILED, 2, 1, "文", ("recall",), 1_200, Usage(1, 2, 3, 0.5), "m", True, error)
        command = replace(ending("run_1"), result=result)

        first, again = await one(store, command), await one(store, command)

        run, record = await store.read(RunById(AGENT.tenant, RunId("run_1"))), await store.read(AgentByRef(AGENT))
        assert first == again == RunFinished(None)
        assert run is not None
        assert (run.status, run.result, run.finished_at) == (RunStatus.FAILED, result, NOW)
        assert record is not None
        assert (record.state, record.running_run, record.queued_runs) == (command.state, None, 0)
        assert record.running_status is None

    async def test_the_end_of_a_run_applied_again_gives_the_same_next_run(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        first, again = await one(store, ending("run_1")), await one(store, ending("run_1"))

        assert isinstance(first, RunFinished)
        assert first.next is not None
        assert first == again

    async def test_a_run_finished_without_claiming_leaves_the_next_queued(self, store: Store) -> None:
        await store.apply([submission("run_1"), submission("run_2"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        assert await one(store, ending("run_1", claim_next=False)) == RunFinished(None)
        assert await one(store, ReleaseAgent(AGENT, 1, AgentState(), NOW)) == Released(pending=True)

    async def test_a_released_agent_has_no_owner_until_the_next_activation(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        release = ReleaseAgent(AGENT, 1, AgentState(("saved",), 4), NOW)

        assert await store.apply([release, release]) == [Released(pending=True)] * 2
        assert await one(store, ClaimRun(AGENT, 1, NOW)) == StaleEpoch(AGENT, 1)
        assert await one(store, activation("act_2")) == AgentActivated(2, AgentState(("saved",), 4))

    async def test_a_whole_life_fits_one_batch(self, store: Store) -> None:
        outcomes = await store.apply(
            [
                submission("run_1"),
                submission("run_2"),
                activation("act_1"),
                ClaimRun(AGENT, 1, NOW),
                AppendJournal(RunId("run_1"), AGENT, 1, entries(3, EntryKind.MODEL_REPLIED)),
                ending("run_1", 4),
                ending("run_2", 3),
                ReleaseAgent(AGENT, 1, AgentState(), NOW),
            ]
        )

        assert [type(outcome) for outcome in outcomes[5:]] == [RunFinished, RunFinished, Released]
        runs = await store.read(RunFilter(AGENT.tenant))
        assert [run.status for run in runs] == [RunStatus.COMPLETED] * 2

    async def test_agents_with_work_come_in_the_order_of_their_waiting(self, store: Store) -> None:
        third = AgentRef.parse("trader:GOOG", TenantId("租户"))
        await store.apply([submission("run_1", third), submission("run_2", OTHER), submission("run_3", AGENT)])
        await store.apply(
            [activation("act", third), ClaimRun(third, 1, NOW), CancelRun(OTHER.tenant, RunId("run_2"), NOW)]
        )

        assert await store.read(AgentsWithWork()) == [third, AGENT]
        assert await store.read(AgentsWithWork(limit=1)) == [third]
        record = await store.read(AgentByRef(third))
        assert record is not None
        assert (record.running_run, record.running_status) == ("run_1", RunStatus.RUNNING)
        assert [each.agent for each in await store.read(AgentPage(AGENT.tenant))] == [AGENT, OTHER]

    async def test_agents_are_read_by_their_ids_those_of_one_tenant_that_are_known(self, store: Store) -> None:
        third = AgentRef.parse(AGENT.agent_id, TenantId("租户"))
        await store.apply([submission("run_1"), submission("run_2", OTHER), submission("run_3", third)])

        asked = AgentsByIds(AGENT.tenant, (OTHER.agent_id, AgentId("trader:nobody"), AGENT.agent_id))
        assert sorted([await store.read(AgentByRef(each)) for each in (AGENT, OTHER)], key=repr) == sorted(
            await store.read(asked), key=repr
        )
        assert [each.agent for each in await store.read(AgentsByIds(third.tenant, asked.agent_ids))] == [third]
        assert await store.read(AgentsByIds(AGENT.tenant, ())) == []

    async def test_many_agents_of_one_tenant_with_work_hide_none_of_another(self, store: Store) -> None:
        crowd = [AgentRef.parse(f"trader:{number}") for number in range(20)]
        others = [AgentRef.parse(f"trader:{number}", TenantId("租户")) for number in range(2)]
        for number, agent in enumerate((*crowd, *others)):
            await store.apply([submission(f"run_{number}", agent)])

        assert await store.read(AgentsWithWork(limit=5)) == [crowd[0], others[0], crowd[1], others[1], crowd[2]]

    async def test_all_agents_with_work_are_seen_page_by_page(self, store: Store) -> None:
        crowd = [AgentRef.parse(f"trader:{number}") for number in range(5)]
        await store.apply([submission(f"run_{number}", agent) for number, agent in enumerate(crowd)])

        pages = [await store.read(AgentsWithWork(limit=2, skip=skip)) for skip in (0, 2, 4, 6)]

        assert pages == [crowd[:2], crowd[2:4], crowd[4:], []]


class ClaimingActivationContract:
    """Owning an agent and taking its next run in one."""

    async def test_an_activation_takes_the_next_run_with_it_if_asked(self, store: Store) -> None:
        await store.apply([submission("run_1", payload=7), submission("run_2")])

        outcome = await one(store, replace(activation("act_1"), claim=True))

        assert isinstance(outcome, AgentActivated)
        assert outcome.claimed is not None
        assert (outcome.claimed.run.run_id, outcome.claimed.run.trigger.payload) == ("run_1", 7)
        assert [each.kind for each in outcome.claimed.journal] == [EntryKind.RUN_QUEUED, EntryKind.RUN_STARTED]
        assert outcome.claimed == await claimed(store)

    async def test_an_activation_resumes_the_run_that_another_one_left(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        told = entries(3, EntryKind.MODEL_REPLIED)
        await one(store, AppendJournal(RunId("run_1"), AGENT, 1, told))

        first, again = await store.apply([replace(activation("act_2"), claim=True)] * 2)

        assert isinstance(first, AgentActivated)
        assert first == again
        assert first.epoch == 2
        assert first.claimed is not None
        assert [each.kind for each in first.claimed.journal][-2:] == [EntryKind.MODEL_REPLIED, EntryKind.RUN_RESUMED]

    async def test_an_activation_of_an_agent_without_runs_claims_none(self, store: Store) -> None:
        outcome = await one(store, replace(activation("act_1"), claim=True))

        assert isinstance(outcome, AgentActivated)
        assert outcome.claimed is None


class StoreContract(
    SubmissionContract,
    AdmissionContract,
    ActivationContract,
    KeyQuotaContract,
    QuotaContract,
    UsageContract,
    QueueLengthsContract,
    ConcurrencyLimitsContract,
    ScheduleContract,
    ApprovalContract,
    FamilyContract,
    DeliveryContract,
    WaitingContract,
    ForgettingContract,
    CallbackContract,
    TaskContract,
    LedgerContract,
    LeaseContract,
    MemoryContract,
    AttemptContract,
    NodeContract,
    AccessContract,
    ClaimingActivationContract,
    BudgetContract,
    FollowingContract,
    AgentPagesContract,
):
    """All that a Store promises to those who use it alone."""
