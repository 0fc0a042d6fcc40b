"""Everything that OwlClaw raises on purpose.

OwlClawError
├── ConfigurationError        the settings, the application or a definition is wrong; says every problem at once
│   └── DefinitionError       an agent definition's folder is wrong
├── UserError                 the caller's request is wrong; repeating it unchanged cannot help
│   ├── UnknownAgentError     no definition of that name
│   ├── NotFoundError         no run, schedule or memory of that id
│   ├── IdempotencyConflictError  the same Idempotency-Key came with another body
│   ├── ToolArgumentsError    tool arguments do not fit the tool's schema
│   ├── AlreadyDecidedError   the approval is already decided or expired
│   ├── MemoryChangedError    the memory was changed since it was read
│   ├── MemoryTextChangedError  MEMORY.md was changed since it was read
│   ├── MemoryTooLargeError   a text is more than MEMORY.md may have
│   ├── ScheduleError         there can be no such schedule, or no such times of it
│   ├── ScheduleClosedError   the schedule is done or cancelled
│   ├── TooManySchedulesError the agent has as many schedules as it may
│   ├── CallbackRefusedError  callback URL not allowed
│   ├── ScoreRefusedError     nobody keeps scores of runs, or not this one
│   ├── WebhookRefusedError   a webhook is not signed as its source signs
│   ├── WebhookUnmappedError  a webhook is signed rightly, and no trigger can be made of it
│   ├── SettledError          a delivery or callback cannot be repeated, as it stands
│   ├── UnauthenticatedError  nobody knows who asks: no key, or one that is not valid
│   ├── AccessDeniedError     who asks is known, and may not
│   ├── AccessConflictError   the tenant is there already, or the key revoked
│   └── InvalidAccessError    there can be no such key, scope, pattern or tenant
├── RetryableError            the same request may succeed later
│   ├── AgentBusyError        a trigger asked to be refused while its agent has runs
│   ├── QueueFullError        the agent has as many queued runs as it may
│   ├── QuotaReachedError     the tenant, or who has the key, has as much of something as it may
│   ├── VerificationBusyError the ledger of the tenant is being verified already
│   ├── StoreUnavailableError
│   │   └── StoreOverloadedError  too much waits to be committed
│   ├── MemoryUnavailableError  MEMORY.md or its archive cannot be read or written
│   ├── ModelUnavailableError rate limit, 5xx, network, time-out at the provider
│   ├── IssuerUnavailableError  the keys of an issuer of tokens cannot be had
│   ├── AlarmEngineUnavailableError  the engine that keeps alarms (Hatchet) cannot be reached, or refuses
│   └── RuntimeUnavailableError  starting, draining, or a part is being restarted
└── TerminalError             it was tried, it failed, repeating it is pointless or unsafe
    ├── EncodingError         a value cannot be sent to another process of the runtime
    ├── ModelRefusedError     bad key, unknown model, invalid request
    │   └── ContextWindowExceededError  the prompt is longer than the model takes
    ├── SecretsUnavailableError  a secret of a tenant cannot be encrypted or decrypted: a master key is missing
    ├── StaleEpochError       another activation owns the agent now
    ├── BudgetExhaustedError  a budget has nothing left for a model call
    ├── UnpricedModelError    a budget counts money, and nobody knows what a model costs
    ├── MissingDependencyError  an optional package is not installed; names the command that installs it
    ├── ApprovalNeededError   a tool will not act on this target unless a person allows it
    └── ToolExecutionError    a tool's handler failed
        └── ToolTimeoutError  it did not finish within its time limit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from owlclaw_ray.counting import counted


class OwlClawError(Exception):
    """Root of all errors of this package. `str()` of one is a sentence that a user can act on."""


class Problem(Struct, frozen=True):
    """One thing that is wrong: where (a path such as `owlclaw.yaml: limits.turns`), what, and what would be right."""

    where: str
    what: str
    fix: str = ""
    rule: str = ""
    """The name of the rule that is broken, where rules have names."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.fix})" if self.fix else "")


