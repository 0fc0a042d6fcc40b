"""Secrets of tenants inside a process that runs tools: asked for when a tool reads one, kept for seconds, and hidden in what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from msgspec.structs import replace

from owlclaw_ray.domain.tool import ToolResult
from owlclaw_ray.errors import SecretsUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.ledger.read_secrets import ReadSecrets

FRESH_SECONDS = 5.0
"""For how long a value that was read serves further reads."""


class ToolSecrets:
    """What this process has read of secrets. May be used by threads."""

    def __init__(self, ask: Callable[[TenantId, str], str], clock: Clock) -> None:
        """`ask` returns the value of a tenant's secret, and raises NotFoundError or SecretsUnavailableError."""
        self._ask, self._clock = ask, clock
        self._fresh: dict[tuple[TenantId, str], tuple[str, float]] = {}
        self._read = ReadSecrets()

    def value(self, tenant: TenantId, name: str) -> str:
        """Return the value of the tenant's secret, as it is or was a few seconds ago."""
        now = self._clock.monotonic()
        value, until = self._fresh.get((tenant, name), ("", now))
        if until <= now:
            value = self._ask(tenant, name)
            self._fresh[tenant, name] = value, now + FRESH_SECONDS
            self._read.add(tenant, name, value)
        return value

    def hidden(self, text: str) -> str:
        """Return the text without any value that was read, of whatever tenant: for logs."""
        return self._read.hidden(text)

    def redacted(self, tenant: TenantId, result: ToolResult) -> ToolResult:
        """Return the result without the values of the tenant that were read here."""
        if not self._read.has_any_of(tenant):
            return result
        without, error = partial(self._read.without, tenant), result.error
        if error is not None:
            error = replace(error, message=without(error.message), details=without(error.details))
        return replace(result, content=without(result.content), error=error, metadata=without(result.metadata))

    @contextmanager
    def given(self) -> Iterator[None]:
        """Have ToolContext.secret read here, inside the block."""
        token = _PRESENT.set(self)
        try:
            yield
        finally:
            _PRESENT.reset(token)


_PRESENT: ContextVar[ToolSecrets | None] = ContextVar("owlclaw_tool_secrets", default=None)


def secret_of(tenant: TenantId, name: str) -> str:
    """Return the value of the tenant's secret; raises SecretsUnavailableError outside of a tool's call."""
    present = _PRESENT.get()
    if present is None:
        raise SecretsUnavailableError(f"secret {name} can be read in a tool's call only")
    return present.value(tenant, name)
