"""What every Store promises about budgets, as tests."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.ids import RecordId, ReservationId, RunId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    BudgetAlert,
    BudgetCharge,
    BudgetClaim,
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    CommandFailed,
    ReserveBudget,
    SettleBudget,
    StaleEpoch,
)
from owlclaw_ray.store.queries import LedgerFilter
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, one, submission

RUN = RunId("run_1")
NOBODY = RunId("")


def reservation(
    name: str, *claims: tuple[str, int, int], run: RunId = RUN, agent: AgentRef = AGENT, epoch: int | None = 1
) -> ReserveBudget:
    """Return a reservation of (account, limit, amount) each."""
    made = tuple(BudgetClaim(account, limit, amount, NOW + timedelta(days=1)) for account, limit, amount in claims)
    return ReserveBudget(ReservationId(name), run, agent, epoch, made, NOW)


def settlement(
    name: str, *charges: tuple[str, int], run: RunId = RUN, agent: AgentRef = AGENT, epoch: int | None = 1
) -> SettleBudget:
    """Return a settlement of (account, amount) each."""
    made = tuple(BudgetCharge(account, amount) for account, amount in charges)
    return SettleBudget(ReservationId(name), run, agent, epoch, made)


def alert(amount: int) -> BudgetAlert:
    """Return what is told at an amount."""
    why = {"what": "budget", "why": f"{amount} used"}
    record_id = RecordId(f"rec_alert_{amount}")
    return BudgetAlert(amount, LedgerRecord(record_id, AGENT.tenant, AGENT.agent_id, RUN, LedgerKind.WARNING, NOW, why))


def granted(account: str, used: int, reserved: int) -> BudgetReserved:
    """Return the grant after which the one account stands so."""
    return BudgetReserved((BudgetUse(account, used, reserved),))


async def running(store: Store, *agents: AgentRef) -> None:
    """Give each of these agents a running run: run_1, run_2 and so on."""
    for number, agent in enumerate(agents, start=1):
        await store.apply([submission(f"run_{number}", agent), activation("act_1", agent)])
        await claimed(store, agent=agent)


class BudgetContract:
    """Reserving and settling."""

    async def test_a_reservation_is_granted_while_used_and_reserved_are_below_the_limit(self, store: Store) -> None:
        await running(store, AGENT, OTHER)
        other = replace(reservation("r3", ("a", 10, 6)), run_id=RunId("run_2"), agent=OTHER)

        outcomes = await store.apply([reservation("r1", ("a", 10, 6)), reservation("r2", ("a", 10, 6)), other])

        assert outcomes == [granted("a", 0, 6), granted("a", 0, 12), BudgetSpent(BudgetUse("a", 0, 12))]
        await one(store, settlement("r1", ("a", 2)))
        assert await one(store, other) == granted("a", 2, 12)
        assert await one(store, reservation("r4", ("a", 10, 6))) == BudgetSpent(BudgetUse("a", 2, 12))

    async def test_a_claim_that_must_fit_is_refused_what_is_not_left_and_granted_anything_of_an_untouched_account(
        self, store: Store
    ) -> None:
        await running(store, AGENT)

        def fitting(name: str, amount: int) -> ReserveBudget:
            asked = reservation(name, ("a", 10, amount))
            return replace(asked, claims=tuple(replace(each, must_fit=True) for each in asked.claims))

        outcomes = await store.apply([fitting("r1", 6), fitting("r2", 5), fitting("r3", 4), fitting("r4", 1)])
        assert outcomes == [
            granted("a", 0, 6),
            BudgetSpent(BudgetUse("a", 0, 6)),
            granted("a", 0, 10),
            BudgetSpent(BudgetUse("a", 0, 10)),
        ]
        await store.apply([settlement("r1", ("a", 2)), settlement("r3", ("a", 1))])
        assert await one(store, fitting("r5", 8)) == BudgetSpent(BudgetUse("a", 3, 0))
        assert await one(store, fitting("r6", 7)) == granted("a", 3, 7)
        others = [reservation(name, ("b", limit, 1)) for name, limit in (("r7", 10), ("r8", 0))]
        alone, closed = (
            replace(each, claims=tuple(replace(claim, amount=99, must_fit=True) for claim in each.claims))
            for each in others
        )
        assert await one(store, closed) == BudgetSpent(BudgetUse("b", 0, 0))
        assert await one(store, alone) == granted("b", 0, 99)

    async def test_all_accounts_are_reserved_of_or_none(self, store: Store) -> None:
        await running(store, AGENT)
        await one(store, reservation("r1", ("full", 5, 5)))

        spent = await one(store, reservation("r2", ("a", 10, 6), ("full", 5, 1), ("b", 10, 6)))

        assert spent == BudgetSpent(BudgetUse("full", 0, 5))
        both = await one(store, reservation("r3", ("a", 10, 1), ("b", 10, 2)))
        assert both == BudgetReserved((BudgetUse("a", 0, 1), BudgetUse("b", 0, 2)))

    async def test_a_claim_of_nothing_tells_the_use_and_reserves_nothing(self, store: Store) -> None:
        await running(store, AGENT)
        await store.apply(
            [reservation("r1", ("a", 10, 6)), settlement("r1", ("a", 4)), reservation("r2", ("a", 10, 1))]
        )

        assert await one(store, reservation("ask", ("a", 99, 0), ("new", 99, 0))) == BudgetReserved(
            (BudgetUse("a", 4, 1), BudgetUse("new", 0, 0))
        )
        assert await one(store, reservation("ask", ("a", 99, 0))) == granted("a", 4, 1)

    async def test_reserving_and_settling_again_changes_nothing(self, store: Store) -> None:
        await running(store, AGENT)

        first = await store.apply([reservation("r1", ("a", 10, 6))] * 2)
        assert [*first, await one(store, reservation("r1", ("a", 10, 6)))] == [granted("a", 0, 6)] * 3
        await store.apply([settlement("r1", ("a", 3))] * 2)
        assert await one(store, settlement("r1", ("a", 3))) == BudgetSettled()
        assert await one(store, settlement("never", ("a", 3))) == BudgetSettled()

        assert await one(store, reservation("ask", ("a", 99, 0))) == granted("a", 3, 0)

    async def test_a_settlement_may_be_of_more_or_of_less_than_was_reserved(self, store: Store) -> None:
        await running(store, AGENT)
        await store.apply([reservation("r1", ("a", 10, 6), ("b", 10, 6)), settlement("r1", ("a", 9))])

        asked = await one(store, reservation("ask", ("a", 99, 0), ("b", 99, 0)))

        assert asked == BudgetReserved((BudgetUse("a", 9, 0), BudgetUse("b", 0, 0)))

    async def test_the_end_of_a_run_gives_back_what_it_did_not_settle(self, store: Store) -> None:
        await running(store, AGENT, OTHER)
        await store.apply([reservation("r1", ("a", 10, 6)), reservation("r2", ("a", 10, 2))])
        await one(store, replace(reservation("r3", ("a", 10, 1)), run_id=RunId("run_2"), agent=OTHER))

        await store.apply([settlement("r1", ("a", 5)), ending("run_1")])

        asked = replace(reservation("ask", ("a", 99, 0)), run_id=RunId("run_2"), agent=OTHER)
        assert await one(store, asked) == granted("a", 5, 1)

    async def test_whoever_takes_a_run_over_uses_its_reservation(self, store: Store) -> None:
        await running(store, AGENT)
        await one(store, reservation("r1", ("a", 10, 6)))
        await store.apply([activation("act_2")])
        await claimed(store, 2)

        stale = [await one(store, reservation("r2", ("a", 10, 1))), await one(store, settlement("r1", ("a", 1)))]
        again = await one(store, reservation("r1", ("a", 10, 6), epoch=2))

        assert stale == [StaleEpoch(AGENT, 2)] * 2
        assert again == granted("a", 0, 6)
        await one(store, settlement("r1", ("a", 4), epoch=2))
        assert await one(store, reservation("ask", ("a", 99, 0), epoch=2)) == granted("a", 4, 0)

    async def test_only_a_running_run_reserves(self, store: Store) -> None:
        await running(store, AGENT)
        await one(store, ending("run_1"))

        assert isinstance(await one(store, reservation("r1", ("a", 10, 6))), CommandFailed)
        assert isinstance(await one(store, reservation("r1", ("a", 10, 6), run=RunId("none"))), CommandFailed)

    async def test_the_ledger_is_told_once_of_each_amount_that_is_reached(self, store: Store) -> None:
        await running(store, AGENT)
        alerts = (alert(5), alert(8))

        async def use(name: str, amount: int) -> list[int]:
            charge = SettleBudget(ReservationId(name), RUN, AGENT, 1, (BudgetCharge("a", amount, alerts),))
            outcomes = await store.apply([reservation(name, ("a", 10, 1)), charge, charge])
            told = outcomes[1]
            assert isinstance(told, BudgetSettled)
            assert outcomes[2] == BudgetSettled()
            return [each.amount for each in alerts if each.record in told.alerts]

        assert [await use("r1", 4), await use("r2", 1), await use("r3", 1), await use("r4", 3)] == [[], [5], [], [8]]
        records = await store.read(LedgerFilter(AGENT.tenant, kind=LedgerKind.WARNING))
        assert [each.record for each in records] == [each.record for each in alerts]

    async def test_one_use_may_reach_several_amounts(self, store: Store) -> None:
        await running(store, AGENT)
        charge = BudgetCharge("a", 9, (alert(5), alert(8)))
        settled = SettleBudget(ReservationId("r1"), RUN, AGENT, 1, (charge,))

        outcomes = await store.apply([reservation("r1", ("a", 10, 1)), settled])

        assert outcomes[1] == BudgetSettled((alert(5).record, alert(8).record))

    async def test_a_tool_reserves_for_its_run_without_an_epoch_and_the_runs_end_gives_that_back(
        self, store: Store
    ) -> None:
        await running(store, AGENT)

        await store.apply([reservation("r1", ("a", 10, 6), epoch=None), reservation("r2", ("a", 10, 3), epoch=None)])
        assert await one(store, settlement("r1", ("a", 5), epoch=None)) == BudgetSettled()
        assert await one(store, reservation("ask", ("a", 99, 0))) == granted("a", 5, 3)
        await one(store, ending("run_1"))

        assert await one(store, reservation("ask", ("a", 99, 0), run=NOBODY, epoch=None)) == granted("a", 5, 0)
        assert isinstance(await one(store, reservation("r3", ("a", 10, 1), epoch=None)), CommandFailed)

    async def test_nobodys_reservation_is_taken_over_by_the_next_of_its_id(self, store: Store) -> None:
        mine = reservation("r1", ("a", 10, 6), run=NOBODY, epoch=None)

        first = [await one(store, mine), await one(store, mine)]
        other = await one(store, reservation("r2", ("a", 10, 6), run=NOBODY, epoch=None))
        third = await one(store, mine)

        assert [*first, other] == [granted("a", 0, 6), granted("a", 0, 6), granted("a", 0, 12)]
        assert third == granted("a", 0, 12), "what is left beside its own"
        await one(store, settlement("r2", ("a", 10), run=NOBODY, epoch=None))
        assert await one(store, mine) == BudgetSpent(BudgetUse("a", 10, 0)), "beside it nothing is left"

    async def test_nobodys_calls_are_charged_whether_their_reservation_stands_or_not(self, store: Store) -> None:
        await one(store, reservation("r1", ("a", 10, 6), run=NOBODY, epoch=None))

        settled = settlement("r1", ("a", 4), run=NOBODY, epoch=None)
        await store.apply([settled, settled])
        await one(store, settled)

        assert await one(store, reservation("ask", ("a", 99, 0), run=NOBODY, epoch=None)) == granted("a", 12, 0)
        assert await one(store, reservation("r1", ("a", 10, 6), run=NOBODY, epoch=None)) == BudgetSpent(
            BudgetUse("a", 12, 0)
        )
