"""What every Store promises about approvals, as tests."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Allowance, Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.ids import ApprovalId, RunId, TenantId, ToolCallId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AgentActivated,
    AllowanceStored,
    Appended,
    ApprovalClosed,
    ApprovalSettled,
    AwaitApprovals,
    CancelOutcome,
    CancelRun,
    ClaimRun,
    CommandFailed,
    DecideApproval,
    ExpireApproval,
    NoSuchApproval,
    NothingQueued,
    ReleaseAgent,
    Released,
    RunWaiting,
    StaleEpoch,
)
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentsWithWork,
    ApprovalById,
    ApprovalFilter,
    DueUpkeep,
    ExpiredApprovals,
    JournalOfRun,
    LedgerBreaks,
    LedgerFilter,
    PendingApprovalCounts,
    Place,
    RunById,
    Upkeep,
)
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, entries, one, submission

ALLOW = ApprovalDecision(Decision.ALLOW_ONCE, "好", "张三")
DENY = ApprovalDecision(Decision.DENY)
ADA, BOB, CAROL = (
    ApprovalDecision(Decision.ALLOW_ONCE, "fine", name, principal=f"key:{name.lower()}")
    for name in ("Ada", "Bob", "Carol")
)
LATER = NOW + timedelta(hours=1)


def request(name: str = "a", agent: AgentRef = AGENT, hours: int = 24) -> ApprovalRequest:
    """Return a request of run_1 for that call, which expires after so many hours."""
    return ApprovalRequest(
        ApprovalId(f"apr_{name}"),
        agent,
        RunId("run_1"),
        ToolCallId(name),
        "mail.send",
        "Send a mail.",
        "write",
        ("dangerous", "network"),
        "dangerous tools ask",
        {"to": "张三\x00", "n": [1, None]},
        '{"to": 1}',
        {"type": "object"},
        '{"to":"张三"}',
        NOW,
        NOW + timedelta(hours=hours),
        "/work",
        ({"hook": "app.check", "verdict": "allowed"},),
        "api",
        "run_0",
    )


TWO = replace(request(), needed=2)
"""What two principals must allow."""
ASKED = replace(request(), excluded=("key:asked",))
"""What somebody asked for who may not allow it."""


def waiting(*requests: ApprovalRequest, epoch: int = 1) -> AwaitApprovals:
    """Return the command that has run_1 wait for these, its journal having two entries."""
    facts = entries(3, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING)
    return AwaitApprovals(RunId("run_1"), AGENT, epoch, facts, requests or (request(),))


def deciding(name: str = "a", decision: ApprovalDecision = ALLOW) -> DecideApproval:
    """Return a decision."""
    return DecideApproval(AGENT.tenant, ApprovalId(f"apr_{name}"), decision, LATER)


async def waits(store: Store, *requests: ApprovalRequest) -> None:
    """Have run_1 wait, with run_2 queued behind it."""
    await store.apply([submission("run_1"), submission("run_2"), activation("act_1")])
    await claimed(store)
    assert await one(store, waiting(*requests)) == RunWaiting()


class ApprovalContract:
    """Approvals, and runs that wait for them."""

    async def test_a_request_is_stored_with_the_waiting_of_its_run(self, store: Store) -> None:
        await waits(store)

        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        found = await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a")))
        assert run is not None
        assert run.status is RunStatus.WAITING
        assert found == Approval(request())
        assert await store.read(ApprovalById(TenantId("other"), ApprovalId("apr_a"))) is None
        agent = await store.read(AgentByRef(AGENT))
        assert agent is not None
        assert (agent.running_run, agent.running_status, agent.queued_runs) == ("run_1", RunStatus.WAITING, 1)

    async def test_asking_again_changes_nothing_even_after_the_decision(self, store: Store) -> None:
        await waits(store)
        assert await one(store, waiting()) == RunWaiting()
        await one(store, deciding())

        assert await one(store, waiting()) == RunWaiting()

        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        assert run is not None
        assert run.status is RunStatus.RUNNING
        assert len(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))) == 5

    async def test_a_stale_activation_cannot_have_its_run_wait(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        await one(store, activation("act_2"))

        assert await one(store, waiting()) == StaleEpoch(AGENT, 2)
        assert await store.read(ApprovalFilter(AGENT.tenant)) == []

    async def test_a_run_that_nobody_executes_cannot_wait(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])

        assert isinstance(await one(store, waiting()), CommandFailed)

    async def test_a_run_that_is_to_end_does_not_wait(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))

        outcomes = [await one(store, waiting()), await one(store, waiting())]

        assert outcomes == [Appended(cancel_requested=True)] * 2
        assert await store.read(ApprovalFilter(AGENT.tenant)) == []
        assert len(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))) == 4

    async def test_a_run_that_waits_is_given_to_nobody_and_nothing_goes_before_it(self, store: Store) -> None:
        await waits(store)

        assert await one(store, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
        again = await one(store, activation("act_2"))
        assert isinstance(again, AgentActivated)
        assert await one(store, ClaimRun(AGENT, 2, NOW)) == NothingQueued()
        assert await store.read(AgentsWithWork()) == []

    async def test_an_agent_whose_run_waits_is_released_for_good(self, store: Store) -> None:
        await waits(store)
        state = (await self._state(store)).state

        assert await one(store, ReleaseAgent(AGENT, 1, state, NOW)) == Released(pending=False)

    async def test_a_decision_lets_the_run_go_on_where_it_stood(self, store: Store) -> None:
        await waits(store)

        settled = await one(store, deciding())

        assert settled == ApprovalSettled(Approval(request(), ApprovalStatus.ALLOWED, ALLOW, LATER), True)
        assert await store.read(AgentsWithWork()) == [AGENT]
        assert await store.read(ApprovalFilter(AGENT.tenant, status=ApprovalStatus.PENDING)) == []
        run = await claimed(store)
        assert run.run.run_id == "run_1"
        assert [entry.kind for entry in run.journal][-4:] == [
            EntryKind.APPROVAL_REQUESTED,
            EntryKind.RUN_WAITING,
            EntryKind.APPROVAL_DECIDED,
            EntryKind.RUN_CONTINUED,
        ]
        decided = run.journal[-2]
        assert (decided.at, decided.data["decision"], decided.data["by"]) == (LATER, "allow_once", "张三")
        assert run.journal[-1].data == {"epoch": 1}
        assert await claimed(store) == run
        await one(store, ending("run_1", 7))
        assert (await claimed(store)).run.run_id == "run_2"

    async def test_another_activation_takes_up_the_decided_run(self, store: Store) -> None:
        await waits(store)
        await one(store, deciding())
        await one(store, activation("act_2"))

        run = await claimed(store, 2)

        assert run.journal[-1].kind is EntryKind.RUN_CONTINUED
        assert run.journal[-1].data == {"epoch": 2}
        await one(store, activation("act_3"))
        assert (await claimed(store, 3)).journal[-1].kind is EntryKind.RUN_RESUMED

    async def test_a_run_goes_on_with_the_last_of_its_decisions(self, store: Store) -> None:
        await waits(store, request("a"), request("b"))

        first, second = await one(store, deciding("b")), await one(store, deciding("a", DENY))

        assert isinstance(first, ApprovalSettled)
        assert isinstance(second, ApprovalSettled)
        assert (first.resumes, second.resumes) == (False, True)
        assert second.approval.status is ApprovalStatus.DENIED

    async def test_the_same_decision_again_has_the_same_outcome_and_another_is_refused(self, store: Store) -> None:
        await waits(store)
        settled = await one(store, deciding())

        assert await one(store, deciding()) == settled
        await claimed(store)
        again = await one(store, deciding())
        other = await one(store, deciding(decision=replace(ALLOW, arguments={"to": "李四"})))

        assert isinstance(settled, ApprovalSettled)
        assert again == replace(settled, resumes=False)
        assert other == ApprovalClosed(settled.approval)
        assert len(await store.read(JournalOfRun(AGENT.tenant, RunId("run_1")))) == 6

    async def test_decisions_of_one_batch_are_taken_in_its_order(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)

        outcomes = await store.apply([waiting(), deciding(), deciding(decision=DENY), ClaimRun(AGENT, 1, LATER)])

        assert isinstance(outcomes[1], ApprovalSettled)
        assert outcomes[2] == ApprovalClosed(outcomes[1].approval)
        found = await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a")))
        assert found == outcomes[1].approval
        assert (await claimed(store)).run.status is RunStatus.RUNNING

    async def test_arguments_that_an_approver_changed_are_kept(self, store: Store) -> None:
        await waits(store)
        changed = replace(ALLOW, arguments={"to": "李四", "n": [1, {"深": None}]})

        await one(store, deciding(decision=changed))

        found = await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a")))
        assert found is not None
        assert found.decision == changed
        assert (await claimed(store)).journal[-2].data["arguments"] == changed.arguments

    async def test_what_two_must_allow_waits_for_another_principal(self, store: Store) -> None:
        await waits(store, TWO)

        first = await one(store, deciding(decision=ADA))

        noted = Approval(TWO, allowed_by=(Allowance(ADA, LATER),))
        assert first == AllowanceStored(noted)
        assert noted.still_needed == 1
        assert await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a"))) == noted
        assert await store.read(ApprovalFilter(AGENT.tenant, status=ApprovalStatus.PENDING)) == [noted]
        assert await store.read(AgentsWithWork()) == []

        second = await one(store, deciding(decision=BOB))

        assert isinstance(second, ApprovalSettled)
        assert second.resumes
        assert (second.approval.status, second.approval.still_needed) == (ApprovalStatus.ALLOWED, 0)
        assert second.approval.decision == replace(BOB, by="Ada and Bob")
        assert second.approval.allowed_by == (Allowance(ADA, LATER), Allowance(BOB, LATER))
        assert await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a"))) == second.approval
        assert (await claimed(store)).journal[-2].data["by"] == "Ada and Bob"

    async def test_the_same_principal_counts_once_whatever_it_calls_itself(self, store: Store) -> None:
        await waits(store, TWO)
        await one(store, deciding(decision=ADA))

        same = await one(store, deciding(decision=ADA))
        renamed = await one(store, deciding(decision=replace(ADA, by="Bob", reason="again")))

        assert same == AllowanceStored(Approval(TWO, allowed_by=(Allowance(ADA, LATER),)))
        assert isinstance(renamed, AllowanceStored)
        assert renamed.approval.still_needed == 1
        assert len(renamed.approval.allowed_by) == 1
        found = await one(store, deciding(decision=replace(ADA, principal="")))
        assert isinstance(found, ApprovalSettled)

    async def test_of_two_who_allow_at_once_the_second_settles_it(self, store: Store) -> None:
        await waits(store, TWO)

        outcomes = await store.apply([deciding(decision=each) for each in (ADA, BOB, ADA, BOB, CAROL)])

        assert [type(each) for each in outcomes] == [
            AllowanceStored,
            ApprovalSettled,
            ApprovalSettled,
            ApprovalSettled,
            ApprovalClosed,
        ]
        assert (await claimed(store)).run.status is RunStatus.RUNNING

    async def test_who_changes_the_arguments_of_what_somebody_asked_for_does_not_allow_them_alone(
        self, store: Store
    ) -> None:
        await waits(store, ASKED)
        ada, bob, carol = (replace(each, arguments={"to": "Bob", "n": [1_000_000]}) for each in (ADA, BOB, CAROL))

        first, again = await one(store, deciding(decision=bob)), await one(store, deciding(decision=bob))
        other = await one(store, deciding(decision=replace(carol, arguments={"to": "Carol"})))

        assert first == again == AllowanceStored(Approval(ASKED, allowed_by=(Allowance(bob, LATER),)))
        assert first.approval.still_needed == 1
        assert isinstance(other, AllowanceStored)
        assert await store.read(AgentsWithWork()) == []

        settled = await one(store, deciding(decision=carol))

        assert isinstance(settled, ApprovalSettled)
        assert settled.approval.decision == replace(carol, by="Bob and Carol")
        assert await one(store, deciding(decision=ada)) == ApprovalClosed(settled.approval)

    async def test_one_may_allow_what_was_asked_for_as_it_is_whoever_would_change_it(self, store: Store) -> None:
        await waits(store, ASKED)
        await one(store, deciding(decision=replace(BOB, arguments={"to": "Bob"})))

        settled = await one(store, deciding(decision=replace(CAROL, arguments=ASKED.arguments)))

        assert isinstance(settled, ApprovalSettled)
        assert settled.approval.still_needed == 0
        assert (await claimed(store)).journal[-2].data["by"] == "Carol"

    async def test_one_denial_is_enough_and_ends_it(self, store: Store) -> None:
        await waits(store, TWO)
        await one(store, deciding(decision=ADA))
        denial = replace(BOB, decision=Decision.DENY)

        settled = await one(store, deciding(decision=denial))

        assert isinstance(settled, ApprovalSettled)
        assert (settled.approval.status, settled.approval.decision) == (ApprovalStatus.DENIED, denial)
        assert await one(store, deciding(decision=ADA)) == ApprovalClosed(settled.approval)
        assert await one(store, deciding(decision=CAROL)) == ApprovalClosed(settled.approval)

    async def test_who_allowed_may_deny_before_another_allows(self, store: Store) -> None:
        await waits(store, TWO)
        await one(store, deciding(decision=ADA))

        settled = await one(store, deciding(decision=replace(ADA, decision=Decision.DENY)))

        assert isinstance(settled, ApprovalSettled)
        assert settled.approval.status is ApprovalStatus.DENIED

    async def test_an_approval_that_one_has_allowed_expires(self, store: Store) -> None:
        await waits(store, replace(TWO, expires_at=LATER + timedelta(hours=1)))
        await one(store, deciding(decision=ADA))
        over = LATER + timedelta(hours=1)

        late = await one(store, replace(deciding(decision=BOB), at=over))

        assert isinstance(late, ApprovalClosed)
        assert late.approval.status is ApprovalStatus.EXPIRED
        assert await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a"))) == late.approval
        assert late.approval.allowed_by == (Allowance(ADA, LATER),)

    async def test_two_allow_the_same_arguments_or_not_at_all(self, store: Store) -> None:
        await waits(store, TWO)
        await one(store, deciding(decision=ADA))
        edited = {"to": "李四"}

        other = await one(store, deciding(decision=replace(BOB, arguments=edited)))
        assert isinstance(other, AllowanceStored)
        assert other.approval.still_needed == 1
        agreed = await one(store, deciding(decision=replace(ADA, arguments=edited)))

        assert isinstance(agreed, ApprovalSettled)
        assert agreed.approval.decision is not None
        assert agreed.approval.decision.arguments == edited

    async def test_a_call_is_allowed_for_the_session_if_both_say_so(self, store: Store) -> None:
        session = Decision.ALLOW_FOR_SESSION
        await waits(store, TWO, replace(TWO, approval_id=ApprovalId("apr_b"), call_id=ToolCallId("b")))
        for name, first in (("a", session), ("b", Decision.ALLOW_ONCE)):
            await one(store, deciding(name, replace(ADA, decision=first)))
            settled = await one(store, deciding(name, replace(BOB, decision=session)))

            assert isinstance(settled, ApprovalSettled)
            assert settled.approval.decision is not None
            assert settled.approval.decision.decision is first

    async def test_the_ledger_has_each_decision_with_its_principal(self, store: Store) -> None:
        await waits(store, TWO)
        for decision in (ADA, ADA, BOB):
            await one(store, deciding(decision=decision))

        found = [each.record for each in await store.read(LedgerFilter(AGENT.tenant, kind=LedgerKind.APPROVAL))]
        assert [(each.data["what"], each.data["principal"], each.data.get("still_needed")) for each in found] == [
            ("allowed", "key:ada", 1),
            ("allowed", "key:bob", 0),
            ("decided", "key:bob", None),
        ]
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []

    async def test_there_are_no_approvals_but_the_tenants_own(self, store: Store) -> None:
        await waits(store)

        assert await one(store, deciding("none")) == NoSuchApproval()
        assert await one(store, replace(deciding(), tenant=TenantId("other"))) == NoSuchApproval()
        assert await one(store, ExpireApproval(TenantId("other"), ApprovalId("apr_a"), NOW)) == NoSuchApproval()
        assert await store.read(ApprovalFilter(TenantId("other"))) == []

    async def test_approvals_expire_at_their_time_and_not_before(self, store: Store) -> None:
        await waits(store, request("a", hours=1), request("b"))
        soon = LATER - timedelta(microseconds=1)
        assert await store.read(ExpiredApprovals(soon)) == []
        assert await store.read(DueUpkeep(soon)) == frozenset()
        assert await store.read(DueUpkeep(LATER)) == {Upkeep.EXPIRED_APPROVALS}
        assert await one(store, ExpireApproval(AGENT.tenant, ApprovalId("apr_a"), soon)) == ApprovalClosed(
            Approval(request("a", hours=1))
        )

        [over] = await store.read(ExpiredApprovals(LATER))
        settled = await one(store, ExpireApproval(AGENT.tenant, over.request.approval_id, LATER))

        assert isinstance(settled, ApprovalSettled)
        assert settled.approval.status is ApprovalStatus.EXPIRED
        assert settled.approval.decision == ApprovalDecision(Decision.DENY, "expired")
        assert not settled.resumes
        assert await store.read(ExpiredApprovals(LATER)) == []

    async def test_a_decision_that_comes_too_late_is_an_expiry(self, store: Store) -> None:
        await waits(store, request(hours=1))

        outcome = await one(store, deciding())

        assert isinstance(outcome, ApprovalClosed)
        assert outcome.approval.status is ApprovalStatus.EXPIRED
        assert (await claimed(store)).journal[-2].data["status"] == "expired"

    async def test_cancelling_a_run_that_waits_withdraws_what_it_asked(self, store: Store) -> None:
        await waits(store)

        outcome = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), LATER))

        assert isinstance(outcome, CancelOutcome)
        assert outcome.waited
        found = await store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a")))
        assert found == Approval(request(), ApprovalStatus.WITHDRAWN, None, LATER)
        assert isinstance(await one(store, deciding()), ApprovalClosed)
        run = await claimed(store)
        assert (run.run.run_id, run.run.cancel_requested) == ("run_1", True)

    async def test_an_interrupt_ends_the_waiting_too(self, store: Store) -> None:
        await waits(store)

        await one(store, replace(submission("run_3"), busy=BusyPolicy.INTERRUPT))

        run = await claimed(store)
        assert (run.run.run_id, run.run.interrupted_by) == ("run_1", "run_3")
        [found] = await store.read(ApprovalFilter(AGENT.tenant))
        assert found.status is ApprovalStatus.WITHDRAWN

    async def test_approvals_are_found_by_agent_run_and_status(self, store: Store) -> None:
        await waits(store, request("a"), replace(request("b"), requested_at=NOW + timedelta(seconds=1)))
        await one(store, deciding("a"))

        async def found(**fields: object) -> list[str]:
            approvals = await store.read(ApprovalFilter(AGENT.tenant, **fields))  # type: ignore[arg-type]
            return [each.request.approval_id for each in approvals]

        assert await found() == ["apr_b", "apr_a"]
        assert await found(agent=AGENT, run_id=RunId("run_1"), limit=1) == ["apr_b"]
        assert await found(status=ApprovalStatus.ALLOWED) == ["apr_a"]
        assert await found(agent=AgentRef.parse("trader")) == []
        assert await found(run_id=RunId("run_2")) == []

    async def test_those_that_are_pending_are_read_page_by_page_in_the_order_in_which_they_expire(
        self, store: Store
    ) -> None:
        asked = {"a": 3, "b": 1, "c": 2, "d": 2, "e": 4}
        await waits(store, *(request(name, hours=hours) for name, hours in asked.items()))
        await one(store, deciding("e"))

        found: list[ApprovalRequest] = []
        while True:
            place = Place(found[-1].expires_at, found[-1].approval_id) if found else None
            page = await store.read(ApprovalFilter(AGENT.tenant, AGENT, limit=3, expiring=True, after=place))
            found += [each.request for each in page]
            if len(page) < 3:
                break

        assert [each.approval_id for each in found] == ["apr_b", "apr_c", "apr_d", "apr_a"]
        assert await store.read(ApprovalFilter(TenantId("other"), expiring=True)) == []

    async def test_others_go_on_behind_a_place_newest_first(self, store: Store) -> None:
        later = replace(request("c"), requested_at=NOW + timedelta(seconds=1))
        await waits(store, request("a"), request("b"), later)

        async def behind(each: ApprovalRequest) -> list[str]:
            place = Place(each.requested_at, each.approval_id)
            found = await store.read(ApprovalFilter(AGENT.tenant, after=place))
            return [approval.request.approval_id for approval in found]

        assert await behind(later) == ["apr_b", "apr_a"]
        assert await behind(request("b")) == ["apr_a"]
        assert await behind(request("a")) == []

    async def test_those_that_are_pending_are_counted_for_each_agent_as_far_as_wanted(self, store: Store) -> None:
        other = AgentRef.parse("other")
        later = replace(request("d", other), requested_at=NOW + timedelta(seconds=1))
        await waits(store, *(request(name) for name in "abc"), later)
        await one(store, deciding("a"))

        assert await store.read(PendingApprovalCounts(AGENT.tenant, 9)) == {AGENT: 2, other: 1}
        assert await store.read(PendingApprovalCounts(AGENT.tenant, 2)) == {AGENT: 2}, "those that were asked for first"
        assert await store.read(PendingApprovalCounts(TenantId("other"), 9)) == {}

    async def test_each_end_of_an_approval_is_in_the_ledger(self, store: Store) -> None:
        await waits(store, request("a"), request("b"))
        await one(store, deciding("a"))
        await one(store, deciding("a"))
        await one(store, CancelRun(AGENT.tenant, RunId("run_1"), LATER))

        records = await store.read(LedgerFilter(AGENT.tenant, kind=LedgerKind.APPROVAL))

        told = [(each.record.data["approval_id"], each.record.data["status"]) for each in records]
        assert told == [("apr_a", "allowed"), ("apr_b", "withdrawn")]
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []

    async def _state(self, store: Store) -> AgentActivated:
        outcome = await one(store, activation("act_1"))
        assert isinstance(outcome, AgentActivated)
        return outcome
