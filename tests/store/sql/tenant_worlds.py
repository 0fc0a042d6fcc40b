"""A database with rows of tenants in every table that can have any, and dumps of all tables."""

from __future__ import annotations

from sqlalchemy import select

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.usage import RunCounts, ToolCounts
from owlclaw_ray.ids import AgentId, TenantId
from owlclaw_ray.store.sql.codec import agent_key, blob_key, tenant_key
from owlclaw_ray.store.sql.schema import metadata

AT = 1_790_000_000_000_000


def rows_of(tenant: TenantId, number: int = 3) -> dict[str, list[dict]]:
    """Return rows of the tenant, of all tables but the ledger's and its own, with the same agents and names whatever the tenant is."""
    key, found = agent_key(AgentRef(tenant, AgentId("trader:AAPL"))), {}

    def add(table: str, **row) -> None:
        found.setdefault(table, []).append(row)

    add(
        "agents",
        agent=key,
        tenant=tenant,
        definition="trader",
        epoch=3,
        activation_id="act_1",
        state="{}",
        created_at=AT,
    )
    base = sum(map(ord, tenant)) * 1_000_000
    for each in range(number):
        run_id, schedule_id = f"run_{tenant}_{each}", f"sch_{tenant}_{each}"
        run = {"seq": base + each, "run_id": run_id, "tenant": tenant, "agent": key, "created_at": AT, "trigger": "{}"}
        add("runs", **run, status="completed", cancel_requested=False, claimed_epoch=1, payload='"a secret of ours"')
        add("focus_terms", tenant=tenant, term=each, seq=base + each)
        for seq in (1, 2):
            add("journal", run_id=run_id, seq=seq, kind="run_queued", at=AT, data='{"trigger": "api"}')
        add(
            "budget_reservations",
            reservation_id=f"open.{run_id}",
            account=f"quota.open_runs@{tenant}",
            run_id=run_id,
            amount=1,
        )
        add("idempotency_keys", key=tenant_key(tenant, f"k{each}"), body_hash="b", run_id=run_id, expires_at=AT)
        add("idempotency_keys", key=f"merged run_x{tenant}{each}", body_hash="", run_id=run_id, expires_at=AT)
        owner = {"tenant": tenant, "agent": key, "run_id": run_id}
        asked = {"requested_at": AT, "expires_at": AT, "request": "{}"}
        add("approvals", approval_id=f"apr_{tenant}_{each}", **owner, status="pending", **asked)
        tried = {"created_at": AT, "status": "pending", "attempts": 0, "problem": '""', "version": 1, "changed_by": ""}
        add("callbacks", callback_id=f"cb_{tenant}_{each}", **owner, url="https://shop.example.org", **tried)
        received = {"source": "github", "receipt": "r", "received_at": AT, "status": "waiting", "reason": '""'}
        said = {"headers": "{}", "whole": True, "body": '"b"'}
        add("webhook_deliveries", delivery_id=f"dlv_{tenant}_{each}", tenant=tenant, agent=key, **received, **said)
        add("schedules", schedule_id=schedule_id, agent=key, kind="cron", rule="{}", created_at=AT, status="active")
        for due in (1, 2):
            tick = {"due_at": AT + due, "outcome": "skipped", "at": AT, "reason": '""', "count": 1}
            add("ticks", firing_id=f"{schedule_id}@{due}", schedule_id=schedule_id, **tick)
        made = {"version": 1, "created_at": AT, "updated_at": AT, "data": "{}"}
        add("tasks", task_id=f"task_{tenant}_{each}", agent=key, **made)
        add("blobs", hash=blob_key(tenant, f"{each:064d}"), content='"You are a trader."')
        add("memory_parts", agent=key, document="MEMORY.md", version=each, content=b"- a memory\n")
        artifact = {"agent": key, "artifact_id": f"art_{each}", "stored_at": AT}
        add("artifacts", **artifact, media_type="text/plain", size_bytes=3, parts=1, digest="d")
        add("artifact_parts", **artifact, part=0, content=b"abc")
        issued = {
            "name": "ci",
            "secret_hash": "h4sh",
            "scopes": "[]",
            "patterns": "[]",
            "created_at": AT,
            "created_by": "ada",
        }
        add("access_keys", key_id=f"k{tenant}{each}", tenant=tenant, **issued, expires_at=AT, previous_hash="h4sh")
        add("budgets", account=f"quota.starts_a_minute.m{each}@key:k{tenant}{each}", used=1, reserved=0, alerted=0)
        add(
            "secrets",
            tenant=tenant,
            name=f"s{each}",
            key_id="m",
            ciphertext=b"c1pher",
            created_at=AT,
            rotated_at=AT,
            created_by="ada",
        )
        of_runs = dict.fromkeys(RunCounts.__struct_fields__, 1)
        of_calls = dict.fromkeys(ToolCounts.__struct_fields__, 1)
        add("usage_of_tenants", tenant=tenant, seconds=60, begins_at=AT + each, writer="keeper-1", **of_runs)
        add("usage_of_agents", tenant=tenant, begins_at=AT + each, agent=key, definition="trader", **of_runs)
        add("usage_of_tools", tenant=tenant, begins_at=AT, tool=f"look_{each}", writer="keeper-1", **of_calls)
    for account in (f"daily.tokens.2026-11-26@{tenant}", f"daily.tokens.2026-11-26@{key}", f"quota.open_runs@{tenant}"):
        add("budgets", account=account, used=1, reserved=number, alerted=0)
    add("memories", agent=key, version=1, change_id="c", documents="{}")
    return found


def fill(connection, tenant: TenantId, number: int = 3) -> None:
    """Write those rows."""
    for table, rows in rows_of(tenant, number).items():
        for row in rows:
            connection.execute(metadata.tables[table].insert().values(row))


def dump(connection) -> dict[str, set[tuple]]:
    """Return all rows of all tables, but those of writers' probes."""
    return {
        name: set(map(tuple, connection.execute(select(table)).all()))
        for name, table in metadata.tables.items()
        if name != "probes"
    }
