"""Commands about the ledger and about budgets, whose alerts the ledger keeps, and their outcomes."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.ids import ReservationId, RunId


class AppendLedger(Struct, frozen=True):
    """Append records that belong to no journal entry. Outcome: LedgerAppended. Records whose id is there already are ignored."""

    records: tuple[LedgerRecord, ...]


class BudgetClaim(Struct, frozen=True):
    """What a call asks of one account: the use of one budget in one of its windows."""

    account: str
    limit: int
    amount: int
    """What it will use, as far as is known; 0 asks only how much is used."""
    expires_at: datetime | None = None
    """When nobody claims of this account any more; None: never."""
    must_fit: bool = False
    """Whether all of the amount must be left, unless nothing of the account is used or reserved: what is more than the whole of it is
    let in alone.
    """


class ReserveBudget(Struct, frozen=True):
    """Set aside what a call of a running run may use, in all these accounts or in none. Outcome: BudgetReserved, BudgetSpent or
    StaleEpoch.

    Granted if in each account what is used and what is reserved together are below the limit: so of any number of runs at once
    only the last that is granted may go over it, by less than its own amount; of claims that must fit, none.
    A reservation of the same id that stands is granted as it is: whoever takes a run over makes use of it. It stands until it is
    settled or its run is over.

    Without an epoch it is of a call that a tool makes, for its run, or with an empty run_id for nobody's: no run's end gives that
    one back, so whoever reserves under its id again is granted what is left beside it, and takes its place.
    """

    reservation_id: ReservationId
    run_id: RunId
    agent: AgentRef
    epoch: int | None
    claims: tuple[BudgetClaim, ...]
    at: datetime


class BudgetAlert(Struct, frozen=True):
    """What the ledger is told, once, when an account's use reaches an amount."""

    amount: int
    record: LedgerRecord


class BudgetCharge(Struct, frozen=True):
    """What a call used of one account."""

    account: str
    amount: int
    alerts: tuple[BudgetAlert, ...] = ()


class SettleBudget(Struct, frozen=True):
    """Put what a call used in the place of its reservation. Outcome: BudgetSettled or StaleEpoch.

    Settling what is settled, or was never reserved, changes nothing. An account of the reservation without a charge gets all
    back. Nobody's call (an empty run_id) is charged whether its reservation stands or not: two of them may have shared it.
    """

    reservation_id: ReservationId
    run_id: RunId
    agent: AgentRef
    epoch: int | None
    charges: tuple[BudgetCharge, ...] = ()


class LedgerAppended(Struct, frozen=True):
    """The records are durable."""


class BudgetReserved(Struct, frozen=True):
    """The amounts are set aside. `uses`: each account after that, in the order of the claims."""

    uses: tuple[BudgetUse, ...]


class BudgetSpent(Struct, frozen=True):
    """Nothing is set aside: this account has nothing left."""

    use: BudgetUse


class BudgetSettled(Struct, frozen=True):
    """The use is written down. `alerts`: what the ledger was told."""

    alerts: tuple[LedgerRecord, ...] = ()
