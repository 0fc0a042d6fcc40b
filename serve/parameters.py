"""The parameters of paths and queries that several routes take, as FastAPI checks and documents them, and the agent that they name."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path, Query
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from starlette.requests import Request

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.wire import AGENT_PATTERN, MAX_ID, NO_NUL, moment

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


def tenant_of(request: Request) -> TenantId:  # noqa: ARG001 - API keys will name the tenant; this is the place
    """Return the tenant on whose behalf the request acts."""
    return DEFAULT_TENANT


def agent_of(request: Request, agent: str) -> AgentRef:
    """Return the tenant's agent of that id, or raise InvalidAgentNameError."""
    return AgentRef.parse(agent, tenant_of(request))
