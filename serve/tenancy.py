"""Whose data a request is about."""

from __future__ import annotations

from starlette.requests import Request

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId


def tenant_of(request: Request) -> TenantId:  # noqa: ARG001 - API keys will name the tenant; this is the place
    """Return the tenant on whose behalf the request acts."""
    return DEFAULT_TENANT


def agent_of(request: Request, agent: str) -> AgentRef:
    """Return the tenant's agent of that id, or raise InvalidAgentNameError."""
    return AgentRef.parse(agent, tenant_of(request))
