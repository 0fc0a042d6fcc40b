"""The parameters of paths and queries that several routes take, as FastAPI checks and documents them, and the agent that they name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from fastapi import Path, Query
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from starlette.requests import Request

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.ids import TenantId
from owlclaw_ray.wire import AGENT_PATTERN, MAX_ID, NO_NUL, moment

PRINCIPAL = "owlclaw.principal"
"""The key of the principal in the ASGI scope."""
_AGENT: JsonObject = {"pattern": AGENT_PATTERN}

Id: TypeAlias = Annotated[str, StringConstraints(max_length=MAX_ID, pattern=NO_NUL)]
"""The name of something that may be there; what nothing is called is 404, or found nowhere."""
AgentPath: TypeAlias = Annotated[
    str,
    Path(
        description="`definition` or `definition:key`.",
        examples=["assistant", "assistant:alice"],
        json_schema_extra=_AGENT,
    ),
]
AgentQuery: TypeAlias = Annotated[
    str | None, Query(description="Only this agent's.", examples=["assistant"], json_schema_extra=_AGENT)
]
RunQuery: TypeAlias = Annotated[Id | None, Query(description="Only this run's.")]
LimitQuery: TypeAlias = Annotated[int, Query(ge=1, le=1_000, description="At most so many.")]
Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(moment)]
"""A time with its zone as RFC 3339 writes it, and nothing else that looks like a time to pydantic; then it is in UTC."""


def principal_of(request: Request) -> Principal:
    """Return who the request acts for, as the access gate has found out."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def tenant_of(request: Request) -> TenantId:
    """Return the tenant on whose behalf the request acts."""
    return principal_of(request).tenant


def agent_of(request: Request, agent: str) -> AgentRef:
    """Return the tenant's agent of that id; raises InvalidAgentNameError, and AccessDeniedError if it is not for the principal."""
    principal = principal_of(request)
    found = AgentRef.parse(agent, principal.tenant)
    principal.require_agent(found)
    return found


def only_agent_of(request: Request, agent: str | None) -> AgentRef | None:
    """Return as agent_of, None for None: all agents. Raises AccessDeniedError if the principal is narrowed to some of them."""
    if agent is not None:
        return agent_of(request, agent)
    principal_of(request).require_all_agents()
    return None


async def check_owner(request: Request, owner: Callable[[], Awaitable[AgentRef | None]]) -> None:
    """Raise AccessDeniedError if what the request is about belongs to an agent, or to none, that is not for the principal.

    `owner` is asked only where the principal is narrowed to some agents.
    """
    principal = principal_of(request)
    if principal.patterns:
        agent = await owner()
        if agent is None:
            principal.require_all_agents()
        else:
            principal.require_agent(agent)


def principal_id_of(request: Request) -> str:
    """Return by what principals are told apart, whatever they say of themselves; empty where nobody needs a key: all these are one."""
    principal = principal_of(request)
    return "" if principal is LOCAL else f"{principal.kind.value}:{principal.id}"


def submitters_of(request: Request) -> tuple[str, ...]:
    """Return who asks for the run that the request starts: nobody in particular where nobody needs a key."""
    principal = principal_id_of(request)
    return (principal,) if principal else ()


def actor_of(request: Request, said: str) -> str:
    """Return who has something done, for the ledger: the principal, and whom it says that it does it for; on one's own machine, where
    nobody has a key, whoever is said.
    """
    principal = principal_of(request)
    if principal is LOCAL:
        return said
    return f"{principal} for {said}" if said else str(principal)
