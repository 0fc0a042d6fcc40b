"""What a handler may know of the call that it serves."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import AgentId, RunId, TenantId, ToolCallId
from owlclaw_ray.tools.secrets import secret_of


class ToolContext(Struct, frozen=True):
    """Given to a handler that has a parameter annotated with this type; models never see that parameter."""

    agent_id: AgentId
    tenant: TenantId
    run_id: RunId
    call_id: ToolCallId
    idempotency_key: str
    """The same for every attempt at this call: pass it on to services that can use one."""
    trigger: TriggerKind
    approved: bool = False
    """Whether a person allowed this call, or its target for the session."""
    traceparent: str = ""
    """The call's span: send it as the header `traceparent`, and what a service does for the call is part of the run's trace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the agent's skills set for its programs; the process itself does not have them."""

    def secret(self, name: str) -> str:
        """Return the value of a secret of the tenant. It is taken out of the call's result, of the log and of the ledger.

        Raises NotFoundError if there is none, SecretsUnavailableError if it cannot be decrypted, RuntimeUnavailableError if
        nobody answers. It blocks: call it where the value is used.
        """
        return secret_of(self.tenant, name)

    @classmethod
    def of(cls, invocation: ToolInvocation) -> ToolContext:
        """Return the context of this call."""
        return cls(
            agent_id=invocation.agent.agent_id,
            tenant=invocation.agent.tenant,
            run_id=invocation.run_id,
            call_id=invocation.call_id,
            idempotency_key=invocation.idempotency_key,
            trigger=invocation.trigger,
            approved=invocation.stage.approved,
            traceparent=invocation.traceparent,
            environment=dict(invocation.environment),
        )
