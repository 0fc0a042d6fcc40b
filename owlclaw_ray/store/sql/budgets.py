"""What runs use of budgets, on the working set."""

from __future__ import annotations

from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.store.commands import (
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    ReserveBudget,
    SettleBudget,
    StaleEpoch,
)
from owlclaw_ray.store.sql.codec import to_micros
from owlclaw_ray.store.sql.run_lifecycle import check_claimed, owned, run_of
from owlclaw_ray.store.sql.working_set import AccountRow, WorkingSet


def reserve_budget(store: WorkingSet, command: ReserveBudget) -> BudgetReserved | BudgetSpent | StaleEpoch:
    """Set the amounts aside in all accounts, unless one has nothing left or the reservation stands already."""
    run = None
    if command.epoch is not None:
        agent = owned(store, command.agent, command.epoch)
        if isinstance(agent, StaleEpoch):
            return agent
        run = run_of(store, command)
        check_claimed(run, command.epoch)
    elif command.run_id:
        run = run_of(store, command)
        if run.status is not RunStatus.RUNNING:
            raise ValueError(f"run {run.run_id} is {run.status.value} and makes no calls")
    else:
        store.settle(command.reservation_id, {})
    if command.reservation_id not in store.reservations:
        for claim in command.claims:
            account = store.accounts[claim.account]
            if account.used + account.reserved >= claim.limit:
                return BudgetSpent(_use(account))
        amounts = {claim.account: claim.amount for claim in command.claims if claim.amount}
        if amounts:
            store.reserve(run, command.reservation_id, amounts, to_micros(command.at))
    return BudgetReserved(tuple(_use(store.accounts[claim.account]) for claim in command.claims))


def settle_budget(store: WorkingSet, command: SettleBudget) -> BudgetSettled | StaleEpoch:
    """Charge what was used, and tell the ledger of what is reached for the first time."""
    if command.epoch is not None:
        agent = owned(store, command.agent, command.epoch)
        if isinstance(agent, StaleEpoch):
            return agent
    charges = {charge.account: charge for charge in command.charges}
    amounts = {key: each.amount for key, each in charges.items()}
    if command.run_id:
        charged = store.settle(command.reservation_id, amounts)
    else:
        store.settle(command.reservation_id, {})
        charged = store.charge(amounts)
    told = []
    for account in charged:
        for alert in charges[account.account].alerts if account.account in charges else ():
            if account.alerted < alert.amount <= account.used:
                account.alerted = alert.amount
                told.append(alert.record)
    store.record(told)
    return BudgetSettled(tuple(told))


def _use(account: AccountRow) -> BudgetUse:
    return BudgetUse(account.account, account.used, account.reserved)