class ConfigurationError(OwlClawError):
    """Raised with every problem that was found, not the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


class DefinitionError(ConfigurationError):
    """An agent definition cannot be used."""


class UserError(OwlClawError):
    """The request is wrong; it changes nothing."""


class UnknownAgentError(UserError):
    """No definition carries the agent's name."""

    def __init__(self, agent: str, known: Sequence[str] = ()) -> None:
        self.agent, self.known = agent, tuple(known)
        hint = f"; defined here: {', '.join(self.known)}" if self.known else ""
        super().__init__(f"there is no agent definition for {agent!r}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.agent, self.known))


class NotFoundError(UserError):
    """Nothing with that id, or not this tenant's."""

    def __init__(self, kind: str, id_: str) -> None:
        self.kind, self.id = kind, id_
        super().__init__(f"there is no {kind} {id_!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.kind, self.id))


class IdempotencyConflictError(UserError):
    """The key was used before with a different body."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency-Key {key!r} was already used for a different request body")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.key,))


class UnauthenticatedError(UserError):
    """The request has no key, or one that is not valid. Why a key is refused is for its tenant's ledger, not for who has it."""


class AccessDeniedError(UserError):
    """The principal may not do that. `scope`: what it lacks; empty if it is narrowed to other agents."""

    def __init__(self, message: str, scope: str = "") -> None:
        self.scope = scope
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.scope))


class AccessConflictError(UserError):
    """There is such a tenant already, or the key is revoked."""


class InvalidAccessError(UserError):
    """A key or a tenant cannot be made like that: which field, what is wrong with it, and what would be right."""

    def __init__(self, field: str, problem: str, fix: str) -> None:
        self.field, self.problem, self.fix = field, problem, fix
        super().__init__(f"{field}: {problem} ({fix})")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.field, self.problem, self.fix))


class ToolArgumentsError(UserError):
    """Arguments of a tool call do not fit its schema. `details` holds one line a problem, each with its path."""

    def __init__(self, tool: str, details: Sequence[str]) -> None:
        self.tool, self.details = tool, tuple(details)
        super().__init__(f"arguments of {tool} do not fit its schema: " + "; ".join(self.details))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.tool, self.details))


class AlreadyDecidedError(UserError):
    """The approval is not pending: its `status` is `allowed`, `denied`, `expired` or `withdrawn`."""

    def __init__(self, approval_id: str, status: str) -> None:
        self.approval_id, self.status = approval_id, status
        super().__init__(f"approval {approval_id!r} is not pending: it is {status}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.approval_id, self.status))


class MemoryChangedError(UserError):
    """The memory does not say any more what an edit was made from: in its `fields`, `content`, `tags` or both."""

    def __init__(self, memory_id: str, fields: Sequence[str]) -> None:
        self.memory_id, self.fields = memory_id, tuple(fields)
        super().__init__(
            f"memory {memory_id!r} was changed meanwhile ({', '.join(self.fields)}) and stays as it is: read it again and edit that"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.memory_id, self.fields))


class MemoryTextChangedError(UserError):
    """MEMORY.md is not any more what a person's text was written from; nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            "MEMORY.md was changed meanwhile and stays as it is: read it again and put your changes into that"
        )


class MemoryTooLargeError(UserError):
    """A text of `size` bytes is more than MEMORY.md may have, `limit`."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"MEMORY.md would have {size:,} bytes, more than {limit:,} (memory.max_bytes): archive or delete memories first"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.size, self.limit))


class ScheduleError(UserError, ValueError):
    """There can be no such schedule. `field` is what is wrong: `cron_expression`, `timezone`, `interval_seconds` …"""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.field, self.problem))


class ScheduleClosedError(UserError):
    """The schedule never fires again: its `status` is `done` or `cancelled`."""

    def __init__(self, schedule_id: str, status: str) -> None:
        self.schedule_id, self.status = schedule_id, status
        super().__init__(f"schedule {schedule_id!r} is {status}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.schedule_id, self.status))


class TooManySchedulesError(UserError):
    """The agent has `limit` schedules that are active or paused."""

    def __init__(self, agent: str, limit: int) -> None:
        self.agent, self.limit = agent, limit
        super().__init__(
            f"agent {agent!r} has {counted(limit, 'schedule')}, active or paused, and may have no more "
            "(limits.active_schedules); cancel one first"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.agent, self.limit))


