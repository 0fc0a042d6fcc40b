"""Quotas: how much a tenant, or whoever has a key, may have or start."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import asdict

from owlclaw_ray.domain.budget import Budget, BudgetPeriod, BudgetScope, BudgetUnit, BudgetWindow
from owlclaw_ray.ids import KeyId, TenantId

MAX_QUOTA = 10**12
OPEN_RUNS = "open_runs"
STARTS_A_MINUTE = "starts_a_minute"
MODEL_TOKENS_A_MINUTE = "model_tokens_a_minute"
RUNNING_RUNS = "running_runs"
RUNNING_RUNS_OF_KEY = "running_runs_of_key"
"""What a run waits for that waits for a place among those of its key."""
AGENTS = "agents"
SCHEDULES = "schedules"
MEMORIES = "memories"
MEMORY_BYTES = "memory_bytes"
ARTIFACT_BYTES = "artifact_bytes"
HELD = (OPEN_RUNS, RUNNING_RUNS, AGENTS, SCHEDULES, MEMORIES, MEMORY_BYTES, ARTIFACT_BYTES)
"""Quotas of what there is at a time: their accounts have its number."""
KEY_QUOTAS = (STARTS_A_MINUTE, OPEN_RUNS, RUNNING_RUNS, MODEL_TOKENS_A_MINUTE)
"""Quotas that keys have, too. Others count what outlives a key, and is the tenant's."""
SUSPENDED = "suspended"
"""Stands in the place of a quota where nothing of a tenant is started because it is suspended."""


class Quotas(Struct, frozen=True, omit_defaults=True):
    """The quotas of a tenant; None: as much as it likes."""

    open_runs: int | None = None
    """Runs that are not over: those that are queued, running and waiting together."""
    running_runs: int | None = None
    """Runs that are executed at once. Further ones wait in the queue; those that wait for people or other runs do not count."""
    starts_a_minute: int | None = None
    """Runs that are accepted in one minute of the clock, whoever triggers them: requests, webhooks, schedules and other agents."""
    agents: int | None = None
    """Agents that exist, from their first trigger or schedule on."""
    schedules: int | None = None
    """Schedules that are active or paused, but for heartbeats, which definitions have and nobody makes."""
    memories: int | None = None
    """Memories of all agents, archived ones too, where they are in the store."""
    memory_bytes: int | None = None
    """Bytes of MEMORY.md and of the archives of all agents, where they are in the store."""
    artifact_bytes: int | None = None
    """Bytes of artifacts that are in the store."""
    model_tokens_a_minute: int | None = None
    """Tokens of prompts and replies, and of texts that are made into vectors, in one minute of the clock. Model calls that may
    use more than are left wait for the next minute, in which one that may use more than all is let in alone.
    """

    @property
    def given(self) -> dict[str, int]:
        """Those that there are, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def problem(self) -> tuple[str, int] | None:
        """Return the name and the value of a quota that cannot be; None if all can."""
        return next(((name, value) for name, value in self.given.items() if not 0 <= value <= MAX_QUOTA), None)


NO_QUOTAS = Quotas()


class KeyQuota(Struct, frozen=True):
    """What a key may have and start, beside what its tenant may; None: as much as its tenant. It is given when the key is made, and stays.

    It counts the runs that the key asks for, those that schedules start which it asked for, and those that agents start in such runs.
    """

    key_id: KeyId
    starts_a_minute: int | None = None
    open_runs: int | None = None
    running_runs: int | None = None
    model_tokens_a_minute: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """Those that there are, by name."""
        return {name: value for name in KEY_QUOTAS if (value := getattr(self, name)) is not None}

    @property
    def lasts(self) -> bool:
        """Whether a run counts beyond the moment in which it is accepted."""
        return any(name != STARTS_A_MINUTE for name in self.given)


class QuotaUse(Struct, frozen=True):
    """What a tenant, or a key, has and starts at the moment, as far as it has quotas: None where it has none."""

    open_runs: int | None = None
    running_runs: int | None = None
    starts_a_minute: int | None = None
    agents: int | None = None
    schedules: int | None = None
    memories: int | None = None
    memory_bytes: int | None = None
    artifact_bytes: int | None = None
    model_tokens_a_minute: int | None = None


def held_account(quota: str, tenant: TenantId) -> str:
    """Return the account of what a tenant has of what a quota of HELD counts."""
    return f"quota.{quota}@{quote(tenant, safe='')}"


def starts_account(tenant: TenantId, minute: BudgetWindow) -> str:
    """Return the account of the runs of a tenant that are accepted in that minute."""
    return f"quota.{STARTS_A_MINUTE}.{minute.key}@{quote(tenant, safe='')}"


def key_starts_account(key_id: KeyId, minute: BudgetWindow) -> str:
    """Return the account of the runs that a key starts in that minute."""
    return f"quota.{STARTS_A_MINUTE}.{minute.key}@key:{quote(key_id, safe='')}"


def key_held_account(quota: str, key_id: KeyId, tenant: TenantId) -> str:
    """Return the account of what there is of a key of what a quota of HELD counts. It is the tenant's, and removed with it."""
    return f"quota.{quota}.key:{quote(key_id, safe='')}@{quote(tenant, safe='')}"


def uncounted_quotas(*, memories_in_files: bool, artifacts_in_files: bool) -> dict[str, str]:
    """Return the quotas that a runtime cannot count, each with why: files change without a commit."""
    kept = {
        MEMORIES: (memories_in_files, "memories", "memory"),
        MEMORY_BYTES: (memories_in_files, "memories", "memory"),
        ARTIFACT_BYTES: (artifacts_in_files, "artifacts", "artifacts"),
    }
    return {
        quota: f"{what} are in files, not in the store ({section}.home)"
        for quota, (in_files, what, section) in kept.items()
        if in_files
    }


def model_tokens_budget(quotas: Quotas | KeyQuota) -> Budget | None:
    """Return the quota of model tokens as a budget of the tenant, or of a key of it; None if there is none."""
    if quotas.model_tokens_a_minute is None:
        return None
    whose = f".key:{quote(quotas.key_id, safe='')}" if isinstance(quotas, KeyQuota) else ""
    return Budget(
        f"quota.{MODEL_TOKENS_A_MINUTE}{whose}",
        BudgetScope.TENANT,
        BudgetUnit.TOKENS,
        quotas.model_tokens_a_minute,
        BudgetPeriod.MINUTE,
        alerts=(),
    )
