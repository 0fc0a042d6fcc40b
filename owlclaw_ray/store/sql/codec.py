"""Between columns and the domain: times, JSON, keys, and the objects made of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import orjson
from msgspec import convert
from msgspec.json import Decoder
from msgspec.structs import asdict

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.json import LARGE, JsonText, JsonValue
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.run import RunResult
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, TenantId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LINEAGE, _STATE, _RESULT = Decoder(Lineage), Decoder(AgentState), Decoder(RunResult)


def to_micros(at: datetime) -> int:
    """Return microseconds since 1970 in UTC; raises TypeError for a time without zone."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the time in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def optional_micros(at: datetime | None) -> int | None:
    """Return as to_micros, None for None."""
    return None if at is None else to_micros(at)


def optional_time(micros: int | None) -> datetime | None:
    """Return as from_micros, None for None."""
    return None if micros is None else from_micros(micros)


def dump(value: Any) -> str:
    """Return JSON text, facts as objects with their fields.

    NUL characters are escaped in it, so every database takes it; raises TypeError for what is no JSON.
    """
    return orjson.dumps(value, default=asdict).decode()


def load(text: str) -> Any:
    """Return the value of JSON text."""
    return orjson.loads(text)


@lru_cache(maxsize=65_536)
def agent_key(agent: AgentRef) -> str:
    """Return tenant and id as one text, of which no two agents have the same."""
    return f"{quote(agent.tenant, safe='')}/{agent.agent_id}"


@lru_cache(maxsize=65_536)
def agent_of(key: str) -> AgentRef:
    """Return the agent of a key."""
    tenant, _, agent_id = key.partition("/")
    return AgentRef(TenantId(unquote(tenant)), AgentId(agent_id))


def tenant_key(tenant: TenantId, key: str) -> str:
    """Return a tenant's key (an Idempotency-Key, an agent's id) as one text, of which no two tenants have the same."""
    return f"{quote(tenant, safe='')}/{key}"


def tenant_range(tenant: TenantId) -> tuple[str, str]:
    """Return where the texts of `tenant_key` and `agent_key` begin that are a tenant's, and where they end: before the second."""
    first = tenant_key(tenant, "")
    return first, first[:-1] + chr(ord(first[-1]) + 1)


def blob_key(tenant: TenantId, digest: str) -> str:
    """Return under which key the text of that hash is kept for a tenant: no two tenants share one, so that each can be removed."""
    return digest if tenant == DEFAULT_TENANT else tenant_key(tenant, digest)


def blob_keys(tenant: TenantId, digest: str) -> tuple[str, str]:
    """Return where the text of that hash may be: under the tenant's key, or, as an older version stores it, under the hash alone."""
    return blob_key(tenant, digest), digest


def digest_of(blob: str) -> str:
    """Return the hash in a key of `blob_key`."""
    return blob.rpartition("/")[2]


def dump_trigger(trigger: Trigger) -> tuple[str, str]:
    """Return JSON text of the trigger without its payload, and of the payload."""
    fields = asdict(trigger)
    content = fields.pop("content")
    for name in ("task_type", "submitters"):
        if not fields[name]:
            del fields[name]
    return dump(fields), content.text if isinstance(content, JsonText) else dump(content)


def load_trigger(text: str, payload: str | None) -> Trigger:
    """Return the trigger that `dump_trigger` made into texts.

    Without the text of the payload it has none, but what was stored when the payload was part of the trigger's text.
    """
    data = orjson.loads(text)
    content = data.get("payload") if payload is None else _payload(payload)
    merged, cause = data.get("merged", 1), data.get("traceparent", "")
    lineage = None if data.get("lineage") is None else convert(data["lineage"], Lineage)
    kind, task_type = TriggerKind(data["kind"]), data.get("task_type", "")
    session, user = data.get("session", ""), data.get("user", "")
    return Trigger(
        kind,
        content,
        data["focus"],
        data["source"],
        merged,
        lineage,
        cause,
        task_type,
        session=session,
        user=user,
        submitters=tuple(data.get("submitters", ())),
    )


def load_lineage(text: str | None) -> Lineage | None:
    """Return the lineage that `dump` made into text."""
    return None if text is None else _LINEAGE.decode(text)


def _payload(text: str) -> JsonValue | JsonText:
    return JsonText(text) if len(text) > LARGE else orjson.loads(text)


def load_state(text: str) -> AgentState:
    """Return the state that `dump` made into text."""
    return _STATE.decode(text)


def load_result(text: str | None) -> RunResult | None:
    """Return the result that `dump` made into text."""
    return None if text is None else _RESULT.decode(text)