class CallbackRefusedError(UserError):
    """The callback URL `url` is not allowed: `why`."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"callback_url {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self.why))


class ScoreRefusedError(UserError):
    """Nobody keeps scores of runs, or not this one: the message says why."""


class WebhookRefusedError(UserError):
    """A webhook did not come from its source, as far as its signature says, or came too late."""

    def __init__(self, source: str, why: str) -> None:
        self.source, self.why = source, why
        super().__init__(f"webhook of {source!r} refused: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.source, self.why))


class WebhookUnmappedError(UserError):
    """No trigger can be made of a webhook. It is in the inbox as `delivery_id`, and can be mapped again."""

    def __init__(self, source: str, delivery_id: str, why: str) -> None:
        self.source, self.delivery_id, self.why = source, delivery_id, why
        super().__init__(f"webhook of {source!r} cannot be mapped: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.source, self.delivery_id, self.why))


class SettledError(UserError):
    """What is to be repeated cannot be: its `status` says why."""

    def __init__(self, kind: str, id_: str, status: str, why: str) -> None:
        self.kind, self.id, self.status, self.why = kind, id_, status, why
        super().__init__(f"{kind} {id_!r} cannot be repeated: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.kind, self.id, self.status, self.why))


class RetryableError(OwlClawError):
    """The same request may succeed later."""


class AgentBusyError(RetryableError):
    """The agent has a running or queued run, `run_id`, and the trigger asked to be refused then."""

    def __init__(self, agent: str, run_id: str) -> None:
        self.agent, self.run_id = agent, run_id
        super().__init__(f"agent {agent!r} is busy with run {run_id!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.agent, self.run_id))


class QueueFullError(RetryableError):
    """As many runs of the agent wait as may: `limit`."""

    def __init__(self, agent: str, limit: int) -> None:
        self.agent, self.limit = agent, limit
        super().__init__(f"queue full: agent {agent!r} has {counted(limit, 'queued run')} (limits.queued_runs)")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.agent, self.limit))


_COUNTED = {
    "open_runs": ("run that is not over", "runs that are not over"),
    "starts_a_minute": ("start in this minute", "starts in this minute"),
    "agents": ("agent", "agents"),
    "schedules": ("schedule", "schedules"),
}
"""What quotas count: one, and more."""


class VerificationBusyError(RetryableError):
    """The ledger of the tenant is being verified for somebody else."""

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"the ledger of tenant {tenant!r} is being verified already: one at a time; ask again when that is over"
        )


class QuotaReachedError(RetryableError):
    """The tenant, or the key if `of_key`, has `limit` of what the quota counts. There may be more in `retry_after` seconds.

    `suspended` is no quota: nothing of the tenant is started at all.
    """

    def __init__(self, quota: str, limit: int, retry_after: float, *, of_key: bool = False) -> None:
        self.quota, self.limit, self.retry_after, self.of_key = quota, limit, retry_after, of_key
        who = "key" if of_key else "tenant"
        match quota:
            case "suspended":
                why = "the tenant is suspended: nothing of it is started"
            case "memories":
                kept = counted(limit, "memory", "memories")
                why = f"quota reached: the {who} may have {kept} ({quota}), and this would be more"
            case "memory_bytes" | "artifact_bytes":
                kept = f"{limit:,} bytes of {'memories' if quota == 'memory_bytes' else 'artifacts'}"
                why = f"quota reached: the {who} may have {kept} ({quota}), and this would be more"
            case _:
                has = counted(limit, *_COUNTED[quota])
                why = f"quota reached: the {who} has {has} ({quota}), and may have no more"
        super().__init__(why)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_quota_reached, (self.quota, self.limit, self.retry_after, self.of_key))


def _quota_reached(quota: str, limit: int, retry_after: float, of_key: bool) -> QuotaReachedError:  # noqa: FBT001 - for pickle
    return QuotaReachedError(quota, limit, retry_after, of_key=of_key)


class StoreUnavailableError(RetryableError):
    """The store did not commit; nothing of the request is in it."""


class StoreOverloadedError(StoreUnavailableError):
    """More waits to be committed than may, and this was new work; nothing of it was committed."""


class MemoryUnavailableError(RetryableError):
    """MEMORY.md or its archive cannot be read or written, be they files or in the store; nothing was changed."""


class ModelUnavailableError(RetryableError):
    """The provider did not answer usefully this time. `retry_after` is its own wish in seconds, if it said one."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.retry_after))


