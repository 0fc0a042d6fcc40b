"""What calls of a provider's embedding model may use: reserved before each of them, and charged after it (G2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.entries import embedding_record
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.quota import Quotas, model_tokens_budget
from owlclaw_ray.errors import BudgetExhaustedError, OwlClawError, StoreUnavailableError
from owlclaw_ray.ids import IdSource, RecordId, RunId, TenantId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.embedding_account import EmbeddingAccount, present_account
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.policy.budgets import VECTORS, BudgetAccounts, BudgetReservation, amount_expected, amount_used
from owlclaw_ray.store.commands import (
    AppendLedger,
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    Command,
    Outcome,
    ReserveBudget,
    SettleBudget,
)

logger = logging.getLogger(__name__)


class BudgetedEmbeddings:
    """Asks a provider for vectors on behalf, and within the budgets, of whose account it is on; see `on_account`.

    `apply` commits commands, `budgets` says what an agent's definition allows and `quotas` what its tenant has; what they raise means no
    vectors now. A call of a run counts for the keys of the run, too. Nobody waits for the next minute of a quota: without vectors words
    have to do. A call of a run's tool holds its reservation for the run, whose end gives it back if its process dies. Indexing belongs
    to no run: its reservation is the agent's, and the next one takes its place.
    """

    def __init__(
        self,
        ask: Callable[[EmbeddingRequest], EmbeddingReply],
        *,
        apply: Callable[[Sequence[Command]], Sequence[Outcome]],
        budgets: Callable[[AgentRef], Sequence[Budget]],
        quotas: Callable[[TenantId], Quotas],
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._ask, self._apply, self._clock, self._ids = ask, apply, clock, ids
        self._budgets, self._quotas = budgets, quotas
        self._told: set[tuple[AgentRef, str]] = set()
        """Whose memories wait, and for which account."""

    def __call__(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Return the vectors; raises BudgetExhaustedError, not having asked for them, and what `ask` raises."""
        account = present_account()
        if account is None:
            raise BudgetExhaustedError(f"no account for vectors of {request.model}: ask for them within on_account")
        if account.refusal:
            raise BudgetExhaustedError(account.refusal)
        request = replace(request, tenant=account.agent.tenant, agent_id=account.agent.agent_id)
        # a run holds the reservation while a call of its waits, else the agent does
        accounts = BudgetAccounts(account.agent, account.run_id if account.call else RunId(""), self._clock)
        reserved = self._reserve(account, accounts, request)
        began = self._clock.monotonic()
        try:
            reply = self._ask(request)
        except Exception:
            self._close(account, accounts, reserved, None)
            raise
        duration = round((self._clock.monotonic() - began) * 1_000)
        call = EmbeddedCall(request.model, reply.usage, self._clock.now(), duration, reply.failed_attempts)
        account.calls.append(call)
        self._close(account, accounts, reserved, call)
        return reply

    def _reserve(
        self, account: EmbeddingAccount, accounts: BudgetAccounts, request: EmbeddingRequest
    ) -> BudgetReservation | None:
        of_tenant = model_tokens_budget(self._quotas(account.agent.tenant))
        of_minute = [each for each in (of_tenant, *map(model_tokens_budget, account.key_quotas)) if each is not None]
        budgets = [each for each in self._budgets(account.agent) if not each.tools]
        windows = accounts.windows((*budgets, *of_minute))
        if not windows:
            return None
        tokens = sum(estimate_tokens(text) for text in request.texts)
        reserved = accounts.reservation(account.call or account.purpose.value, windows)
        claims = accounts.claims(windows, (amount_expected(budget, tokens, 0, VECTORS) for budget, _ in windows))
        (answer,) = self._apply(
            [ReserveBudget(reserved.reservation_id, accounts.run_id, account.agent, None, claims, self._clock.now())]
        )
        if isinstance(answer, BudgetReserved):
            return reserved
        if not isinstance(answer, BudgetSpent):
            raise StoreUnavailableError(f"nothing was reserved: {answer}")
        why = accounts.refusal(windows, answer.use)
        if account.purpose is EmbeddingPurpose.INDEX and accounts.more_at(windows, answer.use) is None:
            self._tell(account, answer.use.account, why)
        raise BudgetExhaustedError(why)

    def _close(
        self,
        account: EmbeddingAccount,
        accounts: BudgetAccounts,
        reserved: BudgetReservation | None,
        call: EmbeddedCall | None,
    ) -> None:
        """Charge what was used, nothing if the call failed; of indexing, which no run records, add a ledger record."""
        commands: list[Command] = []
        if reserved is not None:
            used = () if call is None else [amount_used(budget, call.usage, 1) for budget, _ in reserved.windows]
            charges = accounts.charges(reserved.windows, used) if used else ()
            commands.append(SettleBudget(reserved.reservation_id, accounts.run_id, account.agent, None, charges))
        if call is not None and account.purpose is EmbeddingPurpose.INDEX:
            data = embedding_record(call, account.purpose)
            record = _record(account, RecordId(self._ids.make("rec")), LedgerKind.MODEL_CALL, call.at, data)
            commands.append(AppendLedger((record,)))
        if not commands:
            return
        try:
            outcomes = self._apply(commands)
        except OwlClawError as error:
            logger.warning(
                "an embedding call of %s is missing in budgets and ledger: %s: %s", account.agent, call, error
            )
            return
        for outcome in outcomes:
            for alert in outcome.alerts if isinstance(outcome, BudgetSettled) else ():
                logger.warning("%s: %s", account.agent, alert.data["why"])

    def _tell(self, account: EmbeddingAccount, spent: str, why: str) -> None:
        """Say once that memories wait for the next window of a budget."""
        if (account.agent, spent) in self._told:
            return
        logger.warning("memories of %s are searched by their words only, without vectors: %s", account.agent, why)
        key = RecordId(derived_id("rec", "unindexed", account.agent.tenant, account.agent.agent_id, spent))
        data: JsonObject = {"what": "memories left without vectors", "why": why}
        self._apply([AppendLedger((_record(account, key, LedgerKind.WARNING, self._clock.now(), data),))])
        self._told.add((account.agent, spent))


def _record(
    account: EmbeddingAccount, record_id: RecordId, kind: LedgerKind, at: datetime, data: JsonObject
) -> LedgerRecord:
    agent = account.agent
    run_id = account.run_id if kind is LedgerKind.MODEL_CALL else RunId("")
    return LedgerRecord(record_id, agent.tenant, agent.agent_id, run_id, kind, at, data)
