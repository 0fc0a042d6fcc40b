"""query_state, log_decision."""

from __future__ import annotations

from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.tool import QUERY_STATE
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RecordId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.tools.builtin.arguments import InvalidToolArgumentsError, LogDecisionArguments, QueryStateArguments
from owlclaw_ray.tools.builtin.contract import BuiltInOutcome, Caller, ForbiddenError
from owlclaw_ray.tools.states import States, UnknownStateError


class ObservingTools:
    """What the agent sees of the business, and what it says of itself to the auditor."""

    def __init__(self, states: States, clock: Clock) -> None:
        self._states = states
        self._clock = clock

    def query_state(self, arguments: QueryStateArguments, caller: Caller) -> BuiltInOutcome:
        """Return the state.

        Raises ForbiddenError for one that the agent may not query, be it there or not, InvalidToolArgumentsError for an unknown
        name, and what the provider raises.
        """
        name = arguments.state_name
        why = _refusal(name, caller)
        if why:
            raise ForbiddenError(f"{caller.agent} may not query the state {name!r}: {why}")
        try:
            state = self._states.query(name, caller.agent)
        except NotFoundError as error:
            told: NotFoundError = error
            if isinstance(error, UnknownStateError):
                told = UnknownStateError(name, tuple(each for each in error.known if not _refusal(each, caller)))
            raise InvalidToolArgumentsError(QUERY_STATE, [f"state_name: {told}"]) from error
        return BuiltInOutcome({"state": state})

    def log_decision(self, arguments: LogDecisionArguments, caller: Caller) -> BuiltInOutcome:
        """Return a ledger record of the decision for the host to commit."""
        decision_id = derived_id("dec", caller.idempotency_key)
        now = self._clock.now()
        record = LedgerRecord(
            record_id=RecordId(derived_id("rec", "decision", caller.idempotency_key)),
            tenant=caller.agent.tenant,
            agent_id=caller.agent.agent_id,
            run_id=caller.run_id,
            kind=LedgerKind.DECISION,
            at=now,
            data={
                "decision_id": decision_id,
                "reasoning": arguments.reasoning,
                "decision_type": arguments.decision_type,
            },
        )
        return BuiltInOutcome({"decision_id": decision_id, "logged": True, "created_at": now.isoformat()}, (record,))


def _refusal(state: str, caller: Caller) -> str:
    why, lineage = caller.states.refusal(state), caller.lineage
    if why or lineage is None or lineage.grants_state(state):
        return why
    return f"{lineage.parent} did not grant {QUERY_STATE}.{state}"