class ModelTimeoutError(ModelUnavailableError):
    """The provider did not answer within the time of the call."""


class ModelOverloadedError(ModelUnavailableError):
    """The provider said that it has too much to do, or that we ask too often."""


class NoSlotError(ModelUnavailableError):
    """A call waited for a slot of its provider, which has gone silent. The provider was not asked."""


class AlarmEngineUnavailableError(RetryableError):
    """The engine that keeps alarms cannot be reached, or refuses. Schedules fire without it."""


class IssuerUnavailableError(RetryableError):
    """The keys of an issuer of tokens cannot be had, so that nobody knows whether its tokens are valid."""


class RuntimeUnavailableError(RetryableError):
    """The runtime starts, drains, or restarts a part."""


class TerminalError(OwlClawError):
    """Repeating is pointless or unsafe."""


class ArtifactTooLargeError(TerminalError):
    """The place where artifacts are kept takes none of that size; nothing was stored."""


class EncodingError(TerminalError):
    """A value cannot be made into bytes for another process of this runtime, or was not made there of bytes."""


class ModelRefusedError(TerminalError):
    """The provider, or our call of it, is wrong in a way that a retry does not mend."""


class ContextWindowExceededError(ModelRefusedError):
    """A prompt does not fit into the context window of its model. The message says how long which parts are."""


class SecretsUnavailableError(TerminalError):
    """A secret cannot be encrypted or decrypted until somebody sets the right master key."""


class StaleEpochError(TerminalError):
    """A write came from an activation that no longer owns its agent. Nothing was written."""


class ToolsUnsupportedError(TerminalError):
    """A model cannot be given the tools of a run. The message names the tool, the keyword, and what to do."""


class BudgetExhaustedError(TerminalError):
    """A model call would use what a budget does not have. The message names the budget, its limit, the use and the renewal."""


class UnpricedModelError(TerminalError):
    """A budget counts money, and nobody knows what a model costs."""

    def __init__(self, model: str, budget: str) -> None:
        self.model, self.budget = model, budget
        super().__init__(
            f"nobody knows what {model} costs, and the budget {budget} counts money: say it under models.prices in owlclaw.yaml"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.model, self.budget))


def install_command(extra: str) -> str:
    """Return what installs an optional extra, in the folder that OwlClaw was installed from."""
    return f"pip install -e '.[{extra}]'"


def install_hint(extra: str) -> str:
    """Return the remedy for an optional extra that is missing."""
    return f"install it in the folder of OwlClaw's source with: {install_command(extra)}"


class MissingDependencyError(TerminalError):
    """An optional package is missing."""

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{package} is not installed; {install_hint(extra)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.package, self.extra))


class ApprovalNeededError(TerminalError):
    """Raised by a tool before it has done anything: what it is asked to do, though allowed in general, needs a person's word.

    `target` is what the call acts on, in its normal form. The call is made again, with `ToolContext.approved`, once it is allowed.
    """

    def __init__(self, target: str, reason: str) -> None:
        self.target, self.reason = target, reason
        super().__init__(f"{target} needs an approval: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.target, self.reason))


class ToolExecutionError(TerminalError):
    """A tool's handler raised, or its process died."""


class ToolTimeoutError(ToolExecutionError):
    """A tool did not finish within its time limit."""
