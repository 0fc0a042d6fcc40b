"""What runs use of budgets, and records of the ledger that belong to no run, on the working set."""

from __future__ import annotations

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.store.commands import (
    AppendLedger,
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    LedgerAppended,
    ReserveBudget,
    SettleBudget,
    StaleEpoch,
)
from owlclaw_ray.store.sql.codec import optional_micros, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.run_lifecycle import check_claimed, owned, run_of
from owlclaw_ray.store.sql.working_set import AccountRow, WorkingSet


def _need_reservation(needs: RowNeeds, command: ReserveBudget | SettleBudget) -> None:
    needs.agent(command.agent)
    if command.run_id:
        needs.runs.add(command.run_id)
    needs.reservations.add(command.reservation_id)


def _need_accounts(needs: RowNeeds, command: ReserveBudget) -> None:
    _need_reservation(needs, command)
    for each in command.claims:
        needs.accounts[each.account] = optional_micros(each.expires_at)


@applies(ReserveBudget, needs=_need_accounts)
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
            taken = account.used + account.reserved
            if taken >= claim.limit or (claim.must_fit and taken and taken + claim.amount > claim.limit):
                return BudgetSpent(_use(account))
        amounts = {claim.account: claim.amount for claim in command.claims if claim.amount}
        if amounts:
            store.reserve(run, command.reservation_id, amounts, to_micros(command.at))
    return BudgetReserved(tuple(_use(store.accounts[claim.account]) for claim in command.claims))


def _need_settlement(needs: RowNeeds, command: SettleBudget) -> None:
    _need_reservation(needs, command)
    if not command.run_id:
        needs.charged.update(each.account for each in command.charges)


@applies(SettleBudget, needs=_need_settlement)
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


def _need_records(needs: RowNeeds, command: AppendLedger) -> None:
    needs.record(command.records)
    for each in command.records:
        needs.agent(AgentRef(each.tenant, each.agent_id))


@applies(AppendLedger, needs=_need_records)
def append_ledger(store: WorkingSet, command: AppendLedger) -> LedgerAppended:
    """Append records that belong to no command about a run."""
    store.record(command.records)
    return LedgerAppended()
